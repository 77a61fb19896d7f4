//! Loopback: what TCP costs beyond UDP, and what a full socket costs.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::Instant;

use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::{on, quickest};

/// Round trips in a round.
const TRIPS: u32 = 1000;

/// Half of what a round trip of a byte takes longer over TCP: both ends on one CPU, no thread sleeps.
pub(super) fn tcp_over_udp(cpu: u32) -> io::Result<f64> {
    on(cpu, || {
        let (one, other) = pair()?;
        let udp = quickest(|| {
            trips(|| {
                let mut byte = [0];
                one.send(&[1])?;
                other.recv(&mut byte)?;
                other.send(&[1])?;
                one.recv(&mut byte).map(drop)
            })
        })?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut client = TcpStream::connect(listener.local_addr()?)?;
        let (mut server, _) = listener.accept()?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let tcp = quickest(|| {
            trips(|| {
                let mut byte = [0];
                client.write_all(&[1])?;
                server.read_exact(&mut byte)?;
                server.write_all(&[1])?;
                client.read_exact(&mut byte)
            })
        })?;
        // A round trip has two segments, each sent and received.
        Ok(((tcp - udp) / 4.0).max(0.0))
    })
}

/// A datagram to a socket with room, less one to a full socket.
pub(super) fn enqueue_over_discard(cpu: u32) -> io::Result<f64> {
    /// Datagrams that fit into the default buffer.
    const FIT: u32 = 100;
    on(cpu, || {
        let (from, to) = pair()?;
        to.set_nonblocking(true)?;
        let room = quickest(|| {
            let begin = Instant::now();
            for _ in 0..FIT {
                from.send(&[1])?;
            }
            let figure = begin.elapsed().as_nanos() as f64 / f64::from(FIT);
            drain(&to)?;
            Ok(figure)
        })?;
        // The kernel's smallest.
        set_socket_recv_buffer_size(&to, 1)?;
        for _ in 0..FIT {
            from.send(&[1])?;
        }
        let full = quickest(|| {
            let begin = Instant::now();
            for _ in 0..FIT {
                from.send(&[1])?;
            }
            Ok(begin.elapsed().as_nanos() as f64 / f64::from(FIT))
        })?;
        Ok(room - full)
    })
}

fn trips(mut trip: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let begin = Instant::now();
    for _ in 0..TRIPS {
        trip()?;
    }
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(TRIPS))
}

/// Two connected UDP sockets.
fn pair() -> io::Result<(UdpSocket, UdpSocket)> {
    let one = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    one.connect(other.local_addr()?)?;
    other.connect(one.local_addr()?)?;
    Ok((one, other))
}

fn drain(socket: &UdpSocket) -> io::Result<()> {
    loop {
        match socket.recv(&mut [0; 16]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
