//! The threads of a process: where they may run, where they ran, and how much.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_steer::CpuSet;

use crate::Source;
use crate::text::{cpu_list, field, of_process};

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Thread {
    /// Its ID.
    pub tid: u32,
    /// Its name: 15 characters at most.
    pub name: String,
    /// CPUs it may run on.
    pub cpus: Option<CpuSet>,
    /// The CPU it last ran on.
    pub last_cpu: Option<u32>,
    /// Its state, as proc(5) abbreviates it: `R` running or waiting for a CPU, `S` sleeping, `T` stopped by a signal,
    /// `t` by a debugger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<char>,
    /// CPU time since it started, and how long it waited for a CPU. `None`: the kernel does not count that
    /// (CONFIG_SCHED_INFO).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<ThreadTime>,
}

/// How long a thread ran and waited since it started, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ThreadTime {
    /// On a CPU.
    pub ran_ns: u64,
    /// Ready to run, but not on a CPU: others ran, or its control group was throttled.
    pub waited_ns: u64,
}

/// The threads of a process, the main thread first.
pub(super) fn threads(source: &dyn Source, pid: u32) -> Vec<Thread> {
    let tids = source.names(&format!("/proc/{pid}/task")).unwrap_or_default();
    let mut threads: Vec<Thread> = tids
        .iter()
        .filter_map(|tid| {
            let text = |file: &str| of_process(source, &format!("/proc/{pid}/task/{tid}/{file}")).ok();
            let stat = text("stat")?;
            let (name, last_cpu) = name_and_cpu(&stat)?;
            let status = text("status").unwrap_or_default();
            let cpus = field(&status, "Cpus_allowed_list").and_then(|list| cpu_list(list).ok());
            let time = text("schedstat").and_then(|text| time(&text));
            Some(Thread { tid: tid.parse().ok()?, name, cpus, last_cpu, state: state(&stat), time })
        })
        .collect();
    threads.sort_by_key(|thread| (thread.tid != pid, thread.tid));
    threads
}

/// `17 (a (b) c) S 1 ...` of `/proc/PID/task/TID/stat` (proc(5)): the name may contain spaces and parentheses; field 39
/// is the CPU.
fn name_and_cpu(text: &str) -> Option<(String, Option<u32>)> {
    let (_, rest) = text.split_once('(')?;
    let (name, rest) = rest.rsplit_once(')')?;
    // Field 3 is the first after the name.
    Some((name.to_owned(), rest.split_ascii_whitespace().nth(39 - 3).and_then(|cpu| cpu.parse().ok())))
}

/// The state: field 3 of `/proc/PID/task/TID/stat`, the first after the name.
fn state(text: &str) -> Option<char> {
    let (_, rest) = text.rsplit_once(')')?;
    rest.trim_start().chars().next().filter(char::is_ascii_alphabetic)
}

/// `122628307 59734795 1090` of `/proc/PID/task/TID/schedstat`: nanoseconds on a CPU, nanoseconds waiting for one, time
/// slices (Documentation/scheduler/sched-stats.rst).
fn time(text: &str) -> Option<ThreadTime> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some(ThreadTime { ran_ns: numbers.next()?.ok()?, waited_ns: numbers.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_times_of_a_thread() {
        assert_eq!(state("17 (a) b) T 1 17"), Some('T'));
        assert_eq!((state("17 (a)"), state("17 x")), (None, None));
        assert_eq!(
            time("122628307 59734795 1090\n"),
            Some(ThreadTime { ran_ns: 122_628_307, waited_ns: 59_734_795 })
        );
        assert_eq!((time("1"), time(""), time("a b c")), (None, None, None));
    }

    #[test]
    fn names_with_parentheses_and_the_39th_field() {
        let text = "17 (a (b) c) S 1 17 17 0 -1 4194560 10 0 0 0 1 2 0 0 20 0 4 0 33 2990080 446 18446744073709551615 \
                    1 2 3 4 5 0 0 0 0 0 0 0 17 5 0 0 0 0 0\n";
        assert_eq!(name_and_cpu(text), Some(("a (b) c".into(), Some(5))));
        assert_eq!(name_and_cpu("17 (x) S 1"), Some(("x".into(), None)));
        assert_eq!(name_and_cpu("17 x S"), None);
    }
}
