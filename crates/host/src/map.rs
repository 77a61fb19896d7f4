//! The way of a datagram through the machine, link by link, each with what it counted.
//!
//! ```text
//!  interface ─▶ queue ─▶ IRQ ─▶ CPU ─▶ (RPS: other CPUs) ─▶ UDP ─▶ socket ─▶ process and its threads
//!      │          │                │                         │        │
//!  dropped     RSS share      softnet, load               errors   queue, drops
//! ```
//! A [`Map`] joins what a [`Snapshot`] holds in parts. With an earlier snapshot its counts are those of the time between
//! the two, else those since boot. [`marks`] are the links that a reader should look at, and why.

mod cpus;
mod interfaces;
pub mod marks;
mod sockets;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use cpus::{CpuMap, Shares};
pub use interfaces::{InterfaceMap, QueueMap, RssSummary};
pub use marks::{Link, Mark, Weight};
pub use sockets::{ProcessMap, SocketMap, UdpMap};

use crate::snapshot::sockets::Socket;
use crate::snapshot::{Interface, Relation};
use crate::{Absence, Missing, Snapshot};

/// Version of the JSON form. Raised when a field changes its meaning or goes; new fields may come without.
pub const SCHEMA: &str = "udpath.map/1";

/// What of the machine is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Selection {
    /// All interfaces that are up, all UDP sockets.
    #[default]
    All,
    /// One interface and those below it.
    Interface(String),
    /// The sockets of one port, and the interfaces that are up.
    Port(u16),
    /// The sockets of one process, and the interfaces that are up.
    Process(u32),
}

impl Selection {
    /// Is this socket of it?
    #[must_use]
    pub fn takes(&self, socket: &Socket) -> bool {
        match self {
            Self::All | Self::Interface(_) => true,
            Self::Port(port) => socket.local.port() == *port,
            Self::Process(pid) => socket.owners.iter().any(|owner| owner.pid == *pid),
        }
    }
}

/// What is not there to be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// No interface of that name.
    #[error("there is no interface '{name}'; there are {}", known.join(", "))]
    NoInterface {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// Nobody has that port.
    #[error("no UDP socket is bound to port {port}; {}", ports(known))]
    NoPort {
        /// The port asked for.
        port: u16,
        /// The ports there are, in ascending order.
        known: Vec<u16>,
    },
    /// The process has no UDP socket, or is not there.
    #[error("process {0} is not there, has no UDP socket, or is hidden from this user")]
    NoProcess(u32),
}

/// Most ports that an error names.
const PORTS_NAMED: usize = 12;

fn ports(known: &[u16]) -> String {
    if known.is_empty() {
        return "no port is bound at all".into();
    }
    let named: Vec<String> = known.iter().take(PORTS_NAMED).map(u16::to_string).collect();
    let more = if known.len() > PORTS_NAMED { ", ..." } else { "" };
    format!("bound are {}{more}", named.join(", "))
}

/// The way of datagrams through the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// [`SCHEMA`].
    pub schema: String,
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
    /// What a reader should look at, the heaviest first.
    pub marks: Vec<Mark>,
    /// What could be known and is not, and why. What the kernel or a driver does not have is not among it.
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
        let mut map = Self {
            schema: SCHEMA.into(),
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
            marks: Vec::new(),
            missing: now
                .missing
                .iter()
                .filter(|missing| could_be_known(missing))
                .map(ToString::to_string)
                .collect(),
        };
        map.marks = marks::find(view, &map);
        Ok(map)
    }
}

/// Two snapshots of one machine, or one.
#[derive(Debug, Clone, Copy)]
struct View<'a> {
    now: &'a Snapshot,
    earlier: Option<&'a Snapshot>,
}

impl<'a> View<'a> {
    /// The interface as it was earlier. Numbers stay with an interface through a change of its name.
    fn earlier(self, interface: &Interface) -> Option<&'a Interface> {
        self.earlier?.interfaces.iter().find(|then| then.index == interface.index)
    }

    /// The memory node of a CPU.
    fn node(self, cpu: u32) -> Option<u32> {
        self.now.cpus.cpu(cpu).and_then(|cpu| cpu.node)
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

/// A count and what it was earlier, if that is known and not more.
fn since(now: u64, earlier: Option<u64>) -> u64 {
    now.checked_sub(earlier.unwrap_or(0)).unwrap_or(now)
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Interface(name) => f.write_str(name),
            Self::Port(port) => write!(f, "port {port}"),
            Self::Process(pid) => write!(f, "process {pid}"),
        }
    }
}
