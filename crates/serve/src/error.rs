//! Why a server cannot be started, or did not end as it should.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use error_reporter::Report;
use schemars::JsonSchema;
use serde::Serialize;
use udpath_steer::CpuSet;

use crate::config::ConfigError;
use crate::io::kind::Io;
use crate::io::xdp::error::XdpError;
use crate::probe::ProbeError;

/// Why a server cannot be started. Messages name the operation, its object and, where there is one, the fix; the cause
/// is the [source](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is invalid on every host: the caller's mistake.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address cannot be bound.
    #[error("cannot bind {transport} {address}{}", bind_hint(source))]
    Bind {
        /// UDP or TCP.
        transport: Transport,
        /// The address.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A socket cannot be opened or configured.
    #[error("cannot {operation} the {transport} socket of {address}")]
    Socket {
        /// The operation that failed.
        operation: &'static str,
        /// UDP or TCP.
        transport: Transport,
        /// The address it is for.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The affinity of the process cannot be read.
    #[error("cannot read which CPUs this process may use")]
    Affinity(#[source] io::Error),
    /// The configuration names a CPU that the process may not use.
    #[error("CPU {cpu} is not among those this process may use ({allowed}): change the list or the cpuset")]
    CpuNotAllowed {
        /// The CPU.
        cpu: u32,
        /// The allowed CPUs.
        allowed: CpuSet,
    },
    /// A worker cannot be pinned to its CPU.
    #[error("cannot pin worker {worker} to CPU {cpu} (--no-pin serves without pinning)")]
    Pin {
        /// The worker.
        worker: usize,
        /// The CPU.
        cpu: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// More workers than CPUs, where each CPU has exactly one.
    #[error("percpu runs one worker per CPU: {workers} workers do not fit {cpus} CPUs; use {cpus} or fewer")]
    MoreWorkersThanCpus {
        /// Workers requested.
        workers: usize,
        /// Distinct CPUs to use.
        cpus: usize,
    },
    /// Threads, memory or file descriptors ran out.
    #[error("cannot {operation} (fewer workers or a smaller batch need less)")]
    Resources {
        /// The operation that failed.
        operation: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The limit of open files leaves no TCP connection for each worker.
    #[error(
        "{limit} open files are too few to serve over TCP, {needed} are the least: raise the hard limit (RLIMIT_NOFILE; \
         LimitNOFILE= of a unit, ulimit -Hn), or use fewer workers"
    )]
    Descriptors {
        /// The limit.
        limit: u64,
        /// What one connection for each worker takes.
        needed: u64,
    },
    /// The Io opened, but probe datagrams did not come through as they must.
    #[error("{io} does not work here")]
    Probe {
        /// The Io that was probed.
        io: Io,
        /// What the probe found.
        source: Box<ProbeError>,
    },
    /// Frames cannot be taken from a network device.
    #[error("cannot serve with xdp")]
    Xdp(#[from] XdpError),
    /// `auto` found no Io that works.
    #[error("no Io works here: {}", Reasons(.0))]
    NoIo(Vec<Rejected>),
    /// A worker thread ended unexpectedly, which only a defect can cause.
    #[error("worker {0} ended unexpectedly; its panic message is above")]
    WorkerLost(usize),
}

impl Error {
    /// Why `auto` rejects an Io, if it may try the next one after this error.
    pub(crate) fn into_rejection(self) -> Result<String, Self> {
        match self {
            Self::Probe { source, .. } => Ok(Report::new(source).to_string()),
            Self::Xdp(source) => Ok(Report::new(source).to_string()),
            Self::Socket { .. } | Self::MoreWorkersThanCpus { .. } => Ok(Report::new(self).to_string()),
            other => Err(other),
        }
    }
}

/// An Io that `auto` did not choose.
#[derive(Debug, Clone, JsonSchema, Serialize)]
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

/// What to do about a failed bind, as the rest of the sentence.
fn bind_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => " (stop the other server or choose another port)",
        io::ErrorKind::AddrNotAvailable => " (`ip address` lists the addresses of this host)",
        io::ErrorKind::PermissionDenied => " (ports below 1024 need root or CAP_NET_BIND_SERVICE)",
        _ => match error.raw_os_error() {
            Some(libc::EINVAL | libc::ENODEV) => " (link-local addresses need %INTERFACE)",
            Some(libc::EAFNOSUPPORT) => " (this host has no IPv6: use an IPv4 address)",
            _ => "",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_names_the_address_the_fix_and_the_cause() {
        let error = Error::Bind {
            transport: Transport::Udp,
            address: "10.0.0.1:53".parse().unwrap(),
            source: io::Error::from_raw_os_error(libc::EADDRINUSE),
        };
        assert_eq!(
            Report::new(error).to_string(),
            "cannot bind UDP 10.0.0.1:53 (stop the other server or choose another port): Address already in use \
             (os error 98)"
        );
    }

    #[test]
    fn a_rejection_leaves_out_what_the_io_says_already() {
        let target = "10.0.0.1:53".parse().unwrap();
        let source = ProbeError::Unreached { flows: 64, target, worker: 1 }.into();
        let error = Error::Probe { io: Io::Reuseport, source };
        assert_eq!(
            Report::new(&error).to_string(),
            "reuseport does not work here: none of 64 flows to 10.0.0.1:53 reached worker 1"
        );
        assert_eq!(error.into_rejection().unwrap(), "none of 64 flows to 10.0.0.1:53 reached worker 1");
    }
}
