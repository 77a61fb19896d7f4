//! TCP listeners: one per worker and address, sharing a port.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::error::{Error, Transport};
use crate::sys::set_receive_buffer;

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const LISTEN_BACKLOG: i32 = 1024;

/// Opens a listener for each worker on `address`; all share its port. Connections get their receive buffer from it.
pub(crate) fn listen(
    address: SocketAddr,
    workers: usize,
    receive_buffer: Option<usize>,
) -> Result<Vec<TcpListener>, Error> {
    let mut listeners: Vec<TcpListener> = Vec::with_capacity(workers);
    for worker in 0..workers {
        listeners.push(open(address, worker > 0, receive_buffer)?);
    }
    Ok(listeners)
}

/// Opens one listener. `member`: another listener of this server has the port already.
fn open(address: SocketAddr, member: bool, receive_buffer: Option<usize>) -> Result<TcpListener, Error> {
    let failed = |operation| {
        move |errno: rustix::io::Errno| Error::Socket {
            operation,
            transport: Transport::Tcp,
            address,
            source: errno.into(),
        }
    };
    let taken =
        |errno: rustix::io::Errno| Error::Bind { transport: Transport::Tcp, address, source: errno.into() };
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(failed("open"))?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true).map_err(failed("restrict to IPv6"))?;
    }
    // Connections of a server that just ended must not block the port.
    sockopt::set_socket_reuseaddr(&fd, true).map_err(failed("reuse the address of"))?;
    if member {
        sockopt::set_socket_reuseport(&fd, true).map_err(failed("share the port of"))?;
    }
    if let Some(bytes) = receive_buffer {
        set_receive_buffer(fd.as_fd(), bytes).map_err(|source| Error::Socket {
            operation: "set the receive buffer of",
            transport: Transport::Tcp,
            address,
            source,
        })?;
    }
    rustix::net::bind(&fd, &address).map_err(taken)?;
    if !member {
        // After binding, so that the bind does not silently join another server's group.
        sockopt::set_socket_reuseport(&fd, true).map_err(failed("share the port of"))?;
    }
    rustix::net::listen(&fd, LISTEN_BACKLOG).map_err(taken)?;
    Ok(TcpListener::from(fd))
}
