//! The path of a datagram through the machine, link by link, each with its counters.
//!
//! ```text
//!  interface ─▶ queue ─▶ IRQ ─▶ CPU ─▶ (RPS: other CPUs) ─▶ UDP ─▶ socket ─▶ process and its threads
//!      │          │                │                         │        │
//!  dropped     RSS share      softnet, load               errors   queue, drops
//! ```
//! A [`Map`] joins the parts of a [`Snapshot`]. With an earlier snapshot it counts what happened between the two, else since
//! boot. It judges nothing: `udpath-advise` makes findings of it.

mod cpus;
mod interfaces;
mod selection;
mod sockets;
mod view;

use serde::{Deserialize, Serialize};

pub use cpus::{CpuMap, Shares};
pub use interfaces::{InterfaceMap, QueueMap, RssSummary};
pub use selection::{Selection, SelectionError};
pub use sockets::{ProcessMap, SocketMap, UdpMap};

use crate::snapshot::{Interface, Relation};
use crate::{Absence, Missing, Snapshot};
use view::View;

/// The path of datagrams through the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// When the snapshot was taken, milliseconds since 1970.
    pub taken: u64,
    /// The time that counts cover, seconds. None: since boot, or since the driver was last set up.
    pub seconds: Option<f64>,
    /// The kernel's release.
    pub kernel: String,
    /// The hypervisor it runs under, where there is one.
    pub hypervisor: Option<String>,
    /// CPUs that run.
    pub cpus_online: usize,
    /// Memory nodes with CPUs.
    pub nodes: usize,
    /// The interfaces, those below one after it.
    pub interfaces: Vec<InterfaceMap>,
    /// CPUs that handle packets or may be asked to.
    pub cpus: Vec<CpuMap>,
    /// UDP as a whole.
    pub udp: UdpMap,
    /// UDP sockets, the ones with the most drops and the fullest queues first.
    pub sockets: Vec<SocketMap>,
    /// Their processes.
    pub processes: Vec<ProcessMap>,
    /// What could not be read, and why. What the kernel or a driver does not have is not listed.
    pub missing: Vec<String>,
}

impl Map {
    /// The map of `now`; with the counts since `earlier`, a snapshot of the same boot.
    ///
    /// # Errors
    /// What was selected is not there.
    pub fn new(
        now: &Snapshot,
        earlier: Option<&Snapshot>,
        selection: &Selection,
    ) -> Result<Self, SelectionError> {
        // Of another boot, or taken at the same moment: nothing to subtract from.
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
        let processes = sockets::processes(now, &sockets);
        Ok(Self {
            taken: now.taken,
            seconds: earlier.map(|then| (now.taken - then.taken) as f64 / 1000.0),
            kernel: now.kernel.release.clone(),
            hypervisor: now.kernel.hypervisor.as_ref().map(|fact| fact.value.clone()),
            cpus_online: now.cpus.online.len(),
            nodes: now.nodes.iter().filter(|node| !node.cpus.is_empty()).count(),
            cpus: cpus::map(view, &interfaces),
            interfaces,
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
    // Each is looked at once, so that a ring of relations ends.
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
