//! From tallies to sums: every chain named and judged once, every place counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use udpath_host::snapshot::Snapshot;

use super::{Accounted, CpuLine, Datagrams, ProcessShare, Share, Stack, ThreadShare};
use crate::classes::{Class, Rules, Verdict};
use crate::context::Context;
use crate::perf::{Clock, Sight};
use crate::recorder::{Recording, SLICE};
use crate::samples::{ChainId, Place, Tally};
use crate::symbols::user::UserFrame;

/// Most stacks kept in a result; the rest are one line. A picture cannot show more, and a file of them is 10 MB.
const MOST_STACKS: usize = 20_000;

/// What chains are called and classed.
pub(super) struct Named<'a> {
    recording: &'a Recording,
    verdicts: HashMap<ChainId, Verdict<'a>>,
    users: HashMap<(u32, u64), UserFrame>,
    /// Chains that receive from a UDP socket.
    reading: BTreeSet<ChainId>,
}

/// Functions that a thread which receives from a UDP socket is in.
const READING: [&str; 4] = ["udp_recvmsg", "udpv6_recvmsg", "__skb_recv_udp", "udp_poll"];

impl<'a> Named<'a> {
    pub(super) fn new(recording: &'a Recording, rules: &'a Rules) -> Self {
        let samples = &recording.samples;
        let (mut verdicts, mut addresses, mut reading) = (HashMap::new(), HashMap::new(), BTreeSet::new());
        for (place, _) in samples.tallies() {
            verdicts.entry(place.kernel).or_insert_with(|| {
                let frames = samples.chain(place.kernel).iter();
                let frames = frames.filter_map(|address| samples.kernel().frame(*address));
                if frames.clone().any(|frame| READING.contains(&frame.function)) {
                    reading.insert(place.kernel);
                }
                rules.judge(frames)
            });
            for address in samples.chain(place.user) {
                addresses.insert((place.pid, *address), ());
            }
        }
        Self { recording, verdicts, users: recording.programs.name(addresses.into_keys()), reading }
    }

    fn verdict(&self, context: Context, kernel: ChainId) -> Verdict<'a> {
        match context {
            Context::User | Context::Guest => Verdict { class: Class::User, lock: None },
            Context::Idle => Verdict { class: Class::Idle, lock: None },
            _ => self.verdicts[&kernel],
        }
    }

    /// The kind of work of a context and the kernel's part of a chain, of a sample that was taken.
    pub(super) fn class(&self, context: Context, kernel: ChainId) -> Class {
        self.verdict(context, kernel).class
    }

    /// Functions, the outermost first.
    fn frames(&self, place: &Place) -> Vec<String> {
        let samples = &self.recording.samples;
        let user = samples.chain(place.user).iter().rev().map(|address| {
            let frame = self.users.get(&(place.pid, *address));
            let (binary, function) =
                frame.map_or((None, None), |frame| (frame.binary.as_deref(), frame.function.as_deref()));
            match (binary, function) {
                (Some(binary), Some(function)) => format!("{function} [{binary}]"),
                (Some(binary), None) => format!("[{binary}]"),
                (None, _) => "[unknown]".to_owned(),
            }
        });
        let kernel = samples.chain(place.kernel).iter().rev().map(|address| {
            samples.kernel().frame(*address).map_or("[kernel]".to_owned(), |frame| frame.function.to_owned())
        });
        user.chain(kernel).collect()
    }

    /// On whose behalf, name and number: interrupts are nobody's.
    fn process(&self, place: &Place) -> Option<(String, u32)> {
        let own = !matches!(place.context, Context::HardIrq | Context::Softirq | Context::Idle);
        own.then(|| (self.recording.threads.get(&place.pid).cloned().unwrap_or_default(), place.pid))
    }
}

/// What a unit of weight is in nanoseconds.
pub(super) struct Units {
    /// By CPU, where samples count cycles; of a clock none, since its unit is one.
    cycles: BTreeMap<u32, f64>,
}

impl Units {
    /// A CPU's cycles are as long as the time that the kernel accounts as busy takes altogether: its clock may have had any
    /// speed. Where that is not accounted a sample is one of so many a second.
    pub(super) fn new(recording: &Recording, accounted: &BTreeMap<u32, Accounted>) -> Self {
        if recording.clock == Clock::CpuClock {
            return Self { cycles: BTreeMap::new() };
        }
        let mut cpus: BTreeMap<u32, Tally> = BTreeMap::new();
        for (place, tally) in recording.samples.tallies() {
            cpus.entry(place.cpu).or_default().add(*tally);
        }
        // Of a CPU that went away, and where only some threads were sampled, that is of other work, too.
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
pub(super) struct Sums {
    pub(super) taken: u64,
    pub(super) busy: u64,
    pub(super) contexts: BTreeMap<Context, u64>,
    cpus: BTreeMap<u32, BTreeMap<Context, u64>>,
    pub(super) classes: BTreeMap<Class, u64>,
    pub(super) locks: BTreeMap<String, u64>,
    threads: BTreeMap<(u32, u32), Thread>,
    pub(super) stacks: HashMap<StackKey, Tally>,
}

#[derive(Default)]
struct Thread {
    ns: u64,
    reads: bool,
}

#[derive(PartialEq, Eq, Hash)]
pub(super) struct StackKey {
    context: Context,
    class: Class,
    lock: Option<String>,
    process: Option<(String, u32)>,
    frames: Vec<String>,
}

impl Sums {
    pub(super) fn add(&mut self, place: &Place, tally: Tally, named: &Named<'_>, units: &Units) {
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
        let lock = verdict.lock.map(str::to_owned);
        if let Some(lock) = &lock {
            *self.locks.entry(lock.clone()).or_default() += tally.weight;
        }
        let process = named.process(place);
        if process.is_some() {
            let thread = self.threads.entry((place.pid, place.tid)).or_default();
            thread.ns += tally.weight;
            thread.reads |= named.reading.contains(&place.kernel);
        }
        let key = StackKey {
            context: place.context,
            class: verdict.class,
            lock,
            process,
            frames: named.frames(place),
        };
        self.stacks.entry(key).or_default().add(tally);
    }
}

pub(super) fn sorted<T>(shares: impl Iterator<Item = Share<T>>) -> Vec<Share<T>> {
    let mut shares: Vec<_> = shares.collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.ns));
    shares
}

pub(super) fn processes(sums: &Sums, recording: &Recording, share: impl Fn(u64) -> f64) -> Vec<ProcessShare> {
    let name = |tid: &u32| recording.threads.get(tid).cloned().unwrap_or_default();
    let mut processes: BTreeMap<u32, ProcessShare> = BTreeMap::new();
    for ((pid, tid), thread) in &sums.threads {
        let process = processes.entry(*pid).or_insert_with(|| ProcessShare {
            pid: *pid,
            name: name(pid),
            ns: 0,
            share: 0.0,
            threads: Vec::new(),
        });
        process.ns += thread.ns;
        process.threads.push(ThreadShare { tid: *tid, name: name(tid), ns: thread.ns, reads: thread.reads });
    }
    let mut processes: Vec<_> = processes.into_values().collect();
    for process in &mut processes {
        process.share = share(process.ns);
        process.threads.sort_by_key(|thread| std::cmp::Reverse(thread.ns));
    }
    processes.sort_by_key(|process| std::cmp::Reverse(process.ns));
    processes
}

pub(super) fn stacks(stacks: HashMap<StackKey, Tally>) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = stacks
        .into_iter()
        .map(|(key, tally)| {
            let StackKey { context, class, lock, process, frames } = key;
            let (process, pid) = process.unzip();
            Stack { context, class, lock, process, pid, frames, samples: tally.samples, ns: tally.weight }
        })
        .collect();
    // By weight, and by name where that is equal: the same recording gives the same file.
    stacks.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| (&a.frames, a.pid).cmp(&(&b.frames, b.pid))));
    if stacks.len() > MOST_STACKS {
        let rest = stacks.split_off(MOST_STACKS);
        let mut folded: BTreeMap<(Context, Class, Option<u32>, Option<String>), Tally> = BTreeMap::new();
        for stack in rest {
            let tally = Tally { samples: stack.samples, weight: stack.ns };
            let key = (stack.context, stack.class, stack.pid, stack.process);
            folded.entry(key).or_default().add(tally);
        }
        stacks.extend(folded.into_iter().map(|((context, class, pid, process), tally)| {
            let frames = vec!["[rare stacks]".to_owned()];
            let Tally { samples, weight: ns } = tally;
            Stack { context, class, lock: None, process, pid, frames, samples, ns }
        }));
    }
    stacks
}

pub(super) fn cpu_lines(
    sums: &Sums,
    recording: &Recording,
    accounted: &BTreeMap<u32, Accounted>,
    units: &Units,
) -> Vec<CpuLine> {
    let slices = (recording.seconds / SLICE.as_secs_f64()).ceil() as usize;
    let mut lines: Vec<CpuLine> = sums
        .cpus
        .iter()
        .map(|(cpu, sampled)| CpuLine {
            cpu: *cpu,
            until: recording.gone.get(cpu).copied(),
            sampled: sampled.clone(),
            accounted: accounted.get(cpu).copied(),
            time_line: vec![BTreeMap::new(); slices],
        })
        .collect();
    for (slice, cpu, weights) in recording.samples.time_line() {
        let line = lines.binary_search_by_key(&cpu, |line| line.cpu).ok().map(|at| &mut lines[at]);
        let Some(place) = line.and_then(|line| line.time_line.get_mut(slice as usize)) else { continue };
        let contexts = Context::ALL.iter().zip(weights).filter(|(_, weight)| **weight > 0);
        place.extend(contexts.map(|(context, weight)| (*context, units.ns(cpu, *weight))));
    }
    lines
}

/// Shares of the interval between two snapshots.
pub(super) fn accounted(before: &Snapshot, after: &Snapshot) -> BTreeMap<u32, Accounted> {
    let share = |cpu: &udpath_host::snapshot::cpus::Cpu| {
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

pub(super) fn datagrams(before: &Snapshot, after: &Snapshot) -> Option<Datagrams> {
    let families = [(before.udp.v4, after.udp.v4), (before.udp.v6, after.udp.v6)];
    let since: Vec<_> = families.into_iter().filter_map(|(then, now)| Some(now?.since(&then?))).collect();
    (!since.is_empty()).then(|| Datagrams {
        received: since.iter().map(|counted| counted.in_datagrams).sum(),
        sent: since.iter().map(|counted| counted.out_datagrams).sum(),
        dropped: since.iter().map(|counted| counted.in_errors + counted.no_ports).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::{Record, records};
    use crate::samples::Samples;
    use crate::symbols::kernel::Kernel;

    /// Ten samples of CPU 1, of 2 million cycles each.
    fn recording(clock: Clock) -> Recording {
        // ip, pid and tid, time, cpu, period, and a chain of nothing.
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
}
