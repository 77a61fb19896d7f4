//! The interface that requests leave by, and their link-layer addresses, from the kernel's own tables.
//!
//! They are read once, before the start. MAC address changes of neighbours during the run are not followed.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use udpath_stack::epoch::{Domain, Reader};
use udpath_stack::tables::{Mirror, NoPath, Path, View};
use udpath_stack::wire::{LinkHeader, Tags};

use super::open::most_payload;
use super::{cannot, failed};
use crate::Error;
use crate::plan::Plan;

/// How long a neighbour may take to answer. The kernel sends three requests, one second apart, and then gives up.
/// Shorter: slow hosts fail. Longer: no further answer can arrive.
const NEIGHBOUR_TIMEOUT: Duration = Duration::from_secs(4);
/// Tables that may be replaced while others are being read.
const MAX_REPLACED: usize = 32;

/// The kernel's tables, for as long as routes are being looked up.
pub(super) struct Routes {
    mirror: Mirror,
    reader: Reader,
}

impl Routes {
    pub(super) fn new() -> Result<Self, Error> {
        let domain = Domain::new(1, MAX_REPLACED);
        let reader = domain.register("load").map_err(failed)?;
        let mirror = Mirror::start(&domain).map_err(failed)?;
        Ok(Self { mirror, reader })
    }

    /// The name of the interface that all requests leave by. The neighbours may still be unknown.
    pub(super) fn interface(&mut self, plan: &Plan) -> Result<String, Error> {
        let guard = self.reader.pin();
        let tables = self.mirror.tables();
        let view = tables.load(&guard);
        let mut found: Option<String> = None;
        for target in &plan.targets {
            let interface = match path(view, *target) {
                Ok(path) => path.interface,
                Err(
                    NoPath::NeighbourUnknown { interface, .. }
                    | NoPath::NeighbourResolving { interface, .. }
                    | NoPath::NeighbourFailed { interface, .. },
                ) => interface,
                Err(why) => return Err(explain(why, *target, "")),
            };
            let Some(known) = view.interfaces.get(interface) else {
                return Err(explain(NoPath::NoInterface(interface), *target, ""));
            };
            match &found {
                Some(first) if *first != known.name => {
                    return Err(cannot(format!(
                        "it sends through one interface, but {} is reached through {first} and {target} through {}; use a \
                         run for each, or the socket engine",
                        plan.targets[0], known.name
                    )));
                }
                Some(_) => {}
                None => found = Some(known.name.clone()),
            }
        }
        found.ok_or_else(|| failed("the plan has no target"))
    }

    /// The link-layer addresses of the frames to each target, in the targets' order. Makes the kernel resolve unknown
    /// neighbours.
    pub(super) fn resolve(&mut self, plan: &Plan, interface: &str) -> Result<Vec<LinkHeader>, Error> {
        let resolver = self.mirror.resolver();
        let mut links = Vec::with_capacity(plan.targets.len());
        for target in &plan.targets {
            let path = resolver
                .path(&mut self.reader, NEIGHBOUR_TIMEOUT, |view| path(view, *target))
                .map_err(|why| explain(why, *target, interface))?;
            let most = most_payload(path.mtu, target.is_ipv6());
            if plan.size > most {
                return Err(cannot(format!(
                    "a payload of {} bytes does not fit one frame of {interface}, which takes up to {most} bytes; use the \
                     socket engine for more",
                    plan.size
                )));
            }
            links.push(LinkHeader { source: path.own, destination: path.next_hop, tags: Tags::NONE });
        }
        Ok(links)
    }
}

fn path(view: View<'_>, target: SocketAddr) -> Result<Path, NoPath> {
    match target {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => view.path_on_link(v6.scope_id(), target.ip()),
        _ => view.path(target.ip()),
    }
}

/// The error for a target on this machine.
pub(super) fn over_the_loopback(target: IpAddr) -> String {
    format!(
        "{target} is reached through the loopback, which has no native XDP; use the socket engine, or a server in another \
         network namespace (`udpath lab`)"
    )
}

fn explain(why: NoPath, target: SocketAddr, interface: &str) -> Error {
    match why {
        NoPath::Local(address) => cannot(over_the_loopback(address)),
        NoPath::NeighbourUnknown { next_hop, .. }
        | NoPath::NeighbourResolving { next_hop, .. }
        | NoPath::NeighbourFailed { next_hop, .. } => failed(format!(
            "no host answers for {next_hop} on {interface}, so its MAC address is unknown; check that it is up and on \
             this link"
        )),
        other => failed(format!("cannot find a route to {}: {other}", target.ip())),
    }
}
