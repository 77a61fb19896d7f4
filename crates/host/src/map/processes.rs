//! The processes at the end of the path, their threads, and the limits on their CPU time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_steer::CpuSet;

use super::sockets::SocketMap;
use super::view::View;
use crate::limits::{MemoryLimit, Quota};
use crate::processes::{Process, Thread};
use crate::sockets::looks::LookUps;
use crate::unit::{self, UnitName};

/// A process on the path.
#[derive(Debug, Clone, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ProcessMap {
    /// Its PID.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its service of systemd's system manager.
    #[serde(default, deserialize_with = "unit::lenient")]
    pub unit: Option<UnitName>,
    /// Its container, `docker 0123456789ab`.
    pub container: Option<String>,
    /// Number of its threads.
    pub threads: usize,
    /// Number of its threads that are pinned to one CPU.
    pub pinned: usize,
    /// CPUs its threads last ran on.
    pub cpus: CpuSet,
    /// Number of its sockets in this map.
    pub sockets: usize,
    /// Its threads during the interval, the busiest first; at most [`BUSIEST`]. Empty without an interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busiest: Vec<ThreadMap>,
    /// The CPU time limits of its control group and of those above, during the interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<QuotaMap>,
    /// The memory limits of the same groups; what was counted, during the interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemoryLimit>,
    /// Its waits for a name server, where somebody looked within the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_ups: Option<LookUps>,
}

/// A thread during the interval.
#[derive(Debug, Clone, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ThreadMap {
    /// Its ID.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// The CPU it last ran on.
    pub cpu: Option<u32>,
    /// CPUs it may run on.
    pub allowed: CpuSet,
    /// Share of the interval that it ran, 0 to 1.
    pub ran: f64,
    /// Share of the interval that it was ready to run but waited for a CPU, 0 to 1.
    pub waited: f64,
    /// It is stopped, by a signal or a debugger.
    #[serde(default)]
    pub stopped: bool,
}

impl ThreadMap {
    /// Share of the interval that it did not sleep, 0 to 1.
    #[must_use]
    pub fn busy(&self) -> f64 {
        (self.ran + self.waited).min(1.0)
    }
}

/// A CPU time limit during the interval.
#[derive(Debug, Clone, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct QuotaMap {
    /// The control group.
    pub group: String,
    /// The limit, as a number of CPUs.
    pub cpus: f64,
    /// Periods in which the group ran.
    pub periods: u64,
    /// Periods in which it was throttled.
    pub throttled: u64,
    /// How long its threads were throttled, in seconds, summed over CPUs.
    pub throttled_seconds: f64,
}

/// Most threads that a map lists per process. Fewer: of a server with a thread per CPU, some workers are missing. More:
/// a program with a thousand sleeping threads fills the map.
pub const BUSIEST: usize = 128;
/// Number of characters of a container's identifier that are shown: the same as its tools show.
const CONTAINER_ID: usize = 12;

pub(super) fn map(view: View<'_>, sockets: &[SocketMap]) -> Vec<ProcessMap> {
    let mut counts = std::collections::BTreeMap::<u32, usize>::new();
    for pid in sockets.iter().flat_map(|socket| &socket.pids) {
        *counts.entry(*pid).or_default() += 1;
    }
    let one = |(pid, sockets)| Some(process(view, view.now.sockets.process(pid)?, sockets));
    counts.into_iter().filter_map(one).collect()
}

fn process(view: View<'_>, process: &Process, sockets: usize) -> ProcessMap {
    let container = process.container.as_ref().map(|container| {
        let id: String = container.id.chars().take(CONTAINER_ID).collect();
        format!("{} {id}", container.runtime)
    });
    let pinned = |thread: &&Thread| thread.cpus.as_ref().is_some_and(|cpus| cpus.len() == 1);
    let earlier = view.earlier.and_then(|then| then.sockets.process(process.pid));
    let ns =
        view.earlier.map_or(0, |then| view.now.taken.saturating_sub(then.taken).saturating_mul(1_000_000));
    ProcessMap {
        pid: process.pid,
        name: process.name.clone(),
        unit: process.unit.clone(),
        container,
        threads: process.threads.len(),
        pinned: process.threads.iter().filter(pinned).count(),
        cpus: process.threads.iter().filter_map(|thread| thread.last_cpu).collect(),
        sockets,
        busiest: earlier.map(|then| busiest(process, then, ns)).unwrap_or_default(),
        quotas: earlier.map(|then| quotas(process, then)).unwrap_or_default(),
        look_ups: None,
        memory: memory(&process.limits.memory, earlier.map(|then| &then.limits.memory[..])),
    }
}

/// The threads that both snapshots have, the busiest first.
fn busiest(now: &Process, then: &Process, ns: u64) -> Vec<ThreadMap> {
    let share = |now: u64, then: u64| (now.saturating_sub(then) as f64 / ns.max(1) as f64).min(1.0);
    let was: std::collections::HashMap<u32, &Thread> =
        then.threads.iter().map(|thread| (thread.tid, thread)).collect();
    let mut threads: Vec<ThreadMap> = now
        .threads
        .iter()
        .filter_map(|thread| {
            let (time, then) = (thread.time?, was.get(&thread.tid)?.time?);
            Some(ThreadMap {
                tid: thread.tid,
                name: thread.name.clone(),
                cpu: thread.last_cpu,
                allowed: thread.cpus.clone().unwrap_or_default(),
                ran: share(time.ran_ns, then.ran_ns),
                waited: share(time.waited_ns, then.waited_ns),
                stopped: matches!(thread.state, Some('T' | 't')),
            })
        })
        .collect();
    threads.sort_by(|a, b| b.busy().total_cmp(&a.busy()));
    threads.truncate(BUSIEST);
    threads
}

fn quotas(now: &Process, then: &Process) -> Vec<QuotaMap> {
    let since = |quota: &Quota| {
        let then = then.limits.quotas.iter().find(|then| then.group == quota.group)?;
        Some(QuotaMap {
            group: quota.group.clone(),
            cpus: quota.cpus(),
            periods: quota.periods.saturating_sub(then.periods),
            throttled: quota.throttled.saturating_sub(then.throttled),
            throttled_seconds: quota.throttled_us.saturating_sub(then.throttled_us) as f64 / 1e6,
        })
    };
    now.limits.quotas.iter().filter_map(since).collect()
}

/// The limits with what was counted since then; without an earlier snapshot, since the groups were created.
fn memory(now: &[MemoryLimit], then: Option<&[MemoryLimit]>) -> Vec<MemoryLimit> {
    let since = |limit: &MemoryLimit| {
        let was = then.and_then(|then| then.iter().find(|then| then.group == limit.group));
        let (reached, killed) = was.map_or((0, 0), |was| (was.reached, was.killed));
        MemoryLimit {
            reached: limit.reached.saturating_sub(reached),
            killed: limit.killed.saturating_sub(killed),
            ..limit.clone()
        }
    };
    now.iter().map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::ThreadTime;

    #[test]
    fn a_memory_limit_is_reached_within_the_interval_or_since_its_group_was_created() {
        let limit = |reached, killed| {
            vec![MemoryLimit { group: "/a".into(), max: 9, reached, killed, ..MemoryLimit::default() }]
        };
        assert_eq!(memory(&limit(812, 3), Some(&limit(800, 3))), limit(12, 0));
        assert_eq!(memory(&limit(812, 3), None), limit(812, 3));
    }

    #[test]
    fn shares_of_the_interval() {
        let thread = |tid, ran_ns, waited_ns, state| Thread {
            tid,
            name: "worker".into(),
            cpus: None,
            last_cpu: Some(1),
            state: Some(state),
            time: Some(ThreadTime { ran_ns, waited_ns }),
        };
        let process = |threads| Process { threads, ..Process::default() };
        let then = process(vec![thread(1, 100, 0, 'S'), thread(2, 0, 0, 'S')]);
        let now = process(vec![thread(1, 100, 0, 'T'), thread(2, 600, 300, 'R'), thread(3, 9, 9, 'S')]);
        let busiest = busiest(&now, &then, 1000);
        assert_eq!(
            busiest.iter().map(|thread| thread.tid).collect::<Vec<_>>(),
            [2, 1],
            "a new thread is left out"
        );
        assert!((busiest[0].busy() - 0.9).abs() < 1e-9 && !busiest[0].stopped);
        assert!(busiest[1].stopped && busiest[1].busy() == 0.0);
    }

    #[test]
    fn limits_of_the_interval() {
        let quota = |periods, throttled, throttled_us| Quota {
            group: "/dns".into(),
            quota_us: 20_000,
            period_us: 100_000,
            periods,
            throttled,
            throttled_us,
        };
        let process = |quota| {
            let mut process = Process::default();
            process.limits.quotas = vec![quota];
            process
        };
        let quotas = quotas(&process(quota(110, 60, 9_000_000)), &process(quota(100, 52, 8_500_000)));
        let [one] = &quotas[..] else { panic!() };
        assert_eq!((one.periods, one.throttled, one.cpus), (10, 8, 0.2));
        assert!((one.throttled_seconds - 0.5).abs() < 1e-9);
    }
}
