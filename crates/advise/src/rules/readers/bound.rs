//! Readers that may run only where softirqs take the time, beside CPUs that are idle.

use std::collections::BTreeSet;

use udpath_host::map::{ProcessMap, Shares, ThreadMap};
use udpath_steer::CpuSet;

use super::SHARES;
use crate::finding::Location;
use crate::rule::{Found, Observed, cpus, percent};

/// Idle share of a CPU, at most, for it to have no time left; sampling errs by a point or two. Lower: a reader that
/// sleeps between bursts hides it. Higher: a reader that could do more is called bound.
const NO_TIME: f64 = 0.1;
/// Share of a CPU that softirqs take, at least, for its readers to be better off elsewhere: there they have 1.4 times
/// the time. Lower: what they gain is lost to datagrams that come from another CPU's cache. Higher: readers that would
/// get half as much again stay.
const SOFT: f64 = 0.3;
/// Idle share of the other CPUs, at least, for a reader to be better off there. Lower: it would only change whom it
/// waits for. Higher: a machine with a little other work is said to have no room.
const IDLE: f64 = 0.5;
/// Threads that get a command. More: a line that nobody reads; their program's own option is the better way.
const THREADS: usize = 8;

/// Of each process whose threads all have to share their CPUs with softirqs.
pub(super) fn found(on: Observed<'_>) -> Vec<Found> {
    if on.map.seconds.is_none() {
        return Vec::new();
    }
    on.map.processes.iter().filter_map(|process| of(on, process)).collect()
}

/// The times of CPUs; `None` if one is unknown.
fn times(on: Observed<'_>, of: &CpuSet) -> Option<Vec<Shares>> {
    let time = |cpu: u32| on.map.cpus.iter().find(|known| known.cpu == cpu)?.time;
    of.iter().map(time).collect()
}

/// Where a reader of the same sockets may run, in whichever process: with a reader for each CPU, one of them is where
/// it should be.
fn allowed(on: Observed<'_>, process: &ProcessMap) -> CpuSet {
    let own = on.map.sockets.iter().filter(|socket| socket.pids.contains(&process.pid));
    let ports: BTreeSet<u16> = own.map(|socket| socket.local.port()).collect();
    let of_ports = on.map.sockets.iter().filter(|socket| ports.contains(&socket.local.port()));
    let pids: BTreeSet<u32> = of_ports.flat_map(|socket| socket.pids.iter().copied()).collect();
    let processes = on.map.processes.iter().filter(|process| pids.contains(&process.pid));
    processes.flat_map(|process| &process.busiest).flat_map(|thread| thread.allowed.iter()).collect()
}

fn of(on: Observed<'_>, process: &ProcessMap) -> Option<Found> {
    let online = &on.snapshot.cpus.online;
    let own: CpuSet = allowed(on, process).iter().filter(|cpu| online.contains(*cpu)).collect();
    let others: CpuSet = online.iter().filter(|cpu| !own.contains(*cpu)).collect();
    if own.is_empty() || others.is_empty() {
        return None;
    }
    let (taken, free) = (times(on, &own)?, times(on, &others)?);
    let soft = |time: &Shares| time.soft + time.irq;
    let full = taken.iter().all(|time| time.idle <= NO_TIME && soft(time) >= SOFT);
    let idle = free.iter().map(|time| time.idle).sum::<f64>() / free.len() as f64;
    let readers: Vec<&ThreadMap> = process.busiest.iter().filter(|thread| thread.busy() >= SHARES).collect();
    if !full || idle < IDLE || readers.is_empty() {
        return None;
    }
    let taken = taken.iter().map(soft).sum::<f64>() / taken.len() as f64;
    let waited = readers.iter().map(|thread| thread.waited).fold(0.0, f64::max);
    let evidence = format!(
        "the threads of {} (pid {}) may run only on {}, which spent {} in softirqs and had no time left, and waited for it up to {} \
         of the time; {} {} {} idle",
        process.name,
        process.pid,
        cpus(&own),
        percent(taken),
        percent(waited),
        cpus(&others),
        if others.len() == 1 { "was" } else { "were" },
        percent(idle)
    );
    let found = Found::new(evidence)
        .share(taken)
        .at(Location::Process(process.pid))
        .at_all(own.iter().map(Location::Cpu));
    let cpuset = on.snapshot.sockets.process(process.pid).and_then(|read| read.limits.cpuset.as_ref());
    let is_idle = |cpu: u32| times(on, &[cpu].into_iter().collect()).is_some_and(|time| time[0].idle >= IDLE);
    let reachable = |cpu: u32| is_idle(cpu) && cpuset.is_none_or(|cpuset| cpuset.contains(cpu));
    let reachable: CpuSet = others.iter().filter(|cpu| reachable(*cpu)).collect();
    Some(if reachable.is_empty() {
        found.advice(format!(
            "let its control group use {} as well (systemd: AllowedCPUs=; docker: --cpuset-cpus)",
            cpus(&others)
        ))
    } else {
        let moved = readers.iter().take(THREADS);
        let moved = moved.map(|thread| format!("thread:{}/{}:affinity={reachable}", process.pid, thread.tid));
        found.changes("move its readers to CPUs that are idle", moved.collect())
    })
}

#[cfg(test)]
mod tests {
    use udpath_host::processes::Process;

    use super::*;
    use crate::rules::testing::{Host, only, set, settings, thread};

    /// A server of two threads that may run on these CPUs of four; CPUs 0 and 1 are full, half of it with softirqs.
    fn host(allowed: [&str; 2]) -> Host {
        let mut host = Host::with_queues(1);
        host.map.seconds = Some(10.0);
        host.cpus(4, 1);
        host.serve(2, 0);
        (host.map.sockets[0].queued, host.map.sockets[0].queued_before) = (0, Some(0));
        host.map.processes[0].busiest = vec![thread(812, 0.4), thread(813, 0.4)];
        for (thread, allowed) in host.map.processes[0].busiest.iter_mut().zip(allowed) {
            (thread.allowed, thread.waited) = (set(allowed), 0.5);
        }
        for cpu in &mut host.map.cpus {
            cpu.time = Some(if cpu.cpu < 2 {
                Shares { sys: 0.4, soft: 0.55, idle: 0.05, ..Shares::default() }
            } else {
                Shares { sys: 0.1, idle: 0.9, ..Shares::default() }
            });
        }
        host
    }

    #[test]
    fn readers_that_may_run_only_where_softirqs_run_are_moved_to_idle_cpus() {
        let finding = only(&host(["0-1", "0-1"]), "readers-on-softirq-cpus");
        assert_eq!(
            finding.evidence,
            "the threads of knotd (pid 812) may run only on CPUs 0-1, which spent 55 % in softirqs and had no time left, and waited \
             for it up to 50 % of the time; CPUs 2-3 were 90 % idle"
        );
        assert_eq!(settings(&finding), ["thread:812/812:affinity=2-3", "thread:812/813:affinity=2-3"]);
        let one = only(&host(["0", "0"]), "readers-on-softirq-cpus");
        assert_eq!(settings(&one)[0], "thread:812/812:affinity=2-3", "not to CPU 1, which is full as well");
        // The cpuset of its control group ends there as well.
        let mut bounded = host(["0-1", "0-1"]);
        let mut process = Process { pid: 812, ..Process::default() };
        process.limits.cpuset = Some(set("0-1"));
        bounded.snapshot.sockets.processes = vec![process];
        let finding = only(&bounded, "readers-on-softirq-cpus");
        assert_eq!(settings(&finding), [""; 0]);
        assert!(finding.remedies[0].what().starts_with("let its control group use CPUs 2-3"));
    }

    #[test]
    fn twins_that_may_run_elsewhere_or_have_time() {
        assert_eq!(host(["0-3", "0-3"]).found("readers-on-softirq-cpus"), [], "anywhere");
        assert_eq!(
            host(["0", "2"]).found("readers-on-softirq-cpus"),
            [],
            "a reader for each CPU: the flows are uneven"
        );
        let mut busy = host(["0-1", "0-1"]);
        let full = busy.map.cpus[0].time;
        for cpu in &mut busy.map.cpus {
            cpu.time = full;
        }
        assert_eq!(busy.found("readers-on-softirq-cpus"), [], "no CPU is idle");
    }

    #[test]
    fn a_cpu_that_its_readers_fill_themselves_is_no_softirqs_cpu() {
        let mut own = host(["0-1", "0-1"]);
        for cpu in &mut own.map.cpus[..2] {
            cpu.time = Some(Shares { sys: 0.8, soft: 0.15, idle: 0.05, ..Shares::default() });
        }
        assert_eq!(own.found("readers-on-softirq-cpus"), []);
        let mut light = host(["0-1", "0-1"]);
        light.map.cpus[1].time = Some(Shares { soft: 0.5, idle: 0.5, ..Shares::default() });
        assert_eq!(light.found("readers-on-softirq-cpus"), [], "one of them has time");
    }
}
