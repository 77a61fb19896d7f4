//! Interrupt moderation, `ethtool -C`: how long, and for how many frames, a card delays an interrupt.

use udpath_host::Absence;
use udpath_host::Source;

use super::row::{
    Access, Cost, Extra, OnReset, PartKind, Phase, Row, Scope, Security, Shell, Target, ValueKind,
};
use super::{Value, driver};
use crate::device::DeviceWriter;
use crate::machine::Refusal;

/// Numbers, by ethtool's names; `usecs` are microseconds, `frames` are frames.
const NUMBERS: &[&str] = &[
    "rx-usecs",
    "rx-frames",
    "rx-usecs-irq",
    "rx-frames-irq",
    "tx-usecs",
    "tx-frames",
    "tx-usecs-irq",
    "tx-frames-irq",
    "stats-block-usecs",
    "pkt-rate-low",
    "rx-usecs-low",
    "rx-frames-low",
    "tx-usecs-low",
    "tx-frames-low",
    "pkt-rate-high",
    "rx-usecs-high",
    "rx-frames-high",
    "tx-usecs-high",
    "tx-frames-high",
    "sample-interval",
    "tx-aggr-max-bytes",
    "tx-aggr-max-frames",
    "tx-aggr-time-usecs",
];
/// Switches, by ethtool's names.
const SWITCHES: &[&str] = &["adaptive-rx", "adaptive-tx", "cqe-mode-rx", "cqe-mode-tx"];

/// A numeric parameter of interrupt moderation.
pub static NUMBER: Row = Row {
    name: "coalesce",
    part: PartKind::Named(NUMBERS),
    value: ValueKind::Number("microseconds or frames", driver::MAX),
    access: Access::Driver { read, write },
    phase: Phase::Device,
    cost: Cost::None,
    scope: Scope::Namespace,
    on_reset: OnReset::LostNames(&["rx-usecs", "tx-usecs", "rx-frames", "tx-frames"]),
    writers: driver::DEVICE_WRITERS,
    shell: Shell::Line(|setting, value| driver::ethtool("-C", setting, value)),
    page: "coalesce",
    security: Security::Harmless,
    extra: Extra {
        tuned: Some(("net", "coalesce")),
        differs: driver::ROUNDS,
        errno: driver::no_such_value,
        ..Extra::NONE
    },
};

/// A switch of interrupt moderation.
pub static SWITCH: Row = Row {
    name: "coalesce",
    part: PartKind::Named(SWITCHES),
    value: ValueKind::Switch,
    access: Access::Driver { read, write },
    phase: Phase::Device,
    cost: Cost::None,
    scope: Scope::Namespace,
    on_reset: OnReset::LostNames(&["adaptive-rx", "adaptive-tx"]),
    writers: driver::DEVICE_WRITERS,
    shell: Shell::Line(|setting, value| driver::ethtool("-C", setting, value)),
    page: "coalesce",
    security: Security::Harmless,
    extra: Extra {
        tuned: Some(("net", "coalesce")),
        differs: "the driver does not support it",
        errno: driver::no_such_value,
        ..Extra::NONE
    },
};

/// This family's rows.
pub static ROWS: &[&Row] = &[&NUMBER, &SWITCH];

fn read(target: &Target<'_>, source: &dyn Source) -> Result<Value, Refusal> {
    let now = source.coalescing(target.interface).map_err(|absence| target.absent(&absence))?.value;
    let found = now.get(target.part).copied();
    if SWITCHES.contains(&target.part) {
        let found = found.ok_or_else(|| target.absent(&Absence::NotSupported))?;
        return Ok(Value::Switch(found != 0));
    }
    target.number(found)
}

fn write(target: &Target<'_>, writer: &mut DeviceWriter, value: &Value) -> Result<(), Refusal> {
    let number = match value {
        Value::Switch(on) => u32::from(*on),
        other => target.word(other)?,
    };
    target.done(writer.set_coalescing(target.interface, &[(target.part, number)]))
}
