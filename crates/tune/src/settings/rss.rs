//! RSS: the receive queue that the card selects, by a hash and an indirection table (`ethtool -X`, `-N`).

use udpath_host::interfaces::{Fields, HashFields};
use udpath_host::shell::quoted;
use udpath_host::source::Folder;
use udpath_host::{Absence, Source};

use super::row::{
    Access, Cost, Extra, Limit, OnReset, PartKind, Phase, Row, Scope, Security, Shell, Target, ValueKind,
};
use super::{Setting, Table, Value, channels};
use crate::device::{DeviceWriter, RssChange};
use crate::machine::Refusal;

const WRITERS: &[&str] = &["cloud agents", "a reload of the driver", "a change of channels"];

/// The hash key.
pub static KEY: Row = Row {
    name: "rss/key",
    part: PartKind::Whole,
    value: ValueKind::Key,
    access: Access::Driver { read: key, write: set_key },
    phase: Phase::Rss,
    cost: Cost::MovesFlows,
    scope: Scope::Namespace,
    on_reset: OnReset::Lost,
    writers: WRITERS,
    shell: Shell::Line(|setting, value| format!("ethtool -X {} hkey {value}", interface(setting))),
    page: "rss-key",
    security: Security::Harmless,
    extra: Extra { limit: key_limit, ..Extra::NONE },
};

/// The hash function: `toeplitz`, `xor` or `crc32`.
pub static FUNCTION: Row = Row {
    name: "rss/function",
    part: PartKind::Whole,
    value: ValueKind::OneOf(&["toeplitz", "xor", "crc32"]),
    access: Access::Driver { read: function, write: set_function },
    phase: Phase::Rss,
    cost: Cost::MovesFlows,
    scope: Scope::Namespace,
    on_reset: OnReset::Lost,
    writers: WRITERS,
    shell: Shell::Line(|setting, value| format!("ethtool -X {} hfunc {value}", interface(setting))),
    page: "rss-function",
    security: Security::Harmless,
    extra: Extra::NONE,
};

/// The fields hashed for UDP over IPv4 or IPv6.
pub static HASH: Row = Row {
    name: "hash",
    part: PartKind::Named(&["udp4", "udp6"]),
    value: ValueKind::HashFields,
    access: Access::Driver { read: hash, write: set_hash },
    phase: Phase::Rss,
    cost: Cost::MovesFlows,
    scope: Scope::Namespace,
    on_reset: OnReset::Lost,
    writers: WRITERS,
    shell: Shell::Line(|setting, value| {
        let flow = setting.target().map_or("", |target| target.part);
        format!("ethtool -N {} rx-flow-hash {flow} {value}", interface(setting))
    }),
    page: "hash",
    security: Security::Harmless,
    extra: Extra::NONE,
};

/// The indirection table. After key and function, which some drivers set along with it.
pub static TABLE: Row = Row {
    name: "rss/table",
    part: PartKind::Whole,
    value: ValueKind::Table,
    access: Access::Driver { read: table, write: set_table },
    phase: Phase::Rss,
    cost: Cost::MovesFlows,
    scope: Scope::Namespace,
    on_reset: OnReset::Rechosen,
    writers: WRITERS,
    shell: Shell::Line(|setting, value| match value {
        Value::Table(Table::Equal(queues)) => format!("ethtool -X {} equal {queues}", interface(setting)),
        Value::Table(Table::Weights(weights)) => {
            let weights: Vec<String> = weights.iter().map(u32::to_string).collect();
            format!("ethtool -X {} weight {}", interface(setting), weights.join(" "))
        }
        other => {
            format!("# ethtool cannot write every entry; {}:rss/table={other}", interface(setting))
        }
    }),
    page: "rss-table",
    security: Security::Harmless,
    extra: Extra { limit: table_limit, ..Extra::NONE },
};

/// This family's rows.
pub static ROWS: &[&Row] = &[&KEY, &FUNCTION, &HASH, &TABLE];

/// The interface, quoted for a shell.
fn interface(setting: &Setting) -> String {
    quoted(setting.interface().unwrap_or_default())
}

fn main_context(
    target: &Target<'_>,
    source: &dyn Source,
) -> Result<udpath_host::interfaces::RssContext, Refusal> {
    Ok(source.rss(target.interface).map_err(|absence| target.absent(&absence))?.value.main)
}

fn key(target: &Target<'_>, source: &dyn Source) -> Result<Value, Refusal> {
    let key = main_context(target, source)?.key;
    if key.is_empty() { Err(target.absent(&Absence::NotSupported)) } else { Ok(Value::Key(key)) }
}

fn set_key(target: &Target<'_>, writer: &mut DeviceWriter, value: &Value) -> Result<(), Refusal> {
    let Value::Key(key) = value else { return Err(target.wrong(value)) };
    let change = RssChange { key: Some(key.clone()), ..RssChange::default() };
    target.done(writer.set_rss(target.interface, &change))
}

fn function(target: &Target<'_>, source: &dyn Source) -> Result<Value, Refusal> {
    let function = main_context(target, source)?.function;
    function.map(Value::Words).ok_or_else(|| target.absent(&Absence::NotSupported))
}

fn set_function(target: &Target<'_>, writer: &mut DeviceWriter, value: &Value) -> Result<(), Refusal> {
    let Value::Words(name) = value else { return Err(target.wrong(value)) };
    let change = RssChange { function: Some(name.clone()), ..RssChange::default() };
    target.done(writer.set_rss(target.interface, &change))
}

fn hash(target: &Target<'_>, source: &dyn Source) -> Result<Value, Refusal> {
    let fields = source.hash_fields(target.interface).map_err(|absence| target.absent(&absence))?.value;
    let fields = if target.part == "udp4" { fields.udp4 } else { fields.udp6 };
    let fields = fields.map(|fields| Value::Words(fields.to_string()));
    fields.ok_or_else(|| target.absent(&Absence::NotSupported))
}

fn set_hash(target: &Target<'_>, writer: &mut DeviceWriter, value: &Value) -> Result<(), Refusal> {
    let Value::Words(letters) = value else { return Err(target.wrong(value)) };
    let fields: Fields = letters.parse().map_err(|why: String| target.refuse(why))?;
    let fields = match target.part {
        "udp4" => HashFields { udp4: Some(fields), ..HashFields::default() },
        _ => HashFields { udp6: Some(fields), ..HashFields::default() },
    };
    target.done(writer.set_hash_fields(target.interface, &fields))
}

fn table(target: &Target<'_>, source: &dyn Source) -> Result<Value, Refusal> {
    let table = main_context(target, source)?.table;
    if table.is_empty() {
        return Err(target.absent(&Absence::NotSupported));
    }
    Ok(Value::Table(Table::Entries(table)))
}

fn set_table(target: &Target<'_>, writer: &mut DeviceWriter, value: &Value) -> Result<(), Refusal> {
    let Value::Table(table) = value else { return Err(target.wrong(value)) };
    let size = main_context(target, &Folder::live())?.table.len();
    let entries = table.entries(size).map_err(|why| target.refuse(why))?;
    let change = RssChange { table: Some(entries), ..RssChange::default() };
    target.done(writer.set_rss(target.interface, &change))
}

fn key_limit(
    target: &Target<'_>,
    source: &dyn Source,
    value: &Value,
    _: &[(Setting, Value)],
) -> Result<(), Limit> {
    let now = main_context(target, source).map_or(0, |context| context.key.len());
    match value {
        Value::Key(key) if now > 0 && key.len() != now => Err(Limit::Beyond(format!(
            "the key of {} has {now} bytes, and {} were given",
            target.interface,
            key.len()
        ))),
        _ => Ok(()),
    }
}

fn table_limit(
    target: &Target<'_>,
    source: &dyn Source,
    value: &Value,
    wanted: &[(Setting, Value)],
) -> Result<(), Limit> {
    let Value::Table(table) = value else { return Ok(()) };
    let size = main_context(target, source).map_or(0, |context| context.table.len());
    if size > 0
        && let Err(why) = table.entries(size)
    {
        return Err(Limit::Beyond(format!("the table of {} cannot be so: {why}", target.interface)));
    }
    let queues = channels::queues_after(source, target.interface, "rx", wanted);
    match (table.last_queue(), queues) {
        (Some(last), Some(queues)) if last >= queues => Err(Limit::Beyond(format!(
            "{} has no receive queue {last}: it has {queues}, counted from 0",
            target.interface
        ))),
        _ => Ok(()),
    }
}

impl Table {
    /// The highest queue in the table.
    pub(crate) fn last_queue(&self) -> Option<u32> {
        match self {
            Self::Equal(queues) => queues.checked_sub(1),
            Self::Weights(weights) => {
                weights.iter().rposition(|weight| *weight > 0).and_then(|last| u32::try_from(last).ok())
            }
            Self::Entries(entries) => entries.iter().max().copied(),
        }
    }
}
