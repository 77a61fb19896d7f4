//! Offloads, `ethtool -K`, by their kernel names.

use udpath_host::Source;

use super::row::{
    Access, Cost, Extra, Limit, OnReset, PartKind, Phase, Row, Scope, Security, Shell, Target, ValueKind,
};
use super::sysctl::UNKNOWN;
use super::{Setting, Value, driver};
use crate::device::DeviceWriter;
use crate::machine::Refusal;

/// Short names in `ethtool -K`, and the kernel's names. Only those that refer to one feature.
const ALIASES: &[(&str, &str)] = &[
    ("gro", "rx-gro"),
    ("gso", "tx-generic-segmentation"),
    ("lro", "rx-lro"),
    ("ntuple", "rx-ntuple-filter"),
    ("rxhash", "rx-hashing"),
    ("sg", "tx-scatter-gather"),
];

/// Offloads that change what a packet costs, and nothing else: beginnings of their kernel names.
const HARMLESS: &[&str] = &[
    "highdma",
    "rx-checksum",
    "rx-gro",
    "rx-hashing",
    "rx-lro",
    "rx-ntuple-filter",
    "rx-udp-gro-forwarding",
    "rx-udp_tunnel-port-offload",
    "rx-vlan-hw-parse",
    "rx-vlan-stag-hw-parse",
    "tx-checksum-",
    "tx-esp-segmentation",
    "tx-fcoe-segmentation",
    "tx-generic-segmentation",
    "tx-gre-",
    "tx-gso-",
    "tx-ipxip",
    "tx-nocache-copy",
    "tx-scatter-gather",
    "tx-sctp-segmentation",
    "tx-tcp",
    "tx-tunnel-remcsum-segmentation",
    "tx-udp-segmentation",
    "tx-udp_tnl-",
    "tx-vlan-",
];

/// One offload.
pub static FEATURE: Row = Row {
    name: "feature",
    part: PartKind::Free(ALIASES),
    value: ValueKind::Switch,
    access: Access::Driver { read, write },
    phase: Phase::Device,
    cost: Cost::ResetsLink,
    scope: Scope::Namespace,
    on_reset: OnReset::Kept,
    writers: driver::DEVICE_WRITERS,
    shell: Shell::Line(|setting, value| driver::ethtool("-K", setting, value)),
    page: "feature",
    security: Security::Judged(lowers_security),
    extra: Extra {
        limit,
        tuned: Some(("net", "features")),
        differs: "the driver, or another feature that is off, prevents it",
        ..Extra::NONE
    },
};

/// This family's rows.
pub static ROWS: &[&Row] = &[&FEATURE];

fn lowers_security(setting: &Setting, _: Option<&Value>, _: &Value) -> Option<&'static str> {
    let name = setting.target().map_or("", |target| target.part);
    let known = HARMLESS.iter().any(|known| name.starts_with(known));
    (!known).then_some(UNKNOWN)
}

fn read(target: &Target<'_>, source: &dyn Source) -> Result<Value, Refusal> {
    let name = target.part;
    let features = source.features(target.interface).map_err(|absence| target.absent(&absence))?.value;
    features.get(name).map(|feature| Value::Switch(feature.active)).ok_or_else(|| {
        let near: Vec<&str> =
            features.keys().filter(|known| known.contains(name)).map(String::as_str).collect();
        let near = if near.is_empty() { String::new() } else { format!("; there are {}", near.join(", ")) };
        Refusal::because("read", target.setting, format!("this kernel has no feature of that name{near}"))
    })
}

fn write(target: &Target<'_>, writer: &mut DeviceWriter, value: &Value) -> Result<(), Refusal> {
    let Value::Switch(on) = value else { return Err(target.wrong(value)) };
    target.done(writer.set_features(target.interface, &[(target.part, *on)]))
}

fn limit(
    target: &Target<'_>,
    source: &dyn Source,
    value: &Value,
    _: &[(Setting, Value)],
) -> Result<(), Limit> {
    let Value::Switch(on) = value else { return Ok(()) };
    let features = source.features(target.interface).ok();
    let feature = features.and_then(|found| found.value.get(target.part).copied());
    match feature.filter(|feature| !feature.changeable && feature.active != *on) {
        None => Ok(()),
        Some(feature) => {
            let held = if feature.active { "on" } else { "off" };
            Err(Limit::Fixed(format!(
                "the driver of {} has it {held} and cannot change it",
                target.interface
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_that_change_more_than_a_packets_cost_need_consent() {
        for (name, needed) in [
            ("loopback", true),
            ("rx-all", true),
            ("rx-fcs", true),
            ("gro", false),
            ("tx-udp-segmentation", false),
        ] {
            let setting: Setting = format!("eth0:feature/{name}").parse().unwrap();
            assert_eq!(setting.lowers_security(None, &Value::Switch(true)).is_some(), needed, "{name}");
        }
    }
}
