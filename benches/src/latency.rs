//! What is in a latency besides the server: the generators' own error.
//!
//! ```text
//!   client: udpath load on CPU 0  ══ veth ══▸ Wire: arrives ──▸ socket ──▸ holds each request for a time of its own, on CPU 1
//!     measures request → reply    ◂══════════ Wire: leaves  ◂───────────◂──┘
//! ```
//! The kernel times each request at the server's end of the link, when it arrives there and when its reply leaves
//! (`udpath_rig::Wire`): that is the truth, of the same requests. The server holds them for one to two times a delay,
//! evenly spread, so that the percentiles differ. An error is that of a percentile, as a part of what is allowed: above
//! 1, the engine adds more to a latency than it may. The link's own two ways are part of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use udpath_load::Engine;
use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_load::result::Latency;
use udpath_protocols::echo::EchoLoad;
use udpath_rig::Wire;

use crate::bed::Bed;
use crate::claim::{Bound, Claim, Unit};
use crate::race::{median, pin};
use crate::results::Results;

/// Port of the server.
const PORT: u16 = 7300;
/// Shortest delays, microseconds; the longest is twice as much.
const DELAYS: [u32; 4] = [20, 200, 2000, 20_000];
/// Engines, their id, and what each may add to a latency if 1 % of it is less, nanoseconds.
const ENGINES: [(Engine, &str, f64); 3] =
    [(Engine::Kernel, "kernel", 2000.0), (Engine::Xdp, "xdp", 2000.0), (Engine::Socket, "socket", 20_000.0)];
/// The error that is always allowed, as a part of the truth.
const PART: f64 = 0.01;
/// Runs of each: the median counts, between the least and the most.
const RUNS: usize = 5;
/// Length of a run. At [`RATE`], 12,000 latencies, of which 12 are beyond p99.9.
const LENGTH: Duration = Duration::from_secs(3);
/// Requests per second; a closed loop has as many in flight as make about as many. More: the server's CPU is the limit,
/// and requests wait there. Less: too few for p99.9.
const RATE: f64 = 4000.0;
/// Flows of those.
const FLOWS: u32 = 8;
/// Receive buffer of the server, bytes: no request is lost there.
const BUFFER: usize = 4 << 20;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    for (engine, id, least) in ENGINES {
        for delay in DELAYS {
            let runs = (0..RUNS).map(|_| compared(engine, delay, least)).collect::<Result<Vec<_>>>();
            let mut runs = runs.with_context(|| format!("engine {id}, {delay} us"))?;
            runs.sort_by(|a, b| a.0.total_cmp(&b.0));
            let worst = |at: usize| runs[at].0;
            let what = format!(
                "{id} engine, delays of {delay} to {} us: error of p50, p90, p99, p99.9 over max(1 %, {} us), the largest",
                2 * delay,
                least / 1000.0
            );
            let value = median(runs.iter().map(|run| run.0).collect());
            let claim =
                Claim::new(&format!("latency.{id}.{delay}us"), what, value, Unit::Ratio, Bound::Below(1.0));
            results.add(&claim.within(worst(0), worst(RUNS - 1)).with(runs[RUNS / 2].1.clone()));
        }
    }
    Ok(())
}

/// One run: the largest error of its percentiles, as a part of what is allowed, and each in words.
fn compared(engine: Engine, delay: u32, least: f64) -> Result<(f64, String)> {
    let bed = Bed::new(false)?;
    let (target, server) = (bed.server(PORT)?, bed.lab.machine("server")?);
    let interface = server.towards("client")?.name().to_owned();
    let wire = server.run(|| Wire::attach(&interface, PORT))?.map_err(|why| anyhow!(why))?;
    let delay = Duration::from_micros(delay.into());
    let socket = server.run(|| UdpSocket::bind(target))?.context("cannot bind the server's socket")?;
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)?;
    socket.set_nonblocking(true)?;
    let stop = AtomicBool::new(false);
    let (result, served) = std::thread::scope(|scope| {
        let server = scope.spawn(|| hold(&socket, delay, &stop));
        let result = loaded(&bed, engine, target, delay);
        stop.store(true, Ordering::Relaxed);
        (result, server.join())
    });
    served.map_err(|_| anyhow!("the server panicked"))??;
    let latency = result?.context("the load has no latencies")?;
    error(&latency, wire.held(), least)
}

/// The latencies that an engine measures.
fn loaded(bed: &Bed, engine: Engine, target: SocketAddr, delay: Duration) -> Result<Option<Latency>> {
    let arrivals = match engine {
        // It has no open loop.
        Engine::Kernel => Arrivals::Closed { inflight: inflight(delay) },
        _ => Arrivals::Open { rate: RATE, process: Process::Constant },
    };
    let flows = if arrivals == (Arrivals::Closed { inflight: 1 }) { 1 } else { FLOWS };
    let plan = Plan { flows, arrivals, duration: LENGTH, ..Plan::new(target) };
    let never = AtomicBool::new(false);
    let result = bed.lab.machine("client")?.run(|| {
        pin(0)?;
        udpath_load::run(&plan, engine, &EchoLoad::new(1), &mut |_| (), &never).context("the load")
    })??;
    ensure!(result.counts.lost == 0, "{} of {} requests were lost", result.counts.lost, result.counts.sent);
    Ok(result.sent_latency)
}

/// Requests in flight in each flow that make about [`RATE`].
fn inflight(delay: Duration) -> u32 {
    let all = RATE * 1.5 * delay.as_secs_f64();
    ((all / f64::from(FLOWS)).round() as u32).max(1)
}

/// A datagram: when it is due, its number, and whose it is.
type Held = (Instant, u64, SocketAddr, Vec<u8>);

/// Sends each datagram back after one to two times `delay`, until `stop`. It spins, so that no reply
/// waits for a CPU.
fn hold(socket: &UdpSocket, delay: Duration, stop: &AtomicBool) -> Result<()> {
    pin(1)?;
    let (mut buffer, mut number) = ([0; 2048], 0_u64);
    let mut due: BinaryHeap<Reverse<Held>> = BinaryHeap::new();
    while !stop.load(Ordering::Relaxed) {
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            number += 1;
            // The golden ratio's multiples are evenly spread, whatever their number (Weyl).
            let part = (number as f64 * 0.618_033_988_749_894_9).fract();
            let at = Instant::now() + delay.mul_f64(1.0 + part);
            due.push(Reverse((at, number, from, buffer[..len].to_vec())));
        }
        while due.peek().is_some_and(|Reverse((at, ..))| *at <= Instant::now()) {
            let Some(Reverse((_, _, from, datagram))) = due.pop() else { break };
            socket.send_to(&datagram, from).context("cannot send a reply")?;
        }
    }
    Ok(())
}

/// The largest error of the percentiles, as a part of what is allowed, and each in words.
fn error(measured: &Latency, mut truth: Vec<u64>, least: f64) -> Result<(f64, String)> {
    ensure!(!truth.is_empty() && measured.count > 0, "no request was answered");
    truth.sort_unstable();
    let of =
        |part: f64| truth[((truth.len() as f64 * part).ceil() as usize).clamp(1, truth.len()) - 1] as f64;
    let all = [
        ("p50", measured.p50, 0.5),
        ("p90", measured.p90, 0.9),
        ("p99", measured.p99, 0.99),
        ("p99.9", measured.p99_9, 0.999),
    ];
    let mut largest: f64 = 0.0;
    let words = all.map(|(name, value, part)| {
        let (value, truth) = (value as f64, of(part));
        largest = largest.max((value - truth).abs() / least.max(PART * truth));
        format!("{name} {:.1} (true {:.1})", value / 1000.0, truth / 1000.0)
    });
    Ok((largest, format!("{} us", words.join(", "))))
}
