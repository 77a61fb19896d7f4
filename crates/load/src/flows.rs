//! Opens the plan's flows: a connected socket for each, with its own source address and port.

mod options;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Error;
use crate::plan::{Arrivals, Mode, Plan, Transport};

pub(crate) use options::Granted;

/// Time that a socket's receive buffer must hold replies for while its thread is busy or waits for a CPU, seconds.
/// Shorter: replies are lost in the generator. Longer: more kernel memory.
const BUFFER_TIME: f64 = 0.02;
/// Bounds of the receive buffer requested, bytes. The kernel's default is 212,992; a flood of replies may need more,
/// and thousands of flows must not request gigabytes.
const BUFFER_LEN: (usize, usize) = (212_992, 4 << 20);
/// Bytes of a socket's receive buffer per datagram, beyond its payload (skb and headers).
const DATAGRAM_OVERHEAD: usize = 768;
/// Descriptors that a process needs beyond its flows.
const OTHER_FILES: u64 = 64;
/// Longest time a TCP connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens all flows of this machine, in order.
pub(crate) fn open(plan: &Plan) -> Result<Vec<OwnedFd>, Error> {
    let own = plan.own_flows();
    allow_files(u64::from(own) + OTHER_FILES)?;
    let mut ports = SourcePorts::new(plan);
    (0..own).map(|flow| open_one(plan, flow, &mut ports)).collect()
}

/// Opens the machine's own flow `flow`.
fn open_one(plan: &Plan, flow: u32, ports: &mut SourcePorts) -> Result<OwnedFd, Error> {
    let target = plan.target(plan.flow(flow));
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let (kind, protocol) = match plan.transport {
        Transport::Udp => (SocketType::DGRAM, ipproto::UDP),
        Transport::Tcp => (SocketType::STREAM, ipproto::TCP),
    };
    let socket =
        socket_with(family, kind, SocketFlags::CLOEXEC, Some(protocol)).map_err(|e| Error::System {
            operation: format!("open the socket of flow {flow}"),
            cause: e.into(),
            hint: if e == Errno::MFILE { " (use fewer flows or raise `ulimit -n`)" } else { "" },
        })?;
    options::set(&plan.sockets, socket.as_fd())?;
    size_buffer(plan, &socket);
    bind_source(plan, flow, target, &socket, ports)?;
    match plan.transport {
        Transport::Udp => {
            connect(&socket, &target).map_err(|e| match e {
                Errno::AGAIN | Errno::ADDRINUSE => no_port(flow),
                e => Error::connect(target, e),
            })?;
        }
        Transport::Tcp => connect_tcp(target, &socket)?,
    }
    Ok(socket)
}

/// Connects within [`CONNECT_TIMEOUT`]; the socket is non-blocking afterwards.
fn connect_tcp(target: SocketAddr, socket: &OwnedFd) -> Result<(), Error> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let failed = |e: Errno| Error::connect(target, e);
    rustix::io::ioctl_fionbio(socket, true).map_err(failed)?;
    sockopt::set_tcp_nodelay(socket, true).map_err(failed)?;
    match connect(socket, &target) {
        Ok(()) => return Ok(()),
        Err(Errno::INPROGRESS) => {}
        Err(Errno::AGAIN | Errno::ADDRNOTAVAIL) => return Err(no_port(0)),
        Err(e) => return Err(failed(e)),
    }
    let timeout = Timespec { tv_sec: CONNECT_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    let mut waiting = [PollFd::new(socket, PollFlags::OUT)];
    let ready = rustix::io::retry_on_intr(|| poll(&mut waiting, Some(&timeout))).map_err(failed)?;
    if ready == 0 {
        return Err(failed(Errno::TIMEDOUT));
    }
    match sockopt::socket_error(socket) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) | Err(e) => Err(failed(e)),
    }
}

fn no_port(flow: u32) -> Error {
    Error::System {
        operation: format!("find a free source port for flow {flow}"),
        cause: Errno::ADDRINUSE.into(),
        hint: " (use fewer flows, --source-ports 1024-65535, or more source addresses)",
    }
}

/// Assigns the segment's ports of the plan's range, starting with the first for each source address.
struct SourcePorts {
    range: Option<crate::plan::PortRange>,
    /// Next port to try, per source address; beyond the range if none is left.
    next: Vec<u32>,
    /// From one port of the segment to the next: the others belong to other segments.
    step: u32,
}

impl SourcePorts {
    fn new(plan: &Plan) -> Self {
        let first = plan.source_ports.map_or(0, |r| u32::from(r.first)) + plan.flow(0);
        let step = plan.segment.of();
        Self { range: plan.source_ports, next: vec![first; plan.sources.len().max(1)], step }
    }

    fn next(&mut self, source: usize) -> Option<u16> {
        let port = self.next[source];
        let last = self.range.map_or(0, |r| u32::from(r.last));
        self.next[source] = port.saturating_add(self.step);
        (port <= last).then_some(port as u16)
    }
}

fn bind_source(
    plan: &Plan,
    flow: u32,
    target: SocketAddr,
    socket: &OwnedFd,
    ports: &mut SourcePorts,
) -> Result<(), Error> {
    let unspecified =
        if target.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let named = plan.source(flow);
    if named.is_none() && plan.source_ports.is_none() {
        return Ok(());
    }
    let ip = named.unwrap_or(unspecified);
    let slot = plan.sources.iter().position(|s| *s == ip).unwrap_or(0);
    loop {
        let port = match plan.source_ports {
            None => 0,
            Some(range) => ports.next(slot).ok_or(Error::PortsExhausted {
                found: flow,
                flows: plan.own_flows(),
                first: range.first,
                last: range.last,
            })?,
        };
        let wanted = plan.bound(ip, port, target);
        match bind(socket, &wanted) {
            Ok(()) => return Ok(()),
            Err(Errno::ADDRINUSE) if port != 0 => {}
            Err(Errno::ADDRINUSE) => return Err(no_port(flow)),
            Err(e) => {
                return Err(Error::System {
                    operation: format!("bind flow {flow} to {wanted}"),
                    cause: e.into(),
                    hint: match e {
                        Errno::ADDRNOTAVAIL => {
                            " (not an address of this machine: add it, or use another --source)"
                        }
                        Errno::ACCESS => " (ports below 1024 need CAP_NET_BIND_SERVICE: choose higher ones)",
                        _ => "",
                    },
                });
            }
        }
    }
}

/// Sizes the receive buffer for what may arrive while the thread is busy. Best effort: a smaller one is not an error,
/// and what it drops is counted and reported.
fn size_buffer(plan: &Plan, socket: &OwnedFd) {
    let chosen = plan.sockets.receive_buffer.is_some();
    if chosen || plan.transport == Transport::Tcp || plan.mode != Mode::Rr {
        return;
    }
    let datagrams = match plan.arrivals {
        Arrivals::Closed { inflight } => f64::from(inflight) * 2.0,
        _ => plan.peak_rate().unwrap_or(0.0) / f64::from(plan.flows) * BUFFER_TIME,
    };
    let bytes = (datagrams * (plan.size + DATAGRAM_OVERHEAD) as f64) as usize;
    if bytes > BUFFER_LEN.0 {
        let _ = options::set_receive_buffer(socket.as_fd(), bytes.min(BUFFER_LEN.1));
    }
}

/// Raises the soft limit of open files if `needed` of them are more and the hard limit allows it.
pub(crate) fn allow_files(needed: u64) -> Result<(), Error> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    let reachable = maximum.is_none_or(|hard| hard >= needed);
    let raised = Rlimit { current: Some(needed), maximum };
    if reachable && setrlimit(Resource::Nofile, raised).is_ok() {
        return Ok(());
    }
    Err(Error::System {
        operation: format!("open {needed} files, one per flow (limit: {})", maximum.unwrap_or(u64::MAX)),
        cause: Errno::MFILE.into(),
        hint: " (use fewer flows or raise the hard limit, `ulimit -Hn`)",
    })
}
