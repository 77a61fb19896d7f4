//! NAPI of an interface: polling in threads, and how long interrupts stay off. Files in sysfs, or the kernel's netdev
//! family.

use udpath_host::interfaces::Napi;
use udpath_host::shell::quoted;
use udpath_host::source::{Folder, number};
use udpath_host::{Absence, Source};
use udpath_netlink::netdev::NapiChange;

use super::row::{
    Access, Cost, Extra, OnReset, PartKind, Phase, Row, Scope, Security, Shell, Target, ValueKind,
};
use super::{Form, Setting, Value};
use crate::device::DeviceWriter;
use crate::machine::Refusal;

const WRITERS: &[&str] = &["udev", "a reload of the driver"];

/// `napi_defer_hard_irqs_store` of net/core/net-sysfs.c refuses more than `S32_MAX`.
const MAX_POLLS: u64 = i32::MAX as u64;
/// The kernel's timers count nanoseconds in 63 bits (`ktime_t`).
const MAX_TIME: u64 = i64::MAX as u64;

/// NAPI polling in dedicated kernel threads.
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
    security: Security::Harmless,
    extra: Extra::NONE,
};

/// Empty polls before the hard IRQ is enabled again.
pub static DEFER_HARD_IRQS: Row = Row {
    name: "napi/defer-hard-irqs",
    part: PartKind::Whole,
    value: ValueKind::Number("polls", MAX_POLLS),
    access: Access::File(|setting| file(setting, "napi_defer_hard_irqs"), Form::Number),
    phase: Phase::Kernel,
    cost: Cost::None,
    scope: Scope::Namespace,
    on_reset: OnReset::Lost,
    writers: WRITERS,
    shell: Shell::Echo,
    page: "napi-defer",
    security: Security::Harmless,
    extra: Extra::NONE,
};

/// How long a poll may be deferred, nanoseconds.
pub static GRO_FLUSH_TIMEOUT: Row = Row {
    name: "napi/gro-flush-timeout",
    part: PartKind::Whole,
    value: ValueKind::Number("nanoseconds", MAX_TIME),
    access: Access::File(|setting| file(setting, "gro_flush_timeout"), Form::Number),
    phase: Phase::Kernel,
    cost: Cost::None,
    scope: Scope::Namespace,
    on_reset: OnReset::Lost,
    writers: WRITERS,
    shell: Shell::Echo,
    page: "gro-flush-timeout",
    security: Security::Harmless,
    extra: Extra::NONE,
};

/// How long interrupts stay off while an application polls and finds packets, nanoseconds; of every NAPI instance of
/// the interface (Linux 6.13).
pub static IRQ_SUSPEND_TIMEOUT: Row = Row {
    name: "napi/irq-suspend-timeout",
    part: PartKind::Whole,
    value: ValueKind::Number("nanoseconds", MAX_TIME),
    access: Access::Driver { read: suspend_timeout, write: set_suspend_timeout },
    phase: Phase::Kernel,
    cost: Cost::None,
    scope: Scope::Namespace,
    on_reset: OnReset::Lost,
    writers: &["a reload of the driver", "other programs, over netdev netlink"],
    shell: Shell::Line(|setting, value| {
        format!(
            "# for each NAPI id N of {}: ynl --family netdev --do napi-set --json '{{\"id\": N, \"irq-suspend-timeout\": {value}}}'",
            quoted(setting.interface().unwrap_or_default())
        )
    }),
    page: "irq-suspend-timeout",
    security: Security::Harmless,
    extra: Extra::NONE,
};

/// This family's rows.
pub static ROWS: &[&Row] = &[&THREADED, &DEFER_HARD_IRQS, &GRO_FLUSH_TIMEOUT, &IRQ_SUSPEND_TIMEOUT];

fn file(setting: &Setting, file: &str) -> String {
    format!("/sys/class/net/{}/{file}", setting.interface().unwrap_or_default())
}

/// The NAPI instances of an interface.
fn own(target: &Target<'_>, source: &dyn Source) -> Result<Vec<Napi>, Refusal> {
    let all = source.napis().map_err(|absence| target.absent(&absence))?.value;
    let path = format!("/sys/class/net/{}/ifindex", target.interface);
    let index: u32 = number(source, &path).map_err(|absence| target.absent(&absence))?;
    let own: Vec<Napi> = all.into_iter().filter(|napi| napi.interface == index).collect();
    if own.is_empty() { Err(target.absent(&Absence::NotSupported)) } else { Ok(own) }
}

fn suspend_timeout(target: &Target<'_>, source: &dyn Source) -> Result<Value, Refusal> {
    let mut timeouts = own(target, source)?.into_iter().map(|napi| napi.irq_suspend_timeout);
    let first = timeouts.next().flatten().ok_or_else(|| target.absent(&Absence::NotSupported))?;
    if timeouts.any(|timeout| timeout != Some(first)) {
        // One number cannot say it, and undo could not restore it.
        let why = "its NAPI instances have different timeouts; another program set them one by one";
        return Err(Refusal::because("read", target.setting, why));
    }
    Ok(Value::Number(first))
}

fn set_suspend_timeout(target: &Target<'_>, writer: &mut DeviceWriter, value: &Value) -> Result<(), Refusal> {
    let Value::Number(nanoseconds) = value else { return Err(target.wrong(value)) };
    let change = NapiChange { irq_suspend_timeout: Some(*nanoseconds), ..NapiChange::default() };
    for napi in own(target, &Folder::live())? {
        target.done(writer.set_napi(napi.id, &change))?;
    }
    Ok(())
}
