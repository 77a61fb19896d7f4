//! What the sockets of one port received and sent: the kernel's own counters are of a network namespace, where the clients of a
//! server on the same machine count twice.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::unix::fs::MetadataExt;

use error_reporter::Report;
use udpath_bpf::trace::{PortServed, Tracer};

/// Counts what the sockets of a port receive and send, until dropped.
#[derive(Debug)]
pub struct ServedMeter(PortServed);

/// What they received and sent so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Of the first of them: this machine's address, packets to it, packets from it. Addresses of groups are left out: nobody answers
    /// from those.
    pub addresses: Vec<(IpAddr, u64, u64)>,
}

impl ServedMeter {
    /// Starts to count at this port of the caller's network namespace; `addresses`: also by address. It costs each datagram of the
    /// machine 0.1 us.
    ///
    /// # Errors
    /// Why it is not possible, as a sentence: permission denied, or a kernel without the tracepoints (before 6.3) or without BTF.
    pub fn start(port: u16, addresses: bool) -> Result<Self, String> {
        let netns = std::fs::metadata("/proc/thread-self/ns/net")
            .map_err(|error| format!("the network namespace is unknown: {error}"))?;
        let started = PortServed::attach(port, netns.ino() as u32, addresses);
        started.map(Self).map_err(|error| Report::new(error).to_string())
    }

    /// The counts so far; `None`: they cannot be read.
    #[must_use]
    pub fn read(&self) -> Option<Served> {
        let counts = self.0.read().ok()?;
        let addresses = counts.addresses.iter().filter(|of| is_of_one_host(of.address));
        Some(Served {
            received: counts.received,
            sent: counts.sent,
            addresses: addresses.map(|of| (of.address, of.asked, of.answered)).collect(),
        })
    }
}

/// Whether an address is neither multicast nor broadcast, which a socket may only be connected to if it says so.
fn is_of_one_host(address: IpAddr) -> bool {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let connects = || UdpSocket::bind((any, 0)).and_then(|socket| socket.connect((address, 9))).is_ok();
    // A link-local address is connected to with its scope only.
    !address.is_multicast() && (address.is_ipv6() || connects())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_groups_are_left_out() {
        for (address, one) in [
            ("127.0.0.1", true),
            ("fe80::1", true),
            ("224.0.0.251", false),
            ("255.255.255.255", false),
            ("ff02::fb", false),
        ] {
            assert_eq!(is_of_one_host(address.parse().unwrap()), one, "{address}");
        }
    }

    /// A server and its client in one namespace: the client's reply is not counted. Other tests have other ports.
    #[test]
    fn only_the_sockets_of_the_port_count() {
        udpath_lab::needs_root!();
        let server = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let Ok(meter) = ServedMeter::start(port, true) else { return };
        let mut buffer = [0; 16];
        for _ in 0..20 {
            client.send_to(b"x", ("127.0.0.2", port)).unwrap();
            // Looking is not receiving.
            server.peek_from(&mut buffer).unwrap();
            let (_, peer) = server.recv_from(&mut buffer).unwrap();
            server.send_to(b"y", peer).unwrap();
            client.recv_from(&mut buffer).unwrap();
        }
        let seen = meter.read().unwrap();
        assert_eq!((seen.received, seen.sent), (20, 20));
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(seen.addresses, [(address("127.0.0.1"), 0, 20), (address("127.0.0.2"), 20, 0)]);
    }
}
