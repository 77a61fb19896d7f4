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

use crate::bed::{Bed, FLOWS};
use crate::claim::{Bound, Claim, Unit};
use crate::results::Results;

/// Port of the server, and of the client in the floor.
const SERVER: u16 = 7777;
const CLIENT: u16 = 5555;
/// Frames in flight, in the floor and in the loop: one NAPI poll's budget (64) on each of two CPUs, and two. The bound
/// is the same for both: with more frames a poll's own cost is spread over more of them, and they take more cache.
const FRAMES: [usize; 2] = [128, 256];
/// Measurements of each kind. The median of the differences counts: one disturbed pair has no influence.
const PAIRS: usize = 9;
/// Nanoseconds of CPU the engine may cost per transaction.
const MOST: f64 = 100.0;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let bed = Bed::new(false)?;
    let server = bed.lab.machine("server")?;
    let interface = server.towards("client")?.name().to_owned();
    let _answer = server.run(|| Answer::attach(&interface, SERVER))??;
    for frames in FRAMES {
        let mut engine = Vec::new();
        let mut total = Vec::new();
        for pair in 1..=PAIRS {
            let floor = floor(&bed, frames)?;
            let with_engine = with_engine(&bed, frames)?;
            engine.push(with_engine - floor / 2.0);
            total.push(with_engine);
            eprintln!("  {frames} frames, pair {pair} of {PAIRS}: {:.0} ns", with_engine - floor / 2.0);
        }
        let (engine, low, high) = spread(&mut engine);
        let (total, ..) = spread(&mut total);
        let what = format!("kernel engine, CPU per transaction, {frames} frames in flight");
        let claim =
            Claim::new(&format!("engine.{frames}"), what, engine, Unit::Nanoseconds, Bound::Below(MOST));
        results.add(&claim.within(low, high).with(format!("both ends {total:.0} ns")));
    }
    Ok(())
}

/// CPU nanoseconds per transaction with the engine at one end.
fn with_engine(bed: &Bed, frames: usize) -> Result<f64> {
    let result = bed.loop_with(bed.server(SERVER)?, frames as u32 / FLOWS)?;
    Ok(softirq_seconds(&result.cpus) / (result.tps * result.seconds) * 1e9)
}

fn softirq_seconds(cpus: &[CpuUse]) -> f64 {
    cpus.iter().map(|cpu| cpu.soft * cpu.seconds).sum()
}

/// CPU nanoseconds per round when both ends only return frames.
fn floor(bed: &Bed, frames: usize) -> Result<f64> {
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
            for _ in 0..frames / 2 {
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

/// The median, and the range without the lowest and the highest value.
fn spread(measured: &mut [f64]) -> (f64, f64, f64) {
    measured.sort_by(f64::total_cmp);
    (measured[PAIRS / 2], measured[1], measured[PAIRS - 2])
}
