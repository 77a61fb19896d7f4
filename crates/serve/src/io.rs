//! How datagrams move: the ways ([`Io`]), who reads which socket ([`Group`]), and the seam that the worker's loop
//! is written against ([`Port`]).
//!
//! Adding an Io takes one file with `open` (make the sockets) and `prove` (what the probe must show), a line in
//! each `match` below, and, if it does not move datagrams with the calls of `io/kernel.rs`, its own [`Port`].

mod kernel;
mod percpu;
mod reuseport;
mod shared;
mod xdp;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use serde::{Serialize, Serializer};

use crate::counters::Published;
use crate::dispatch::Exchange;
use crate::error::{Error, Transport};
use crate::probe::Prober;
use crate::sys::{self, Receipt, Wait};

pub(crate) use kernel::KernelPort;
pub(crate) use xdp::{Devices, Fast, Frames};

/// How a service moves datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Io {
    /// One socket per address, read by all workers. They contend for its lock and queue.
    Shared,
    /// A socket per worker and address; the kernel chooses by a hash of the flow. One flow stays with one worker.
    Reuseport,
    /// A socket per worker and address; the kernel chooses by the CPU that received the datagram, so that it never
    /// leaves that CPU. Needs arrivals spread over the CPUs.
    Percpu,
    /// Frames off the device's queues past the kernel's stack (AF_XDP), a worker per queue. What the fast path declines
    /// comes over kernel sockets as with `reuseport`.
    Xdp,
}

impl Io {
    /// All of them, best first: the order in which `auto` tries.
    pub const ALL: [Self; 4] = [Self::Xdp, Self::Percpu, Self::Reuseport, Self::Shared];

    /// Those over kernel sockets alone, best first: they work on every machine and device.
    pub const KERNEL: [Self; 3] = [Self::Percpu, Self::Reuseport, Self::Shared];

    /// The name the user types.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Reuseport => "reuseport",
            Self::Percpu => "percpu",
            Self::Xdp => "xdp",
        }
    }

    /// Opens and binds all sockets.
    pub(crate) fn open(self, plan: &Plan<'_>) -> Result<Group, Error> {
        match self {
            Self::Shared => shared::open(plan),
            // Of `xdp` these are the sockets for what the fast path declines.
            Self::Reuseport | Self::Xdp => reuseport::open(plan),
            Self::Percpu => percpu::open(plan),
        }
    }

    /// Sends real datagrams to `target` and checks that they come to the workers they should come to.
    pub(crate) fn prove(
        self,
        prober: &Prober<'_>,
        plan: &Plan<'_>,
        target: SocketAddr,
    ) -> Result<(), String> {
        match self {
            Self::Shared => shared::prove(prober, target),
            // Of `xdp` these are the kernel sockets; what is shown of its queues is a `Proof`.
            Self::Reuseport | Self::Xdp => reuseport::prove(prober, plan, target),
            Self::Percpu => percpu::prove(prober, plan, target),
        }
    }
}

impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Io {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One Io, or the best that works here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoChoice {
    /// The first of [`Io::ALL`] whose probe passes.
    Auto,
    /// This one or none.
    Only(Io),
}

impl FromStr for IoChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        Io::ALL
            .into_iter()
            .find(|io| io.name() == text)
            .map(Self::Only)
            .ok_or_else(|| format!("no Io is called {text:?}: use shared, reuseport, percpu, xdp or auto"))
    }
}

impl fmt::Display for IoChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Only(io) => io.fmt(f),
        }
    }
}

/// What an Io needs to know to open its sockets.
#[derive(Debug, Clone)]
pub(crate) struct Plan<'a> {
    /// The addresses as asked for.
    pub(crate) binds: &'a [SocketAddr],
    /// The CPU of each worker: as many entries as workers. Binding even where threads are not pinned.
    pub(crate) cpus: &'a [u32],
    /// Receive buffer to ask for.
    pub(crate) receive_buffer: Option<usize>,
}

/// The sockets of an Io: by worker, then by address. A socket that several workers read appears for each.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) by_worker: Vec<Vec<Arc<Socket>>>,
}

impl Group {
    /// The addresses with their real ports.
    pub(crate) fn binds(&self) -> Vec<SocketAddr> {
        self.by_worker.first().into_iter().flatten().map(|socket| socket.bind).collect()
    }
}

/// One burst in, one burst out: what a worker needs of a kernel socket. Workers are compiled for each implementation, so
/// all calls are direct.
pub(crate) trait Port: Exchange {
    /// Receives the next burst. Replies that were queued and not sent are discarded.
    fn receive(&mut self, wait: Wait) -> io::Result<Receipt>;

    /// Sends the queued replies and counts each: sent, or why not. May be called several times in a burst.
    fn send(&mut self, counts: &Published);
}

/// A bound UDP socket.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    /// Its address, with the real port.
    pub(crate) bind: SocketAddr,
    /// What `SO_RCVBUF` says.
    pub(crate) receive_buffer: usize,
    drops: Mutex<DropMeter>,
}

/// Makes a 64-bit counter of the kernel's, which wraps at 32 bits. Right as long as it is read at least once per
/// four thousand million drops.
#[derive(Debug, Default)]
struct DropMeter {
    last: u32,
    total: u64,
}

/// Whether other sockets will have the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// None: fails if anyone else has it.
    Alone,
    /// Ours will follow: fails if anyone else has it, then opens the address to [`Sharing::Member`]s.
    First,
    /// One of ours has it already.
    Member,
}

/// Longest time a send waits for room in the send buffer. A device that moves at all frees some within
/// milliseconds; one that is stuck must not take the worker with it. Shorter would drop replies that a short pause
/// of the device only delays, longer keeps the worker from receiving.
const SEND_WAIT: std::time::Duration = std::time::Duration::from_millis(100);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    /// Opens and binds. `incoming_cpu`: take what arrives on this CPU.
    pub(crate) fn open(
        address: SocketAddr,
        sharing: Sharing,
        incoming_cpu: Option<u32>,
        receive_buffer: Option<usize>,
    ) -> Result<Self, Error> {
        let failed = |operation| {
            move |cause: io::Error| Error::Socket { operation, transport: Transport::Udp, address, cause }
        };
        let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| Error::Bind { transport: Transport::Udp, address, cause: errno.into() })?;
        if address.is_ipv6() {
            // Stated, not left to a sysctl: [::] takes IPv6 only.
            sockopt::set_ipv6_v6only(&fd, true)
                .map_err(io::Error::from)
                .map_err(failed("restrict to IPv6"))?;
        }
        if address.ip().is_unspecified() {
            sys::packet_info(fd.as_fd(), address.is_ipv6()).map_err(failed("ask for packet info on"))?;
        }
        if let Some(bytes) = receive_buffer {
            sys::set_receive_buffer(fd.as_fd(), bytes).map_err(failed("set the receive buffer of"))?;
        }
        if let Some(cpu) = incoming_cpu {
            sys::set_incoming_cpu(fd.as_fd(), cpu).map_err(failed("choose the receiving CPU of"))?;
        }
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(SEND_WAIT))
            .map_err(io::Error::from)
            .map_err(failed("bound the sending time of"))?;
        let share = || {
            sockopt::set_socket_reuseport(&fd, true)
                .map_err(io::Error::from)
                .map_err(failed("share the port of"))
        };
        if sharing == Sharing::Member {
            share()?;
        }
        rustix::net::bind(&fd, &address).map_err(|errno| Error::Bind {
            transport: Transport::Udp,
            address,
            cause: errno.into(),
        })?;
        if sharing == Sharing::First {
            // After binding: with the option set before, the bind would silently join another server's group.
            share()?;
        }
        let bind = rustix::net::getsockname(&fd)
            .and_then(SocketAddr::try_from)
            .map_err(io::Error::from)
            .map_err(failed("read the address of"))?;
        let receive_buffer = sys::receive_buffer(fd.as_fd()).map_err(failed("read the receive buffer of"))?;
        Ok(Self { fd, bind, receive_buffer, drops: Mutex::default() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Datagrams the kernel dropped at this socket so far.
    pub(crate) fn kernel_drops(&self) -> u64 {
        let mut meter = self.drops.lock().unwrap_or_else(PoisonError::into_inner);
        // Kernels before 4.12 lack the option; then nothing is known and nothing is claimed.
        if let Ok(now) = sys::kernel_drops(self.fd()) {
            meter.total += u64::from(now.wrapping_sub(meter.last));
            meter.last = now;
        }
        meter.total
    }

    /// Lets nothing more in and wakes the workers, which answer what is queued and end. Returns the drops until
    /// then: what the closed door keeps out is not counted as dropped.
    pub(crate) fn shut(&self) -> u64 {
        let drops = self.kernel_drops();
        // Without the filter (memory is out) the workers still end when they find the queue empty once.
        let _ = sys::close_door(self.fd());
        sys::wake_receivers(self.fd());
        drops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_user_types() {
        for io in Io::ALL {
            assert_eq!(io.name().parse(), Ok(IoChoice::Only(io)));
        }
        assert_eq!("auto".parse(), Ok(IoChoice::Auto));
        assert!("Shared".parse::<IoChoice>().unwrap_err().contains("reuseport"));
    }

    #[test]
    fn a_taken_address_is_refused_even_if_its_owner_shares() {
        let owner = Socket::open("127.0.0.1:0".parse().unwrap(), Sharing::First, None, None).unwrap();
        for sharing in [Sharing::Alone, Sharing::First] {
            let error = Socket::open(owner.bind, sharing, None, None).unwrap_err();
            assert!(matches!(error, Error::Bind { .. }), "{error}");
            assert!(error.to_string().contains(&owner.bind.to_string()), "{error}");
        }
        Socket::open(owner.bind, Sharing::Member, None, None).unwrap();
    }

    #[test]
    fn the_obtained_receive_buffer_is_reported() {
        let bind = "127.0.0.1:0".parse().unwrap();
        let socket = Socket::open(bind, Sharing::Alone, None, Some(64 << 10)).unwrap();
        assert_eq!(socket.receive_buffer, 128 << 10);
    }
}
