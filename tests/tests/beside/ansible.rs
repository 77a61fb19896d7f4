//! The Ansible collection in `deploy/ansible`, installed and run as users do, on hosts that are network namespaces with
//! an sshd each.

mod fleet;
mod modules;
mod secrets;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use serde_json::{Value, json};
use udpath_rig::{Run, Said, campaign, program};

use fleet::{Fleet, Results, host};

/// Hosts of a play.
const HOSTS: usize = 20;
/// The host that its own change cuts off.
const CUT_OFF: &str = "host-7";
/// Drops everything that the host sends: the settings are in place, and no connection works.
const CUTTING: &str = "eth0:qdisc=blackhole";
/// The host that lets no new connection in after its change, and keeps those that it has.
const CLOSED: &str = "host-13";
/// Its udpath: closes before it applies.
const CLOSING: &str = r#"#!/bin/sh
if [ "$1" = apply ]; then
    nft add table inet closed
    nft add chain inet closed input '{ type filter hook input priority 0; }'
    nft add rule inet closed input 'tcp flags & (syn | ack) == syn drop'
fi
exec PROGRAM "$@"
"#;
const SETTING: &str = "eth0:tx-queue-len=2000";

/// The hosts whose result has this value.
fn those_with(results: &Results, key: &str, value: &Value) -> Vec<String> {
    results.iter().filter(|(_, result)| &result[key] == value).map(|(name, _)| name.clone()).collect()
}

fn others() -> Vec<String> {
    let mut names: Vec<String> =
        (1..=HOSTS).map(host).filter(|name| ![CUT_OFF, CLOSED].contains(&&name[..])).collect();
    names.sort();
    names
}

#[test]
fn of_twenty_hosts_those_that_cannot_be_reached_after_their_change_revert_it() {
    udpath_lab::needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let closing = folder.path().join("udpath");
    std::fs::write(&closing, CLOSING.replace("PROGRAM", program().to_str().unwrap())).unwrap();
    std::fs::set_permissions(&closing, Permissions::from_mode(0o755)).unwrap();
    let fleet = Fleet::new("ansible", HOSTS, &[(13, closing)].into());
    let queue_length = |host: &str| fleet.sys(host, "class/net/eth0/tx_queue_len");
    let before = queue_length(CUT_OFF);
    assert_ne!(before, "2000");

    let began = Instant::now();
    let facts = fleet.module("all", "facts", &json!({}), &[]);
    let took = began.elapsed().as_secs_f64();
    let held = if took <= 30.0 { "held" } else { "missed" };
    campaign::record(
        &format!("Ansible facts of {HOSTS} hosts, asked within 30 s"),
        &format!("{took:.1} s: {held}"),
    );
    assert_eq!(facts.len(), HOSTS);
    for (name, result) in &facts {
        let udpath = &result["ansible_facts"]["udpath"];
        let interfaces = udpath["map"]["interfaces"].as_array().unwrap();
        assert!(interfaces.iter().any(|interface| interface["name"] == "eth0"), "{name}: {udpath}");
        assert_eq!(udpath["status"]["applies"], json!([]), "{name}");
        assert_eq!(result["changed"], false, "{name}");
    }

    // What `--tree` wrote of them is read as a fleet.
    let tree = fleet.folder.path().join("facts");
    std::fs::create_dir(&tree).unwrap();
    for (name, result) in &facts {
        std::fs::write(tree.join(name), result.to_string()).unwrap();
    }
    let report = Run::new(&["fleet", "report", tree.to_str().unwrap()]).finish();
    assert_eq!(report.code(), Some(0), "{}", report.err);
    assert!(report.out.contains(&format!("ll {HOSTS} machines are alike")), "{}", report.out);

    // Check mode: the plan of each, and nothing changes.
    let list = json!({ "udpath_settings": [SETTING] }).to_string();
    let playbook = modules::playbook("settings");
    let planned = fleet.run("ansible-playbook", &[&playbook, "--check", "--diff", "-e", &list]);
    let plan = format!("eth0:tx-queue-len  {before} -> 2000");
    assert_eq!(planned.fine().out.lines().filter(|line| *line == plan).count(), HOSTS, "{}", planned.out);
    assert_eq!(planned.out.matches("changed=1").count(), HOSTS, "{}", planned.out);
    for number in 1..=HOSTS {
        assert_eq!(queue_length(&host(number)), before, "{number}");
    }

    // One of them also gets a setting that keeps it from answering.
    let inventory = std::fs::read_to_string(fleet.folder.path().join("inventory")).unwrap();
    let cutting = format!("{CUT_OFF} udpath_more='{CUTTING}' ");
    fleet.write("inventory", &inventory.replace(&format!("{CUT_OFF} "), &cutting));
    let settings = format!("{{{{ ['{SETTING}'] + ([udpath_more] if udpath_more is defined else []) }}}}");
    let request = json!({ "settings": settings, "confirm": 30 });
    let applied = fleet.module("all", "settings", &request, &[]);
    assert_eq!(those_with(&applied, "changed", &json!(true)), others(), "{applied:?}");
    assert_eq!(those_with(&applied, "failed", &json!(true)), [CLOSED, CUT_OFF], "{applied:?}");
    let cut_off = &applied[CUT_OFF];
    assert_eq!(cut_off["reverted"], true, "{cut_off}");
    let sentence = cut_off["msg"].as_str().unwrap();
    assert_eq!(
        sentence,
        "no new connection to this host within 30 s of the change: the host has reverted apply 1"
    );
    for name in others() {
        assert_eq!(queue_length(&name), "2000", "{name}");
        assert_eq!(applied[&name]["apply"], 1, "{name}");
        assert_eq!(applied[&name]["changes"][0]["setting"], "eth0:tx-queue-len", "{name}");
    }
    assert_eq!(queue_length(CUT_OFF), before);
    let status = fleet.status(CUT_OFF);
    assert_eq!(status["applies"], json!([]));
    assert_eq!((&status["reverted"][0]["id"], &status["reverted"][0]["left"]), (&json!(1), &json!([])));
    // Over the connection that was open before, the change would have been confirmed.
    let sentence = applied[CLOSED]["msg"].as_str().unwrap();
    assert!(
        sentence.starts_with("no new connection to this host within 30 s of the change, nor"),
        "{sentence}"
    );
    assert_eq!(queue_length(CLOSED), before);
    // Confirmed: no deadline is left, and nothing waits to revert.
    let status = fleet.status("host-1");
    assert_eq!(status["applies"][0]["state"], "applied", "{status}");
    assert_eq!(status["applies"][0]["deadline"], Value::Null, "{status}");

    // Again, without the setting that cuts off: only that host has something to change.
    let again = fleet.module(&format!("all:!{CLOSED}"), "settings", &json!({ "settings": [SETTING] }), &[]);
    assert_eq!(those_with(&again, "changed", &json!(true)), [CUT_OFF], "{again:?}");
    assert_eq!(those_with(&again, "changed", &json!(false)), others(), "{again:?}");
}
