//! The path of a datagram through the machine, stage by stage, each with its counters.
//!
//! ```text
//!  interface ─▶ queue ─▶ IRQ ─▶ CPU ─▶ (RPS: other CPUs) ─▶ UDP ─▶ socket ─▶ process and its threads
//!      │          │                │                         │        │
//!  dropped     RSS share      softnet, load               errors   queue, drops
//! ```
//! A [`Map`] joins the parts of a [`Snapshot`]. With an earlier snapshot, counts cover the time between the two, else
//! the time since boot. It does not interpret them: `udpath-advise` turns it into findings.

mod cpus;
mod interfaces;
mod processes;
mod protocols;
mod selection;
mod sockets;
mod view;
mod watched;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cpus::{CpuMap, Shares};
pub use interfaces::{InterfaceMap, OutMap, QueueMap, RssSummary};
pub use processes::{BUSIEST, ProcessMap, QuotaMap, ThreadMap};
pub use protocols::ConntrackMap;
pub use selection::{Selection, SelectionError};
pub use sockets::{PlaceMap, SocketMap, UdpMap};

use crate::interfaces::{Interface, Relation};
use crate::ip::Ip;
use crate::neighbours::Neighbours;
use crate::{Absence, Missing, Snapshot};
use view::View;

/// The path of datagrams through the machine.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Map {
    /// When the snapshot was taken, milliseconds since 1970.
    pub taken: u64,
    /// The interval that counts cover, in seconds. `None`: since boot, or since the driver was last configured.
    pub seconds: Option<f64>,
    /// The most by which a rate of the interval may be off, as a part of it: counters are read one after the other.
    /// `None`: unknown, or no interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_error: Option<f64>,
    /// How long the counters were read, seconds. `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_seconds: Option<f64>,
    /// The kernel's release.
    pub kernel: String,
    /// The hypervisor it runs under, if any.
    pub hypervisor: Option<String>,
    /// Number of online CPUs.
    pub cpus_online: usize,
    /// Number of NUMA nodes with CPUs.
    pub nodes: usize,
    /// The interfaces, each followed by those below it.
    pub interfaces: Vec<InterfaceMap>,
    /// CPUs that handle packets or may be configured to.
    pub cpus: Vec<CpuMap>,
    /// The IP layer.
    #[serde(default)]
    pub ip: Ip,
    /// Neighbour tables.
    #[serde(default)]
    pub neighbours: Neighbours,
    /// Connection tracking, if the kernel has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conntrack: Option<ConntrackMap>,
    /// UDP as a whole.
    pub udp: UdpMap,
    /// UDP sockets, those with the most drops and the fullest queues first.
    pub sockets: Vec<SocketMap>,
    /// Their processes.
    pub processes: Vec<ProcessMap>,
    /// What could not be read, and why. What the kernel or a driver does not support is not listed.
    pub missing: Vec<String>,
}

impl Map {
    /// Packets that flow limits dropped. The CPU that steers counts them so; the CPU that they were steered to counts
    /// them as dropped, too (skb_flow_limit, enqueue_to_backlog in net/core/dev.c).
    #[must_use]
    pub fn flow_limited(&self) -> u64 {
        let limited = self.cpus.iter().filter_map(|cpu| cpu.softnet?.flow_limit);
        limited.map(u64::from).sum()
    }

    /// The map of all of `now`; with the increase since `earlier`, a snapshot of the same boot.
    #[must_use]
    pub fn whole(now: &Snapshot, earlier: Option<&Snapshot>) -> Self {
        // Selecting everything selects nothing that may be missing.
        Self::new(now, earlier, &Selection::All).unwrap_or_else(|_| unreachable!("all of a machine is there"))
    }

    /// The map of `now`; with the increase since `earlier`, a snapshot of the same boot.
    ///
    /// # Errors
    /// The selected part does not exist.
    pub fn new(
        now: &Snapshot,
        earlier: Option<&Snapshot>,
        selection: &Selection,
    ) -> Result<Self, SelectionError> {
        // From another boot, or taken at the same moment: cannot be subtracted.
        let earlier =
            earlier.filter(|then| then.kernel.booted == now.kernel.booted && then.taken < now.taken);
        let view = View { now, earlier };
        let chosen = choose(now, selection)?;
        let interfaces: Vec<InterfaceMap> =
            chosen.iter().map(|interface| interfaces::map(view, interface)).collect();
        let sockets = sockets::map(view, selection);
        match selection {
            Selection::Port(port) if sockets.is_empty() => {
                let mut known: Vec<u16> = now.sockets.list.iter().map(|socket| socket.local.port()).collect();
                known.sort_unstable();
                known.dedup();
                return Err(SelectionError::NoPort { port: *port, known });
            }
            Selection::Process(pid) if sockets.is_empty() => return Err(SelectionError::NoProcess(*pid)),
            _ => {}
        }
        let processes = processes::map(view, &sockets);
        Ok(Self {
            taken: now.taken,
            seconds: earlier.map(|then| (now.taken - then.taken) as f64 / 1000.0),
            rate_error: None,
            look_seconds: None,
            kernel: now.kernel.release.clone(),
            hypervisor: now.kernel.hypervisor.as_ref().map(|fact| fact.value.clone()),
            cpus_online: now.cpus.online.len(),
            nodes: now.nodes.iter().filter(|node| !node.cpus.is_empty()).count(),
            cpus: cpus::map(view, &interfaces),
            interfaces,
            ip: protocols::ip(view),
            neighbours: protocols::neighbours(view),
            conntrack: protocols::conntrack(view),
            udp: sockets::udp(view),
            sockets,
            processes,
            missing: now
                .missing
                .iter()
                .filter(|missing| could_be_known(missing))
                .map(ToString::to_string)
                .collect(),
        })
    }
}

/// The interfaces to show, each followed by those below it.
fn choose<'a>(snapshot: &'a Snapshot, selection: &Selection) -> Result<Vec<&'a Interface>, SelectionError> {
    let named = |name: &str| snapshot.interfaces.iter().find(|interface| interface.name == name);
    let mut wanted: Vec<&Interface> = match selection {
        Selection::Interface(name) => match named(name) {
            Some(interface) => vec![interface],
            None => {
                let known = snapshot.interfaces.iter().map(|interface| interface.name.clone()).collect();
                return Err(SelectionError::NoInterface { name: name.clone(), known });
            }
        },
        _ => snapshot.interfaces.iter().filter(|interface| interface.link.up).collect(),
    };
    // Each is visited once, so a cycle of relations ends.
    let mut at = 0;
    while at < wanted.len() {
        let lower = wanted[at].relations.iter().filter_map(|relation| match relation {
            Relation::Lower(name) => named(name),
            _ => None,
        });
        let new: Vec<&Interface> =
            lower.filter(|lower| wanted.iter().all(|known| known.index != lower.index)).collect();
        wanted.splice(at + 1..at + 1, new);
        at += 1;
    }
    Ok(wanted)
}

fn could_be_known(missing: &Missing) -> bool {
    !matches!(missing.why, Absence::NotThere | Absence::NotSupported)
}
