//! Channels and rings: the number of queues of a card (`ethtool -L`), and their depth (`ethtool -G`).

use udpath_host::Source;
use udpath_host::interfaces::{ChannelCounts, Rings};

use super::row::{
    Access, Cost, Extra, Limit, OnReset, PartKind, Phase, Row, Scope, Security, Shell, Target, ValueKind,
};
use super::{Item, Setting, Value, driver};
use crate::device::DeviceWriter;
use crate::machine::Refusal;

/// Number of channels of a type, `ethtool -L`.
pub static CHANNELS: Row = Row {
    name: "channels",
    part: PartKind::Named(&["combined", "rx", "tx", "other"]),
    value: ValueKind::Number("channels", driver::MAX),
    access: Access::Driver { read: channels, write: set_channels },
    phase: Phase::Channels,
    cost: Cost::ResetsLink,
    scope: Scope::Namespace,
    on_reset: OnReset::Kept,
    writers: driver::DEVICE_WRITERS,
    shell: Shell::Line(|setting, value| driver::ethtool("-L", setting, value)),
    page: "channels",
    security: Security::Harmless,
    extra: Extra {
        limit: channels_limit,
        tuned: Some(("net", "channels")),
        differs: driver::ROUNDS,
        errno: driver::no_such_value,
        ..Extra::NONE
    },
};

/// Descriptors of each ring, `ethtool -G`.
pub static RING: Row = Row {
    name: "ring",
    part: PartKind::Named(&["rx", "tx"]),
    value: ValueKind::Number("descriptors", driver::MAX),
    access: Access::Driver { read: ring, write: set_ring },
    phase: Phase::Device,
    cost: Cost::ResetsLink,
    scope: Scope::Namespace,
    on_reset: OnReset::Kept,
    writers: driver::DEVICE_WRITERS,
    shell: Shell::Line(|setting, value| driver::ethtool("-G", setting, value)),
    page: "ring",
    security: Security::Harmless,
    extra: Extra {
        limit: ring_limit,
        tuned: Some(("net", "ring")),
        differs: driver::ROUNDS,
        errno: driver::no_such_value,
        ..Extra::NONE
    },
};

/// This family's rows.
pub static ROWS: &[&Row] = &[&CHANNELS, &RING];

fn count(counts: &ChannelCounts, kind: &str) -> Option<u32> {
    match kind {
        "rx" => counts.rx,
        "tx" => counts.tx,
        "other" => counts.other,
        _ => counts.combined,
    }
}

fn channels(target: &Target<'_>, source: &dyn Source) -> Result<Value, Refusal> {
    let found = source.channels(target.interface).map_err(|absence| target.absent(&absence))?;
    target.number(count(&found.value.now, target.part))
}

fn set_channels(target: &Target<'_>, writer: &mut DeviceWriter, value: &Value) -> Result<(), Refusal> {
    let (mut counts, number) = (ChannelCounts::default(), Some(target.word(value)?));
    match target.part {
        "rx" => counts.rx = number,
        "tx" => counts.tx = number,
        "other" => counts.other = number,
        _ => counts.combined = number,
    }
    target.done(writer.set_channels(target.interface, &counts))
}

fn channels_limit(
    target: &Target<'_>,
    source: &dyn Source,
    value: &Value,
    _: &[(Setting, Value)],
) -> Result<(), Limit> {
    let max = source.channels(target.interface).ok().and_then(|found| count(&found.value.max, target.part));
    target.at_most(value, max)
}

fn ring(target: &Target<'_>, source: &dyn Source) -> Result<Value, Refusal> {
    let rings = source.rings(target.interface).map_err(|absence| target.absent(&absence))?.value;
    target.number(if target.part == "rx" { rings.rx } else { rings.tx })
}

fn set_ring(target: &Target<'_>, writer: &mut DeviceWriter, value: &Value) -> Result<(), Refusal> {
    let entries = Some(target.word(value)?);
    let rings = match target.part {
        "rx" => Rings { rx: entries, ..Rings::default() },
        _ => Rings { tx: entries, ..Rings::default() },
    };
    target.done(writer.set_rings(target.interface, &rings))
}

fn ring_limit(
    target: &Target<'_>,
    source: &dyn Source,
    value: &Value,
    _: &[(Setting, Value)],
) -> Result<(), Limit> {
    let rings = source.rings(target.interface).ok().map(|found| found.value);
    let max = rings.and_then(|rings| if target.part == "rx" { rings.rx_max } else { rings.tx_max });
    target.at_most(value, max)
}

/// How many queues of a direction, `rx` or `tx`, exist once the channels of `wanted` are set; `None` if the driver does
/// not report it.
pub(crate) fn queues_after(
    source: &dyn Source,
    interface: &str,
    direction: &'static str,
    wanted: &[(Setting, Value)],
) -> Option<u32> {
    let channels = source.channels(interface).ok()?.value;
    let after = |kind: &'static str| {
        let request = wanted.iter().find_map(|(setting, value)| match (setting, value) {
            (Setting::Interface(of, Item { row, part }), Value::Number(number)) => {
                (of == interface && row.is(&CHANNELS) && part.name() == kind).then_some(*number)
            }
            _ => None,
        });
        // Without a known maximum, a requested number may be rejected: do not rely on it.
        match (request, count(&channels.max, kind)) {
            (None, _) => count(&channels.now, kind),
            (Some(number), Some(max)) => u32::try_from(number).ok().filter(|number| *number <= max),
            (Some(_), None) => None,
        }
    };
    let all = [after("combined"), after(direction)];
    all.iter().any(Option::is_some).then(|| all.into_iter().flatten().fold(0, u32::saturating_add))
}
