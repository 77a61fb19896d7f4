//! `udpath serve --io xdp` against testpmd on net_af_xdp: echo on one queue and one core.
//!
//! ```text
//!   client ══ veth, one queue ══▸ machine udpath:  udpath serve echo --io xdp     one worker, on CPU 1
//!      ├───── veth, one queue ══▸ machine rings:   the same with AF_XDP's rings only
//!      └───── veth, one queue ══▸ machine testpmd: testpmd, 5tswap                one forwarding thread, on CPU 1
//! ```
//! The load is the in-kernel closed loop, which checks every bit of every reply: it treats 5tswap as an echo. On a
//! veth, the receiver's NAPI runs on the sending CPU, so the loop and both drivers run within the server's system
//! calls: CPU 1 executes the whole path, for both alike, and the loop's user space, which checks for lost requests
//! every 20 ms. CPU 0 runs testpmd's main thread, which sleeps.
//!
//! Two ratios from the same runs: transactions per second of CPU time of the server and its core's ksoftirqd, in which
//! time of other programs does not count, and plain transactions per second. The best of testpmd's settings is the
//! baseline.
//!
//! udpath parses, looks up, calls the service and computes checksums; testpmd swaps addresses.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_load::result::LoadResult;

use crate::bed::{Running, closed_loop, serve, udpath};
use crate::claim::{Bound, Claim, Unit};
use crate::race::{quantile, race_of};
use crate::results::Results;
use crate::testpmd::{CPU, Testpmd, cpu_time_of};

/// Relative to testpmd's rate.
const AT_LEAST: f64 = 1.05;
/// Requests in flight per flow: 256 together. Lower: bursts are not full. Higher: frames no longer fit in the caches.
const INFLIGHT: u32 = 4;
/// Length of the load, and of the measurement within it; the difference is the start-up time.
const LOAD: Duration = Duration::from_millis(1200);
const WINDOW: Duration = Duration::from_millis(800);
const SETTLE: Duration = Duration::from_millis(100);
/// Longest start-up time of the loop.
const BEGIN: Duration = Duration::from_secs(10);
/// Highest share of lost replies.
const LOST: f64 = 0.001;
const PORT: u16 = 7;
/// udpath's servers: the beginning of the ids, what it is called, its machine, and options. By its own choice, replies
/// are live frames, which testpmd's driver does not have; with AF_XDP's rings only, both sides send alike.
const OURS: [(&str, &str, &str, &[&str]); 2] = [
    ("testpmd_xdp", "Io xdp", "udpath", &[]),
    ("testpmd_xdp.rings", "Io xdp, AF_XDP's rings only", "rings", &["--no-live-frames"]),
];

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let one = LinkSpec::default();
    let machines = OURS.map(|(.., machine, _)| machine).into_iter().chain(["testpmd"]);
    let lab = LabBuilder::new("bench-testpmd").machine("client");
    let lab = machines.fold(lab, |lab, machine| lab.machine(machine).link("client", machine, &one)).up()?;
    let softirq = ksoftirqd()?;
    let interface = lab.machine("testpmd")?.towards("client")?.name().to_owned();
    let mut best: Option<(f64, &str, u32)> = None;
    // One program per interface: each is removed before the next starts.
    for poll in [",busy_budget=0", ""] {
        for burst in [32, 64] {
            let mut testpmd = Testpmd::start(Some((&lab, "testpmd")), &device(&interface, poll), burst)?;
            let rates = (0..3).map(|_| forward(&lab, &mut testpmd, softirq).map(|[cpu, _]| cpu));
            let rate = quantile(rates.collect::<Result<_>>()?, 0.5);
            eprintln!("  testpmd, {}: {:.0} k/s", setting(poll, burst), rate / 1e3);
            if best.is_none_or(|(most, ..)| rate > most) {
                best = Some((rate, poll, burst));
            }
        }
    }
    let (_, poll, burst) = best.context("four were tried")?;
    let mut testpmd = Testpmd::start(Some((&lab, "testpmd")), &device(&interface, poll), burst)?;
    for (id, name, machine, options) in OURS {
        let ours = echo(&lab, machine, options)?;
        let what = format!("serve, {name} / testpmd ({}), one queue, one core", setting(poll, burst));
        let mut rates = Vec::new();
        let [by_cpu, by_time] = race_of(
            &what,
            0.01,
            24,
            || forward(&lab, &mut testpmd, softirq),
            || rate(&lab, machine, [ours.pid(), softirq]).inspect(|[_, rate]| rates.push(*rate)),
        )?;
        let bound = Bound::AtLeast(AT_LEAST);
        let [cpu, rate_id, tps] = ["cpu", "rate", "tps"].map(|figure| format!("{id}.{figure}"));
        results.add(&Claim::ratio(&cpu, format!("{what}, per CPU time"), &by_cpu, bound));
        results.add(&Claim::ratio(&rate_id, format!("{what}, rate"), &by_time, bound));
        let [low, rate, high] = [0.1, 0.5, 0.9].map(|at| quantile(rates.clone(), at));
        let what = format!("serve, {name}, one queue, one core, transactions");
        results.add(&Claim::new(&tps, what, rate, Unit::Rate, Bound::Shown).within(low, high));
    }
    drop(testpmd);
    lab.down()?;
    Ok(())
}

/// The server on a machine of the lab.
fn echo(lab: &Lab, machine: &str, options: &[&str]) -> Result<Running> {
    let (cpu, bind) = (CPU.to_string(), target(lab, machine)?.to_string());
    let fixed = ["serve", "echo", "--io", "xdp", "--bind", &bind, "--workers", "1", "--cpus", &cpu];
    serve(lab, machine, &udpath()?, &[&fixed, options].concat())
}

/// `poll`: a driver option, or empty for its default, preferred busy polling with a budget of 64.
fn device(interface: &str, poll: &str) -> String {
    format!("net_af_xdp0,iface={interface},start_queue=0,queue_count=1{poll}")
}

fn setting(poll: &str, burst: u32) -> String {
    format!("burst {burst}{}", if poll.is_empty() { ", busy polling" } else { "" })
}

fn target(lab: &Lab, machine: &str) -> Result<SocketAddr> {
    Ok(SocketAddr::new(IpAddr::V4(lab.address_of(machine, "client")?.ipv4), PORT))
}

fn forward(lab: &Lab, testpmd: &mut Testpmd, softirq: u32) -> Result<[f64; 2]> {
    testpmd.begin()?;
    let rate = rate(lab, "testpmd", [testpmd.pid(), softirq]);
    testpmd.end()?;
    rate
}

/// Transactions with `server` per second of these processes' CPU time, and per second.
fn rate(lab: &Lab, server: &str, pids: [u32; 2]) -> Result<[f64; 2]> {
    let (client, target) = (lab.machine("client")?, target(lab, server)?);
    let interface = client.towards(server)?.name().to_owned();
    thread::scope(|scope| {
        let load = scope.spawn(|| closed_loop(client, target, INFLIGHT, LOAD, Some(CPU)));
        let window = client.run(|| -> Result<(u64, Duration, Duration)> {
            let counter = format!("/sys/class/net/{interface}/statistics/rx_packets");
            let count = || -> Result<u64> {
                fs::read_to_string(&counter)?
                    .trim()
                    .parse()
                    .with_context(|| format!("{counter} is no number"))
            };
            let cpu = || pids.iter().map(|pid| cpu_time_of(*pid)).sum::<Result<Duration>>();
            let (idle, begin) = (count()?, Instant::now());
            while count()? == idle && begin.elapsed() < BEGIN && !load.is_finished() {
                thread::sleep(Duration::from_millis(5));
            }
            thread::sleep(SETTLE);
            let (begin, before) = (Instant::now(), (count()?, cpu()?));
            thread::sleep(WINDOW);
            let (time, after) = (begin.elapsed(), (count()?, cpu()?));
            ensure!(!load.is_finished(), "the load ended before the measurement");
            Ok((after.0 - before.0, after.1 - before.1, time))
        })?;
        let result = load.join().ok().context("the load panicked")??;
        let (transactions, used, time) = window?;
        check(&result).with_context(|| format!("against {server}"))?;
        Ok([used, time].map(|time| transactions as f64 / time.as_secs_f64()))
    })
}

/// Was every reply correct?
fn check(result: &LoadResult) -> Result<()> {
    let counts = &result.counts;
    ensure!(counts.ok > 0, "nothing was answered");
    ensure!(counts.corrupt + counts.wrong_flow + counts.duplicate == 0, "wrong replies: {counts:?}");
    ensure!((counts.lost as f64) < LOST * counts.ok as f64, "too many were lost: {counts:?}");
    // Softirq on another CPU: the path did not stay on one core.
    let elsewhere: f64 = result.cpus.iter().filter(|cpu| cpu.cpu != CPU as u32).map(|cpu| cpu.soft).sum();
    ensure!(
        elsewhere < 0.1,
        "{:.0} % of another CPU's time was softirq: it took a part of the path",
        elsewhere * 100.0
    );
    Ok(())
}

/// The kernel thread that runs deferred softirq work on [`CPU`].
fn ksoftirqd() -> Result<u32> {
    let wanted = format!("ksoftirqd/{CPU}");
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim() == wanted) {
            return Ok(pid);
        }
    }
    anyhow::bail!("there is no {wanted}: this needs two CPUs, and to see the host's processes")
}
