//! The cost of watching a server: its rate while `udpath profile`, or `udpath diagnose`, runs as a user runs it, and
//! the time to resolve and classify samples.
//!
//! The processes run with their defaults: sampling, traced locks and drops, symbols, snapshots, the text at the end.
//! Their whole life counts, from start to exit; the periods without them have the same length. Sampling alone is shown
//! beside them.

use std::cell::Cell;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use udpath_advise::result::Ratio;
use udpath_host::Snapshot;
use udpath_host::source::Folder;
use udpath_profile::Profile;
use udpath_profile::classes::Rules;
use udpath_profile::perf::{Clock, Event, Record, records};
use udpath_profile::recorder::{RATE, Recording};
use udpath_profile::samples::Samples;
use udpath_profile::symbols::kernel::Kernel;

use crate::bed::udpath;
use crate::claim::{Bound, Claim, Unit};
use crate::race::race;
use crate::results::Results;
use crate::steady::Steady;

/// The server's rate while it is watched over that without.
const WITHIN: f64 = 0.99;
/// Length of alternating periods with and without sampling: about as long as the recorder leaves records in the rings.
const MOMENT: Duration = Duration::from_millis(200);
/// Sufficient half-width of the interval, and most blocks of four periods.
const WIDTH: f64 = 0.002;
const BLOCKS: usize = 200;
/// The same for a process, whose periods take its default length, and a first period until that is known. All blocks of
/// `diagnose`, which watches for 10 s, take 480 s: no more fit into one load.
const PROCESS_WIDTH: f64 = 0.003;
const PROFILE_BLOCKS: usize = 16;
const DIAGNOSE_BLOCKS: usize = 12;
const FIRST_PERIOD: Duration = Duration::from_secs(6);
/// Samples to classify, how many of them are different, and frames of each.
const SAMPLES: usize = 1_000_000;
const DIFFERENT: usize = 5_000;
const FRAMES: usize = 24;
/// Most seconds for that.
const SECONDS: f64 = 1.0;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let steady = Steady::start(7400)?;
    let whole = process(&steady, &["profile"], "CPU time by", PROFILE_BLOCKS)?;
    let what = "transactions while `udpath profile` runs, with its defaults / while it does not";
    results.add(&Claim::ratio("profile.process", what, &whole, Bound::AtLeast(WITHIN)));
    // A new load: one lasts ten minutes at most.
    drop(steady);
    let steady = Steady::start(7402)?;
    let server = steady.server().to_string();
    let target = format!("pid:{server}");
    let whole =
        process(&steady, &["diagnose", &target, "--pid", &server], "should carry about", DIAGNOSE_BLOCKS)?;
    let what =
        "transactions while `udpath diagnose` watches the server, with its defaults / while it does not";
    results.add(&Claim::ratio("profile.diagnose", what, &whole, Bound::AtLeast(WITHIN)));
    drop(steady);
    let steady = Steady::start(7401)?;
    let sampling = sampling(&steady)?;
    let what = format!("transactions while sampled at {RATE} Hz / not sampled");
    results.add(&Claim::ratio("profile.sampling", what, &sampling, Bound::AtLeast(WITHIN)));
    drop(steady);
    let seconds = classing()?;
    let what = format!("a million samples of {DIFFERENT} stacks, named and classed");
    results.add(&Claim::new("profile.classing", what, seconds, Unit::Seconds, Bound::Below(SECONDS)));
    Ok(())
}

/// The server's rate while `udpath VERB` runs, over that in periods of the same length without it. `part` is what it
/// prints.
fn process(steady: &Steady, verb: &[&str], part: &str, blocks: usize) -> Result<Ratio> {
    let udpath = udpath()?;
    let name = format!("udpath {}", verb[0]);
    let length = Cell::new(FIRST_PERIOD);
    let plain = || {
        steady.tps_while(|| {
            thread::sleep(length.get());
            Ok(())
        })
    };
    let watched = || {
        steady.tps_while(|| {
            let begin = Instant::now();
            let output = Command::new(&udpath).args(verb).stdin(Stdio::null()).output();
            let output = output.with_context(|| format!("cannot start {name}"))?;
            length.set(begin.elapsed());
            let text = String::from_utf8_lossy(&output.stdout);
            // It exits with 1 if it has findings.
            let done = matches!(output.status.code(), Some(0 | 1)) && text.contains(part);
            ensure!(done, "{name} printed: {text}{}", String::from_utf8_lossy(&output.stderr));
            Ok(())
        })
    };
    race(&format!("{name} / nothing"), PROCESS_WIDTH, blocks, plain, watched)
}

/// The server's rate while every CPU is sampled, over that without.
fn sampling(steady: &Steady) -> Result<Ratio> {
    let cpus = Snapshot::read(&Folder::live()).cpus.online;
    let mut event = Event::cpus(&cpus, RATE)?;
    let mut samples = Samples::new(Kernel::running()?, 0, u64::MAX);
    let mut lost = 0;
    let mut drain = |event: &mut Event| {
        event.drain(|_, record| match record {
            Record::Sample(sample) => {
                samples.add(&sample);
            }
            Record::Lost(count) | Record::LostSamples(count) => lost += count,
            _ => (),
        });
    };
    let plain = || {
        steady.tps_while(|| {
            thread::sleep(MOMENT);
            Ok(())
        })
    };
    let sampled = || {
        event.start()?;
        let tps = steady.tps_while(|| {
            thread::sleep(MOMENT);
            drain(&mut event);
            Ok(())
        })?;
        event.stop()?;
        Ok(tps)
    };
    let ratio = race("sampled / not sampled", WIDTH, BLOCKS, plain, sampled)?;
    ensure!(lost == 0, "{lost} samples were lost");
    Ok(ratio)
}

/// Seconds for a million samples.
fn classing() -> Result<f64> {
    let kernel = Kernel::running()?;
    let (ring, now) = (ring()?, Snapshot::read(&Folder::live()));
    let begin = Instant::now();
    let mut samples = Samples::new(kernel, 0, 1_000_000_000);
    for _ in 0..SAMPLES / DIFFERENT {
        let malformed = records(&ring, |record| {
            if let Record::Sample(sample) = record {
                samples.add(&sample);
            }
        });
        ensure!(malformed == 0, "{malformed} records are malformed");
    }
    let recording = Recording { seconds: 1.0, ..Recording::new(samples, Clock::CpuClock, RATE) };
    let profile = Profile::new(&recording, Rules::built_in(), &now, &now);
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(profile.samples.taken == SAMPLES as u64, "{} samples were counted", profile.samples.taken);
    Ok(seconds)
}

/// Sample records in the kernel's format, each with another chain of functions of this kernel.
fn ring() -> Result<Vec<u8>> {
    let text = std::fs::read_to_string("/proc/kallsyms").context("/proc/kallsyms")?;
    let address =
        |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok().filter(|address| *address > 0);
    let addresses: Vec<u64> = text.lines().filter_map(address).collect();
    ensure!(addresses.len() > DIFFERENT, "the kernel hides its functions");
    let mut ring = Vec::new();
    for number in 0..DIFFERENT {
        // ip, pid and tid, time, cpu, period, and the chain: PERF_CONTEXT_KERNEL, then addresses.
        let mut words =
            vec![0, (8 << 32) | 8, number as u64, 1, 1_000_000, FRAMES as u64 + 1, -128_i64 as u64];
        words.extend((0..FRAMES).map(|frame| addresses[(number * 31 + frame * 977) % addresses.len()]));
        let size = u16::try_from(8 + words.len() * 8)?;
        // PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL.
        ring.extend_from_slice(&9_u32.to_ne_bytes());
        ring.extend_from_slice(&1_u16.to_ne_bytes());
        ring.extend_from_slice(&size.to_ne_bytes());
        ring.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    }
    Ok(ring)
}
