//! What a device says of itself that it can: asked before anything is written, since a refusal on the way comes after
//! resets of the link.
//!
//! ```text
//! ring, channels   the driver's maxima            feature   does the driver let it be changed?
//! rss/table, *     the queues that are there once the plan's channels are
//! ```
//! A device that does not say is asked by the writing itself.

use super::{Change, PlanError, SettingRequest};
use crate::machine::Refusal;
use crate::setting::{Item, Phase, Setting, Table, Value};
use udpath_host::Source;
use udpath_host::snapshot::ChannelCounts;

/// Can the device do that, with the channels that the plan gives it? `wanted`: all that the plan sets.
pub(super) fn within(
    source: &dyn Source,
    setting: &Setting,
    value: &Value,
    wanted: &[(Setting, Value)],
) -> Result<(), PlanError> {
    let Setting::Interface(interface, item) = setting else { return Ok(()) };
    let beyond =
        |why: String| PlanError::Beyond { setting: setting.to_string(), value: value.to_string(), why };
    let most = |number: u64, most: Option<u32>| match most {
        Some(most) if number > most.into() => {
            Err(beyond(format!("the driver of {interface} takes at most {most}")))
        }
        _ => Ok(()),
    };
    match (item, value) {
        (Item::Channels(kind), Value::Number(number)) => {
            let max = source.channels(interface).ok().and_then(|found| count(&found.value.max, kind));
            most(*number, max)
        }
        (Item::Ring(ring), Value::Number(number)) => {
            let rings = source.rings(interface).ok().map(|found| found.value);
            most(*number, rings.and_then(|rings| if *ring == "rx" { rings.rx_max } else { rings.tx_max }))
        }
        (Item::Feature(name), Value::Switch(on)) => {
            let features = source.features(interface).ok();
            let feature = features.and_then(|found| found.value.get(name).copied());
            match feature.filter(|feature| !feature.changeable && feature.active != *on) {
                None => Ok(()),
                Some(feature) => {
                    let held = if feature.active { "on" } else { "off" };
                    let why = format!("the driver of {interface} has it {held} and cannot change it");
                    Err(Refusal::because("set", setting, why).into())
                }
            }
        }
        (Item::RssTable, Value::Table(table)) => {
            match (named(table), queues(source, interface, "rx", wanted)) {
                (Some(last), Some(queues)) if last >= queues => Err(beyond(format!(
                    "{interface} has no receive queue {last}, only {queues} of them from 0 on"
                ))),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// In the order in which they are made. Channels come first, since queues come with them; but what goes with them must not
/// be named any more: the kernel refuses fewer channels while a table that somebody has set names more.
pub(super) fn sort(source: &dyn Source, changes: &mut [Change]) {
    let wanted: Vec<(Setting, Value)> =
        changes.iter().map(|change| (change.setting.clone(), change.to.clone())).collect();
    let first = |change: &Change| match (&change.setting, &change.from) {
        (Setting::Interface(interface, Item::RssTable), Some(Value::Table(now))) => {
            let queues = queues(source, interface, "rx", &wanted);
            named(now).zip(queues).is_some_and(|(last, queues)| last >= queues)
        }
        _ => false,
    };
    let early: Vec<Setting> =
        changes.iter().filter(|change| first(change)).map(|change| change.setting.clone()).collect();
    // Stable: within a phase the caller's order stays.
    changes.sort_by_key(|change| match early.contains(&change.setting) {
        true => (Phase::Channels, 0),
        false => (change.setting.phase(), 1),
    });
}

/// The last queue that a table names.
fn named(table: &Table) -> Option<u32> {
    match table {
        Table::Equal(queues) => queues.checked_sub(1),
        Table::Weights(weights) => {
            weights.iter().rposition(|weight| *weight > 0).and_then(|last| u32::try_from(last).ok())
        }
        Table::Entries(entries) => entries.iter().max().copied(),
    }
}

/// The numbers of channels among requests, each one that the device can.
///
/// # Errors
/// It cannot.
pub(super) fn channels(
    source: &dyn Source,
    requests: &[SettingRequest],
) -> Result<Vec<(Setting, Value)>, PlanError> {
    // What is no setting or no value is told where all requests are read.
    let parsed = requests.iter().filter_map(|request| {
        let setting: Setting = request.name.parse().ok()?;
        let value = setting.value(&request.value).ok()?;
        matches!(setting, Setting::Interface(_, Item::Channels(_))).then_some((setting, value))
    });
    let channels: Vec<_> = parsed.collect();
    channels.iter().try_for_each(|(setting, value)| within(source, setting, value, &channels))?;
    Ok(channels)
}

/// How many queues of a direction, `rx` or `tx`, the plan leaves; none when it changes no channels of the interface, or
/// the driver does not say how many it can have.
pub(super) fn changed(
    source: &dyn Source,
    interface: &str,
    direction: &'static str,
    channels: &[(Setting, Value)],
) -> Option<u32> {
    let own = |(setting, _): &(Setting, Value)| setting.interface() == Some(interface);
    channels.iter().any(own).then(|| queues(source, interface, direction, channels))?
}

/// How many queues of a direction there will be.
fn queues(
    source: &dyn Source,
    interface: &str,
    direction: &'static str,
    wanted: &[(Setting, Value)],
) -> Option<u32> {
    let channels = source.channels(interface).ok()?.value;
    let will = |kind: &'static str| {
        let request = wanted.iter().find_map(|(setting, value)| match (setting, value) {
            (Setting::Interface(of, Item::Channels(wished)), Value::Number(number)) => {
                (of == interface && *wished == kind).then_some(*number)
            }
            _ => None,
        });
        // Of a number without a known end nothing is counted on.
        match (request, count(&channels.max, kind)) {
            (None, _) => count(&channels.now, kind),
            (Some(number), Some(max)) => u32::try_from(number).ok().filter(|number| *number <= max),
            (Some(_), None) => None,
        }
    };
    let all = [will("combined"), will(direction)];
    all.iter().any(Option::is_some).then(|| all.into_iter().flatten().fold(0, u32::saturating_add))
}

fn count(counts: &ChannelCounts, kind: &str) -> Option<u32> {
    match kind {
        "rx" => counts.rx,
        "tx" => counts.tx,
        "other" => counts.other,
        _ => counts.combined,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::plan::{Consent, Plan, PlanError, SettingRequest};
    use crate::{Live, Machine};

    /// 16 channels of at most 16, with a table of 12 queues.
    fn machine(folder: &std::path::Path) -> Live {
        let table: Vec<String> = (0..128).map(|entry| (entry % 12).to_string()).collect();
        let rss = format!(
            r#"{{"value": {{"main": {{"table": [{}]}}}}, "from": {{"ethtool": "get"}}}}"#,
            table.join(",")
        );
        for (path, text) in [
            (
                "udpath/channels/eth0.json",
                r#"{"value": {"now": {"combined": 16}, "max": {"combined": 16}}, "from": {"ethtool": "get"}}"#,
            ),
            (
                "udpath/rings/eth0.json",
                r#"{"value": {"rx": 256, "rx_max": 256, "tx": 256}, "from": {"ethtool": "get"}}"#,
            ),
            (
                "udpath/features/eth0.json",
                r#"{"value": {"rx-ntuple-filter": {"active": false, "wanted": false, "changeable": false}}, "from": {"ethtool": "get"}}"#,
            ),
            ("udpath/rss/eth0.json", &rss),
        ] {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Live::at(folder)
    }

    fn resolved(machine: &dyn Machine, requests: &[&str]) -> Result<Plan, PlanError> {
        let requests = requests.iter().map(|request| SettingRequest::parse(request, "").unwrap()).collect();
        Plan::resolve(machine, requests, &Consent::default())
    }

    #[test]
    fn what_the_device_cannot_is_told_with_what_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let machine = machine(folder.path());
        for (requests, says) in [
            (
                &["eth0:channels/combined=17"][..],
                "eth0:channels/combined=17: the driver of eth0 takes at most 16",
            ),
            (&["eth0:ring/rx=512"], "eth0:ring/rx=512: the driver of eth0 takes at most 256"),
            (
                &["eth0:feature/ntuple=on"],
                "cannot set eth0:feature/rx-ntuple-filter: the driver of eth0 has it off and cannot change it",
            ),
            (&["eth0:rss/table=equal:17"], "eth0 has no receive queue 16, only 16 of them from 0 on"),
            (
                &["eth0:rss/table=weight:0,1", "eth0:channels/combined=1"],
                "no receive queue 1, only 1 of them",
            ),
        ] {
            let error = resolved(&machine, requests).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
        // Nothing is known of the other ring.
        assert_eq!(resolved(&machine, &["eth0:ring/tx=512"]).unwrap().changes.len(), 1);
        assert_eq!(resolved(&machine, &["eth0:feature/ntuple=off"]).unwrap().already.len(), 1);
    }

    #[test]
    fn a_star_stands_for_the_queues_that_will_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let machine = machine(folder.path());
        for queue in 0..2 {
            let path = folder.path().join(format!("sys/class/net/eth0/queues/rx-{queue}"));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("rps_cpus"), "0\n").unwrap();
        }
        let queues = |requests: &[&str]| resolved(&machine, requests).map(|plan| plan.changes.len());
        assert_eq!(queues(&["eth0:rps/rx-*=0"]).unwrap(), 2);
        assert_eq!(queues(&["eth0:rps/rx-*=0", "eth0:channels/combined=1"]).unwrap(), 2);
        assert_eq!(queues(&["eth0:rps/rx-*=0", "eth0:channels/combined=3"]).unwrap(), 4);
        let error = queues(&["eth0:rps/rx-*=0", "eth0:channels/combined=4000000000"]).unwrap_err();
        assert!(error.to_string().contains("at most 16"), "{error}");
    }

    #[test]
    fn a_table_lets_go_of_queues_before_they_go() {
        let folder = tempfile::tempdir().unwrap();
        let machine = machine(folder.path());
        let order = |requests: &[&str]| -> Vec<String> {
            resolved(&machine, requests)
                .unwrap()
                .changes
                .iter()
                .map(|change| change.setting.to_string())
                .collect()
        };
        let (channels, table) = ("eth0:channels/combined", "eth0:rss/table");
        assert_eq!(order(&["eth0:channels/combined=8", "eth0:rss/table=equal:8"]), [table, channels]);
        assert_eq!(order(&["eth0:channels/combined=13", "eth0:rss/table=equal:8"]), [channels, table]);
    }
}
