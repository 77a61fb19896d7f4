//! The cost of a profile: time from its start to its first screen, and memory; on this machine, and with data of 128
//! CPUs.
//!
//! The program itself profiles a loaded server. Its memory is the peak resident size, read while it waits for the
//! reader of its JSON: by then the whole JSON exists, and a pipe holds only 64 KiB of it. The records of 128 CPUs over
//! five seconds are those of this machine's CPUs under that load, recorded for as long and multiplied; a separate
//! process handles them like the program does, with rings of the program's size and this kernel's functions in memory.

use std::env;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use udpath_advise::ProfileResult;
use udpath_profile::classes::Rules;
use udpath_profile::perf::{Clock, Event, Layout, records_as};
use udpath_profile::recorder::Recording;
use udpath_profile::samples::Samples;
use udpath_profile::symbols::kernel::Kernel;
use udpath_profile::{Profile, folded};
use udpath_report::{Render, Style};

use crate::bed::udpath;
use crate::claim::{Bound, Claim, Unit};
use crate::memory::{now, peak, peak_of};
use crate::results::Results;
use crate::steady::Steady;

#[path = "../../crates/profile/tests/rings/mod.rs"]
mod rings;

use rings::recorded::Recorded;
use rings::{BEGIN, Machine, around};

/// Most seconds to the first screen of a profile of five seconds; most memory, MiB.
const SCREEN: f64 = 6.0;
const MEMORY: f64 = 64.0;
/// Number of runs; the slowest counts.
const RUNS: usize = 3;
/// Size of the rings of 128 CPUs in the program, bytes.
const RINGS: usize = 16 << 20;
/// Environment variable that selects the 128-CPU process: the file with this machine's records.
const VOLUME: &str = "UDPATH_BENCH_RINGS";
/// The 128-CPU machine: CPUs, seconds, and samples a second of each, three times the default rate: 638,080 samples if
/// it is busy throughout.
const LARGE: (u32, u32, u32) = (128, 5, 997);
/// Between two readings of the rings, as in the program.
const DRAIN: Duration = Duration::from_millis(100);
/// More JSON than a pipe holds, bytes: with less, the program may end before its memory is read.
const LONG: usize = 65_536 + 4096;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    if let Some(records) = env::var_os(VOLUME) {
        volume(Path::new(&records))?;
        std::process::exit(0);
    }
    let steady = Steady::start(7400)?;
    let (udpath, pid) = (udpath()?, steady.server().to_string());
    let profile = |more: &[&str]| {
        let mut command = Command::new(&udpath);
        command.args(["profile", "--pid", &pid, "-d", "5s"]).args(more);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    let (seconds, memory) = (screen(&profile)?, resident(profile(&["--json"]))?);
    let folder = tempfile::tempdir()?;
    let records = record(folder.path())?;
    drop(steady);
    let [large, taken] = child(&records)?;
    let what = "a profile of 5 s, from its start to its first screen";
    results.add(&Claim::new("profile_size.screen", what, seconds, Unit::Seconds, Bound::Below(SCREEN)));
    let large_what = format!("memory of what 128 CPUs write in 5 s, {taken} samples");
    for (id, what, mib) in [
        ("profile_size.memory", "memory of a profile of 5 s".to_owned(), memory),
        ("profile_size.large", large_what, large),
    ] {
        results.add(&Claim::new(id, what, mib, Unit::MebiBytes, Bound::Below(MEMORY)));
    }
    Ok(())
}

/// Seconds of the slowest run.
fn screen(profile: &impl Fn(&[&str]) -> Command) -> Result<f64> {
    let mut slowest = 0.0_f64;
    for _ in 0..RUNS {
        let begin = Instant::now();
        let output = profile(&[]).output().context("cannot start udpath profile")?;
        slowest = slowest.max(begin.elapsed().as_secs_f64());
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success() && text.contains("CPU time by"), "profile said: {text}");
    }
    Ok(slowest)
}

/// Peak memory of a profile, MiB.
fn resident(mut command: Command) -> Result<f64> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start udpath profile")?;
    let mut stdout = child.stdout.take().context("stdout is piped")?;
    let mut json = vec![0];
    stdout.read_exact(&mut json).context("profile said nothing")?;
    let most = peak_of(child.id());
    stdout.read_to_end(&mut json)?;
    let ended = child.wait()?;
    ensure!(
        ended.success() && json.len() > LONG,
        "{ended}, {} bytes are no whole profile of a loaded server",
        json.len()
    );
    most
}

/// Records of every CPU of this machine for as long as the 128-CPU machine's, in a file.
fn record(folder: &Path) -> Result<PathBuf> {
    let (_, seconds, rate) = LARGE;
    let cpus = fs::read_to_string("/sys/devices/system/cpu/online").context("the online CPUs")?;
    let mut event = Event::cpus(&cpus.trim().parse()?, rate)?;
    let (mut bytes, begin) = (Vec::new(), Instant::now());
    event.start()?;
    while begin.elapsed() < Duration::from_secs(seconds.into()) {
        std::thread::sleep(DRAIN);
        event.drain_bytes(|_, ring| bytes.extend_from_slice(ring));
    }
    event.stop()?;
    event.drain_bytes(|_, ring| bytes.extend_from_slice(ring));
    let path = folder.join(event.clock().name());
    fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The 128-CPU process: peak MiB, and samples taken.
fn child(records: &Path) -> Result<[f64; 2]> {
    let output = Command::new(env::current_exe()?).arg("profile_size").env(VOLUME, records).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let told = || format!("it said: {text}{}", String::from_utf8_lossy(&output.stderr));
    numbers.try_into().ok().with_context(told)
}

fn volume(records: &Path) -> Result<()> {
    let (clock, layout) = match records.ends_with(Clock::Cycles.name()) {
        true => (Clock::Cycles, Layout::Counted),
        false => (Clock::CpuClock, Layout::Plain),
    };
    // The recording is this process's input, not part of a profile's memory.
    let before = now()?;
    let recorded = {
        let bytes = fs::read(records).with_context(|| format!("cannot read {}", records.display()))?;
        Recorded::of(&bytes, String::new())
    };
    let (cpus, seconds, rate) = LARGE;
    let machine = Machine { recorded: &recorded, cpus, seconds, rate, every: 1 };
    let input = now()? - before;
    let (functions, rings) = (Kernel::running()?, vec![1_u8; RINGS]);
    let samples = Samples::new(functions, BEGIN, 1_000_000_000);
    let mut recording = Recording { seconds: seconds.into(), ..Recording::new(samples, clock, machine.rate) };
    for cpu in 0..machine.cpus {
        let malformed = records_as(layout, &machine.ring(cpu).0, |record| recording.take(0, &record));
        ensure!(malformed == 0, "{malformed} records are malformed");
    }
    // The program frees its rings as soon as the last sample is read.
    drop(std::hint::black_box(rings));
    let nothing = around::nothing();
    let result = ProfileResult::from(Profile::new(&recording, Rules::built_in(), &nothing, &nothing));
    drop(recording);
    let sizes = [
        result.json().len(),
        result.terminal(&Style::default()).len(),
        folded::text(&result.profile).len(),
        result.html().len(),
    ];
    ensure!(!sizes.contains(&0), "a rendering is empty: {sizes:?}");
    eprintln!(
        "{} stacks, {sizes:?} bytes, {} nameless",
        result.profile.stacks.len(),
        result.profile.samples.nameless
    );
    println!("{} {}", peak()? - input, result.profile.samples.taken);
    Ok(())
}
