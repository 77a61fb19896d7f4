//! The cost of the in-kernel loop.
//!
//! ```text
//!   client: closed_loop  <-- veth -->  server: answer      total: T per transaction
//!   client: answer       <-- veth -->  server: answer      floor: F, two ends that only turn frames round
//! ```
//! Both ends of the floor do the same work, so one end costs F/2, and the engine (its end of the veth and its program)
//! costs T - F/2. Both run only in softirq, so the benchmark counts softirq time of all CPUs.

use std::fs;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use udpath_load::cpu::CpuUse;
use udpath_load::record::Stopwatch;
use udpath_rig::Answer;

use crate::Claim;
use crate::bed::{Bed, FLOWS};

/// Port of the server, and of the client in the floor.
const SERVER: u16 = 7777;
const CLIENT: u16 = 5555;
/// Frames in flight, in the floor and in the loop: one NAPI poll's budget (64) on each CPU. Lower: a poll's own cost is
/// spread over fewer frames. Higher: the frames no longer fit in the caches, and the benchmark measures those.
const FRAMES: usize = 128;
/// Measurements of each kind. The median of the differences counts: one disturbed pair has no influence.
const PAIRS: usize = 9;
/// Nanoseconds of CPU the engine may cost per transaction.
const BOUND: f64 = 100.0;

pub(crate) fn run() -> Result<Vec<Claim>> {
    let bed = Bed::new(false)?;
    let server = bed.lab.machine("server")?;
    let interface = server.towards("client")?.name().to_owned();
    let _answer = server.run(|| Answer::attach(&interface, SERVER))??;
    let mut engine = Vec::new();
    let mut total = Vec::new();
    for _ in 0..PAIRS {
        let floor = floor(&bed)?;
        let with_engine = with_engine(&bed)?;
        engine.push(with_engine - floor / 2.0);
        total.push(with_engine);
    }
    let (engine, total) = (median(&mut engine), median(&mut total));
    Ok(vec![Claim {
        what: "kernel engine, CPU per transaction, against XDP".into(),
        measured: format!("{engine:.0} ns (both ends {total:.0} ns)"),
        bound: format!("< {BOUND} ns"),
        holds: engine < BOUND,
    }])
}

/// CPU nanoseconds per transaction with the engine at one end.
fn with_engine(bed: &Bed) -> Result<f64> {
    let result = bed.loop_with(bed.server(SERVER)?, FRAMES as u32 / FLOWS)?;
    Ok(softirq_seconds(&result.cpus) / (result.tps * result.seconds) * 1e9)
}

fn softirq_seconds(cpus: &[CpuUse]) -> f64 {
    cpus.iter().map(|cpu| cpu.soft * cpu.seconds).sum()
}

/// CPU nanoseconds per round when both ends only return frames.
fn floor(bed: &Bed) -> Result<f64> {
    let client = bed.lab.machine("client")?;
    let interface = client.towards("server")?.name().to_owned();
    let target = bed.server(SERVER)?;
    client.run(|| -> Result<f64> {
        let _answer = Answer::attach(&interface, CLIENT)?;
        for cpu in 0..2 {
            // Half of the frames from each CPU, like the loop starts its flows.
            let mut only = rustix::thread::CpuSet::new();
            only.set(cpu);
            rustix::thread::sched_setaffinity(None, &only)?;
            let socket = UdpSocket::bind(("0.0.0.0", CLIENT))?;
            for _ in 0..FRAMES / 2 {
                socket.send_to(&[0; 100], target)?;
            }
        }
        thread::sleep(Duration::from_millis(100));
        let counter = format!("/sys/class/net/{interface}/statistics/rx_packets");
        let count = || -> Result<u64> {
            fs::read_to_string(&counter)?.trim().parse().with_context(|| format!("{counter} is no number"))
        };
        let watch = Stopwatch::start();
        let before = count()?;
        thread::sleep(Duration::from_millis(500));
        let rounds = count()? - before;
        let (_, cpus) = watch.stop();
        Ok(softirq_seconds(&cpus) / rounds as f64 * 1e9)
    })?
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
