//! CPUs that a thread of a running server may run on.

use udpath_host::process::Thread;

use super::Setting;
use super::row::{Access, Cost, Extra, OnReset, PartKind, Phase, Row, Scope, Security, Shell, ValueKind};

/// CPUs of a thread, by pid and tid.
pub(super) static AFFINITY: Row = Row {
    name: "thread:affinity",
    part: PartKind::Whole,
    value: ValueKind::SomeCpus,
    access: Access::Object,
    phase: Phase::Threads,
    cost: Cost::None,
    scope: Scope::Process,
    on_reset: OnReset::Kept,
    writers: &["a restart of the process", "its own sched_setaffinity", "its cpuset"],
    shell: Shell::Line(|setting, value| match setting {
        Setting::Thread { tid, .. } => format!("taskset -pc {value} {tid}"),
        _ => String::new(),
    }),
    page: "thread-affinity",
    security: Security::Harmless,
    extra: Extra {
        errno: |_, operation, errno| match errno {
            libc::ESRCH => Some("no such thread"),
            libc::EINVAL if operation == "set" => Some("its cpuset allows none of these CPUs"),
            _ => None,
        },
        lasts: Some(Thread::LASTS),
        ..Extra::NONE
    },
};
