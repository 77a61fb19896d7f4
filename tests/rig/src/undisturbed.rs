//! Checks whose outcome needs the CPUs that others may take: other programs, or the hypervisor.
//!
//! ```text
//! check ─┬─ right ───────────────────────────────────────────────────▸ right
//!        └─ wrong ─┬─ others took little ────────────────────────────▸ wrong
//!                  └─ they took DISTURBED or more ─▸ again, ROUNDS times
//!                        └─ wrong each time ─┬─ they took TAKEN of each ─▸ not judged, and printed
//!                                            └─ of one they took less   ─▸ wrong
//! ```
//! What others took is the kernel's account: steal, and the user time of /proc/stat that neither this process nor its
//! descendants had. Kernel time is left out: softirqs for a test's packets run in anyone's time.
//! `make test` passes what is not judged, which is said on stderr; `make soak` fails (see the callers).

use std::any::Any;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::sleep;
use std::time::Duration;

use crate::campaign;

/// Most rounds. Fewer: a compiler beside the tests fails them. More: a real failure on a busy machine takes longer to
/// be seen.
const ROUNDS: u32 = 5;
/// Share of the CPUs' time from which on a wrong outcome may be others' doing. Lower: the error of the accounts, a few
/// ticks per CPU, excuses a failure once more. Higher: a test fails because of others.
const DISTURBED: f64 = 0.05;
/// Share from which on, in every round, nothing can be said. Lower: a machine that is only shared judges nothing.
/// Higher: a starved one fails tests that have no fault.
const TAKEN: f64 = 0.15;
/// Wait before the second round; doubled before each other.
const PAUSE: Duration = Duration::from_secs(1);

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What was wrong in the last round.
    pub wrong: Option<String>,
    /// The least share of the CPUs' time that others took in a round, if they took too much of each for a verdict.
    pub not_judged: Option<f64>,
    /// Rounds that were repeated.
    pub repeated: u32,
}

/// Carries out a check, which returns what is wrong, again while others take the CPUs.
pub fn undisturbed(check: impl FnMut() -> Option<String>) -> Outcome {
    rounds(check, CpuTime::now, |n| sleep(PAUSE * 2u32.pow(n)))
}

/// The same of a check that panics if something is wrong. Says on stderr, past the harness, if there was no verdict.
///
/// # Panics
/// It is wrong; or there was no verdict in a campaign.
pub fn judged(what: &str, mut check: impl FnMut()) {
    let outcome = undisturbed(|| catch_unwind(AssertUnwindSafe(&mut check)).err().map(said));
    let Some(wrong) = outcome.wrong else { return };
    let Some(taken) = outcome.not_judged else { panic!("{wrong}") };
    not_judged(what, taken);
    assert!(!campaign::is_whole(), "{what}: not judged: {wrong}");
}

/// Carries out parts of a check at the same time, and panics with what the first wrong one says.
///
/// # Panics
/// One of them has.
pub fn beside_each_other<T: Send>(parts: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        let check = &check;
        let all: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || check(part))).collect();
        let wrong: Vec<_> = all.into_iter().filter_map(|part| part.join().err()).collect();
        if let Some(panic) = wrong.into_iter().next() {
            resume_unwind(panic);
        }
    });
}

/// Says that there was no verdict, past the harness.
pub fn not_judged(what: &str, taken: f64) {
    // Not eprintln!, which the harness captures.
    let _ = writeln!(
        std::io::stderr(),
        "not judged: {what}: others took {:.0} % or more of the CPUs' time in each of {ROUNDS} rounds",
        taken * 100.0
    );
}

fn rounds(
    mut check: impl FnMut() -> Option<String>,
    mut now: impl FnMut() -> CpuTime,
    mut pause: impl FnMut(u32),
) -> Outcome {
    let mut least = f64::INFINITY;
    for round in 0..ROUNDS {
        let before = now();
        let wrong = check();
        let taken = now().taken_since(&before);
        least = least.min(taken);
        let last = round + 1 == ROUNDS;
        if wrong.is_none() || taken < DISTURBED || last {
            let unclear = wrong.is_some() && last && least >= TAKEN;
            return Outcome { wrong, not_judged: unclear.then_some(least), repeated: round };
        }
        // The harness shows it if the test fails.
        eprintln!(
            "round {}: others took {:.1} % of the CPUs' time, and what is wrong is {}",
            round + 1,
            taken * 100.0,
            wrong.as_deref().unwrap_or_default()
        );
        pause(round);
    }
    unreachable!("the last round returns")
}

/// The message of a panic.
fn said(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => {
            panic.downcast_ref::<&str>().map_or_else(|| "it panicked".to_owned(), ToString::to_string)
        }
    }
}

/// Ticks of all CPUs since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct CpuTime {
    all: u64,
    /// User time of all programs.
    user: u64,
    /// That of this process and its descendants, running or waited for.
    ours: u64,
    stolen: u64,
}

impl CpuTime {
    fn now() -> Self {
        let stats = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let folder = entry.ok()?;
            folder.file_name().to_str()?.parse::<u32>().ok()?;
            // The name in it may be any bytes; a process may end meanwhile.
            Some(String::from_utf8_lossy(&fs::read(folder.path().join("stat")).ok()?).into_owned())
        });
        let programs: Vec<Program> = stats.filter_map(|stat| Program::parse(&stat)).collect();
        let machine = fs::read_to_string("/proc/stat").unwrap();
        Self::of(&machine, &programs, std::process::id())
            .unwrap_or_else(|| panic!("/proc/stat has no CPU time: {machine}"))
    }

    /// proc(5): user, nice, system, idle, iowait, irq, softirq, steal.
    fn of(machine: &str, programs: &[Program], own: u32) -> Option<Self> {
        let cpus = machine.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
        let cpus: Vec<u64> = cpus.filter_map(|word| word.parse().ok()).collect();
        let mut family = BTreeSet::from([own]);
        // Children come in any order: repeat until nothing is added.
        loop {
            let known = family.len();
            family.extend(
                programs
                    .iter()
                    .filter(|one| family.contains(&one.parent))
                    .map(|one| one.pid)
                    .collect::<Vec<_>>(),
            );
            if family.len() == known {
                break;
            }
        }
        let ours = programs.iter().filter(|one| family.contains(&one.pid)).map(|one| one.user).sum();
        let all = cpus.get(..8)?.iter().sum();
        Some(Self { all, user: cpus[0] + cpus[1], ours, stolen: cpus[7] })
    }

    /// The share of all time since that others took.
    fn taken_since(&self, before: &Self) -> f64 {
        let since = |of: fn(&Self) -> u64| of(self).saturating_sub(of(before));
        let others = since(|time| time.user).saturating_sub(since(|time| time.ours));
        (others + since(|time| time.stolen)) as f64 / since(|time| time.all).max(1) as f64
    }
}

/// A process, and the user time of it and of those that it waited for.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Program {
    pid: u32,
    parent: u32,
    user: u64,
}

impl Program {
    /// `/proc/PID/stat` of proc(5): fields 1, 4, 14 and 16.
    fn parse(stat: &str) -> Option<Self> {
        let (front, back) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = back.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            pid: front.split_ascii_whitespace().next()?.parse().ok()?,
            parent: u32::try_from(field(4)?).ok()?,
            user: field(14)? + field(16)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Rounds in which others take these shares, and whether each is wrong.
    fn outcome(of: &[(f64, bool)]) -> (Outcome, u32) {
        let (round, time, paused) = (Cell::new(0), RefCell::new(CpuTime::default()), Cell::new(0));
        let outcome = rounds(
            || {
                let (taken, wrong) = of[round.get()];
                round.set(round.get() + 1);
                let mut time = time.borrow_mut();
                time.all += 1000;
                time.user += (taken * 500.0) as u64 + 100;
                time.ours += 100;
                time.stolen += (taken * 500.0) as u64;
                wrong.then(|| format!("in round {}", round.get()))
            },
            || *time.borrow(),
            |_| paused.set(paused.get() + 1),
        );
        (outcome, paused.get())
    }

    #[test]
    fn a_verdict_is_of_a_round_that_others_left_alone() {
        let wrong = |round: u32| Some(format!("in round {round}"));
        let right = |repeated| Outcome { wrong: None, not_judged: None, repeated };
        assert_eq!(outcome(&[(0.9, false)]), (right(0), 0));
        assert_eq!(outcome(&[(0.9, true), (0.3, true), (0.3, false)]), (right(2), 2));
        let failed = |round: u32| Outcome { wrong: wrong(round), not_judged: None, repeated: round - 1 };
        assert_eq!(outcome(&[(0.0, true)]), (failed(1), 0));
        assert_eq!(outcome(&[(0.3, true), (0.04, true)]), (failed(2), 1));
        // Disturbed each time, but once not much.
        let mut of = [(0.3, true); 5];
        of[2] = (0.1, true);
        assert_eq!(outcome(&of), (failed(5), 4));
        of[2] = (0.16, true);
        assert_eq!(outcome(&of), (Outcome { not_judged: Some(0.16), ..failed(5) }, 4));
        of[4] = (0.3, false);
        assert_eq!(outcome(&of), (right(4), 4));
    }

    #[test]
    fn accounts_of_the_machine_and_of_a_family() {
        let machine = "cpu  1323828 376897 475184 1000350 4974 0 126892 107654 7 8\ncpu0 1 2\n";
        let stat = "812 (a) b) S 7 812 812 0 -1 4194304 100 0 0 0 41 42 43 44 20 0 1 0 5000\n";
        let program = Program::parse(stat).unwrap();
        assert_eq!(program, Program { pid: 812, parent: 7, user: 41 + 43 });
        assert_eq!(Program::parse("1 (a) S 1"), None);
        let other = |pid, parent| Program { pid, parent, user: 1000 };
        let programs = [Program { pid: 9, parent: 812, user: 5 }, other(8, 1), program, other(6, 2)];
        let time = CpuTime::of(machine, &programs, 7).unwrap();
        assert_eq!((time.user, time.ours, time.stolen), (1_323_828 + 376_897, 41 + 43 + 5, 107_654));
        assert_eq!(time.all, 1_323_828 + 376_897 + 475_184 + 1_000_350 + 4974 + 126_892 + 107_654);
        assert_eq!(CpuTime::of("intr 1\n", &programs, 7), None);
    }

    /// The kernel's accounts: what a child does is ours while it runs and once it was waited for.
    #[test]
    fn what_a_child_does_is_not_others() {
        let started = CpuTime::now();
        let mut child = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done; read line"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let worked = |since: &CpuTime| CpuTime::now().ours > since.ours + 2;
        crate::awaited("a child's CPU time", crate::TIMEOUT, || worked(&started).then_some(()));
        drop(child.stdin.take());
        assert!(child.wait().is_ok() && worked(&started), "{started:?} {:?}", CpuTime::now());
    }

    #[test]
    fn what_a_check_panics_with_is_what_is_wrong() {
        let of = |check: fn()| catch_unwind(check).err().map(said);
        assert_eq!(of(|| panic!("a {}", "cause")).as_deref(), Some("a cause"));
        assert_eq!(of(|| panic!("plain")).as_deref(), Some("plain"));
        assert_eq!(of(|| ()), None);
        assert_eq!(
            of(|| beside_each_other([1, 2], |part| assert!(part < 2, "part {part}"))).as_deref(),
            Some("part 2")
        );
    }
}
