//! Samples the same interval with udpath and with perf, and classifies both by the same rules: the shares agree within
//! the sampling error. Needs root (perf_event_paranoid) and perf.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use statrs::distribution::{ChiSquared, ContinuousCDF};
use udpath_profile::classes::{Class, Rules};
use udpath_profile::context::{self, Context};
use udpath_profile::perf::Mode;
use udpath_profile::recorder::{Moment, Recording, Wanted, record_with};
use udpath_profile::symbols::kernel::Kernel;
use udpath_steer::CpuSet;

/// Long enough for [`FEWEST`] samples of the one thread that is always busy.
const LENGTH: Duration = Duration::from_secs(6);
/// Fewest samples of each: then one of [`DETECTED`] in the wrong class is 60 samples, which alone make the statistic
/// 60. It exceeds 50 once in a million with ten classes.
const FEWEST: u64 = 3000;
/// One of so many samples in the wrong class is detected.
const DETECTED: u64 = 50;
/// How much longer perf runs, at each end.
const AROUND: Duration = Duration::from_millis(700);
/// Probability that this test fails although both sample the same work, by Pearson's test. Higher: it fails by chance
/// in one of so many runs. Lower: it takes more than one of [`DETECTED`] samples in the wrong class to be detected.
const CHANCE: f64 = 1e-6;
/// Fewest samples of a class in both together, otherwise it is merged with others: with fewer, the statistic is not
/// chi-squared.
const FEW: u64 = 40;
/// Most iterations of an empty loop between two datagrams: about as long as a datagram takes.
const MOST_PAUSE: u32 = 400;
/// Addresses from here on are the kernel's (x86-64 and arm64).
const KERNEL: u64 = 1 << 63;

/// Samples per second of both. Lower: differences are harder to distinguish from chance.
const RATE: u32 = 997;

/// A kind of work as reported by both.
type Kind = (Context, Class);

#[test]
fn shares_agree_with_perf() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let stop = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("perf.data");
    let (ours, theirs) = std::thread::scope(|scope| {
        scope.spawn(|| echo(&stop));
        let _end = StopAtEnd(&stop);
        let seconds = (LENGTH + 2 * AROUND).as_secs_f64().to_string();
        let mut perf = Command::new("perf");
        perf.args(["record", "-a", "-g", "-e", "cpu-clock", "-k", "CLOCK_MONOTONIC", "-F"])
            .arg(RATE.to_string());
        perf.arg("-o").arg(&data).args(["--", "sleep"]).arg(seconds);
        let mut perf = perf.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("perf can be run");
        std::thread::sleep(AROUND);
        let wanted = Wanted { cpus: online(), pid: None, length: LENGTH, rate: RATE };
        // Of the samples only: before them, udpath reads the kernel's functions, and perf samples that.
        let (mut begin, mut end) = (0.0, 0.0);
        let recording = record_with(&wanted, &AtomicBool::new(false), |moment| match moment {
            Moment::Begin => begin = now(),
            Moment::End => end = now(),
        });
        let recording = recording.unwrap();
        assert!(perf.wait().unwrap().success(), "perf record");
        (of_ours(&recording), of_perf(&data, recording.samples.kernel(), begin..end))
    });
    let (many, also) = (ours.values().sum::<u64>(), theirs.values().sum::<u64>());
    assert!(many >= FEWEST && also >= FEWEST, "too little to compare: {many} and {also} samples");
    let chance = homogeneous(&ours, &theirs);
    assert!(
        chance > CHANCE,
        "one population with a chance of {chance:e}\nudpath {ours:#?}\nperf {theirs:#?}"
    );
    // A difference is detected: one of fifty samples, of the largest class, is moved to another.
    let mut wrong = ours.clone();
    let (largest, count) = ours.iter().max_by_key(|(_, count)| **count).unwrap();
    let moved = many / DETECTED;
    assert!(*count > moved);
    wrong.insert(*largest, count - moved);
    *wrong.entry((Context::Kernel, Class::Qdisc)).or_default() += moved;
    assert!(homogeneous(&wrong, &theirs) < CHANCE, "one of {DETECTED} in the wrong class is not detected");
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends datagrams over the loopback device and back, until `stop`. Random pauses separate them: a loop as regular as a
/// clock beats with the timers that sample it, with each of the two in its own way.
fn echo(stop: &AtomicBool) {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    }
    let mut room = [0; 256];
    let mut random = 0x9e37_79b9_u32;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..100 {
            client.send(&[7; 100]).unwrap();
            let (len, from) = server.recv_from(&mut room).unwrap();
            server.send_to(&room[..len], from).unwrap();
            client.recv(&mut room).unwrap();
            // Xorshift, by Marsaglia; the low bits give a few microseconds.
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            (0..random % MOST_PAUSE).for_each(|_| std::hint::spin_loop());
        }
    }
}

fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn online() -> CpuSet {
    std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim().parse().unwrap()
}

fn of_ours(recording: &Recording) -> BTreeMap<Kind, u64> {
    let samples = &recording.samples;
    let mut counts = BTreeMap::new();
    for (place, tally) in samples.tallies() {
        if let Some(kind) = kind(place.context, samples.chain(place.kernel), samples.kernel()) {
            *counts.entry(kind).or_default() += tally.samples;
        }
    }
    counts
}

fn kind(context: Context, chain: &[u64], kernel: &Kernel) -> Option<Kind> {
    match context {
        Context::Idle => None,
        Context::User => Some((context, Class::User)),
        _ => {
            let frames = chain.iter().filter_map(|address| kernel.frame(*address));
            Some((context, Rules::built_in().judge(frames.collect::<Vec<_>>()).class))
        }
    }
}

/// The output of `perf script` for an interval: a line that starts with the time, then a line for each frame.
fn of_perf(data: &std::path::Path, kernel: &Kernel, interval: std::ops::Range<f64>) -> BTreeMap<Kind, u64> {
    let mut script = Command::new("perf");
    script.arg("script").arg("-i").arg(data).args(["-F", "pid,time,ip", "--ns"]);
    let out = script.stderr(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "perf script");
    let mut counts = BTreeMap::new();
    for sample in String::from_utf8_lossy(&out.stdout).split("\n\n") {
        let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
        let Some(mut head) = lines.next().map(str::split_whitespace) else { continue };
        let (Some(pid), Some(time)) = (head.next(), head.next()) else { continue };
        let time: f64 = time.trim_end_matches(':').parse().unwrap();
        if !interval.contains(&time) {
            continue;
        }
        let chain: Vec<u64> =
            lines.filter_map(|line| u64::from_str_radix(line.split_whitespace().next()?, 16).ok()).collect();
        let inside: Vec<u64> = chain.iter().copied().take_while(|address| *address >= KERNEL).collect();
        let mode = if inside.is_empty() { Mode::User } else { Mode::Kernel };
        let context = match context::of(mode, inside.iter().filter_map(|address| kernel.frame(*address))) {
            Context::Kernel if pid == "0" => Context::Idle,
            told => told,
        };
        if let Some(kind) = kind(context, &inside, kernel) {
            *counts.entry(kind).or_default() += 1;
        }
    }
    counts
}

/// The probability that two counts of kinds come from one population: Pearson's test.
fn homogeneous(a: &BTreeMap<Kind, u64>, b: &BTreeMap<Kind, u64>) -> f64 {
    let of = |counts: &BTreeMap<Kind, u64>, kind: &Kind| counts.get(kind).copied().unwrap_or(0);
    let kinds: std::collections::BTreeSet<Kind> = a.keys().chain(b.keys()).copied().collect();
    let (mut rows, mut rest) = (Vec::new(), [0, 0]);
    for kind in kinds {
        let row = [of(a, &kind), of(b, &kind)];
        if row[0] + row[1] < FEW {
            rest = [rest[0] + row[0], rest[1] + row[1]];
        } else {
            rows.push(row);
        }
    }
    if rest[0] + rest[1] >= FEW {
        rows.push(rest);
    }
    let sums: [f64; 2] = [0, 1].map(|side| rows.iter().map(|row: &[u64; 2]| row[side]).sum::<u64>() as f64);
    let all = sums[0] + sums[1];
    let statistic: f64 = rows
        .iter()
        .flat_map(|row| [0, 1].map(|side| (row, side)))
        .map(|(row, side)| {
            let expected = (row[0] + row[1]) as f64 * sums[side] / all;
            (row[side] as f64 - expected).powi(2) / expected
        })
        .sum();
    let freedom = (rows.len() - 1) as f64;
    1.0 - ChiSquared::new(freedom).unwrap().cdf(statistic)
}
