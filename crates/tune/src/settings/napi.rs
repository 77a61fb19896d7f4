//! NAPI of an interface: polling in threads, and how long interrupts stay off. Files in sysfs.

use super::row::{Access, Cost, Extra, OnReset, PartKind, Phase, Row, Scope, Shell, ValueKind};
use super::{Form, Setting};

const WRITERS: &[&str] = &["udev", "a reload of the driver"];

/// Polls in kernel threads of its own.
pub static THREADED: Row = Row {
    name: "napi/threaded",
    part: PartKind::Whole,
    value: ValueKind::Switch,
    access: Access::File(|setting| file(setting, "threaded"), Form::Bit),
    phase: Phase::Kernel,
    cost: Cost::None,
    scope: Scope::Namespace,
    on_reset: OnReset::Lost,
    writers: WRITERS,
    shell: Shell::Echo,
    page: "napi-threaded",
    extra: Extra::NONE,
};

/// Empty polls before the hard IRQ is enabled again.
pub static DEFER_HARD_IRQS: Row = Row {
    name: "napi/defer-hard-irqs",
    part: PartKind::Whole,
    value: ValueKind::Number("polls"),
    access: Access::File(|setting| file(setting, "napi_defer_hard_irqs"), Form::Number),
    phase: Phase::Kernel,
    cost: Cost::None,
    scope: Scope::Namespace,
    on_reset: OnReset::Lost,
    writers: WRITERS,
    shell: Shell::Echo,
    page: "napi-defer",
    extra: Extra::NONE,
};

/// How long a poll may be put off, nanoseconds.
pub static GRO_FLUSH_TIMEOUT: Row = Row {
    name: "napi/gro-flush-timeout",
    part: PartKind::Whole,
    value: ValueKind::Number("nanoseconds"),
    access: Access::File(|setting| file(setting, "gro_flush_timeout"), Form::Number),
    phase: Phase::Kernel,
    cost: Cost::None,
    scope: Scope::Namespace,
    on_reset: OnReset::Lost,
    writers: WRITERS,
    shell: Shell::Echo,
    page: "gro-flush-timeout",
    extra: Extra::NONE,
};

/// This family's rows.
pub static ROWS: &[&Row] = &[&THREADED, &DEFER_HARD_IRQS, &GRO_FLUSH_TIMEOUT];

fn file(setting: &Setting, file: &str) -> String {
    format!("/sys/class/net/{}/{file}", setting.interface().unwrap_or_default())
}
