//! Climbs that end before their time.

use super::*;

/// Evenly distributed, reproducible numbers: SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    /// From 0 to below 1.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Starts a climb that lasts longer than any test waits.
fn long_climb() -> Running {
    Run::new(&["boost", "--lab", "--queues", "2", "--seconds", "0.05", "--blocks", "500", "--bound", "0.1"])
        .within(CLIMB)
        .start()
}

/// The name of the variable with the seed of the kill times; without it, each run has other times.
const SEED: &str = "UDPATH_SEED";

/// The seed, printed: a failure can be repeated.
fn seed() -> u64 {
    let seed = match std::env::var(SEED) {
        Ok(given) => {
            given.parse().unwrap_or_else(|error| panic!("{SEED}={given}: {error}; write a whole number"))
        }
        Err(_) => {
            let mut bytes = [0; 8];
            getrandom(&mut bytes, GetRandomFlags::empty()).expect("the kernel has random numbers");
            u64::from_ne_bytes(bytes)
        }
    };
    println!("{SEED}={seed} repeats these kill times");
    seed
}

/// However early or late it is killed, the next start removes all leftovers: after each kill, the machine is compared
/// as soon as the next climb runs.
#[test]
fn killed_at_any_moment_the_next_run_finds_the_machine_as_it_was() {
    udpath_lab::needs_root!();
    /// Kill times are within this. A lab is up after about 0.1 s and the first trial runs after about 0.3 s; from
    /// then on, trials, stops and starts of servers follow several times a second.
    const SPAN: f64 = 3.0;
    let kills = campaign::rounds(6, 30);
    let _alone = alone();
    let host = Host::now();
    let mut random = Random(seed());
    let mut killed = Vec::new();
    let mut climbs = Vec::new();
    for kill in 0..kills {
        // One kill time from each part of the span, squared: a third of them within its first ninth.
        let moment = SPAN * ((f64::from(kill) + random.share()) / f64::from(kills)).powi(2);
        let mut running = Run::new(&SHORT).within(CLIMB).start();
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs_f64(moment) && !running.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!running.has_ended(), "a climb of {moment:.2} s is too short to be killed in its middle");
        running.signal(Signal::KILL);
        killed.push(running.pid());
        // Servers and loads must exit with it: wait for that here.
        assert_eq!(running.finish().code(), None);
        // The next climb removes everything before it measures. The kernel frees BPF programs a moment later.
        let mut next = long_climb();
        next.says("first rung");
        let left = named(&killed);
        assert_eq!(left, Vec::<String>::new(), "left by a climb killed after {moment:.3} s");
        host.is_as_before(&killed);
        next.signal(Signal::TERM);
        climbs.push(next.pid());
        assert_eq!(next.finish().code(), Some(3));
    }
    host.is_as_before(&climbs);
    campaign::record(
        "climbs killed, the machine as it was at the next start",
        &format!("{kills} of {kills}"),
    );
    // One is killed in the middle of its work.
    let mut next = long_climb();
    next.says("first rung");
    next.signal(Signal::KILL);
    killed.push(next.pid());
    assert_eq!(next.finish().code(), None);
    assert!(!named(&killed).is_empty(), "a killed climb leaves its lab; has it not been up?");
    let swept = Run::new(&["lab", "down", "--stale"]).finish();
    assert_eq!((swept.code(), swept.err.as_str()), (Some(0), ""));
    host.is_as_before(&killed);
}

#[test]
fn signals_end_a_climb_cleanly_with_one_sentence() {
    udpath_lab::needs_root!();
    let _together = together();
    let host = Host::now();
    let mut pids = Vec::new();
    let interrupted = "udpath: interrupted; the lab has been removed";
    for signal in [Signal::TERM, Signal::INT] {
        // In the middle of the climb.
        let mut running = long_climb();
        running.says("first rung");
        running.signal(signal);
        let ended = running.finish();
        assert_eq!(ended.code(), Some(3), "{}", ended.err);
        assert_eq!((ended.err.lines().last(), ended.out.as_str()), (Some(interrupted), ""));
        pids.push(ended.pid);
        // It cleaned up without a sweep.
        host.is_as_before(&pids);

        // While it samples, after the race is decided.
        let mut running =
            Run::new(&[&SHORT[..], &["--queues", "2", "--io", "shared"]].concat()).within(CLIMB).start();
        running.says("profiling");
        running.signal(signal);
        let ended = running.finish();
        assert_eq!(ended.code(), Some(3), "{}", ended.err);
        assert_eq!((ended.err.lines().last(), ended.out.as_str()), (Some(interrupted), ""));
        host.is_as_before(&[ended.pid]);

        // While it creates its lab.
        let running = long_climb();
        let pid = [running.pid()];
        awaited("the lab's record", TIMEOUT, || (!named(&pid).is_empty()).then_some(()));
        running.signal(signal);
        let ended = running.finish();
        assert_eq!(ended.code(), Some(3), "{}", ended.err);
        one_sentence("interrupted while it builds", &ended.err);
        host.is_as_before(&pid);
    }
}
