//! A fleet's report: its screen compared with a snapshot, its page, and hostile names.

use std::collections::BTreeMap;

use udpath_advise::{Finding, Remedy, Severity};
use udpath_fleet::machines::{
    Common, FLEET_SCHEMA, FleetFinding, FleetReport, Group, MachineSummary, Mixed, Older, Source, Unread,
    Variation, VariationValue,
};
use udpath_report::{Render, Style};

fn names(prefix: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{prefix}{number:03}")).collect()
}

fn variation(what: &str, value: &str, norm: &str, with: usize) -> Variation {
    let [what, value, norm] = [what, value, norm].map(str::to_owned);
    Variation { what, value, norm, norm_machines: with, reported: 400 }
}

/// 400 machines: 391 alike, 7 without RPS, 2 with other firmware.
fn fleet() -> FleetReport {
    let machine = |name: String| MachineSummary {
        file: format!("{name}.tar.gz"),
        source: Source::Capture,
        taken: 1_764_000_000_000,
        differences: 0,
        findings: 1,
        compared_as: BTreeMap::new(),
        name,
    };
    let mut machines: Vec<MachineSummary> = names("dns", 0..400).into_iter().map(machine).collect();
    machines[10..17].iter_mut().for_each(|machine| machine.differences = 1);
    machines[20..22].iter_mut().for_each(|machine| machine.differences = 2);
    machines[20].compared_as = BTreeMap::from([("ens5".into(), "eth0".into())]);
    FleetReport {
        schema: FLEET_SCHEMA.into(),
        machines,
        alike: 391,
        groups: vec![
            Group {
                machines: names("dns", 10..17),
                variations: vec![variation("eth0:rps/rx-*", "none", "0-3", 393)],
            },
            Group {
                machines: names("dns", 20..22),
                variations: vec![
                    variation("eth0:firmware", "8.30", "8.50", 398),
                    variation("kernel", "6.1.0", "6.12.9", 398),
                ],
            },
        ],
        mixed: vec![Mixed {
            what: "eth0:irq/rx-*".into(),
            values: ["0 1", "1 0", "2 3", "3 2"]
                .iter()
                .enumerate()
                .map(|(at, value)| VariationValue {
                    value: (*value).into(),
                    machines: names("dns", at * 100..at * 100 + 100),
                })
                .collect(),
        }],
        common: vec![Common { what: "cpus".into(), value: "8".into(), machines: 400 }],
        findings: vec![FleetFinding {
            machines: names("dns", 0..321),
            example: "dns007".into(),
            finding: Finding {
                id: "rss-table-short".into(),
                severity: Severity::Limit,
                locations: Vec::new(),
                share: None,
                rate: None,
                evidence: "eth0: 2 of 8 queues are in the RSS table".into(),
                cause: "6 CPUs get no packets".into(),
                remedies: vec![Remedy::Changes {
                    what: "use all queues".into(),
                    settings: vec!["eth0:rss/table=equal:8".into()],
                    netns: None,
                }],
            },
        }],
        older: vec![Older {
            machine: "dns001".into(),
            file: "dns001-2026-11-01.tar.gz".into(),
            newer: "dns001.tar.gz".into(),
        }],
        unread: vec![Unread { file: "notes.txt".into(), why: "it is empty".into() }],
    }
}

#[test]
fn a_screen_names_who_differs_and_how() {
    insta::assert_snapshot!("fleet_report_80", fleet().terminal(&Style::default()));
}

#[test]
fn a_page_has_every_machine_value_and_finding() {
    let page = fleet().html();
    for text in [
        "<h1>391 of 400 machines are alike</h1>",
        "7 have eth0:rps/rx-* none (most: 0-3)",
        "dns016",
        "<code>eth0:firmware</code>",
        "8.50 (398 of 400)",
        "udpath plan --set eth0:rss/table=equal:8",
        "not read: notes.txt: it is empty",
        "ens5 of dns020 is compared with eth0 of the others",
        "<code>cpus</code>",
        "<summary>All 400</summary>",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let loads = ["http://", "https://", "<script", "<link", "src="];
    assert!(loads.iter().all(|text| !page.contains(text)), "it loads nothing");
}

#[test]
fn fleets_without_differences_say_so() {
    let mut report = fleet();
    report.groups.clear();
    report.mixed.clear();
    report.alike = 400;
    let first = |report: &FleetReport| report.terminal(&Style::default()).lines().next().unwrap().to_owned();
    assert_eq!(first(&report), "all 400 machines are alike");
    report.mixed = fleet().mixed;
    assert_eq!(first(&report), "400 machines; 1 fact has no value that most have");
    report.machines.truncate(1);
    report.alike = 1;
    assert_eq!(first(&report), "1 machine: nothing to compare it with");
}

#[test]
fn hostile_names_drive_neither_the_terminal_nor_the_page() {
    let mut report = fleet();
    let hostile = "<b>\u{1b}[31m\u{202e}x";
    report.groups[0].machines[0] = hostile.into();
    report.groups[0].variations[0].value = hostile.into();
    report.unread[0].file = hostile.into();
    report.findings[0].example = hostile.into();
    report.mixed[0].values[0].value = hostile.into();
    let text = report.terminal(&Style::default());
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
    let page = report.html();
    assert!(!page.contains("<b>") && !page.contains('\u{1b}') && !page.contains('\u{202e}'));
}
