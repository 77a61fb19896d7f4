//! Limits that a device reports: checked before anything is written, since an error half way comes after link resets.
//!
//! ```text
//! ring, channels   the driver's maxima            feature   can the driver change it?
//! rss/table, *     the queues that exist after the plan's channel changes
//! ```
//! If a device does not report a limit, the write itself is the check.

use super::{Change, PlanError, SettingRequest};
use crate::machine::Refusal;
use crate::settings::channels::{CHANNELS, queues_after};
use crate::settings::{Limit, Phase, Setting, Value, rss};
use udpath_host::Source;

/// Can the device do this, with the plan's channels? `wanted`: everything the plan sets.
pub(super) fn within(
    source: &dyn Source,
    setting: &Setting,
    value: &Value,
    wanted: &[(Setting, Value)],
) -> Result<(), PlanError> {
    let Some(target) = setting.target() else { return Ok(()) };
    (setting.row().extra.limit)(&target, source, value, wanted).map_err(|limit| match limit {
        Limit::Beyond(why) => {
            PlanError::Beyond { setting: setting.to_string(), value: value.to_string(), why }
        }
        Limit::Fixed(why) => Refusal::because("set", setting, why).into(),
    })
}

/// The order in which changes are applied. Channels come first, since they create queues; but queues about to disappear
/// must no longer be referenced: the kernel rejects fewer channels while a user-set table refers to more.
pub(super) fn sort(source: &dyn Source, changes: &mut [Change]) {
    let wanted: Vec<(Setting, Value)> =
        changes.iter().map(|change| (change.setting.clone(), change.to.clone())).collect();
    let first = |change: &Change| match (&change.setting, &change.from) {
        (Setting::Interface(interface, item), Some(Value::Table(now))) if item.is(&rss::TABLE) => {
            let queues = queues_after(source, interface, "rx", &wanted);
            now.last_queue().zip(queues).is_some_and(|(last, queues)| last >= queues)
        }
        _ => false,
    };
    let early: Vec<Setting> =
        changes.iter().filter(|change| first(change)).map(|change| change.setting.clone()).collect();
    // Stable: the caller's order is kept within a phase.
    changes.sort_by_key(|change| match early.contains(&change.setting) {
        true => (Phase::Channels, 0),
        false => (change.setting.phase(), 1),
    });
}

/// The channel counts among the requests, each checked against the device.
///
/// # Errors
/// The device does not support the count.
pub(super) fn channels(
    source: &dyn Source,
    requests: &[SettingRequest],
) -> Result<Vec<(Setting, Value)>, PlanError> {
    // Invalid settings and values are reported where all requests are parsed.
    let parsed = requests.iter().filter_map(|request| {
        let setting: Setting = request.name.parse().ok()?;
        let value = setting.value(&request.value).ok()?;
        setting.is(&CHANNELS).then_some((setting, value))
    });
    let channels: Vec<_> = parsed.collect();
    channels.iter().try_for_each(|(setting, value)| within(source, setting, value, &channels))?;
    Ok(channels)
}

/// How many queues of a direction, `rx` or `tx`, remain after the plan; `None` if it does not change the interface's
/// channels, or the driver does not report its maximum.
pub(super) fn changed(
    source: &dyn Source,
    interface: &str,
    direction: &'static str,
    channels: &[(Setting, Value)],
) -> Option<u32> {
    let own = |(setting, _): &(Setting, Value)| setting.interface() == Some(interface);
    channels.iter().any(own).then(|| queues_after(source, interface, direction, channels))?
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
    fn device_limits_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let machine = machine(folder.path());
        for (requests, says) in [
            (
                &["eth0:channels/combined=17"][..],
                "eth0:channels/combined=17: the driver of eth0 accepts at most 16",
            ),
            (&["eth0:ring/rx=512"], "eth0:ring/rx=512: the driver of eth0 accepts at most 256"),
            (
                &["eth0:feature/ntuple=on"],
                "cannot set eth0:feature/rx-ntuple-filter: the driver of eth0 has it off and cannot change it",
            ),
            (&["eth0:rss/table=equal:17"], "eth0 has no receive queue 16: it has 16, counted from 0"),
            (
                &["eth0:rss/table=weight:0,1", "eth0:channels/combined=1"],
                "no receive queue 1: it has 1, counted from 0",
            ),
        ] {
            let error = resolved(&machine, requests).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
        // The other ring's limit is unknown.
        assert_eq!(resolved(&machine, &["eth0:ring/tx=512"]).unwrap().changes.len(), 1);
        assert_eq!(resolved(&machine, &["eth0:feature/ntuple=off"]).unwrap().already.len(), 1);
    }

    #[test]
    fn a_star_matches_the_queues_after_the_channel_change() {
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
    fn a_table_releases_queues_before_they_disappear() {
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
