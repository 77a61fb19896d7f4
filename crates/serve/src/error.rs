//! Why a server cannot be started.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use serde::Serialize;
use udpath_steer::CpuSet;

use crate::config::ConfigError;
use crate::io::Io;

/// Why a server cannot be started, each with what would make it possible. The kernel's own word is part of the
/// sentence, so there is no further source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration makes no sense on any machine: the caller's mistake.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address cannot be taken.
    #[error("cannot bind {transport} {address}: {}", bind_cause(cause))]
    Bind {
        /// UDP or TCP.
        transport: Transport,
        /// The address.
        address: SocketAddr,
        /// The kernel's word.
        cause: io::Error,
    },
    /// A socket cannot be made or prepared.
    #[error("cannot {operation} the {transport} socket of {address}: {cause}")]
    Socket {
        /// What was tried.
        operation: &'static str,
        /// UDP or TCP.
        transport: Transport,
        /// The address it is for.
        address: SocketAddr,
        /// The kernel's word.
        cause: io::Error,
    },
    /// The CPUs of the process are not known.
    #[error("cannot read which CPUs this process may use: {0}")]
    Affinity(io::Error),
    /// A CPU was named that the process may not use.
    #[error("CPU {cpu} is not among those this process may use ({allowed}): change the list or the cpuset")]
    CpuNotAllowed {
        /// The CPU.
        cpu: u32,
        /// Those allowed.
        allowed: CpuSet,
    },
    /// A worker cannot be bound to its CPU.
    #[error("cannot pin worker {worker} to CPU {cpu}: {cause}; --no-pin serves without pinning")]
    Pin {
        /// The worker.
        worker: usize,
        /// The CPU.
        cpu: u32,
        /// The kernel's word.
        cause: io::Error,
    },
    /// More workers than CPUs, where each CPU has exactly one.
    #[error(
        "percpu gives each CPU one worker: {workers} workers do not fit {cpus} CPUs; use {cpus} or fewer"
    )]
    MoreWorkersThanCpus {
        /// Workers asked for.
        workers: usize,
        /// Distinct CPUs to use.
        cpus: usize,
    },
    /// Threads, memory or descriptors ran out.
    #[error("cannot {operation}: {cause}; fewer workers or a smaller batch need less")]
    Resources {
        /// What was tried.
        operation: &'static str,
        /// The kernel's word.
        cause: io::Error,
    },
    /// The Io opened, but real datagrams did not come through as they must.
    #[error("{io} does not work here: {reason}")]
    Probe {
        /// The Io that was probed.
        io: Io,
        /// What was seen.
        reason: String,
    },
    /// Frames cannot be taken off a network device.
    #[error("xdp is not possible here: {0}")]
    Xdp(String),
    /// `auto` found no Io that works.
    #[error("no Io works here: {}", Reasons(.0))]
    NoIo(Vec<Rejected>),
    /// A worker ended by itself, which only a defect can cause.
    #[error("worker {0} ended by itself: its panic message is above")]
    WorkerLost(usize),
}

/// An Io that `auto` did not take.
#[derive(Debug, Clone, Serialize)]
pub struct Rejected {
    /// The Io.
    pub io: Io,
    /// Why not.
    pub reason: String,
}

/// UDP or TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Transport {
    Udp,
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        })
    }
}

struct Reasons<'a>(&'a [Rejected]);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rejected) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", rejected.io, rejected.reason)?;
        }
        Ok(())
    }
}

fn bind_cause(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "address in use; stop the other server or choose another port".into(),
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address; `ip address` lists those it has".into()
        }
        io::ErrorKind::PermissionDenied => {
            "no permission; low ports need root or the capability NET_BIND_SERVICE".into()
        }
        _ => match cause.raw_os_error() {
            Some(libc::EINVAL | libc::ENODEV) => format!("{cause}; link-local addresses need %INTERFACE"),
            Some(libc::EAFNOSUPPORT) => "this machine has no IPv6; use an IPv4 address".into(),
            _ => cause.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_names_the_address_and_a_way_out() {
        let error = Error::Bind {
            transport: Transport::Udp,
            address: "10.0.0.1:53".parse().unwrap(),
            cause: io::ErrorKind::AddrInUse.into(),
        };
        assert_eq!(
            error.to_string(),
            "cannot bind UDP 10.0.0.1:53: address in use; stop the other server or choose another port"
        );
    }
}
