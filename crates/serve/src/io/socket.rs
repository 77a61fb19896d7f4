//! UDP sockets: opened, bound, and shut when the server stops.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::send_buffer::SendBuffer;
use crate::error::{Error, Transport};
use crate::sys::{self, Ancillary, NotSent, RawAddr, Sender, SocketHandle};

/// What an Io needs to open its sockets.
#[derive(Debug, Clone)]
pub(crate) struct SocketConfig<'a> {
    /// The addresses of the configuration.
    pub(crate) binds: &'a [SocketAddr],
    /// The CPU of each worker, used to choose sockets even if threads are not pinned.
    pub(crate) cpus: &'a [u32],
    pub(crate) options: SocketOptions,
}

/// What the configuration asks of each socket.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SocketOptions {
    /// Receive buffer to request, in bytes.
    pub(crate) receive_buffer: Option<usize>,
    /// Whether the kernel reports when datagrams arrived.
    pub(crate) timestamps: bool,
}

/// The sockets of an Io: by worker, then by address. A socket that several workers read appears once for each.
#[derive(Debug)]
pub(crate) struct WorkerSockets {
    pub(crate) by_worker: Vec<Vec<Arc<Socket>>>,
}

impl WorkerSockets {
    /// The addresses, with the ports obtained.
    pub(crate) fn binds(&self) -> Vec<SocketAddr> {
        self.by_worker.first().into_iter().flatten().map(|socket| socket.bind).collect()
    }
}

/// A bound UDP socket.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    /// Its address, with the port obtained.
    pub(crate) bind: SocketAddr,
    /// The value of `SO_RCVBUF`, in bytes.
    pub(crate) receive_buffer: usize,
    /// What the kernel reports of each datagram.
    pub(crate) ancillary: Ancillary,
    send_buffer: SendBuffer,
    drops: Mutex<DropCounter>,
}

/// Extends the kernel's 32-bit drop counter to 64 bits. Correct if it is read at least once per 2^32 drops.
#[derive(Debug, Default)]
struct DropCounter {
    last: u32,
    total: u64,
}

/// Whether other sockets have the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// None. Fails if another socket has it.
    Alone,
    /// This server's sockets will follow. Fails if another socket has it, then opens the address to
    /// [`Sharing::Member`]s.
    First,
    /// One of this server's sockets has it already.
    Member,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Sender for Socket {
    #[inline]
    fn is_crowded(&self) -> bool {
        self.send_buffer.is_crowded()
    }

    #[cold]
    fn retry(&self, peer: &RawAddr, send: &mut dyn FnMut() -> io::Result<usize>) -> Result<usize, NotSent> {
        self.send_buffer.retry(self.fd(), peer.decode(), send)
    }
}

impl Sender for SocketHandle<Socket> {
    #[inline]
    fn is_crowded(&self) -> bool {
        self.owner().is_crowded()
    }

    #[cold]
    fn retry(&self, peer: &RawAddr, send: &mut dyn FnMut() -> io::Result<usize>) -> Result<usize, NotSent> {
        self.owner().retry(peer, send)
    }
}

impl Socket {
    /// Opens and binds a socket. `incoming_cpu`: take what arrives on this CPU.
    pub(crate) fn open(
        address: SocketAddr,
        sharing: Sharing,
        incoming_cpu: Option<u32>,
        options: SocketOptions,
    ) -> Result<Self, Error> {
        let failed = |operation| {
            move |source: io::Error| Error::Socket { operation, transport: Transport::Udp, address, source }
        };
        let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| Error::Bind { transport: Transport::Udp, address, source: errno.into() })?;
        if address.is_ipv6() {
            // Set explicitly, whatever the sysctl says: [::] takes IPv6 only.
            sockopt::set_ipv6_v6only(&fd, true)
                .map_err(io::Error::from)
                .map_err(failed("restrict to IPv6"))?;
        }
        let SocketOptions { receive_buffer, timestamps } = options;
        let ancillary = Ancillary { packet_info: address.ip().is_unspecified(), timestamps };
        if timestamps {
            sys::receive_timestamps(fd.as_fd()).map_err(failed("enable receive time stamps on"))?;
        }
        if ancillary.packet_info {
            sys::packet_info(fd.as_fd(), address.is_ipv6()).map_err(failed("enable packet info on"))?;
        }
        if let Some(bytes) = receive_buffer {
            sys::set_receive_buffer(fd.as_fd(), bytes).map_err(failed("set the receive buffer of"))?;
        }
        if let Some(cpu) = incoming_cpu {
            sys::set_incoming_cpu(fd.as_fd(), cpu).map_err(failed("set the receiving CPU of"))?;
        }
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
            source: errno.into(),
        })?;
        if sharing == Sharing::First {
            // After binding: with the option set earlier, the bind would silently join another server's group.
            share()?;
        }
        let bind = rustix::net::getsockname(&fd)
            .and_then(SocketAddr::try_from)
            .map_err(io::Error::from)
            .map_err(failed("read the address of"))?;
        let receive_buffer = sys::receive_buffer(fd.as_fd()).map_err(failed("read the receive buffer of"))?;
        // After binding: a policy for the cgroup's sockets sets sizes at the bind.
        let send_buffer = SendBuffer::of(fd.as_fd()).map_err(failed("read the send buffer of"))?;
        Ok(Self { fd, bind, receive_buffer, ancillary, send_buffer, drops: Mutex::default() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Datagrams the kernel has dropped at this socket.
    pub(crate) fn kernel_drops(&self) -> u64 {
        let mut counter = self.drops.lock().unwrap_or_else(PoisonError::into_inner);
        // Kernels before 4.12 lack the option: the count stays 0.
        if let Ok(now) = sys::kernel_drops(self.fd()) {
            counter.total += u64::from(now.wrapping_sub(counter.last));
            counter.last = now;
        }
        counter.total
    }

    /// Stops receiving and wakes the workers, which answer what is queued and end. Returns the drops until then:
    /// datagrams that arrive later are not counted as dropped.
    pub(crate) fn stop_receiving(&self) -> u64 {
        let drops = self.kernel_drops();
        // If the filter cannot be set (out of memory), the workers still end once they find the queue empty.
        let _ = sys::stop_receiving(self.fd());
        sys::wake_receivers(self.fd());
        drops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_address_is_rejected_even_if_its_owner_shares() {
        let owner =
            Socket::open("127.0.0.1:0".parse().unwrap(), Sharing::First, None, SocketOptions::default())
                .unwrap();
        for sharing in [Sharing::Alone, Sharing::First] {
            let error = Socket::open(owner.bind, sharing, None, SocketOptions::default()).unwrap_err();
            assert!(matches!(error, Error::Bind { .. }), "{error}");
            assert!(error.to_string().contains(&owner.bind.to_string()), "{error}");
        }
        Socket::open(owner.bind, Sharing::Member, None, SocketOptions::default()).unwrap();
    }

    #[test]
    fn the_obtained_receive_buffer_is_reported() {
        let bind = "127.0.0.1:0".parse().unwrap();
        let options = SocketOptions { receive_buffer: Some(64 << 10), timestamps: false };
        let socket = Socket::open(bind, Sharing::Alone, None, options).unwrap();
        assert_eq!(socket.receive_buffer, 128 << 10);
    }
}
