//! The AF_XDP engine verifies checksums: a datagram that the kernel would drop is not a reply, and counts as damaged.
//! Needs root.
//!
//! The server answers through a raw socket, so that frames carry the checksum written by the test: from an ordinary
//! socket, they would carry a partial one, which a veth does not complete.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use udpath_lab::{LabBuilder, LinkSpec};
use udpath_load::Engine;
use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_protocols::echo::EchoLoad;

/// The checksum of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sum {
    Right,
    /// The field is wrong, everything else is unchanged.
    Wrong,
    /// The field is correct for a payload with one flipped bit.
    OfOtherBytes,
    /// 0: allowed over IPv4, not allowed over IPv6.
    Absent,
    /// Only the pseudo header's sum, as a sender on this host leaves it.
    Partial,
}

/// In turn: every fifth reply of each kind.
const KINDS: [Sum; 5] = [Sum::Right, Sum::Wrong, Sum::OfOtherBytes, Sum::Absent, Sum::Partial];

struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<HashMap<Sum, u64>>,
}

impl Server {
    /// In the calling thread's machine.
    fn start(address: IpAddr) -> Self {
        let socket = UdpSocket::bind((address, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let own = socket.local_addr().unwrap();
        let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let raw: OwnedFd = rustix::net::socket_with(
            family,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(rustix::net::ipproto::UDP),
        )
        .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut sent, mut buffer) = (HashMap::new(), [0; 2048]);
            for kind in KINDS.iter().cycle() {
                let (n, peer) = loop {
                    if flag.load(Ordering::Relaxed) {
                        return sent;
                    }
                    if let Ok(got) = socket.recv_from(&mut buffer) {
                        break got;
                    }
                };
                let (reply, kind) = datagram(own, peer, &buffer[..n], *kind);
                // A raw IPv6 socket takes no port.
                let to = SocketAddr::new(peer.ip(), 0);
                rustix::net::sendto(&raw, &reply, SendFlags::empty(), &to).unwrap();
                *sent.entry(kind).or_default() += 1;
            }
            sent
        });
        Self { address: own, stop, thread }
    }

    fn stop(self) -> HashMap<Sum, u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Header and payload of a datagram, and what its checksum is: of 65,536 wrong ones, one is that of the pseudo header.
fn datagram(from: SocketAddr, to: SocketAddr, payload: &[u8], kind: Sum) -> (Vec<u8>, Sum) {
    let len = (8 + payload.len()) as u16;
    let mut bytes = [from.port().to_be_bytes(), to.port().to_be_bytes(), len.to_be_bytes(), [0; 2]].concat();
    bytes.extend_from_slice(payload);
    let addresses: Vec<u8> = [from.ip(), to.ip()].iter().flat_map(octets).collect();
    let pseudo = sum(&addresses, 17 + u64::from(len));
    let whole = !(sum(&bytes, u64::from(pseudo)));
    let field = match kind {
        Sum::Right => whole,
        Sum::Wrong => whole ^ 0x0100,
        Sum::OfOtherBytes => {
            bytes[8 + payload.len() / 2] ^= 1;
            whole
        }
        Sum::Absent => 0,
        Sum::Partial => pseudo,
    };
    // 0 means no checksum.
    let field = if field == 0 && kind != Sum::Absent { 0xffff } else { field };
    bytes[6..8].copy_from_slice(&field.to_be_bytes());
    (bytes, if field == pseudo { Sum::Partial } else { kind })
}

fn octets(address: &IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}

/// The ones' complement sum (RFC 1071), folded.
fn sum(bytes: &[u8], start: u64) -> u16 {
    let words =
        bytes.chunks(2).map(|word| u64::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)])));
    let mut sum = words.sum::<u64>() + start;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn a_reply_with_a_wrong_checksum_is_refused_by_name() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let lab = LabBuilder::new("xdp-checksums").machine("client").machine("server");
    let lab = lab.link("client", "server", &LinkSpec::with_queues(2)).up().unwrap();
    let addresses = lab.address_of("server", "client").unwrap();
    for address in [IpAddr::V4(addresses.ipv4), IpAddr::V6(addresses.ipv6)] {
        let server = lab.machine("server").unwrap().run(|| Server::start(address)).unwrap();
        let plan = Plan {
            flows: 4,
            arrivals: Arrivals::Open { rate: 1000.0, process: Process::Constant },
            duration: Duration::from_secs(1),
            timeout: Duration::from_millis(500),
            ..Plan::new(server.address)
        };
        let (echo, stop) = (EchoLoad::new(1), AtomicBool::new(false));
        let run = || udpath_load::run(&plan, Engine::Xdp, &echo, &mut |_| (), &stop);
        let result = lab.machine("client").unwrap().run(run).unwrap().unwrap();
        let sent = server.stop();
        let of = |kinds: &[Sum]| kinds.iter().map(|kind| sent.get(kind).copied().unwrap_or(0)).sum::<u64>();
        assert!(KINDS.iter().all(|kind| of(&[*kind]) >= 199), "{sent:?}");

        let counts = result.counts;
        let refused = of(&[Sum::Wrong, Sum::OfOtherBytes]);
        // Over IPv6, a checksum is required: the program passes such datagrams to the kernel, which drops them.
        let damaged = refused + if address.is_ipv6() { of(&[Sum::Absent]) } else { 0 };
        assert_eq!(counts.sent, of(&KINDS), "the link lost something: {counts:?}");
        // None of them is a reply: those requests are lost, and their contents are not checked.
        assert_eq!(
            counts.ok + counts.late,
            counts.sent - damaged,
            "{address}: {counts:?} {:?}",
            result.warnings
        );
        assert_eq!((counts.lost, counts.corrupt), (damaged, 0), "{address}: {counts:?}");
        assert_eq!(counts.received, counts.sent - damaged, "{address}: {counts:?}");
        let named = format!("{refused} replies had a wrong checksum");
        assert!(
            result.warnings.iter().any(|warning| warning.starts_with(&named)),
            "{address}: {:?}",
            result.warnings
        );
    }
}
