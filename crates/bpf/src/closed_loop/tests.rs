//! The program as a function of one frame (`BPF_PROG_TEST_RUN`). Loading requires CAP_BPF.

mod latency;
mod replies;

use std::ops::Deref;

use aya::programs::{TestRun, TestRunOptions, Xdp};

use super::*;

pub(super) const XDP_DROP: u32 = 1;
pub(super) const XDP_PASS: u32 = 2;
pub(super) const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;

pub(super) const SERVER: u16 = 7777;
const RUN: u32 = 0xfeed_beef;
const SIZE: usize = 101; // not a multiple of 8: the tail is checked separately
pub(super) const PORTS: [u16; 2] = [40_000, 40_001];

/// A loaded program and its memory.
pub(super) struct Loaded {
    object: Ebpf,
    program: &'static str,
    pub(super) memory: Memory,
}

impl Loaded {
    /// Two flows with two slots each: slots 0 and 1 belong to flow 0, 2 and 3 to flow 1.
    pub(super) fn new(ipv6: bool, requests: Requests<'_>, timeout: u64) -> Self {
        let [server, _] = addresses(ipv6);
        Self::of_layout(&Layout {
            requests,
            server: SocketAddr::new(server, SERVER),
            timeout,
            slots: 4,
            flows: 2,
            homes: &[],
        })
    }

    /// The same with a layout of four slots and two flows.
    fn of_layout(layout: &Layout<'_>) -> Self {
        let [_, client] = addresses(layout.server.is_ipv6());
        let requests = layout.requests;
        let program = requests.program();
        let (object, memory) = with_loader(layout, |loader, cpus| {
            let mut object = attach::load_xdp(program, loader, requests.object())?;
            let memory = Memory::map(&object, layout, cpus)?;
            homes::open(&mut object, layout)?;
            Ok((object, memory))
        })
        .unwrap_or_else(|error| panic!("the program loads (needs CAP_BPF): {error:?}"));
        for slot in 0..4 {
            memory.assign(slot, slot as u32 / 2, SocketAddr::new(client, PORTS[slot / 2]));
        }
        memory.set_running(true);
        Self { object, program, memory }
    }

    pub(super) fn launch(&self, slot: usize) -> u64 {
        self.memory.launch(slot, monotonic())
    }

    /// The program's action on a frame, and the frame then.
    pub(super) fn run(&self, frame: &[u8]) -> (u32, Vec<u8>) {
        let program: &Xdp = self.object.program(self.program).unwrap().try_into().unwrap();
        let mut out = vec![0; frame.len() + 2048];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            repeat: 1,
            ..TestRunOptions::default()
        };
        let done = program.test_run(options).expect("the kernel runs the program");
        out.truncate(done.data_size_out as usize);
        (done.return_value, out)
    }

    pub(super) fn counters(&self) -> Counters {
        (0..self.memory.cpus()).map(|cpu| self.memory.counters(cpu)).fold(Counters::default(), |a, b| {
            Counters {
                ok: a.ok + b.ok,
                late: a.late + b.late,
                duplicate: a.duplicate + b.duplicate,
                reordered: a.reordered + b.reordered,
                corrupt: a.corrupt + b.corrupt,
                wrong_flow: a.wrong_flow + b.wrong_flow,
                received: a.received + b.received,
                refused: a.refused + b.refused,
                refused_late: a.refused_late + b.refused_late,
                unsent: a.unsent + b.unsent,
                sent: a.sent + b.sent,
                overdue: a.overdue + b.overdue,
                elsewhere: a.elsewhere + b.elsewhere,
            }
        })
    }
}

/// The program for echo servers, and frames to feed it.
struct Bench {
    loaded: Loaded,
    request: Vec<u8>,
}

impl Deref for Bench {
    type Target = Loaded;

    fn deref(&self) -> &Loaded {
        &self.loaded
    }
}

impl Bench {
    fn new() -> Self {
        Self::of(false, 1_000_000_000)
    }

    fn of(ipv6: bool, timeout: u64) -> Self {
        let request = Self::request();
        Self { loaded: Loaded::new(ipv6, Requests::Echo(&request), timeout), request }
    }

    fn with_homes(homes: &[usize]) -> Self {
        let request = Self::request();
        let [server, _] = addresses(false);
        let layout = Layout {
            requests: Requests::Echo(&request),
            server: SocketAddr::new(server, SERVER),
            timeout: 1_000_000_000,
            slots: 4,
            flows: 2,
            homes,
        };
        Self { loaded: Loaded::of_layout(&layout), request }
    }

    fn request() -> Vec<u8> {
        let mut request: Vec<u8> = (0..SIZE).map(|i| (i * 7 + 3) as u8).collect();
        request[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        request[16..20].copy_from_slice(&RUN.to_le_bytes());
        request
    }

    /// The payload of the reply to request `seq` of `slot`.
    fn payload(&self, slot: u32, seq: u64) -> Vec<u8> {
        let mut payload = self.request.clone();
        payload[4..8].copy_from_slice(&slot.to_le_bytes());
        payload[8..16].copy_from_slice(&seq.to_le_bytes());
        payload[20..24].copy_from_slice(&header_check(slot, seq, RUN).to_le_bytes());
        payload
    }
}

/// Of the server and of the client, as [`frame`] has them.
fn addresses(ipv6: bool) -> [IpAddr; 2] {
    let of = |last: u8| {
        if ipv6 {
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last.into()])
        } else {
            IpAddr::from([10, 0, 0, last])
        }
    };
    [of(2), of(1)]
}

/// `reply` as from another address (`at` 0), from another port (1), to another address (2).
pub(super) fn with_other(ipv6: bool, at: usize, mut reply: Vec<u8>) -> Vec<u8> {
    // The last byte of each.
    let last = if ipv6 { [37, 55, 53] } else { [29, 35, 33] };
    reply[last[at]] ^= 0x40;
    reply
}

/// A frame from the server to `port`.
pub(super) fn frame(ipv6: bool, port: u16, payload: &[u8]) -> Vec<u8> {
    let udp_len = (8 + payload.len()) as u16;
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if ipv6 {
        f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        f.extend(udp_len.to_be_bytes());
        f.extend([17, 64]);
        f.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        f.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    } else {
        f.extend([8, 0, 0x45, 0]);
        f.extend((20 + udp_len).to_be_bytes());
        f.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    }
    f.extend(SERVER.to_be_bytes());
    f.extend(port.to_be_bytes());
    f.extend(udp_len.to_be_bytes());
    f.extend([0xab, 0xcd]); // a local sender leaves only a partial sum here
    f.extend(payload);
    f
}

/// The Internet checksum of the pseudo header and the datagram: 0 if the datagram's own checksum is right.
pub(super) fn ipv6_udp_residue(frame: &[u8]) -> u16 {
    let udp = &frame[54..];
    let mut bytes = frame[22..54].to_vec();
    bytes.extend((udp.len() as u32).to_be_bytes());
    bytes.extend([0, 0, 0, 17]);
    bytes.extend(udp);
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    let mut sum: u32 = bytes.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn a_reply_becomes_the_next_request() {
    udpath_lab::needs_root!();
    for ipv6 in [false, true] {
        let bench = Bench::of(ipv6, 1_000_000_000);
        let seq = bench.launch(1);
        let sent = bench.memory.slot(1).sent;
        let reply = frame(ipv6, PORTS[0], &bench.payload(1, seq));
        let (action, request) = bench.run(&reply);
        assert_eq!(action, XDP_TX);
        assert_eq!(
            (&request[0..6], &request[6..12]),
            (&reply[6..12], &reply[0..6]),
            "link addresses swapped"
        );
        let ip = 14 + if ipv6 { 8 } else { 12 };
        let half = if ipv6 { 16 } else { 4 };
        assert_eq!(request[ip..ip + half], reply[ip + half..ip + 2 * half], "network addresses swapped");
        let udp = ip + 2 * half;
        assert_eq!(request[udp..udp + 2], reply[udp + 2..udp + 4], "ports swapped");
        assert_eq!(request[udp + 8..], bench.payload(1, seq + 1), "the next sequence number, the same body");
        if ipv6 {
            assert_eq!(ipv6_udp_residue(&request), 0, "a valid checksum");
        } else {
            assert_eq!(request[udp + 6..udp + 8], [0, 0], "no checksum");
        }
        assert_eq!(bench.counters(), Counters { ok: 1, sent: 1, received: 1, ..Counters::default() });
        assert_eq!(bench.memory.slot(1).seq, seq + 1);
        assert!(bench.memory.slot(1).sent > sent, "stamped anew");
        let mut latency = vec![0; BUCKETS];
        bench.memory.add_latency(&mut latency);
        assert_eq!(latency.iter().sum::<u64>(), 1, "timed once");
    }
}

/// Flow 0 lives on CPU 0, flow 1 on CPU 1; the program runs on one of them.
#[test]
fn the_next_request_leaves_from_the_home_of_its_flow() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let bench = Bench::with_homes(&[0, 1]);
    for cpu in 0..2 {
        let mut only = rustix::thread::CpuSet::new();
        only.set(cpu);
        rustix::thread::sched_setaffinity(None, &only).unwrap();
        for (flow, port) in PORTS.into_iter().enumerate() {
            let slot = flow * 2 + cpu;
            let seq = bench.launch(slot);
            let (action, _) = bench.run(&frame(false, port, &bench.payload(slot as u32, seq)));
            assert_eq!(action, if flow == cpu { XDP_TX } else { XDP_REDIRECT }, "flow {flow} on CPU {cpu}");
        }
    }
    assert_eq!(bench.counters(), Counters { ok: 4, sent: 4, received: 4, ..Counters::default() });
}

#[test]
fn a_stopped_loop_counts_and_sends_nothing() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let seq = bench.launch(0);
    bench.memory.set_running(false);
    assert_eq!(bench.run(&frame(false, PORTS[0], &bench.payload(0, seq))).0, XDP_DROP);
    assert_eq!(bench.counters().ok, 1);
    assert_eq!(bench.memory.slot(0).sent, 0);
}

#[test]
fn everything_else_goes_to_the_kernel() {
    udpath_lab::needs_root!();
    let bench = Bench::new();
    let payload = bench.payload(0, bench.launch(0));
    let reply = frame(false, PORTS[0], &payload);
    let change = |at: usize, value: u8| {
        let mut other = reply.clone();
        other[at] = value;
        other
    };
    let foreign_port = PORTS[1] + 1;
    let others = [
        ("ARP", change(13, 6)),
        ("TCP", change(23, 6)),
        ("IP options", change(14, 0x46)),
        ("a fragment", change(20, 0x20)),
        ("another program's flow", frame(false, foreign_port, &[0; SIZE])),
        ("another program's short flow", frame(false, foreign_port, &payload[..10])),
        ("a short frame", reply[..30].to_vec()),
    ];
    for (what, other) in others {
        let (action, after) = bench.run(&other);
        assert_eq!(action, XDP_PASS, "{what}");
        assert_eq!(after, other, "{what} unchanged");
    }
    assert_eq!(bench.counters(), Counters::default());
}

#[test]
fn only_the_server_answers_and_only_to_the_flows_own_address() {
    udpath_lab::needs_root!();
    for ipv6 in [false, true] {
        let bench = Bench::of(ipv6, 1_000_000_000);
        let reply = frame(ipv6, PORTS[0], &bench.payload(0, bench.launch(0)));
        let [server, _] = addresses(ipv6);
        assert_eq!(bench.memory.stranger(), None);
        for at in [0, 1] {
            let other = with_other(ipv6, at, reply.clone());
            assert_eq!(bench.run(&other), (XDP_PASS, other), "the kernel answers it as a client's");
        }
        let first = bench.memory.stranger().unwrap();
        assert_eq!(first.port(), SERVER);
        assert_eq!(first.is_ipv6(), ipv6);
        assert_ne!(first.ip(), server);
        assert_eq!(first.to_string(), if ipv6 { "[fd00::42]:7777" } else { "10.0.0.66:7777" });
        assert_eq!(bench.run(&with_other(ipv6, 2, reply.clone())).0, XDP_DROP);
        let expected = Counters { elsewhere: 2, wrong_flow: 1, received: 1, ..Counters::default() };
        assert_eq!(bench.counters(), expected);
        assert_eq!(bench.run(&reply).0, XDP_TX, "the request is still in flight");
    }
}

pub(super) fn monotonic() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
