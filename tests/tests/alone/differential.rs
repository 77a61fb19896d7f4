//! The fast path against the kernel: the same frames, valid, unusual and malformed, go to `serve --io xdp` and to
//! `serve --io reuseport`, and the same replies must come back: to the same requests, with the same addresses, ports
//! and payloads, and with valid checksums. Needs root.
//!
//! ```text
//!   seed ──▸ frames ──▸ packet socket ══ veth ══▸ server, once with each Io
//!                       packet socket ◂═══════════  replies, by the request's source port
//! ```
//! - [`suite`]: every kind of frame once, in every mode of xdp.
//! - here: frames of many kinds with random values, from a seed.
//! - [`vlans`]: tagged frames, on a machine with VLAN devices.
//! - [`sources`]: senders that the kernel rejects, as addresses, routes and rp_filter change.
//!
//! # What is compared
//! A reply's addresses, ports, payload and tags. Two fields differ on purpose (`wire/reply.rs`) and are ignored: the
//! IPv4 identification and the IPv6 flow label. ICMP is ignored too, since the kernel rate-limits it.
//!
//! # Differences
//! [`Difference`] lists the requests that only one of the two answers, and why. Each is recognised by the frame's
//! contents, and allowed in one direction only; all other differences fail.

mod frames;
mod sources;
mod suite;
mod sys;
mod vlans;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use frames::{Ends, FIRST_PORT, KINDS, Random, folded, plain, request, sum};
use rustix::process::Signal;
use sys::PacketSocket;
use udpath_lab::{Lab, LabBuilder, LinkSpec, Offloads};
use udpath_rig::{Run, Running, TIMEOUT, program};

/// Another seed finds other cases; a fixed one makes failures reproducible.
const SEED: u64 = 0x0075_6470_6174_6821;

const PORT: u16 = 7000;

/// Number of requests: about thirty of every kind and family.
const REQUESTS: usize = 64 * KINDS.len();

/// Requests between two checks that the server keeps up: fewer than any queue on the path holds.
const CHUNK: usize = 16;

/// Source ports from here on belong to the probes that check that everything before was received.
const AFTER: u16 = 60_000;

/// Another address of the server, in a network of its own (/24).
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// A reply: from, to, payload, VLAN tag.
type Reply = ((IpAddr, u16), (IpAddr, u16), Vec<u8>, Vec<u8>);

/// Replies by the port they go to.
type Replies = BTreeMap<u16, Vec<Reply>>;

/// Why only xdp may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    /// A reply goes back the way its request came, without a route or neighbour lookup. The kernel cannot send to a
    /// destination without a route or MAC address: a lab's links have no ARP.
    NoWayBack,
    /// On an interface without a device a UDP checksum may be exactly the sum of the pseudo header: from a local
    /// sender that left it to a device. The kernel recognises those by a mark that XDP does not see
    /// (docs/decisions/0044-udp-checksums.md).
    PartialChecksum,
}

impl Difference {
    /// The difference that a frame may cause.
    fn of(ends: &Ends, frame: &[u8]) -> Option<Self> {
        let ip = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
        let ether_type = u16::from_be_bytes([frame[ip - 2], frame[ip - 1]]);
        let (source, addresses, udp): (IpAddr, _, _) = match ether_type {
            0x0800 if frame.len() >= ip + 28 => (
                <[u8; 4]>::try_from(&frame[ip + 12..ip + 16]).ok()?.into(),
                &frame[ip + 12..ip + 20],
                ip + 20,
            ),
            0x86dd if frame.len() >= ip + 48 => {
                (<[u8; 16]>::try_from(&frame[ip + 8..ip + 24]).ok()?.into(), &frame[ip + 8..ip + 40], ip + 40)
            }
            _ => return None,
        };
        if source != ends.client.0 && source != ends.client.1 {
            // Replies to those must not be sent at all.
            return (!is_special(ends, source)).then_some(Self::NoWayBack);
        }
        let (len, field) = (&frame[udp + 4..udp + 6], u16::from_be_bytes([frame[udp + 6], frame[udp + 7]]));
        (!folded(sum(addresses) + 17 + sum(len)) == field).then_some(Self::PartialChecksum)
    }
}

/// Not valid as a source: an address of the server, a broadcast or network address, multicast, loopback, or
/// unspecified.
fn is_special(ends: &Ends, source: IpAddr) -> bool {
    match source {
        IpAddr::V4(v4) => {
            let of_network = |own: Ipv4Addr| {
                let [a, b, c, _] = own.octets();
                v4 == own || [0, 255].map(|last| Ipv4Addr::new(a, b, c, last)).contains(&v4)
            };
            v4.octets()[0] == 0
                || v4.is_loopback()
                || v4.is_multicast()
                || v4.is_broadcast()
                || of_network(ends.server.0)
                || of_network(SECOND)
        }
        IpAddr::V6(v6) => {
            v6 == ends.server.1
                || v6.is_unspecified()
                || v6.is_loopback()
                || v6.is_multicast()
                || v6.to_ipv4_mapped().is_some()
        }
    }
}

fn lab(name: &str) -> Lab {
    // With checksum offload the kernel's replies would not have one yet.
    let offloads = Offloads { tx_checksum: false, tso: false, gso: false, ..Offloads::default() };
    let link = LinkSpec { offloads, ..LinkSpec::default() };
    let builder = LabBuilder::new(name).machine("client").machine("server");
    let lab = builder.link("client", "server", &link).up().unwrap();
    run(&lab, "server", "ip", &["addr", "add", &format!("{SECOND}/24"), "dev", "eth0"]);
    lab
}

/// Runs a program in a machine.
fn run(lab: &Lab, machine: &str, program: &str, arguments: &[&str]) {
    let mut inside = lab.machine(machine).unwrap().command(program);
    assert!(inside.args(arguments).status().unwrap().success(), "{machine}: {program} {arguments:?}");
}

fn serve(lab: &Lab, io: &str, more: &[&str]) -> Running {
    let arguments = ["serve", "echo", "--io", io, "--json", "--bind", "0.0.0.0:7000", "--bind", "[::]:7000"];
    let arguments = [&arguments[..], more].concat();
    let mut inside = lab.machine("server").unwrap().command(program());
    inside.args(&arguments);
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

/// Parses a frame independently of the code under test. `None`: not UDP from the server to the client.
///
/// # Panics
/// It is, but its checksums or lengths are wrong.
fn reply(ends: &Ends, frame: &[u8]) -> Option<Reply> {
    if frame.len() < 34 || frame[..6] != ends.client_mac || frame[6..12] != ends.server_mac {
        return None;
    }
    let (tag, frame) = match frame[12..14] {
        [0x81, 0] => (frame[12..16].to_vec(), [&frame[..12], &frame[16..]].concat()),
        _ => (Vec::new(), frame.to_vec()),
    };
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
    Some(((from, word(0)), (to, word(2)), datagram[8..].to_vec(), tag))
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

    /// Sends a probe and waits for the reply: everything sent before has then reached the server, since there
    /// is one queue.
    fn caught_up(&mut self, port: u16) {
        let deadline = Instant::now() + TIMEOUT;
        self.socket.send(&plain(&self.ends, port)).unwrap();
        while !self.replies.contains_key(&port) {
            assert!(Instant::now() < deadline, "no answer to a plain request, of port {port}");
            self.take(Duration::from_millis(100));
        }
    }
}

/// A request: its kind, and its frames.
type Request = (String, Vec<Vec<u8>>);

fn client(lab: &Lab) -> Client {
    let machine = lab.machine("client").unwrap();
    let ifindex = machine.towards("server").unwrap().ifindex();
    let socket = machine.run(|| PacketSocket::bound(ifindex)).unwrap().unwrap();
    Client { ends: ends(lab), socket, replies: Replies::new() }
}

/// Sends all requests, number `n` from port `FIRST_PORT + n`, to a server and returns its replies, and for the fast
/// path its own count of replies.
fn replies(lab: &Lab, io: &str, more: &[&str], requests: &[Request]) -> (Replies, u64) {
    let server = serve(lab, io, more);
    let mut client = client(lab);
    for (number, (kind, frames)) in requests.iter().enumerate() {
        for frame in frames {
            let sent = client.socket.send(frame);
            sent.unwrap_or_else(|error| panic!("{kind}: {} bytes: {error}", frame.len()));
        }
        if number % CHUNK == CHUNK - 1 {
            client.caught_up(AFTER + (number / CHUNK) as u16);
        }
    }
    client.caught_up(AFTER - 1);
    // Frames passed to another worker may take longer.
    while client.take(Duration::from_millis(100)) {}
    server.signal(Signal::TERM);
    let ended = server.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let counts: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    while client.take(Duration::from_millis(50)) {}
    (client.replies, counts["xdp"]["answered"].as_u64().unwrap_or(0))
}

/// Replies of two servers, compared.
#[derive(Default)]
struct Compared {
    /// By kind: requests, replies by the kernel, and by xdp.
    kinds: BTreeMap<String, [usize; 3]>,
    differences: BTreeMap<Difference, usize>,
    wrong: Vec<String>,
}

impl Compared {
    fn of(ends: &Ends, requests: &[Request], kernel: &Replies, xdp: &Replies) -> Self {
        let mut compared = Self::default();
        for (number, (kind, frames)) in requests.iter().enumerate() {
            let port = FIRST_PORT + number as u16;
            let (kernels, xdps) = (kernel.get(&port), xdp.get(&port));
            let row = compared.kinds.entry(kind.clone()).or_default();
            row[0] += 1;
            row[1] += usize::from(kernels.is_some());
            row[2] += usize::from(xdps.is_some());
            if kernels == xdps {
                continue;
            }
            match Difference::of(ends, &frames[0]) {
                Some(difference) if kernels.is_none() => {
                    *compared.differences.entry(difference).or_default() += 1;
                }
                _ => compared.wrong.push(format!(
                    "{kind}, request {number}:\n  {frames:x?}\n  kernel {kernels:x?}\n  xdp    {xdps:x?}"
                )),
            }
        }
        // Every reply matches a request: no other port receives anything.
        let last = FIRST_PORT + requests.len() as u16;
        let strangers =
            |replies: &Replies| replies.keys().filter(|port| !(FIRST_PORT..last).contains(port)).count();
        assert_eq!(strangers(kernel), strangers(xdp), "ports that never asked");
        compared
    }
}

#[test]
fn the_fast_path_answers_what_the_kernel_answers() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    println!("seed {SEED:#x}");
    let lab = lab("differential");
    let ends = ends(&lab);
    let mut random = Random(SEED);
    let requests: Vec<Request> = (0..REQUESTS).map(|number| request(&ends, &mut random, number)).collect();
    let (kernel, _) = replies(&lab, "reuseport", &[], &requests);
    let (xdp, answered) = replies(&lab, "xdp", &[], &requests);
    assert!(answered > REQUESTS as u64 / 8, "the fast path was hardly asked: {answered}");
    let Compared { kinds, differences, wrong } = Compared::of(&ends, &requests, &kernel, &xdp);
    for (kind, [asked, kernel, xdp]) in &kinds {
        println!("{kind:20} {asked:4} requests, {kernel:4} answered by the kernel, {xdp:4} by xdp");
    }
    println!("{differences:?}");
    assert!(wrong.is_empty(), "seed {SEED:#x}: {} requests differ:\n{}", wrong.len(), wrong.join("\n"));
    // If all requests or none were answered, there would be nothing to compare.
    assert!(kinds["good"][1] == kinds["good"][0] && kinds["other MAC"][1] == 0);
    lab.down().unwrap();
}
