//! Which interface the requests leave by, and between which link-layer addresses: the kernel's own tables say it.
//!
//! Asked once, before the start. A neighbour that moves to another MAC address during the run is not followed.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use udpath_stack::epoch::{Domain, Reader};
use udpath_stack::tables::{Mirror, NoPath, Path, View};
use udpath_stack::wire::{Link, Tags};

use super::open::most_payload;
use super::{cannot, failed};
use crate::Error;
use crate::plan::Plan;

/// How long a neighbour may take to answer. The kernel asks three times, one second apart, and then gives up; less would
/// blame a slow host, more would wait for nothing.
const PATIENCE: Duration = Duration::from_secs(4);
/// Tables that may be replaced while we look at others.
const REPLACED: usize = 32;

/// The kernel's tables, as long as ways are looked for.
pub(super) struct Ways {
    mirror: Mirror,
    reader: Reader,
}

impl Ways {
    pub(super) fn new() -> Result<Self, Error> {
        let domain = Domain::new(1, REPLACED);
        let reader = domain.register("load").map_err(|e| failed(e.to_string()))?;
        let mirror = Mirror::start(&domain).map_err(|e| failed(e.to_string()))?;
        Ok(Self { mirror, reader })
    }

    /// The name of the one interface that all requests leave by. The neighbours may still be unknown.
    pub(super) fn interface(&mut self, plan: &Plan) -> Result<String, Error> {
        let guard = self.reader.pin();
        let tables = self.mirror.tables();
        let view = tables.load(&guard);
        let mut found: Option<String> = None;
        for target in &plan.targets {
            let interface = match look(view, *target) {
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
                        "it sends by one interface, but {} is reached by {first} and {target} by {}; use one run each, \
                         or the socket engine",
                        plan.targets[0], known.name
                    )));
                }
                Some(_) => {}
                None => found = Some(known.name.clone()),
            }
        }
        found.ok_or_else(|| failed("the plan has no target"))
    }

    /// Between which stations the frames to each target go, in the targets' order; asks the kernel for neighbours that
    /// it does not know.
    pub(super) fn resolve(&mut self, plan: &Plan, interface: &str) -> Result<Vec<Link>, Error> {
        let resolver = self.mirror.resolver();
        let mut links = Vec::with_capacity(plan.targets.len());
        for target in &plan.targets {
            let path = resolver
                .path(&mut self.reader, PATIENCE, |view| look(view, *target))
                .map_err(|why| explain(why, *target, interface))?;
            let most = most_payload(path.mtu, target.is_ipv6());
            if plan.size > most {
                return Err(cannot(format!(
                    "a payload of {} bytes does not fit one frame of {interface}, which takes up to {most} bytes; use the \
                     socket engine for more",
                    plan.size
                )));
            }
            links.push(Link { source: path.own, destination: path.next_hop, tags: Tags::NONE });
        }
        Ok(links)
    }
}

fn look(view: View<'_>, target: SocketAddr) -> Result<Path, NoPath> {
    match target {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => view.path_on_link(v6.scope_id(), target.ip()),
        _ => view.path(target.ip()),
    }
}

/// Why a target of this machine itself cannot be served.
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
            "no host answers for {next_hop} on {interface}, so its MAC address is unknown; see that it is up, and on \
             this link"
        )),
        other => failed(format!("cannot find the way to {}: {other}", target.ip())),
    }
}
