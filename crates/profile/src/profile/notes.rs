//! Caveats of a profile's figures: what could not be seen, what was lost, and where the samples and the kernel's own
//! accounting disagree.

use error_reporter::Report;
use udpath_steer::CpuSet;

use super::hardware::Hardware;
use super::result::{Accounted, CpuLine, Profile};
use crate::context::Context;
use crate::perf::{Clock, Sight};
use crate::recorder::Recording;

/// Difference between samples and /proc/stat that is reported, as a share of the interval. Lower: five seconds of
/// sampling have an error of one point, a timer that waits for interrupts has two or three, and a tick of /proc/stat is
/// one point of a second. Higher: a quarter of a CPU's interrupts may be missing without a note.
const DISAGREE: f64 = 0.05;
/// Busy share of a CPU, by samples and by /proc/stat, below which the two are not compared. A tick is charged whole to
/// what it interrupts and an idle CPU has few, so a wake-up per tick is counted in full or not at all; at the default
/// rate, five seconds have less than a hundred samples of so little work. No figure of a profile depends on it. Lower:
/// an idle CPU gets a note about shares of almost nothing; higher: a CPU with a tenth of a service's work is not
/// checked.
const QUIET: f64 = 0.1;
/// Part of the interval without samples, steal time or idle time that is reported. Lower: the start and the end of a
/// recording are reported; higher: a CPU that went offline near the end counts as idle.
const UNSEEN: f64 = 0.1;

/// All notes.
pub(super) fn all(profile: &Profile, recording: &Recording) -> Vec<String> {
    let mut notes = sight(profile);
    notes.extend(profile.hardware.iter().flat_map(Hardware::notes));
    notes.extend(recording.no_symbols.as_ref().map(|error| Report::new(error).to_string()));
    if recording.left_out > 0 {
        notes.push(format!(
            "{} threads were not sampled: each takes a descriptor for every CPU; raise `ulimit -n`, sample fewer CPUs \
             (--cpu), or run as root",
            recording.left_out
        ));
    }
    notes.extend(recording.gone.iter().map(|(cpu, until)| {
        format!("CPU {cpu} went offline after {until:.1} s: the figures include it until then")
    }));
    if !recording.came.is_empty() {
        let cpus = &recording.came;
        notes.push(format!("CPUs that came up during the interval were not sampled: {cpus}"));
    }
    notes.extend(counted(profile));
    notes
}

/// Limits of what the samples can show.
fn sight(profile: &Profile) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(profile.clock.blind().map(str::to_owned));
    match profile.sight {
        Sight::Machine => (),
        Sight::Process => notes.push(
            "only the threads of one process were sampled: interrupts and softirqs that ran on other threads' \
             time are not included"
                .to_owned(),
        ),
        Sight::ProcessUser => {
            notes.push("only the program itself was sampled: this user may not sample the kernel".to_owned());
        }
    }
    notes
}

/// Contradictions between the figures themselves.
fn counted(profile: &Profile) -> Vec<String> {
    let mut notes = Vec::new();
    if !profile.whole() {
        notes.push(format!(
            "{} of {} CPUs were sampled, but datagrams are counted on all: there are no figures per datagram",
            profile.cpus.len(),
            profile.facts.online
        ));
    }
    let counted = profile.samples;
    for (count, one, many) in [
        (counted.lost, "sample was lost: a ring was full", "samples were lost: the rings were full"),
        (
            counted.throttled,
            "time the kernel took fewer samples than requested",
            "times the kernel took fewer samples than requested",
        ),
        (counted.malformed, "record was invalid", "records were invalid"),
        (
            counted.nameless,
            "sample lacks names: there were too many different stacks",
            "samples lack names: there were too many different stacks",
        ),
    ] {
        match count {
            0 => (),
            1 => notes.push(format!("1 {one}")),
            count => notes.push(format!("{count} {many}")),
        }
    }
    // Samples of some threads do not add up to a CPU's time.
    if profile.sight == Sight::Machine {
        notes.extend(KINDS.iter().filter_map(|kind| disagreement(profile, kind)));
        notes.extend(came_or_went(profile));
        notes.extend(unseen(profile));
    }
    notes
}

/// A kind of time that both report: its name, its contexts in samples, and its fields in /proc/stat.
struct Kind {
    words: &'static str,
    contexts: &'static [Context],
    accounted: fn(&Accounted) -> f64,
}

const KINDS: [Kind; 3] = [
    Kind { words: "in programs", contexts: &[Context::User, Context::Guest], accounted: |times| times.usr },
    Kind {
        words: "in the kernel for programs",
        contexts: &[Context::Syscall, Context::Kernel],
        accounted: |times| times.sys,
    },
    Kind {
        words: "in interrupts",
        contexts: &[Context::Softirq, Context::HardIrq],
        accounted: |times| times.soft + times.irq,
    },
];

/// Time of a CPU in some contexts, as a share of the interval.
fn sampled(profile: &Profile, line: &CpuLine, contexts: &[Context]) -> f64 {
    let ns: u64 = contexts.iter().filter_map(|context| line.sampled.get(context)).sum();
    ns as f64 / 1e9 / profile.seconds.max(1e-9)
}

/// Time of a CPU that was not idle, by its samples, as a share of the interval.
fn busy(profile: &Profile, line: &CpuLine) -> f64 {
    sampled(profile, line, &Context::ALL) - sampled(profile, line, &[Context::Idle])
}

/// The CPUs whose time differs between samples and /proc/stat, and the CPU with the largest difference.
fn disagreement(profile: &Profile, kind: &Kind) -> Option<String> {
    let pairs = profile.cpus.iter().filter_map(|line| {
        // For a CPU that went offline and came back, /proc/stat counts only a part of the interval.
        let accounted = line.accounted.as_ref().filter(|_| line.until.is_none())?;
        let pair = [sampled(profile, line, kind.contexts), (kind.accounted)(accounted)];
        let quiet = busy(profile, line).max(1.0 - accounted.idle - accounted.steal) < QUIET;
        Some((line.cpu, pair)).filter(|(_, [ours, theirs])| !quiet && (ours - theirs).abs() > DISAGREE)
    });
    let pairs: Vec<(u32, [f64; 2])> = pairs.collect();
    let apart = |pair: &[f64; 2]| (pair[0] - pair[1]).abs();
    let (worst, [ours, theirs]) =
        pairs.iter().max_by(|(_, a), (_, b)| apart(a).total_cmp(&apart(b))).copied()?;
    let which = which(pairs.iter().map(|(cpu, _)| *cpu).collect(), Some(worst));
    let guests = if profile.clock == Clock::Cycles && kind.contexts.contains(&Context::Guest) && theirs > ours
    {
        "; virtual machines that run here are not sampled"
    } else {
        ""
    };
    Some(format!(
        "{which}: {:.0} % of the time {} by samples, {:.0} % by /proc/stat{guests}",
        100.0 * ours,
        kind.words,
        100.0 * theirs
    ))
}

/// CPUs that /proc/stat does not count at both ends, if it counts others.
fn came_or_went(profile: &Profile) -> Option<String> {
    // CPUs that went offline while they were sampled have a note with the time.
    let lines = profile.cpus.iter().filter(|line| line.until.is_none());
    let (counted, others): (Vec<_>, Vec<_>) = lines.partition(|line| line.accounted.is_some());
    if counted.is_empty() || others.is_empty() {
        return None;
    }
    let which = which(others.iter().map(|line| line.cpu).collect(), None);
    Some(format!("{which} came or went during the interval: /proc/stat does not count them at both ends"))
}

/// CPUs whose samples do not cover the interval. A clock also samples idle CPUs, unless a hypervisor parks them: what
/// /proc/stat calls idle is idle. Cycles are not counted while idle.
fn unseen(profile: &Profile) -> Option<String> {
    if profile.clock != Clock::CpuClock {
        return None;
    }
    let missing = |line: &CpuLine| {
        let Accounted { steal, idle, .. } = line.accounted.unwrap_or_default();
        let parked = (idle - sampled(profile, line, &[Context::Idle])).max(0.0);
        1.0 - steal - parked - sampled(profile, line, &Context::ALL)
    };
    let lines = profile.cpus.iter().filter(|line| line.until.is_none());
    let found: Vec<(u32, f64)> = lines.map(|line| (line.cpu, missing(line))).collect();
    let found: Vec<_> = found.into_iter().filter(|(_, missing)| *missing > UNSEEN).collect();
    let (worst, most) = found.iter().max_by(|(_, a), (_, b)| a.total_cmp(b)).copied()?;
    let which = which(found.iter().map(|(cpu, _)| *cpu).collect(), Some(worst));
    Some(format!(
        "{which}: no samples for {:.0} % of the interval, and neither steal nor idle time to explain it: interrupts were off, samples were \
         lost, or the CPU was taken away",
        100.0 * most
    ))
}

/// CPUs, and the one that the figures are from.
fn which(cpus: CpuSet, worst: Option<u32>) -> String {
    match worst {
        _ if cpus.len() == 1 => format!("CPU {cpus}"),
        Some(worst) => format!("CPUs {cpus}, above all CPU {worst}"),
        None => format!("CPUs {cpus}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::built::built;
    use crate::profile::Accounted;

    /// `cpus` CPUs, each for five seconds half in softirq and half idle, by both.
    fn agreed(cpus: u32) -> Profile {
        let mut profile = built();
        (profile.clock, profile.seconds, profile.facts.online) = (Clock::CpuClock, 5.0, cpus);
        let half = 2_500_000_000;
        profile.cpus = (0..cpus)
            .map(|cpu| CpuLine {
                cpu,
                until: None,
                sampled: BTreeMap::from([(Context::Softirq, half), (Context::Idle, half)]),
                accounted: Some(Accounted { soft: 0.5, idle: 0.5, ..Accounted::default() }),
                time_line: Vec::new(),
            })
            .collect();
        profile
    }

    /// The contradictions found.
    fn of(profile: &Profile) -> Vec<String> {
        counted(profile)
    }

    fn accounted(profile: &mut Profile, cpu: usize) -> &mut Accounted {
        profile.cpus[cpu].accounted.as_mut().unwrap()
    }

    #[test]
    fn where_both_agree_nothing_is_said() {
        let mut profile = agreed(4);
        assert_eq!(of(&profile), [""; 0]);
        // Both have an error of a few points.
        *accounted(&mut profile, 1) = Accounted { soft: 0.46, idle: 0.54, ..Accounted::default() };
        assert_eq!(of(&profile), [""; 0]);
    }

    #[test]
    fn steal_time_is_not_a_disagreement_unless_samples_contradict_it() {
        let mut profile = agreed(2);
        *accounted(&mut profile, 0) = Accounted { soft: 0.5, steal: 0.4, idle: 0.1, ..Accounted::default() };
        profile.cpus[0].sampled.insert(Context::Idle, 500_000_000);
        assert_eq!(of(&profile), [""; 0]);
        // The same samples, and neither steal nor idle time: it worked, and that is missing.
        *accounted(&mut profile, 0) = Accounted { soft: 0.9, idle: 0.1, ..Accounted::default() };
        let notes = of(&profile);
        assert!(
            notes.len() == 2
                && notes[0] == "CPU 0: 50 % of the time in interrupts by samples, 90 % by /proc/stat"
                && notes[1].starts_with("CPU 0: no samples for 40 % of the interval"),
            "{notes:?}"
        );
    }

    /// A hypervisor does not run the timer of an idle CPU that it parks.
    #[test]
    fn a_parked_cpu_is_idle_where_the_kernel_says_so() {
        let mut profile = agreed(2);
        profile.cpus[1].sampled = BTreeMap::from([(Context::Kernel, 10_000_000)]);
        *accounted(&mut profile, 1) = Accounted { sys: 0.004, idle: 0.996, ..Accounted::default() };
        assert_eq!(of(&profile), [""; 0]);
        profile.cpus[1].sampled.clear();
        assert_eq!(of(&profile), [""; 0]);
        // Unknown, or busy: the samples are missing.
        for times in [None, Some(Accounted { sys: 0.996, idle: 0.004, ..Accounted::default() })] {
            profile.cpus[1].accounted = times;
            let notes = of(&profile);
            assert!(notes.iter().any(|note| note.starts_with("CPU 1: no samples for")), "{notes:?}");
        }
    }

    #[test]
    fn shares_of_almost_nothing_are_not_compared() {
        let mut profile = agreed(2);
        let most = 4_700_000_000;
        profile.cpus[1].sampled = BTreeMap::from([(Context::HardIrq, 300_000_000), (Context::Idle, most)]);
        *accounted(&mut profile, 1) = Accounted { sys: 0.004, idle: 0.996, ..Accounted::default() };
        assert_eq!(of(&profile), [""; 0]);
        // The same difference on a CPU that either of them calls busy.
        *accounted(&mut profile, 1) = Accounted { sys: 0.2, idle: 0.8, ..Accounted::default() };
        let told = "CPU 1: 0 % of the time in the kernel for programs by samples, 20 % by /proc/stat";
        assert_eq!(of(&profile)[0], told);
        profile.cpus[1].sampled =
            BTreeMap::from([(Context::HardIrq, 600_000_000), (Context::Idle, most - 300_000_000)]);
        *accounted(&mut profile, 1) = Accounted { sys: 0.004, idle: 0.996, ..Accounted::default() };
        assert_eq!(of(&profile), ["CPU 1: 12 % of the time in interrupts by samples, 0 % by /proc/stat"]);
    }

    #[test]
    fn a_cpu_that_comes_or_goes_is_named() {
        let mut profile = agreed(4);
        profile.cpus[3].accounted = None;
        assert_eq!(
            of(&profile),
            ["CPU 3 came or went during the interval: /proc/stat does not count them at both ends"]
        );
        // If /proc/stat cannot be read at all, there is nothing to compare.
        profile.cpus.iter_mut().for_each(|line| line.accounted = None);
        assert_eq!(of(&profile), [""; 0]);
    }

    #[test]
    fn guests_count_as_programs_and_are_noted_if_they_cannot_be_sampled() {
        let mut profile = agreed(2);
        let sampled = &mut profile.cpus[1].sampled;
        (*sampled) = BTreeMap::from([(Context::Guest, 4_000_000_000), (Context::Idle, 1_000_000_000)]);
        *accounted(&mut profile, 1) = Accounted { usr: 0.8, idle: 0.2, ..Accounted::default() };
        assert_eq!(of(&profile), [""; 0]);
        profile.clock = Clock::Cycles;
        profile.cpus[1].sampled = BTreeMap::from([(Context::Kernel, 200_000_000)]);
        let told = "CPU 1: 0 % of the time in programs by samples, 80 % by /proc/stat; virtual machines that run here are \
                    not sampled";
        assert_eq!(of(&profile), [told]);
    }

    #[test]
    fn a_hundred_cpus_are_one_note_of_each_kind() {
        let mut profile = agreed(128);
        for cpu in 3..100 {
            *accounted(&mut profile, cpu) =
                Accounted { soft: 0.2, sys: 0.3, idle: 0.5, ..Accounted::default() };
        }
        accounted(&mut profile, 77).soft = 0.1;
        assert_eq!(
            of(&profile),
            [
                "CPUs 3-99, above all CPU 99: 0 % of the time in the kernel for programs by samples, 30 % by /proc/stat",
                "CPUs 3-99, above all CPU 77: 50 % of the time in interrupts by samples, 10 % by /proc/stat"
            ]
        );
    }

    #[test]
    fn losses_are_counted() {
        let mut profile = agreed(2);
        profile.samples.lost = 17;
        assert_eq!(of(&profile), ["17 samples were lost: the rings were full"]);
    }
}
