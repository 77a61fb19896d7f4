//! A socket of a reuseport group.

use std::net::{SocketAddr, UdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

/// A nonblocking socket that shares the address with others (SO_REUSEPORT).
///
/// # Panics
/// The address cannot be bound.
#[must_use]
pub fn member(address: SocketAddr) -> UdpSocket {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
    sockopt::set_socket_reuseport(&socket, true).unwrap();
    bind(&socket, &address).unwrap();
    let socket = UdpSocket::from(socket);
    socket.set_nonblocking(true).unwrap();
    socket
}
