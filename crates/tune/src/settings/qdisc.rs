//! The root qdisc of an interface, by its kind, and how many packets it may hold.

use udpath_host::shell::quoted;
use udpath_host::source::number;
use udpath_host::{Absence, Source};

use super::row::{
    Access, Cost, Extra, OnReset, PartKind, Phase, Row, Scope, Security, Shell, Target, ValueKind,
};
use super::{Form, Value};
use crate::device::DeviceWriter;
use crate::machine::Refusal;

/// The qdisc the kernel installs by default.
const DEFAULT: &str = "default";

/// Kinds that work without parameters, which a change of the kind cannot give.
const KINDS: &[&str] = &[
    DEFAULT,
    "mq",
    "fq",
    "fq_codel",
    "pfifo_fast",
    "pfifo",
    "bfifo",
    "noqueue",
    "codel",
    "pie",
    "fq_pie",
    "cake",
    "sfq",
    "blackhole",
];

/// The root qdisc. Only the kind is known, so a configured qdisc is not replaced: undo could not restore its
/// parameters.
pub static QDISC: Row = Row {
    name: "qdisc",
    part: PartKind::Whole,
    value: ValueKind::OneOf(KINDS),
    access: Access::Driver { read, write },
    phase: Phase::Kernel,
    cost: Cost::DropsQueued,
    scope: Scope::Namespace,
    on_reset: OnReset::Kept,
    writers: &["NetworkManager", "systemd-networkd", "a reload of the driver"],
    shell: Shell::Line(|setting, value| {
        let interface = quoted(setting.interface().unwrap_or_default());
        match value {
            Value::Words(kind) if kind == DEFAULT => format!("tc qdisc del dev {interface} root"),
            kind => format!("tc qdisc replace dev {interface} root {kind}"),
        }
    }),
    page: "qdisc",
    security: Security::Harmless,
    extra: Extra { restorable, ..Extra::NONE },
};

/// Packets that a queueing discipline without a limit of its own may hold.
pub static TX_QUEUE_LEN: Row = Row {
    name: "tx-queue-len",
    part: PartKind::Whole,
    value: ValueKind::Number("packets", u32::MAX as u64),
    access: Access::File(
        |setting| format!("/sys/class/net/{}/tx_queue_len", setting.interface().unwrap_or_default()),
        Form::Number,
    ),
    phase: Phase::Kernel,
    cost: Cost::None,
    scope: Scope::Namespace,
    on_reset: OnReset::Kept,
    writers: &["udev", "NetworkManager", "systemd-networkd"],
    shell: Shell::Echo,
    page: "tx-queue-len",
    security: Security::Harmless,
    extra: Extra::NONE,
};

/// This family's rows.
pub static ROWS: &[&Row] = &[&QDISC, &TX_QUEUE_LEN];

fn restorable(found: &Value) -> bool {
    match found {
        Value::Words(kind) => matches!(kind.as_str(), DEFAULT | "mq" | "pfifo_fast" | "noqueue"),
        _ => true,
    }
}

fn ifindex(source: &dyn Source, interface: &str) -> Option<u32> {
    number(source, &format!("/sys/class/net/{interface}/ifindex")).ok()
}

fn read(target: &Target<'_>, source: &dyn Source) -> Result<Value, Refusal> {
    let index = ifindex(source, target.interface).ok_or_else(|| target.absent(&Absence::NotThere))?;
    let all = source.qdiscs().map_err(|absence| target.absent(&absence))?.value;
    // Ingress qdiscs are attached elsewhere.
    let own = all.iter().filter(|qdisc| qdisc.interface == index && qdisc.parent != "ingress");
    // Handle 0 is the kernel's default.
    let set: Vec<&str> = own.filter(|qdisc| qdisc.handle != "0:").map(|qdisc| qdisc.kind.as_str()).collect();
    Ok(Value::Words(if set.is_empty() { DEFAULT.to_owned() } else { set.join(",") }))
}

fn write(target: &Target<'_>, writer: &mut DeviceWriter, value: &Value) -> Result<(), Refusal> {
    let Value::Words(kind) = value else { return Err(target.wrong(value)) };
    let index = ifindex(&udpath_host::source::Folder::live(), target.interface);
    let index = index.ok_or_else(|| target.absent(&Absence::NotThere))?;
    target.done(writer.set_qdisc(index, Some(kind.as_str()).filter(|kind| *kind != DEFAULT)))
}
