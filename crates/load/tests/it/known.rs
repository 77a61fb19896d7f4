//! A UDP echo server with known faults: it drops, duplicates, delays, swaps, damages and misdirects set shares of its
//! answers, and reports exactly what it did.

#![allow(dead_code, reason = "each test file uses its part of it")]

pub(crate) mod all_faults;
pub(crate) mod latency;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shares of all requests, each 0..=1, together at most 1; the rest is answered at once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) drop: f64,
    pub(crate) duplicate: f64,
    /// Answered after `delay`.
    pub(crate) delayed: f64,
    pub(crate) delay: Duration,
    /// Answered after `late_by`, which the test makes longer than the timeout.
    pub(crate) late: f64,
    pub(crate) late_by: Duration,
    /// Answered after the next answer to the same peer.
    pub(crate) swap: f64,
    /// Answered with damage of three kinds: a flipped bit, truncation, added bytes.
    pub(crate) corrupt: f64,
    /// The answer goes to another peer.
    pub(crate) misdirect: f64,
    /// Ends after this many requests, closing its socket.
    pub(crate) vanish_after: Option<u64>,
}

/// What the server answers, and where its damage is.
#[derive(Debug, Clone)]
pub(crate) struct Answering {
    pub(crate) answer: fn(&[u8]) -> Vec<u8>,
    /// Bytes whose bits are flipped.
    pub(crate) flips: Range<usize>,
    /// Truncated answers are shorter than this.
    pub(crate) shortest: usize,
    /// Extended answers are longer than this.
    pub(crate) longest: usize,
}

impl Answering {
    /// The request itself, damaged anywhere.
    pub(crate) const ECHO: Self =
        Self { answer: |request| request.to_vec(), flips: 0..usize::MAX, shortest: usize::MAX, longest: 0 };
}

/// The server's own record.
#[derive(Debug, Clone, Default)]
pub(crate) struct Truth {
    pub(crate) received: u64,
    pub(crate) dropped: u64,
    pub(crate) duplicated: u64,
    pub(crate) late: u64,
    pub(crate) corrupted: u64,
    pub(crate) misdirected: u64,
    /// First intact answers that went out after the answer to a later request of the same peer.
    pub(crate) reordered: u64,
    /// For every intact first answer: nanoseconds from receiving the request to sending the answer.
    pub(crate) delays: Vec<u64>,
    pub(crate) peers: Vec<SocketAddr>,
}

/// Raises the priority of this thread and of those that it starts above all others, so that what it does at a certain
/// time is not late on a busy machine. If that is not permitted, the test is only less robust.
pub(crate) fn first_of_all() {
    raise("1");
}

/// Raises this thread's priority to a level of SCHED_FIFO.
fn raise(level: &str) {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut chrt = Command::new("chrt");
    let _ = chrt.args(["-f", "-p", level, &thread]).stderr(Stdio::null()).status();
}

/// A thread above [`first_of_all`] that sleeps for a millisecond again and again. If it wakes late, the machine stood
/// still, and no program on it could have been in time: a hypervisor that takes its CPUs need not say so (steal).
pub(crate) struct Witness {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

impl Witness {
    /// How long it sleeps, and how much later it is late.
    const SLEEP: Duration = Duration::from_millis(1);

    pub(crate) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            raise("2");
            let mut late = 0;
            while !flag.load(Ordering::Relaxed) {
                let begin = Instant::now();
                std::thread::sleep(Self::SLEEP);
                late += u32::from(begin.elapsed() > 2 * Self::SLEEP);
            }
            late
        });
        Self { stop, thread }
    }

    /// How often it was late.
    pub(crate) fn stop(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Truth>,
}

impl Server {
    /// An echo server.
    pub(crate) fn start(bind: &str, faults: Faults) -> Self {
        Self::answering(bind, faults, Answering::ECHO)
    }

    pub(crate) fn answering(bind: &str, faults: Faults, answering: Answering) -> Self {
        let socket = UdpSocket::bind(bind).unwrap();
        // The server's record does not include losses in its own buffer.
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20).unwrap();
        let address = socket.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            if faults.delayed > 0.0 {
                first_of_all();
            }
            Serving::new(socket, faults, answering).run(&flag)
        });
        Self { address, stop, thread }
    }

    /// Sends the pending answers, then returns its record.
    pub(crate) fn stop(self) -> Truth {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// An answer that is not sent yet.
struct Answer {
    bytes: Vec<u8>,
    peer: SocketAddr,
    number: u64,
    received: Instant,
}

struct Serving {
    socket: UdpSocket,
    faults: Faults,
    answering: Answering,
    truth: Truth,
    random: u64,
    /// By due time; the counter distinguishes answers due at the same time.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    delayed: HashMap<u64, Answer>,
    counter: u64,
    held: HashMap<SocketAddr, Answer>,
    /// Per peer: requests received, and one above the highest answered.
    peers: HashMap<SocketAddr, (u64, u64)>,
}

impl Serving {
    fn new(socket: UdpSocket, faults: Faults, answering: Answering) -> Self {
        Self {
            socket,
            faults,
            answering,
            truth: Truth::default(),
            random: 1,
            due: BinaryHeap::new(),
            delayed: HashMap::new(),
            counter: 0,
            held: HashMap::new(),
            peers: HashMap::new(),
        }
    }

    fn run(mut self, stop: &AtomicBool) -> Truth {
        let mut buffer = vec![0; 65_536];
        loop {
            let now = Instant::now();
            self.send_due(now);
            let wait =
                self.due.peek().map_or(Duration::from_millis(20), |Reverse((at, _))| *at - now.min(*at));
            self.socket.set_read_timeout(Some(wait.max(Duration::from_micros(50)))).unwrap();
            match self.socket.recv_from(&mut buffer) {
                Ok((n, peer)) => self.take(&buffer[..n], peer),
                Err(_) if stop.load(Ordering::Relaxed) && self.due.is_empty() => break,
                Err(_) => {}
            }
            if self.faults.vanish_after.is_some_and(|n| self.truth.received >= n) {
                break;
            }
        }
        // Held for a next answer that never came.
        let held: Vec<Answer> = self.held.drain().map(|(_, answer)| answer).collect();
        for answer in held {
            self.send_intact(answer);
        }
        self.truth
    }

    fn take(&mut self, request: &[u8], peer: SocketAddr) {
        self.truth.received += 1;
        let entry = self.peers.entry(peer).or_insert_with(|| {
            self.truth.peers.push(peer);
            (0, 0)
        });
        let number = entry.0;
        entry.0 += 1;
        let bytes = (self.answering.answer)(request);
        let answer = Answer { bytes, peer, number, received: Instant::now() };
        let f = self.faults;
        let mut dice = self.roll();
        let mut hit = |share: f64| {
            let hit = (0.0..share).contains(&dice);
            dice -= share;
            hit
        };
        if hit(f.drop) {
            self.truth.dropped += 1;
        } else if hit(f.duplicate) {
            self.truth.duplicated += 1;
            self.socket.send_to(&answer.bytes, peer).unwrap();
            self.send_intact(answer);
        } else if hit(f.delayed) {
            self.later(answer, f.delay);
        } else if hit(f.late) {
            self.truth.late += 1;
            self.later(answer, f.late_by);
        } else if hit(f.swap) && !self.held.contains_key(&peer) {
            self.held.insert(peer, answer);
        } else if hit(f.corrupt) {
            self.truth.corrupted += 1;
            self.damage(answer);
        } else if hit(f.misdirect) && self.truth.peers.len() > 1 {
            let others: Vec<_> = self.truth.peers.iter().filter(|p| **p != peer).copied().collect();
            let other = others[self.counter as usize % others.len()];
            self.truth.misdirected += 1;
            self.socket.send_to(&answer.bytes, other).unwrap();
        } else {
            self.send_intact(answer);
            if let Some(held) = self.held.remove(&peer) {
                self.send_intact(held);
            }
        }
    }

    fn later(&mut self, answer: Answer, delay: Duration) {
        self.counter += 1;
        self.due.push(Reverse((answer.received + delay, self.counter)));
        self.delayed.insert(self.counter, answer);
    }

    fn send_due(&mut self, now: Instant) {
        while let Some(Reverse((at, counter))) = self.due.peek().copied()
            && at <= now
        {
            self.due.pop();
            let answer = self.delayed.remove(&counter).unwrap();
            self.send_intact(answer);
        }
    }

    fn send_intact(&mut self, answer: Answer) {
        let entry = self.peers.get_mut(&answer.peer).unwrap();
        self.truth.reordered += u64::from(answer.number < entry.1);
        entry.1 = entry.1.max(answer.number + 1);
        self.truth.delays.push(answer.received.elapsed().as_nanos() as u64);
        // A load that has ended may have closed its socket.
        let _ = self.socket.send_to(&answer.bytes, answer.peer);
    }

    fn damage(&mut self, mut answer: Answer) {
        let len = answer.bytes.len();
        let Answering { flips: Range { start, end }, shortest, longest, .. } = self.answering.clone();
        let roll = self.roll();
        let within = |start: usize, end: usize| start + (roll * (end.min(len) - start) as f64) as usize;
        match self.truth.corrupted % 3 {
            0 => {
                let place = within(start, end);
                answer.bytes[place] ^= 1 << (place % 8);
            }
            1 => answer.bytes.truncate(within(0, shortest)),
            _ => answer.bytes.resize(len.max(longest) + 4, b'm'),
        }
        self.socket.send_to(&answer.bytes, answer.peer).unwrap();
    }

    /// 0..1, the same in every run.
    fn roll(&mut self) -> f64 {
        self.counter = self.counter.wrapping_add(1);
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Runs a plan on the AF_XDP engine with the echo protocol, in the calling thread's network namespace.
pub(crate) fn run_xdp(
    plan: &udpath_load::plan::Plan,
) -> Result<udpath_load::result::LoadResult, udpath_load::Error> {
    let protocol = udpath_protocols::echo::EchoLoad::new(u64::from(std::process::id()));
    let stop = AtomicBool::new(false);
    let result = udpath_load::run(plan, udpath_load::Engine::Xdp, &protocol, &mut |_| (), &stop)?;
    result.counts.check().unwrap();
    Ok(result)
}

/// Runs a plan on the socket engine with the echo protocol; the counts must always be consistent.
pub(crate) fn run(plan: &udpath_load::plan::Plan) -> udpath_load::result::LoadResult {
    let protocol = udpath_protocols::echo::EchoLoad::new(u64::from(std::process::id()));
    let stop = AtomicBool::new(false);
    let result = udpath_load::run(plan, udpath_load::Engine::Socket, &protocol, &mut |_| (), &stop).unwrap();
    result.counts.check().unwrap();
    result
}

/// `value` is within 1 % of `truth` (an error of one is always accepted: 1 % of a small number is zero).
#[track_caller]
pub(crate) fn near(what: &str, value: u64, truth: u64) {
    let bound = (truth / 100).max(1);
    assert!(value.abs_diff(truth) <= bound, "{what}: {value}, but in truth {truth}");
}
