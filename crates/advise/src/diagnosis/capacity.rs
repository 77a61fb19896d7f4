//! Is this figure normal? What the machine carries, and what the same path should carry before a CPU is full.
//!
//! ```text
//!   cost of a transaction = softirq s  +  program and its system calls t          from the profile, ns
//!
//!   all CPUs      X (s + t)  ≤  CPUs that others leave
//!   receiving     X s        ≤  CPUs that queues and RPS send packets to
//!   reading       X t        ≤  CPUs that reader threads may use, or their control group's limit
//!   ───────────────────────────────────────────────────────────────────────────────
//!   the smallest X is what it should carry, and its line is what limits
//! ```
//! Assumptions:
//! - A transaction costs as much at the limit as now. Batches make it cheaper under load, contention dearer: the figure
//!   is good to some tens of per cent, and best when the machine is at least a tenth busy.
//! - Softirq time is the service's: the kernel does not say whose packets it was spent on.
//! - On loopback and veth, the sender's CPU does the receiving, so any CPU may.
//! - With a selection, other programs keep what they use now.
//!
//! Past the kernel's sockets, over AF_XDP, a transaction costs what the classes cost that remain there (the device, the
//! program itself), and the rings and headers of its frames.
//!
//! It is unknown where the server's threads did not run, and where the result is less than what is carried.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_host::Map;
use udpath_profile::Profile;
use udpath_profile::classes::Class;
use udpath_profile::context::Context;
use udpath_profile::profile::Stack;

/// Fewest datagrams for a cost per datagram. Fewer: the cost is that of an idle machine.
const FEWEST: u64 = 1000;
/// Share of the interval that a thread runs from which on it counts as a reader where samples do not show who reads.
/// Lower: helper threads count as readers. Higher: readers of a light load do not.
const READS: f64 = 0.01;

/// Part of the rate now that the rate to expect must reach: what is carried can be carried, and less says that the
/// costs are not of these datagrams. Lower: such a figure is printed. Higher: contention at the limit, which makes each
/// of them dearer, hides the figure.
const BELOW: f64 = 0.7;

/// What AF_XDP's rings and the headers of its frames cost a transaction beyond the driver, nanoseconds of a program's
/// CPU time: `serve echo --io xdp --no-live-frames` at its limit in a lab, 90 in the program and 110 in the kernel
/// (2-core Xeon, 2026-11-29). Lower: programs whose own work is small are promised too much. Higher: too little.
const FRAMES: f64 = 200.0;

/// What bounds the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// All CPUs together.
    Cpus,
    /// The CPUs that receive packets.
    Receive,
    /// The threads that read the sockets, or the CPUs that they may use.
    Readers,
    /// The CPU time limit of a control group.
    CpuLimit,
}

/// A rate that is carried.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Carried {
    /// Transactions per second: pairs of a received and a sent datagram; of one-way traffic, datagrams.
    pub rate: f64,
    /// Are they transactions? Else datagrams of one-way traffic.
    pub transactions: bool,
    /// Per CPU used: the rate divided by the CPUs' worth of time that it took.
    pub per_cpu: f64,
}

/// What the machine carries, and what it should.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Capacity {
    /// Now.
    pub carried: Carried,
    /// The rate that this path should carry.
    pub should_carry: f64,
    /// What limits it there.
    pub limit: Bound,
    /// CPUs that the limiting stage may use.
    pub cpus: f64,
    /// Threads that read, of those seen.
    pub readers: usize,
    /// Cost of one, nanoseconds of CPU time in softirqs and interrupts.
    pub softirq_ns: f64,
    /// Cost of one, nanoseconds in the program and its system calls.
    pub program_ns: f64,
    /// CPUs' worth of time that other programs and the hypervisor leave. Absent in documents of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_cpus: Option<f64>,
    /// CPUs that receive packets. Absent in documents of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_cpus: Option<f64>,
    /// CPUs that the tightest limit of its control groups allows, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_cpus: Option<f64>,
    /// What one would cost past the kernel's sockets. Absent in documents of earlier builds, and where it goes past
    /// them now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past_sockets: Option<PastSockets>,
}

/// Cost of a transaction whose frames a program takes from the device over AF_XDP, and gives back to it, by a driver
/// that does not copy them.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct PastSockets {
    /// Nanoseconds of CPU time in softirqs and interrupts.
    pub softirq_ns: f64,
    /// Nanoseconds in the program and its system calls.
    pub program_ns: f64,
}

impl Capacity {
    /// The rate that so many reader threads would carry, each on a CPU of its own. `None`: the figures do not tell.
    #[must_use]
    pub fn with_readers(&self, readers: usize) -> Option<f64> {
        let Self { softirq_ns, program_ns, free_cpus, receive_cpus, limit_cpus, .. } = *self;
        let limits = [
            (free_cpus?, softirq_ns + program_ns),
            (receive_cpus?, softirq_ns),
            (readers as f64, program_ns),
            (limit_cpus.unwrap_or(f64::INFINITY), program_ns),
        ];
        let rate = limits.into_iter().map(|(cpus, ns)| rate(cpus, ns)).fold(f64::INFINITY, f64::min);
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// The rate that the same program would carry past the kernel's sockets, with a thread for each CPU that receives
    /// packets. `None`: the figures do not tell.
    #[must_use]
    pub fn past_sockets(&self) -> Option<f64> {
        let PastSockets { softirq_ns, program_ns } = self.past_sockets?;
        Self { softirq_ns, program_ns, ..self.clone() }.with_readers(self.receive_cpus?.ceil() as usize)
    }
}

/// Transactions per second of so many CPUs at this cost of one.
fn rate(cpus: f64, ns: f64) -> f64 {
    if ns > 0.0 { cpus * 1e9 / ns } else { f64::INFINITY }
}

/// The capacity, or why it is unknown.
pub(super) fn of(map: &Map, profile: Result<&Profile, &str>) -> Result<Capacity, String> {
    let profile = profile.map_err(|why| {
        format!("The rate that this path should carry is unknown without a profile: {why}.")
    })?;
    let unknown = |why: &str| format!("The rate that this path should carry is unknown: {why}.");
    if !profile.whole() {
        return Err(unknown("not all CPUs were sampled"));
    }
    let datagrams = profile.datagrams.ok_or_else(|| unknown("datagrams were not counted"))?;
    let (pairs, any) = (datagrams.transactions(), datagrams.received.max(datagrams.sent));
    // Some one-way traffic beside transactions is normal; mostly one-way traffic is not transactions.
    let transactions = pairs.saturating_mul(2) >= any && pairs > 0;
    let count = if transactions { pairs } else { any };
    if count < FEWEST || profile.seconds <= 0.0 {
        return Err(unknown(&format!("only {any} datagrams passed during the interval")));
    }
    if !served(profile) {
        return Err(unknown("no thread of the server used CPU time"));
    }
    let charged = profile.charged() as f64;
    let softirq = softirq_ns(profile) as f64;
    let (softirq_ns, program_ns) = (softirq / count as f64, (charged - softirq).max(0.0) / count as f64);
    let readers = readers(map, profile);
    let (free_cpus, receive_cpus) = (free(profile), receiving(map));
    let limits = [
        (Bound::Cpus, free_cpus, softirq_ns + program_ns),
        (Bound::Receive, receive_cpus, softirq_ns),
        (Bound::Readers, readers.cpus, program_ns),
        (Bound::CpuLimit, readers.quota, program_ns),
    ];
    let tightest = limits
        .into_iter()
        .map(|(bound, cpus, ns)| (bound, cpus, rate(cpus, ns)))
        .min_by(|a, b| a.2.total_cmp(&b.2));
    let (limit, cpus, should_carry) = tightest
        .filter(|(.., rate)| rate.is_finite())
        .ok_or_else(|| unknown("the datagrams took no CPU time"))?;
    let per_second = count as f64 / profile.seconds;
    if should_carry < BELOW * per_second {
        return Err(unknown("CPU time went into something else than the datagrams that were counted"));
    }
    let carried = Carried {
        rate: per_second,
        transactions,
        per_cpu: per_second / (charged / (profile.seconds * 1e9)).max(1e-9),
    };
    let limit_cpus = Some(readers.quota).filter(|cpus| cpus.is_finite());
    let past_sockets = past_sockets(map, profile, count as f64);
    let readers = readers.count;
    Ok(Capacity {
        carried,
        should_carry,
        limit,
        cpus,
        readers,
        softirq_ns,
        program_ns,
        free_cpus: Some(free_cpus),
        receive_cpus: Some(receive_cpus),
        limit_cpus,
        past_sockets,
    })
}

/// What remains of the cost of one transaction, of so many, past the kernel's sockets; `None` where they are passed
/// already.
fn past_sockets(map: &Map, profile: &Profile, transactions: f64) -> Option<PastSockets> {
    let passed = map.interfaces.iter().any(|interface| interface.queues.iter().any(|queue| queue.xsk));
    let charged = || profile.stacks.iter().filter(|stack| profile.charges(stack));
    let remains = |of_program: bool| {
        let of = |stack: &&Stack| is_of_program(stack.context) == of_program && remains(stack);
        charged().filter(of).map(|stack| stack.ns as f64).sum::<f64>() / transactions
    };
    (!passed).then(|| PastSockets { softirq_ns: remains(false), program_ns: remains(true) + FRAMES })
}

/// Whether time in a context is the program's, rather than that of softirqs, interrupts, and threads that poll in their
/// place.
const fn is_of_program(context: Context) -> bool {
    matches!(context, Context::User | Context::Syscall)
}

/// Whether there is such work without the kernel's protocols, sockets and packet buffers, and without system calls and
/// wake-ups for each datagram.
const fn remains(stack: &Stack) -> bool {
    use Class::{Interrupt, NapiGro, NicDriver, Timers, Tracing, Transmit, Unclassified, User, XdpBpf};
    matches!(
        stack.class,
        NicDriver | NapiGro | XdpBpf | Transmit | Interrupt | Timers | User | Tracing | Unclassified
    )
}

/// Whether a thread of the server that was asked for ran; of one over AF_XDP, a thread of its own does. Without a
/// focus, something did.
fn served(profile: &Profile) -> bool {
    let focus = &profile.facts.focus.pids;
    let ran =
        |process: &udpath_profile::profile::ProcessShare| focus.contains(&process.pid) && process.ns > 0;
    focus.is_empty() || profile.processes.iter().any(ran)
}

/// Time in softirqs and interrupts, and in the threads that poll in their place.
fn softirq_ns(profile: &Profile) -> u64 {
    let shared = |context: Context| matches!(context, Context::Softirq | Context::HardIrq);
    let interrupts = profile.contexts.iter().filter(|(context, _)| shared(**context)).map(|(_, ns)| ns);
    // A kernel thread that is charged is one that polls.
    let threads =
        profile.stacks.iter().filter(|stack| stack.context == Context::Kernel && profile.charges(stack));
    interrupts.sum::<u64>().saturating_add(threads.map(|stack| stack.ns).sum())
}

/// CPUs' worth of time that other programs and the hypervisor leave.
fn free(profile: &Profile) -> f64 {
    let seconds = profile.seconds.max(1e-9);
    let steal: f64 = profile.cpus.iter().filter_map(|line| Some(line.accounted?.steal)).sum();
    let all = profile.available() / (seconds * 1e9);
    (all - profile.others() as f64 / (seconds * 1e9) - steal).max(0.0)
}

/// CPUs that packets are sent to, by RPS or else by interrupts; all of them for devices without interrupts.
fn receiving(map: &Map) -> f64 {
    let all = map.cpus_online as f64;
    let mut cpus = BTreeSet::new();
    for interface in map.interfaces.iter().filter(|interface| interface.packets.unwrap_or(0) > 0) {
        for queue in &interface.queues {
            let targets = if queue.rps.is_empty() { &queue.cpus } else { &queue.rps };
            if targets.is_empty() {
                return all;
            }
            cpus.extend(targets.iter());
        }
    }
    if cpus.is_empty() { all } else { cpus.len() as f64 }
}

struct Readers {
    count: usize,
    cpus: f64,
    quota: f64,
}

/// The threads that read: those seen reading, else those that ran; and how many CPUs they may use at once.
fn readers(map: &Map, profile: &Profile) -> Readers {
    let tids: BTreeSet<u32> = profile
        .processes
        .iter()
        .filter(|process| map.processes.iter().any(|known| known.pid == process.pid))
        .flat_map(|process| &process.threads)
        .filter(|thread| thread.reads)
        .map(|thread| thread.tid)
        .collect();
    let (mut count, mut allowed, mut open) = (0, BTreeSet::new(), false);
    for thread in map.processes.iter().flat_map(|process| &process.busiest) {
        if tids.contains(&thread.tid) || (tids.is_empty() && thread.busy() >= READS) {
            count += 1;
            allowed.extend(thread.allowed.iter());
            open |= thread.allowed.is_empty();
        }
    }
    let count = count.max(tids.len());
    let most = if open || allowed.is_empty() { map.cpus_online } else { allowed.len() };
    let cpus = if count == 0 { map.cpus_online } else { count.min(most) };
    let quotas = map.processes.iter().flat_map(|process| &process.quotas);
    let quota = quotas.map(|quota| quota.cpus).fold(f64::INFINITY, f64::min);
    Readers { count, cpus: cpus as f64, quota }
}
