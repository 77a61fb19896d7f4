//! From tallies to sums: adds up every place by the names and class of its chain.

use std::collections::{BTreeMap, HashMap};

use udpath_host::snapshot::Snapshot;

use super::named::{ListId, Named};
use super::result::{Accounted, CpuLine, ProcessShare, Share, Stack, ThreadShare};
use crate::classes::Class;
use crate::context::Context;
use crate::perf::{Clock, Sight};
use crate::recorder::{Recording, SLICE};
use crate::samples::{Place, Tally};

/// Busy share, by /proc/stat, up to which a CPU without any sample counts as idle for the whole interval. It covers the
/// hundredths that a tick or a wake-up is charged. Higher: a CPU whose events did not work passes for idle; lower: one
/// tick in an interval of half a second leaves the profile without figures per datagram.
const PARKED: f64 = 0.05;
/// Most stacks kept in a result; the rest are merged. A flame graph cannot show more, and a file of them is 10 MB.
const MOST_STACKS: usize = 20_000;

/// Nanoseconds per unit of weight.
pub(super) struct Units {
    /// By CPU, if samples count cycles; empty for a clock, whose unit is one nanosecond.
    cycles: BTreeMap<u32, f64>,
}

impl Units {
    /// A CPU's cycles add up to the time that the kernel accounts as busy: its clock speed may have varied. Without
    /// that accounting, a sample stands for the sampling period.
    pub(super) fn new(recording: &Recording, accounted: &BTreeMap<u32, Accounted>) -> Self {
        if recording.clock == Clock::CpuClock {
            return Self { cycles: BTreeMap::new() };
        }
        let mut cpus: BTreeMap<u32, Tally> = BTreeMap::new();
        for (place, tally) in recording.samples.tallies() {
            cpus.entry(place.cpu).or_default().add(*tally);
        }
        // For a CPU that went offline, or if only some threads were sampled, the accounting includes other work.
        let whole = |cpu: &u32| recording.sight == Sight::Machine && !recording.gone.contains_key(cpu);
        let ns = |cpu: &u32, tally: &Tally| match accounted.get(cpu).filter(|_| whole(cpu)) {
            Some(times) => (1.0 - times.idle - times.steal).max(0.0) * recording.seconds * 1e9,
            None => tally.samples as f64 * 1e9 / f64::from(recording.rate.max(1)),
        };
        let cycles = cpus.iter().map(|(cpu, tally)| (*cpu, ns(cpu, tally) / tally.weight.max(1) as f64));
        Self { cycles: cycles.collect() }
    }

    fn ns(&self, cpu: u32, weight: u64) -> u64 {
        self.cycles.get(&cpu).map_or(weight, |unit| (weight as f64 * unit).round() as u64)
    }
}

/// Sums over all tallies.
#[derive(Default)]
pub(super) struct Sums<'a> {
    pub(super) taken: u64,
    pub(super) busy: u64,
    pub(super) contexts: BTreeMap<Context, u64>,
    cpus: BTreeMap<u32, BTreeMap<Context, u64>>,
    pub(super) classes: BTreeMap<Class, u64>,
    pub(super) locks: BTreeMap<&'a str, u64>,
    threads: BTreeMap<(u32, u32), Thread>,
    pub(super) stacks: HashMap<StackKey<'a>, Tally>,
}

#[derive(Default)]
struct Thread {
    /// Nanoseconds on each CPU.
    cpus: BTreeMap<u32, u64>,
    reads: bool,
}

impl Thread {
    fn ns(&self) -> u64 {
        self.cpus.values().sum()
    }

    /// The CPU that it stayed on: see [`ThreadShare::cpu`].
    fn stayed_on(&self) -> Option<u32> {
        let (cpu, ns) = self.cpus.iter().max_by_key(|(_, ns)| **ns)?;
        (ns.saturating_mul(10) >= self.ns().saturating_mul(9)).then_some(*cpu)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StackKey<'a> {
    context: Context,
    class: Class,
    lock: Option<&'a str>,
    process: Option<(&'a str, u32)>,
    lists: [ListId; 2],
}

impl<'a> Sums<'a> {
    pub(super) fn add(&mut self, place: &Place, tally: Tally, named: &Named<'a>, units: &Units) {
        let tally = Tally { weight: units.ns(place.cpu, tally.weight), ..tally };
        self.taken += tally.samples;
        *self.contexts.entry(place.context).or_default() += tally.weight;
        *self.cpus.entry(place.cpu).or_default().entry(place.context).or_default() += tally.weight;
        if place.context == Context::Idle {
            return;
        }
        self.busy += tally.weight;
        let verdict = named.verdict(place.context, place.kernel);
        *self.classes.entry(verdict.class).or_default() += tally.weight;
        if let Some(lock) = verdict.lock {
            *self.locks.entry(lock).or_default() += tally.weight;
        }
        let process = named.process(place);
        if process.is_some() {
            let thread = self.threads.entry((place.pid, place.tid)).or_default();
            *thread.cpus.entry(place.cpu).or_default() += tally.weight;
            thread.reads |= named.reads(place);
        }
        let key = StackKey {
            context: place.context,
            class: verdict.class,
            lock: verdict.lock,
            process,
            lists: named.lists(place),
        };
        self.stacks.entry(key).or_default().add(tally);
    }
}

pub(super) fn sorted<T>(shares: impl Iterator<Item = Share<T>>) -> Vec<Share<T>> {
    let mut shares: Vec<_> = shares.collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.ns));
    shares
}

pub(super) fn processes(
    sums: &Sums<'_>,
    recording: &Recording,
    share: impl Fn(u64) -> f64,
) -> Vec<ProcessShare> {
    let name = |tid: &u32| recording.threads.name(*tid).to_owned();
    let mut processes: BTreeMap<u32, ProcessShare> = BTreeMap::new();
    for ((pid, tid), thread) in &sums.threads {
        let process = processes.entry(*pid).or_insert_with(|| ProcessShare {
            pid: *pid,
            name: name(pid),
            ns: 0,
            share: 0.0,
            threads: Vec::new(),
        });
        let ns = thread.ns();
        process.ns += ns;
        process.threads.push(ThreadShare {
            tid: *tid,
            name: name(tid),
            ns,
            reads: thread.reads,
            cpu: thread.stayed_on(),
        });
    }
    let mut processes: Vec<_> = processes.into_values().collect();
    for process in &mut processes {
        process.share = share(process.ns);
        process.threads.sort_by_key(|thread| std::cmp::Reverse(thread.ns));
    }
    processes.sort_by_key(|process| std::cmp::Reverse(process.ns));
    processes
}

/// Rare stacks are merged by context, class, and the process's name and id.
type RareKey<'a> = (Context, Class, Option<(&'a str, u32)>);

/// The stacks, largest first; beyond [`MOST_STACKS`], one for each kind of work of each process.
pub(super) fn stacks(stacks: HashMap<StackKey<'_>, Tally>, named: &Named<'_>) -> Vec<Stack> {
    let mut all: Vec<(StackKey<'_>, Tally)> = stacks.into_iter().collect();
    // By weight, then by name, so that the same recording gives the same file.
    all.sort_by(|(a, x), (b, y)| {
        let others = |key: &StackKey<'_>| (key.context, key.class);
        y.weight
            .cmp(&x.weight)
            .then_with(|| named.frames(a.lists).cmp(named.frames(b.lists)))
            .then_with(|| (others(a), a.process).cmp(&(others(b), b.process)))
    });
    let rare = all.split_off(all.len().min(MOST_STACKS));
    let mut folded: BTreeMap<RareKey<'_>, Tally> = BTreeMap::new();
    for (key, tally) in rare {
        folded.entry((key.context, key.class, key.process)).or_default().add(tally);
    }
    let stack = |context, class, process: Option<(&str, u32)>, tally: Tally| Stack {
        context,
        class,
        lock: None,
        process: process.map(|(name, _)| name.to_owned()),
        pid: process.map(|(_, pid)| pid),
        frames: vec!["[rare stacks]".to_owned()],
        samples: tally.samples,
        ns: tally.weight,
    };
    let rare =
        folded.into_iter().map(|((context, class, process), tally)| stack(context, class, process, tally));
    let kept = all.into_iter().map(|(key, tally)| Stack {
        lock: key.lock.map(str::to_owned),
        frames: named.frames(key.lists).map(str::to_owned).collect(),
        ..stack(key.context, key.class, key.process, tally)
    });
    kept.chain(rare).collect()
}

pub(super) fn cpu_lines(
    sums: &Sums<'_>,
    recording: &Recording,
    accounted: &BTreeMap<u32, Accounted>,
    units: &Units,
) -> Vec<CpuLine> {
    let slices = slices(recording.seconds);
    // Idle by /proc/stat and without samples: the hypervisor has parked it, or its cycles stand still.
    let parked = |cpu: &u32| {
        let busy = accounted.get(cpu).map(|times| 1.0 - times.idle - times.steal);
        !sums.cpus.contains_key(cpu) && busy.is_some_and(|busy| busy <= PARKED)
    };
    let parked = recording.cpus.iter().filter(parked).map(|cpu| (cpu, BTreeMap::new()));
    let sampled: BTreeMap<u32, BTreeMap<Context, u64>> =
        sums.cpus.clone().into_iter().chain(parked).collect();
    let mut lines: Vec<CpuLine> = sampled
        .into_iter()
        .map(|(cpu, sampled)| CpuLine {
            cpu,
            until: recording.gone.get(&cpu).copied(),
            sampled,
            accounted: accounted.get(&cpu).copied(),
            time_line: vec![BTreeMap::new(); slices],
        })
        .collect();
    for (slice, cpu, weights) in recording.samples.time_line() {
        let line = lines.binary_search_by_key(&cpu, |line| line.cpu).ok().map(|at| &mut lines[at]);
        // Samples after the end, slightly late or with a wrong clock, go to the last slice, so that none are left out.
        let at = (slice as usize).min(slices - 1);
        let Some(place) = line.and_then(|line| line.time_line.get_mut(at)) else { continue };
        for (context, weight) in Context::ALL.iter().zip(weights).filter(|(_, weight)| **weight > 0) {
            *place.entry(*context).or_default() += units.ns(cpu, *weight);
        }
    }
    lines
}

/// Slices of an interval. A recording ends slightly late: that is not a slice of its own.
fn slices(seconds: f64) -> usize {
    ((seconds / SLICE.as_secs_f64() - 0.1).ceil() as usize).max(1)
}

/// Shares of the interval between two snapshots; none for a CPU that is missing in one of them.
pub(super) fn accounted(before: &Snapshot, after: &Snapshot) -> BTreeMap<u32, Accounted> {
    let share = |cpu: &udpath_host::cpus::Cpu| {
        let earlier = before.cpus.cpu(cpu.number)?.ticks?;
        let ticks = cpu.ticks?;
        let since = |now: u64, then: u64| now.saturating_sub(then) as f64;
        let usr = since(ticks.user, earlier.user) + since(ticks.nice, earlier.nice);
        let sys = since(ticks.system, earlier.system);
        let (irq, soft) = (since(ticks.irq, earlier.irq), since(ticks.softirq, earlier.softirq));
        let steal = since(ticks.steal, earlier.steal);
        let idle = since(ticks.idle, earlier.idle) + since(ticks.iowait, earlier.iowait);
        let all = usr + sys + irq + soft + steal + idle;
        let of = |part: f64| part / all;
        (all > 0.0).then(|| Accounted {
            usr: of(usr),
            sys: of(sys),
            irq: of(irq),
            soft: of(soft),
            steal: of(steal),
            idle: of(idle),
        })
    };
    after.cpus.list.iter().filter_map(|cpu| Some((cpu.number, share(cpu)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::{Record, records};
    use crate::samples::Samples;
    use crate::symbols::kernel::Kernel;

    /// Ten samples of CPU 1, of 2 million cycles each.
    fn recording(clock: Clock) -> Recording {
        // ip, pid and tid, time, cpu, period, and an empty chain.
        let words: [u64; 6] = [0, (8 << 32) | 8, 5, 1, 2_000_000, 0];
        let mut record = [&9_u32.to_ne_bytes()[..], &2_u16.to_ne_bytes(), &56_u16.to_ne_bytes()].concat();
        record.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        let mut samples = Samples::new(Kernel::default(), 0, 1_000_000_000);
        let malformed = records(&record.repeat(10), |record| {
            if let Record::Sample(sample) = record {
                samples.add(&sample);
            }
        });
        assert_eq!(malformed, 0);
        Recording { seconds: 2.0, ..Recording::new(samples, clock, 1000) }
    }

    #[test]
    fn cycles_become_time() {
        let ns = |clock, accounted: &BTreeMap<u32, Accounted>| {
            let recording = recording(clock);
            Units::new(&recording, accounted).ns(1, 20_000_000)
        };
        let none = BTreeMap::new();
        let half =
            BTreeMap::from([(1, Accounted { usr: 0.5, idle: 0.4, steal: 0.1, ..Accounted::default() })]);
        // A clock's weight is time; half of two seconds; ten samples of a thousandth.
        assert_eq!(ns(Clock::CpuClock, &half), 20_000_000);
        assert_eq!(ns(Clock::Cycles, &half), 1_000_000_000);
        assert_eq!(ns(Clock::Cycles, &none), 10_000_000);
        let threads = Recording { sight: Sight::Process, ..recording(Clock::Cycles) };
        assert_eq!(Units::new(&threads, &half).ns(1, 20_000_000), 10_000_000);
        let mut left = recording(Clock::Cycles);
        left.gone.insert(1, 0.5);
        assert_eq!(Units::new(&left, &half).ns(1, 20_000_000), 10_000_000);
    }
    /// CPU 1 sent samples, CPUs 0 and 2 were sampled and sent none.
    #[test]
    fn a_cpu_without_samples_is_in_the_result_if_the_kernel_calls_it_idle() {
        let recording = Recording { cpus: [0, 1, 2].into_iter().collect(), ..recording(Clock::CpuClock) };
        let lines = |busy: f64, steal: f64| {
            let times = Accounted { sys: busy, steal, idle: 1.0 - busy - steal, ..Accounted::default() };
            let accounted = BTreeMap::from([(0, times), (1, times)]);
            let mut sums = Sums::default();
            sums.cpus.insert(1, BTreeMap::from([(Context::Kernel, 20_000_000)]));
            let lines = cpu_lines(&sums, &recording, &accounted, &Units::new(&recording, &accounted));
            lines.into_iter().map(|line| (line.cpu, line.sampled.len())).collect::<Vec<_>>()
        };
        assert_eq!(lines(0.004, 0.0), [(0, 0), (1, 1)]);
        assert_eq!(lines(0.004, 0.9), [(0, 0), (1, 1)]);
        // It was busy: its samples are missing.
        assert_eq!(lines(0.3, 0.0), [(1, 1)]);
    }
}
