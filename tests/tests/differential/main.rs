//! The fast path against the kernel: the same frames, good, odd and broken, go to `serve --io xdp` and to `serve --io
//! reuseport`, and the same replies must come back: to the same requests, with the same addresses, ports and payloads, and
//! with right checksums. Needs root.
//!
//! ```text
//!   seed ──▸ frames ──▸ packet socket ══ veth ══▸ server, once each way
//!                       packet socket ◂═══════════  replies, by the request's source port
//! ```
//! # What is compared, and what not
//! A reply is its addresses, ports and payload. Left out are the fields where the two differ on purpose
//! (`wire/reply.rs`): the IPv4 identification, the IPv6 flow label, and the tag of a priority, which the fast path sends
//! back and the kernel takes for the link's own business. ICMP is left out, since the kernel limits its rate.
//!
//! # Differences
//! [`Difference`] says which requests one of the two answers alone, and why. Each is told by what is in the frame, and
//! allowed in its one direction; all others fail.

mod frames;
mod sys;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use frames::{Ends, FIRST_PORT, KINDS, Random, folded, plain, request, sum};
use rustix::process::Signal;
use sys::PacketSocket;
use udpath_lab::{Lab, LabBuilder, LinkSpec, Offloads};
use udpath_tests::{PATIENCE, Run, Running, program};

/// Another one finds other things; this one, always the same.
const SEED: u64 = 0x0075_6470_6174_6821;

const PORT: u16 = 7000;

/// Requests: of every kind and family some thirty.
const REQUESTS: usize = 64 * KINDS.len();

/// Requests between two looks whether the server keeps up: fewer than any queue on the way holds.
const CHUNK: usize = 16;

/// Source ports from here on are those of the requests that are asked to see that all before was taken.
const AFTER: u16 = 60_000;

/// A reply: from, to, payload.
type Reply = ((IpAddr, u16), (IpAddr, u16), Vec<u8>);

/// Replies by the port they go to.
type Replies = BTreeMap<u16, Vec<Reply>>;

/// Why xdp may answer alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    /// On a virtual device UDP sums are not looked at, for of a local sender they are not there yet
    /// (ARCHITECTURE.md, Decisions). What comes from a NIC is verified.
    UdpChecksum,
    /// A reply goes the way its request came, without a look at the routes and neighbours. The kernel drops what
    /// comes from the link's broadcast address, and cannot send to whom it knows no MAC address of: a lab's links have
    /// no ARP.
    NoWayBack,
}

impl Difference {
    /// Which a frame may make.
    fn of(ends: &Ends, frame: &[u8]) -> Option<Self> {
        let ether_type = u16::from_be_bytes([frame[12], frame[13]]);
        let (source, destination, udp) = match ether_type {
            0x0800 if frame.len() >= 42 => (&frame[26..30], &frame[30..34], 34),
            0x86dd if frame.len() >= 62 => (&frame[22..38], &frame[38..54], 54),
            _ => return None,
        };
        if source != ends.client.0.octets() && source != ends.client.1.octets() {
            return Some(Self::NoWayBack);
        }
        let len = usize::from(u16::from_be_bytes([frame[udp + 4], frame[udp + 5]]));
        let datagram = frame.get(udp..udp + len)?;
        let right = folded(sum(source) + sum(destination) + 17 + len as u32 + sum(datagram)) == 0;
        (!right).then_some(Self::UdpChecksum)
    }
}

fn lab() -> Lab {
    // With offloaded checksums the kernel's replies would have none yet.
    let offloads = Offloads { tx_checksum: false, tso: false, gso: false, ..Offloads::default() };
    let link = LinkSpec { offloads, ..LinkSpec::default() };
    LabBuilder::new("differential")
        .machine("client")
        .machine("server")
        .link("client", "server", &link)
        .up()
        .unwrap()
}

fn serve(lab: &Lab, io: &str) -> Running {
    let arguments = ["serve", "echo", "--io", io, "--json", "--bind", "0.0.0.0:7000", "--bind", "[::]:7000"];
    let mut inside = lab.machine("server").unwrap().command(program());
    inside.args(arguments);
    let mut server = Run::of(inside, &arguments.join(" ")).start_with(|command| lab.spawn(command));
    server.says(&format!("ready io={io}"));
    server
}

fn ends(lab: &Lab) -> Ends {
    let client = lab.machine("client").unwrap().towards("server").unwrap();
    let server = lab.machine("server").unwrap().towards("client").unwrap();
    let mac = |of: &udpath_lab::Interface| {
        let text = of.mac().to_string();
        let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        bytes.try_into().unwrap()
    };
    Ends {
        client_mac: mac(client),
        server_mac: mac(server),
        client: (client.ipv4(), client.ipv6()),
        server: (server.ipv4(), server.ipv6()),
        port: PORT,
    }
}

/// Reads a frame the plain way. `None`: no UDP of the server's to the client.
///
/// # Panics
/// It is, and its sums or lengths are wrong.
fn reply(ends: &Ends, frame: &[u8]) -> Option<Reply> {
    if frame.len() < 34 || frame[..6] != ends.client_mac || frame[6..12] != ends.server_mac {
        return None;
    }
    let (from, to, datagram): (IpAddr, IpAddr, _) = match frame[12..14] {
        [8, 0] if frame[14] == 0x45 && frame[23] == 17 => {
            assert_eq!(folded(sum(&frame[14..34])), 0, "IP checksum of {frame:x?}");
            let len = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            let address = |at: usize| -> IpAddr { <[u8; 4]>::try_from(&frame[at..at + 4]).unwrap().into() };
            (address(26), address(30), &frame[34..14 + len])
        }
        [0x86, 0xdd] if frame.len() >= 62 && frame[20] == 17 => {
            let len = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
            let address = |at: usize| -> IpAddr {
                Ipv6Addr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap()).into()
            };
            (address(22), address(38), &frame[54..54 + len])
        }
        _ => return None,
    };
    let word = |at: usize| u16::from_be_bytes([datagram[at], datagram[at + 1]]);
    assert_eq!(usize::from(word(4)), datagram.len(), "UDP length of {frame:x?}");
    let octets = |address: IpAddr| match address {
        IpAddr::V4(v4) => sum(&v4.octets()),
        IpAddr::V6(v6) => sum(&v6.octets()),
    };
    let pseudo = octets(from) + octets(to) + 17 + datagram.len() as u32;
    assert_ne!(word(6), 0, "no UDP checksum: {frame:x?}");
    assert_eq!(folded(sum(datagram) + pseudo), 0, "UDP checksum of {frame:x?}");
    Some(((from, word(0)), (to, word(2)), datagram[8..].to_vec()))
}

struct Client {
    ends: Ends,
    socket: PacketSocket,
    replies: Replies,
}

impl Client {
    fn take(&mut self, wait: Duration) -> bool {
        let Some(frame) = self.socket.receive(wait).unwrap() else { return false };
        if let Some(reply) = reply(&self.ends, &frame) {
            self.replies.entry(reply.1.1).or_default().push(reply);
        }
        true
    }

    /// Asks and waits for the answer: what was sent before has then reached the server, for there is one queue.
    fn caught_up(&mut self, port: u16) {
        let deadline = Instant::now() + PATIENCE;
        self.socket.send(&plain(&self.ends, port)).unwrap();
        while !self.replies.contains_key(&port) {
            assert!(Instant::now() < deadline, "no answer to a plain request, of port {port}");
            self.take(Duration::from_millis(100));
        }
    }
}

/// Sends all requests to a server and gives its replies.
fn replies(lab: &Lab, io: &str) -> Replies {
    let server = serve(lab, io);
    let ends = ends(lab);
    let machine = lab.machine("client").unwrap();
    let ifindex = machine.towards("server").unwrap().ifindex();
    let socket = machine.run(|| PacketSocket::bound(ifindex)).unwrap().unwrap();
    let mut client = Client { ends, socket, replies: Replies::new() };
    let mut random = Random(SEED);
    for number in 0..REQUESTS {
        let (kind, frames) = request(&ends, &mut random, number);
        for frame in &frames {
            client
                .socket
                .send(frame)
                .unwrap_or_else(|error| panic!("{kind}: {} bytes: {error}", frame.len()));
        }
        if number % CHUNK == CHUNK - 1 {
            client.caught_up(AFTER + (number / CHUNK) as u16);
        }
    }
    client.caught_up(AFTER - 1);
    // It answers what it has got before it ends.
    server.signal(Signal::TERM);
    let ended = server.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    if io == "xdp" {
        let counts: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        let answered = counts["xdp"]["answered"].as_u64().unwrap();
        assert!(answered > REQUESTS as u64 / 8, "the fast path was hardly asked: {}", counts["xdp"]);
    }
    while client.take(Duration::from_millis(50)) {}
    client.replies
}

#[test]
fn the_fast_path_answers_what_the_kernel_answers() {
    println!("seed {SEED:#x}");
    let lab = lab();
    let (kernel, xdp) = (replies(&lab, "reuseport"), replies(&lab, "xdp"));
    let mut random = Random(SEED);
    let ends = ends(&lab);
    let (mut answered, mut wrong) = (BTreeMap::<_, [usize; 3]>::new(), Vec::new());
    let mut differences = BTreeMap::<_, usize>::new();
    for number in 0..REQUESTS {
        let (kind, frames) = request(&ends, &mut random, number);
        let port = FIRST_PORT + number as u16;
        let (kernels, xdps) = (kernel.get(&port), xdp.get(&port));
        let row = answered.entry(kind).or_default();
        row[0] += 1;
        row[1] += usize::from(kernels.is_some());
        row[2] += usize::from(xdps.is_some());
        if kernels == xdps {
            continue;
        }
        let difference = Difference::of(&ends, &frames[0]);
        if difference.is_some() && kernels.is_none() {
            *differences.entry(difference).or_default() += 1;
        } else {
            wrong.push(format!(
                "{kind}, request {number}:\n  {frames:x?}\n  kernel {kernels:x?}\n  xdp    {xdps:x?}"
            ));
        }
    }
    for (kind, [asked, kernel, xdp]) in &answered {
        println!("{kind:20} {asked:4} requests, {kernel:4} answered by the kernel, {xdp:4} by xdp");
    }
    println!("{differences:?}");
    assert!(wrong.is_empty(), "seed {SEED:#x}: {} requests differ:\n{}", wrong.len(), wrong.join("\n"));
    // Whatever is answered goes to a request: no other port hears anything.
    let last = FIRST_PORT + REQUESTS as u16;
    let strangers =
        |replies: &Replies| replies.keys().filter(|port| !(FIRST_PORT..last).contains(port)).count();
    assert_eq!(strangers(&kernel), strangers(&xdp), "ports that never asked");
    // A test where all is refused, or nothing, would compare nothing.
    assert!(answered["good"][1] == answered["good"][0] && answered["other MAC"][1] == 0);
    lab.down().unwrap();
}
