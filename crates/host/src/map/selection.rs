//! Selects part of a machine, or fails if it does not exist.

use std::fmt;

use crate::client::sockets::Socket;

/// The part of a machine to show.
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
    /// Whether this socket is selected.
    #[must_use]
    pub fn takes(&self, socket: &Socket) -> bool {
        match self {
            Self::All | Self::Interface(_) => true,
            Self::Port(port) => socket.local.port() == *port,
            Self::Process(pid) => socket.owners.iter().any(|owner| owner.pid == *pid),
        }
    }
}

/// The selected part does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// No interface has that name.
    #[error("there is no interface '{name}'; there are {}", known.join(", "))]
    NoInterface {
        /// The name requested.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
    /// No socket is bound to that port.
    #[error("no UDP socket is bound to port {port}; {}", ports(known))]
    NoPort {
        /// The port requested.
        port: u16,
        /// The ports in use, in ascending order.
        known: Vec<u16>,
    },
    /// The process has no UDP socket, or does not exist.
    #[error("process {0} does not exist, has no UDP socket, or is hidden from this user")]
    NoProcess(u32),
}

/// Most ports that an error lists.
const PORTS_NAMED: usize = 12;

fn ports(known: &[u16]) -> String {
    if known.is_empty() {
        return "no UDP port is bound".into();
    }
    let named: Vec<String> = known.iter().take(PORTS_NAMED).map(u16::to_string).collect();
    let more = if known.len() > PORTS_NAMED { ", ..." } else { "" };
    format!("bound are {}{more}", named.join(", "))
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
