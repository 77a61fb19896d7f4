//! What a recording tells: shares of contexts and classes, by CPU, process and thread, and the stacks behind them.
//!
//! Weights are nanoseconds of CPU time where the clock is one, and where samples count cycles, cycles turned into time by
//! the length of the recording: every sample of a CPU stands for the same share of it.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use udpath_host::snapshot::Snapshot;

use crate::classes::{Class, Rules, Verdict};
use crate::context::Context;
use crate::perf::{Clock, Sight};
use crate::recorder::{Recording, SLICE};
use crate::samples::{ChainId, Place, Tally};
use crate::symbols::user::UserFrame;
use crate::trace::Traces;

/// Version of the JSON form; raised when a field changes its meaning or goes away.
pub const SCHEMA: &str = "udpath.profile/1";

/// Where CPU time went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`SCHEMA`].
    pub schema: String,
    /// How long was sampled, seconds.
    pub seconds: f64,
    /// CPUs that were sampled.
    pub cpus: Vec<CpuLine>,
    /// What made the samples.
    pub clock: Clock,
    /// What they show.
    pub sight: Sight,
    /// Samples and what became of them.
    pub samples: Counted,
    /// CPU time by context, nanoseconds.
    pub contexts: BTreeMap<Context, u64>,
    /// CPU time by class, nanoseconds, the largest first; idle is left out.
    pub classes: Vec<Share<Class>>,
    /// CPU time in locks, by whose lock it is, the largest first.
    pub locks: Vec<Share<String>>,
    /// CPU time by process, the largest first; 0 is the kernel's idle task.
    pub processes: Vec<ProcessShare>,
    /// Datagrams of the interval, of the namespace that was looked at.
    pub datagrams: Option<Datagrams>,
    /// The stacks, the largest first.
    pub stacks: Vec<Stack>,
    /// What tracepoints counted in the same interval; whoever records puts it in.
    #[serde(default)]
    pub traces: Traces,
    /// What to know before these figures are believed.
    pub notes: Vec<String>,
}

/// A part of the busy time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share<T> {
    /// Of what.
    pub of: T,
    /// CPU time, nanoseconds.
    pub ns: u64,
    /// Of all busy time, 0 to 1.
    pub share: f64,
}

/// Samples and what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Asked for, each second of each CPU.
    pub rate: u32,
    /// Taken.
    pub taken: u64,
    /// That found no room in a ring.
    pub lost: u64,
    /// How often the kernel took fewer than asked for.
    pub throttled: u64,
    /// Records that made no sense.
    pub malformed: u64,
    /// Whose chain found no room: counted, but without names.
    pub nameless: u64,
}

/// How one CPU spent the interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuLine {
    /// The CPU.
    pub cpu: u32,
    /// By the samples, nanoseconds of each context.
    pub sampled: BTreeMap<Context, u64>,
    /// By the kernel's own accounting in /proc/stat, shares of the interval; none where it cannot be read.
    pub accounted: Option<Accounted>,
    /// By the samples, each second: nanoseconds of each context.
    pub time_line: Vec<BTreeMap<Context, u64>>,
}

/// CPU time as /proc/stat tells it, shares of the interval, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Accounted {
    /// Programs.
    pub usr: f64,
    /// The kernel for programs.
    pub sys: f64,
    /// Hard interrupts.
    pub irq: f64,
    /// Softirqs.
    pub soft: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
    /// Nothing, or waiting for disks.
    pub idle: f64,
}

/// A process's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessShare {
    /// The process.
    pub pid: u32,
    /// The name of its first thread.
    pub name: String,
    /// CPU time on its own behalf, nanoseconds: user and system calls. Interrupts that came meanwhile are nobody's.
    pub ns: u64,
    /// Of all busy time, 0 to 1.
    pub share: f64,
    /// Its threads, the busiest first.
    pub threads: Vec<ThreadShare>,
}

/// A thread's part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadShare {
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// CPU time, nanoseconds.
    pub ns: u64,
}

/// Datagrams that UDP counted in the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datagrams {
    /// Delivered to sockets.
    pub received: u64,
    /// Sent by sockets.
    pub sent: u64,
    /// Dropped for any reason.
    pub dropped: u64,
}

/// A stack with its weight: equal in context, process and functions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// On whose behalf.
    pub context: Context,
    /// The kind of work.
    pub class: Class,
    /// Of a lock: whose.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lock: Option<String>,
    /// The process; of interrupts, none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub process: Option<String>,
    /// Functions, the outermost first.
    pub frames: Vec<String>,
    /// Samples.
    pub samples: u64,
    /// CPU time, nanoseconds.
    pub ns: u64,
}

/// Most stacks kept in a result; the rest are one line. A picture cannot show more, and a file of them is 10 MB.
const MOST_STACKS: usize = 20_000;
/// Difference of busy time by samples and by /proc/stat that is worth a warning, as a share of the interval. Sampling of
/// five seconds errs by one point; a timer that waits for interrupts by two or three.
const DISAGREE: f64 = 0.05;

impl Profile {
    /// Puts a recording together. `before` and `after` are the machine at its beginning and end.
    #[must_use]
    pub fn new(recording: &Recording, rules: &Rules, before: &Snapshot, after: &Snapshot) -> Self {
        let named = Named::new(recording, rules);
        let mut sums = Sums::default();
        for (place, tally) in recording.samples.tallies() {
            sums.add(place, *tally, &named);
        }
        let accounted = accounted(before, after);
        let busy = sums.busy.max(1) as f64;
        let share = |ns: u64| ns as f64 / busy;
        let mut profile = Self {
            schema: SCHEMA.to_owned(),
            seconds: recording.seconds,
            cpus: cpu_lines(&sums, recording, &accounted),
            clock: recording.clock,
            sight: recording.sight,
            samples: Counted {
                rate: recording.rate,
                taken: sums.taken,
                lost: recording.lost,
                throttled: recording.throttled,
                malformed: recording.malformed,
                nameless: recording.samples.nameless(),
            },
            contexts: sums.contexts.clone(),
            classes: sorted(sums.classes.iter().map(|(of, ns)| Share {
                of: *of,
                ns: *ns,
                share: share(*ns),
            })),
            locks: sorted(sums.locks.iter().map(|(of, ns)| Share {
                of: of.clone(),
                ns: *ns,
                share: share(*ns),
            })),
            processes: processes(&sums, recording, share),
            datagrams: datagrams(before, after),
            stacks: stacks(sums.stacks),
            traces: Traces::default(),
            notes: Vec::new(),
        };
        profile.notes = profile.notes(recording);
        profile
    }

    /// Busy CPU time, nanoseconds: all but idle.
    #[must_use]
    pub fn busy(&self) -> u64 {
        self.contexts.iter().filter(|(context, _)| **context != Context::Idle).map(|(_, ns)| ns).sum()
    }

    /// The share of a class of the busy time, 0 to 1.
    #[must_use]
    pub fn share(&self, class: Class) -> f64 {
        self.classes.iter().find(|share| share.of == class).map_or(0.0, |share| share.share)
    }

    fn notes(&self, recording: &Recording) -> Vec<String> {
        let mut notes = Vec::new();
        notes.extend(self.clock.blind().map(str::to_owned));
        match self.sight {
            Sight::Machine => (),
            Sight::Process => notes.push(
                "only the threads of one process were sampled: its interrupts and softirqs on other threads' time are not \
                 in the figures"
                    .to_owned(),
            ),
            Sight::ProcessUser => {
                notes.push("only the program itself was sampled: this user may not see the kernel".to_owned());
            }
        }
        notes.extend(recording.no_symbols.as_ref().map(ToString::to_string));
        let counted = self.samples;
        for (count, what) in [
            (counted.lost, "samples were lost: the rings were full"),
            (counted.throttled, "times the kernel took fewer samples than asked for"),
            (counted.malformed, "records made no sense"),
            (counted.nameless, "samples have no names: there were too many different stacks"),
        ] {
            if count > 0 {
                notes.push(format!("{count} {what}"));
            }
        }
        for line in &self.cpus {
            let Some(accounted) = line.accounted else { continue };
            let of = |contexts: &[Context]| {
                let ns: u64 = contexts.iter().filter_map(|context| line.sampled.get(context)).sum();
                ns as f64 / 1e9 / self.seconds
            };
            let interrupts = of(&[Context::Softirq, Context::HardIrq]) - (accounted.soft + accounted.irq);
            if interrupts.abs() > DISAGREE {
                notes.push(format!(
                    "CPU {}: {:.0} % of the time in interrupts by samples, {:.0} % by /proc/stat",
                    line.cpu,
                    100.0 * of(&[Context::Softirq, Context::HardIrq]),
                    100.0 * (accounted.soft + accounted.irq)
                ));
            }
        }
        notes
    }
}

/// What chains are called and classed.
struct Named<'a> {
    recording: &'a Recording,
    verdicts: HashMap<ChainId, Verdict<'a>>,
    users: HashMap<(u32, u64), UserFrame>,
}

impl<'a> Named<'a> {
    fn new(recording: &'a Recording, rules: &'a Rules) -> Self {
        let samples = &recording.samples;
        let (mut verdicts, mut addresses) = (HashMap::new(), HashMap::new());
        for (place, _) in samples.tallies() {
            verdicts.entry(place.kernel).or_insert_with(|| {
                let frames = samples.chain(place.kernel).iter();
                rules.judge(frames.filter_map(|address| samples.kernel().frame(*address)))
            });
            for address in samples.chain(place.user) {
                addresses.insert((place.pid, *address), ());
            }
        }
        Self { recording, verdicts, users: recording.programs.name(addresses.into_keys()) }
    }

    fn verdict(&self, place: &Place) -> Verdict<'a> {
        match place.context {
            Context::User | Context::Guest => Verdict { class: Class::User, lock: None },
            Context::Idle => Verdict { class: Class::Idle, lock: None },
            _ => self.verdicts[&place.kernel],
        }
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

    /// On whose behalf: interrupts are nobody's.
    fn process(&self, place: &Place) -> Option<String> {
        let own = !matches!(place.context, Context::HardIrq | Context::Softirq | Context::Idle);
        own.then(|| self.recording.threads.get(&place.pid).cloned().unwrap_or_default())
    }
}

/// Sums over all tallies.
#[derive(Default)]
struct Sums {
    taken: u64,
    busy: u64,
    contexts: BTreeMap<Context, u64>,
    cpus: BTreeMap<u32, BTreeMap<Context, u64>>,
    classes: BTreeMap<Class, u64>,
    locks: BTreeMap<String, u64>,
    threads: BTreeMap<(u32, u32), u64>,
    stacks: HashMap<StackKey, Tally>,
}

#[derive(PartialEq, Eq, Hash)]
struct StackKey {
    context: Context,
    class: Class,
    lock: Option<String>,
    process: Option<String>,
    frames: Vec<String>,
}

impl Sums {
    fn add(&mut self, place: &Place, tally: Tally, named: &Named<'_>) {
        self.taken += tally.samples;
        *self.contexts.entry(place.context).or_default() += tally.weight;
        *self.cpus.entry(place.cpu).or_default().entry(place.context).or_default() += tally.weight;
        if place.context == Context::Idle {
            return;
        }
        self.busy += tally.weight;
        let verdict = named.verdict(place);
        *self.classes.entry(verdict.class).or_default() += tally.weight;
        let lock = verdict.lock.map(str::to_owned);
        if let Some(lock) = &lock {
            *self.locks.entry(lock.clone()).or_default() += tally.weight;
        }
        let process = named.process(place);
        if process.is_some() {
            *self.threads.entry((place.pid, place.tid)).or_default() += tally.weight;
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

fn sorted<T>(shares: impl Iterator<Item = Share<T>>) -> Vec<Share<T>> {
    let mut shares: Vec<_> = shares.collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.ns));
    shares
}

fn processes(sums: &Sums, recording: &Recording, share: impl Fn(u64) -> f64) -> Vec<ProcessShare> {
    let name = |tid: &u32| recording.threads.get(tid).cloned().unwrap_or_default();
    let mut processes: BTreeMap<u32, ProcessShare> = BTreeMap::new();
    for ((pid, tid), ns) in &sums.threads {
        let process = processes.entry(*pid).or_insert_with(|| ProcessShare {
            pid: *pid,
            name: name(pid),
            ns: 0,
            share: 0.0,
            threads: Vec::new(),
        });
        process.ns += ns;
        process.threads.push(ThreadShare { tid: *tid, name: name(tid), ns: *ns });
    }
    let mut processes: Vec<_> = processes.into_values().collect();
    for process in &mut processes {
        process.share = share(process.ns);
        process.threads.sort_by_key(|thread| std::cmp::Reverse(thread.ns));
    }
    processes.sort_by_key(|process| std::cmp::Reverse(process.ns));
    processes
}

fn stacks(stacks: HashMap<StackKey, Tally>) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = stacks
        .into_iter()
        .map(|(key, tally)| {
            let StackKey { context, class, lock, process, frames } = key;
            Stack { context, class, lock, process, frames, samples: tally.samples, ns: tally.weight }
        })
        .collect();
    // By weight, and by name where that is equal: the same recording gives the same file.
    stacks.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.frames.cmp(&b.frames)));
    if stacks.len() > MOST_STACKS {
        let rest = stacks.split_off(MOST_STACKS);
        let mut folded: BTreeMap<(Context, Class), Tally> = BTreeMap::new();
        for stack in rest {
            let tally = Tally { samples: stack.samples, weight: stack.ns };
            folded.entry((stack.context, stack.class)).or_default().add(tally);
        }
        stacks.extend(folded.into_iter().map(|((context, class), tally)| {
            let frames = vec!["[rare stacks]".to_owned()];
            let Tally { samples, weight: ns } = tally;
            Stack { context, class, lock: None, process: None, frames, samples, ns }
        }));
    }
    stacks
}

fn cpu_lines(sums: &Sums, recording: &Recording, accounted: &BTreeMap<u32, Accounted>) -> Vec<CpuLine> {
    let slices = (recording.seconds / SLICE.as_secs_f64()).ceil() as usize;
    let mut lines: Vec<CpuLine> = sums
        .cpus
        .iter()
        .map(|(cpu, sampled)| CpuLine {
            cpu: *cpu,
            sampled: sampled.clone(),
            accounted: accounted.get(cpu).copied(),
            time_line: vec![BTreeMap::new(); slices],
        })
        .collect();
    for (slice, cpu, weights) in recording.samples.time_line() {
        let line = lines.binary_search_by_key(&cpu, |line| line.cpu).ok().map(|at| &mut lines[at]);
        let Some(place) = line.and_then(|line| line.time_line.get_mut(slice as usize)) else { continue };
        let contexts = Context::ALL.iter().zip(weights).filter(|(_, weight)| **weight > 0);
        place.extend(contexts.map(|(context, weight)| (*context, *weight)));
    }
    lines
}

/// Shares of the interval between two snapshots.
fn accounted(before: &Snapshot, after: &Snapshot) -> BTreeMap<u32, Accounted> {
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

fn datagrams(before: &Snapshot, after: &Snapshot) -> Option<Datagrams> {
    let families = [(before.udp.v4, after.udp.v4), (before.udp.v6, after.udp.v6)];
    let since: Vec<_> = families.into_iter().filter_map(|(then, now)| Some(now?.since(&then?))).collect();
    (!since.is_empty()).then(|| Datagrams {
        received: since.iter().map(|counted| counted.in_datagrams).sum(),
        sent: since.iter().map(|counted| counted.out_datagrams).sum(),
        dropped: since.iter().map(|counted| counted.in_errors + counted.no_ports).sum(),
    })
}
