//! One flow over the four sockets of a reuseport group: shares, loss, and latency by the rule that selects.
//!
//! ```text
//!   one flow, Poisson arrivals ── loopback ─▸ rule ─▸ [socket] ─▸ reader: 1 ms per datagram
//!                                                     [socket] ─▸ reader: 1 ms
//!                                                     [socket] ─▸ reader: 1 ms
//!                                                     [socket] ─▸ reader: 1 ms; slowed to a quarter: 4 ms
//! ```
//! Readers wait instead of working, so that two cores suffice for four of them: each reads as many datagrams per second
//! as its time per datagram allows, the limit of one socket. A datagram's latency is from when it is sent to the end of
//! its reader's wait.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use udpath_bpf::{Selection, SelectionRule};

use crate::claim::{Bound, Claim, Unit};
use crate::race::{medians, quantile};
use crate::results::Results;

const SOCKETS: usize = 4;
/// Time of a reader per datagram. Shorter: the kernel's timers, exact to 50 us, matter. Longer: fewer datagrams in a
/// trial.
const SERVICE: Duration = Duration::from_millis(1);
/// How much longer the slowed reader takes.
const SLOWED: u32 = 4;
/// The load, in limits of one socket.
const LOAD: f64 = 3.0;
/// The load that round robin carries with a slowed reader, whose limit is a quarter: 0.8 of that for each socket.
const CARRIED: f64 = 0.8;
/// Length of one trial. Shorter: few datagrams above the 99th percentile.
const TRIAL: Duration = Duration::from_secs(2);
/// How long a reader waits for a further datagram once all are sent.
const QUIET: Duration = Duration::from_millis(100);
/// Blocks of four trials of each comparison. Fewer: a wide interval. More: each takes ten seconds.
const BLOCKS: usize = 4;
/// Trials in which shares and loss are counted.
const TRIALS: usize = 3;
/// Farthest from a quarter that a socket's share may be, percentage points.
const OFF: f64 = 2.0;
/// Highest p99 of the shortest queue over that of round robin.
const AT_MOST: f64 = 0.7;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let per_second = LOAD / SERVICE.as_secs_f64();
    let (mut off, mut delivered) = (Vec::new(), Vec::new());
    let mut by_hash = Vec::new();
    for trial in 0..TRIALS {
        let seed = trial as u64;
        let spread =
            Trial { rule: Some(SelectionRule::RoundRobin), slowed: false, per_second, seed }.run()?;
        let part = spread.received.iter().sum::<usize>() as f64 / SOCKETS as f64;
        let share = |count: &usize| (*count as f64 / part - 1.0).abs() * 100.0 / SOCKETS as f64;
        off.push(spread.received.iter().map(share).fold(0.0, f64::max));
        delivered.push(spread.delivered());
        by_hash.push(Trial { rule: None, slowed: false, per_second, seed }.run()?.delivered());
    }
    let what = "round robin, shares of four sockets of one flow: farthest from 25 %";
    let farthest = off.into_iter().fold(0.0, f64::max);
    results.add(&Claim::new("spread.share", what, farthest, Unit::PerCent, Bound::Below(OFF)));
    let what = "round robin, one flow of 3 x the limit of one socket: received / sent";
    let least = delivered.into_iter().fold(1.0, f64::min);
    let claim = Claim::new("spread.delivered", what, least, Unit::Ratio, Bound::AtLeast(1.0));
    results.add(&claim.with(format!("by the kernel's hash {:.3}", quantile(by_hash, 0.5))));

    for (id, load, condition) in [
        ("spread.p99", LOAD, "3 x the limit of one socket"),
        ("spread.p99_carried", CARRIED, "a load that round robin carries"),
    ] {
        let what =
            format!("p99, one of four readers slowed to a quarter, {condition}: least loaded / round robin");
        let per_second = load / SERVICE.as_secs_f64();
        let seed = Cell::new(0);
        let mut milliseconds = [Vec::new(), Vec::new()];
        let [round_robin, least_loaded] = &mut milliseconds;
        let p99 = |rule, all: &mut Vec<f64>| {
            seed.set(seed.get() + 1);
            let p99 = Trial { rule: Some(rule), slowed: true, per_second, seed: seed.get() }.run()?.p99()?;
            all.push(p99);
            Ok(p99)
        };
        let ratio = medians(
            &what,
            BLOCKS,
            || p99(SelectionRule::RoundRobin, round_robin),
            || p99(SelectionRule::LeastLoaded, least_loaded),
        )?;
        let [round_robin, least_loaded] = milliseconds.map(|p99| quantile(p99, 0.5));
        let detail = format!("{least_loaded:.1} ms, round robin {round_robin:.1} ms");
        results.add(&Claim::ratio(id, &what, &ratio, Bound::Below(AT_MOST)).with(detail));
    }
    Ok(())
}

/// One flow for the length of a trial.
struct Trial {
    /// `None`: the kernel's hash.
    rule: Option<SelectionRule>,
    /// The last reader takes [`SLOWED`] times as long.
    slowed: bool,
    per_second: f64,
    /// Of the arrivals.
    seed: u64,
}

struct Outcome {
    sent: usize,
    /// By each socket.
    received: Vec<usize>,
    /// Of all, seconds.
    latencies: Vec<f64>,
}

impl Trial {
    fn run(&self) -> Result<Outcome> {
        let sockets = group()?;
        let to = sockets[0].local_addr()?;
        // Held until the end, although the group has the program.
        let _selection = self.rule.map(|rule| select(rule, &sockets)).transpose()?;
        let flow = UdpSocket::bind("127.0.0.1:0")?;
        flow.connect(to)?;
        let (begin, all_sent) = (Instant::now(), AtomicBool::new(false));
        thread::scope(|scope| {
            let readers: Vec<_> = sockets
                .iter()
                .enumerate()
                .map(|(at, socket)| {
                    let service = if self.slowed && at == SOCKETS - 1 { SERVICE * SLOWED } else { SERVICE };
                    let all_sent = &all_sent;
                    scope.spawn(move || read(socket, service, begin, all_sent))
                })
                .collect();
            let sent = self.send(&flow, begin);
            all_sent.store(true, Ordering::Relaxed);
            let mut outcome = Outcome { sent: sent?, received: Vec::new(), latencies: Vec::new() };
            for reader in readers {
                let latencies = reader.join().ok().context("a reader panicked")??;
                outcome.received.push(latencies.len());
                outcome.latencies.extend(latencies);
            }
            Ok(outcome)
        })
    }

    /// Sends each datagram when it is due, with that time in it; how many.
    fn send(&self, flow: &UdpSocket, begin: Instant) -> Result<usize> {
        let (mut state, mut due, mut sent) = (self.seed.wrapping_mul(2) + 1, Duration::ZERO, 0);
        while due < TRIAL {
            thread::sleep(due.saturating_sub(begin.elapsed()));
            let now = begin.elapsed().as_nanos() as u64;
            flow.send(&now.to_ne_bytes()).context("cannot send a datagram")?;
            sent += 1;
            due += Duration::from_secs_f64(-uniform(&mut state).ln() / self.per_second);
        }
        Ok(sent)
    }
}

impl Outcome {
    fn delivered(&self) -> f64 {
        self.received.iter().sum::<usize>() as f64 / self.sent as f64
    }

    /// Milliseconds.
    fn p99(self) -> Result<f64> {
        ensure!(!self.latencies.is_empty(), "nothing was received of {} datagrams", self.sent);
        Ok(quantile(self.latencies, 0.99) * 1e3)
    }
}

/// Four sockets that share a port of loopback.
fn group() -> Result<Vec<UdpSocket>> {
    let free = UdpSocket::bind("127.0.0.1:0")?;
    let address = free.local_addr()?;
    drop(free);
    let member = || {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        bind(&socket, &address)?;
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(QUIET))?;
        anyhow::Ok(socket)
    };
    (0..SOCKETS).map(|_| member()).collect()
}

fn select(rule: SelectionRule, sockets: &[UdpSocket]) -> Result<Selection> {
    let mut selection = Selection::load(rule, sockets.len() as u32)?;
    for (slot, socket) in (0..).zip(sockets) {
        selection.set(slot, Some(socket.as_fd()))?;
    }
    selection.attach_to(sockets[0].as_fd())?;
    Ok(selection)
}

/// Reads until all are sent and none is left; the latency of each, seconds.
fn read(socket: &UdpSocket, service: Duration, begin: Instant, all_sent: &AtomicBool) -> Result<Vec<f64>> {
    let (mut bytes, mut latencies, mut free) = ([0; 8], Vec::new(), Duration::ZERO);
    loop {
        match socket.recv(&mut bytes) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if all_sent.load(Ordering::Relaxed) {
                    return Ok(latencies);
                }
                continue;
            }
            Err(error) => return Err(error).context("cannot receive a datagram"),
        }
        let sent = Duration::from_nanos(u64::from_ne_bytes(bytes));
        // From when both the datagram and the reader were there, so that a late wake-up does not lower the limit.
        free = free.max(sent) + service;
        thread::sleep(free.saturating_sub(begin.elapsed()));
        latencies.push((begin.elapsed() - sent).as_secs_f64());
    }
}

/// A number above 0, up to 1: `SplitMix64`.
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((z ^ (z >> 31)) >> 11) + 1) as f64 / (1_u64 << 53) as f64
}
