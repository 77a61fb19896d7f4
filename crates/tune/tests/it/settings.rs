//! Settings of a veth in a lab: applied, read back, undone to the same state; and the same plan run as shell commands.
//! Requires root.

use std::path::Path;

use udpath_host::namespace::Place;
use udpath_lab::Lab;
use udpath_tune::apply::ApplyError;
use udpath_tune::plan::{Consent, PlanError};
use udpath_tune::status::{Hold, Status};
use udpath_tune::undo::UndoError;
use udpath_tune::{Journal, Live, Machine, Plan, SettingRequest, apply, undo};

use crate::lab;

/// One of every kind that a veth has.
const REQUESTS: [&str; 12] = [
    "eth0:rps/rx-*=0-1",
    "eth0:rfs/rx-1=3000",
    "eth0:xps/tx-0=0",
    "eth0:xps/tx-1=1",
    "eth0:channels/rx=3",
    "eth0:feature/gro=on",
    "eth0:feature/rx-udp-gro-forwarding=on",
    "eth0:napi/threaded=on",
    "eth0:napi/defer-hard-irqs=2",
    "eth0:qdisc=mq",
    "eth0:tx-queue-len=500",
    "sysctl:net.ipv4.ip_default_ttl=70",
];

fn resolved(texts: &[&str]) -> Result<Plan, PlanError> {
    let requests = texts.iter().map(|text| SettingRequest::parse(text, "test").unwrap()).collect();
    Plan::resolve(&Live::new(), requests, &Consent::default())
}

/// Applies in machine `here`; returns the entry's number.
fn applied(lab: &Lab, journal: &Path, texts: &[&str]) -> Result<u64, ApplyError> {
    let work = || {
        let plan = resolved(texts).unwrap();
        apply(&Live::new(), &Journal::at(journal).lock().unwrap(), &plan, None, |_| Ok(()))
            .map(|applied| applied.id)
    };
    lab.machine("here").unwrap().run(work).unwrap()
}

fn undone(lab: &Lab, journal: &Path) {
    let work =
        || undo(&Live::new(), &Journal::at(journal).lock().unwrap(), None, "test", false).unwrap().left;
    assert_eq!(lab.machine("here").unwrap().run(work).unwrap(), []);
}

/// Runs shell commands in machine `here`.
fn shell(lab: &Lab, lines: &str) {
    let output = lab.machine("here").unwrap().command("sh").args(["-e", "-c", lines]).output().unwrap();
    assert!(output.status.success(), "{}: {lines}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_kind_of_setting_is_applied_and_undone_exactly() {
    udpath_lab::needs_root!();
    let (lab, folder) = (lab::lab("settings", 4), tempfile::tempdir().unwrap());
    // A steering that is lost with the change of channels.
    shell(&lab, "echo 2 > /sys/class/net/eth0/queues/rx-3/rps_cpus");
    let before = lab::look(&lab);
    // rx-3 disappears with the channels, so it is not among the requests.
    let texts: Vec<&str> =
        REQUESTS[1..].iter().copied().chain(["eth0:rps/rx-0=0-1", "eth0:rps/rx-1=1"]).collect();
    applied(&lab, folder.path(), &texts).unwrap();
    let after = lab::look(&lab);
    for wanted in [
        "rx-0/rps_cpus 3",
        "rx-1/rps_cpus 2",
        "rx-1/rps_flow_cnt 4096",
        "tx-1/xps_cpus 2",
        "eth0/threaded 1",
        "napi_defer_hard_irqs 2",
        "ip_default_ttl 70",
        "generic-receive-offload: on",
        "rx-udp-gro-forwarding: on",
        "qdisc mq",
    ] {
        assert!(after.contains(wanted), "{wanted}: {after}");
    }
    assert!(!after.contains("rx-3/"), "{after}");
    undone(&lab, folder.path());
    assert_eq!(lab::look(&lab), before);
}

#[test]
fn the_shell_lines_of_a_plan_do_what_apply_does() {
    udpath_lab::needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (lab::lab("ours", 4), lab::lab("theirs", 4));
    let texts = &REQUESTS[..];
    let without: Vec<&str> = texts.iter().copied().filter(|text| !text.contains("channels")).collect();
    let lines = theirs.machine("here").unwrap().run(|| resolved(&without).unwrap().shell()).unwrap();
    applied(&ours, folder.path(), &without).unwrap();
    shell(&theirs, &lines);
    assert_eq!(lab::look(&ours), lab::look(&theirs));
}

#[test]
fn a_rejected_write_is_rolled_back_and_named() {
    udpath_lab::needs_root!();
    let (lab, folder) = (lab::lab("refused", 2), tempfile::tempdir().unwrap());
    let before = lab::look(&lab);
    // The plan passes every check; without GRO a veth has no NAPI that could be threaded.
    let error = applied(&lab, folder.path(), &["eth0:rps/rx-0=0", "eth0:napi/threaded=on"]).unwrap_err();
    assert!(matches!(&error, ApplyError::Reverted { changes: 1, .. }), "{error}");
    assert!(error.to_string().contains("eth0:napi/threaded"), "{error}");
    assert_eq!(lab::look(&lab), before);
}

#[test]
fn impossible_requests_fail_before_anything_is_written() {
    udpath_lab::needs_root!();
    let lab = lab::lab("impossible", 2);
    let before = lab::look(&lab);
    for (text, says) in [
        ("eth9:rps/rx-0=0", "no such interface"),
        ("eth0:rps/rx-2=0", "no such interface or queue"),
        ("eth0:xps/tx-0=8000", "has no CPU 8000"),
        ("eth0:xps-rxqs/tx-0=2", "no receive queue 2"),
        ("eth0:feature/rx-grow=on", "no feature of that name"),
        ("eth0:ring/rx=64", "the driver does not support it"),
        ("eth0:coalesce/rx-usecs=64", "the driver does not support it"),
        ("eth0:rss/table=equal:2", "the driver does not support it"),
        ("eth0:irq/rx-0=0", "no IRQs"),
        ("sysctl:net.core.netdev_max_backlog=10000", "set it on the host"),
        ("irq:999999:affinity=0", "no such IRQ"),
        ("thread:999999/999999:affinity=0", "no such thread"),
    ] {
        let error = lab.machine("here").unwrap().run(|| resolved(&[text]).unwrap_err().to_string()).unwrap();
        assert!(error.contains(says) && error.lines().count() == 1, "{text}: {error}");
    }
    // A qdisc with classes, which undo could not restore.
    shell(&lab, "tc qdisc add dev eth0 root handle 1: tbf rate 1gbit burst 32k latency 1ms");
    let error =
        lab.machine("here").unwrap().run(|| resolved(&["eth0:qdisc=mq"]).unwrap_err().to_string()).unwrap();
    assert!(error.contains("its root qdisc is tbf"), "{error}");
    shell(&lab, "tc qdisc del dev eth0 root");
    assert_eq!(lab::look(&lab), before);
}

#[test]
fn a_renamed_interface_is_recognized_and_a_namesake_is_not() {
    udpath_lab::needs_root!();
    let (lab, folder) = (lab::lab("renamed", 2), tempfile::tempdir().unwrap());
    let before = lab::look(&lab);
    applied(&lab, folder.path(), &["eth0:rps/rx-0=0", "eth0:xps/tx-1=1"]).unwrap();
    shell(&lab, "ip link set eth0 down; ip link set eth0 name lan0");
    undone(&lab, folder.path());
    shell(&lab, "ip link set lan0 name eth0; ip link set eth0 up");
    assert_eq!(lab::look(&lab), before);
    applied(&lab, folder.path(), &["eth0:rps/rx-0=0"]).unwrap();
    shell(&lab, "ip link del eth0; ip link add eth0 numrxqueues 2 numtxqueues 2 type veth peer name eth9");
    let journal = Journal::at(folder.path());
    let work = || undo(&Live::new(), &journal.lock().unwrap(), None, "test", false).unwrap();
    let undone = lab.machine("here").unwrap().run(work).unwrap();
    assert!(undone.complete && undone.left.len() == 1, "{undone:?}");
    assert!(undone.left[0].why.contains("another one of the same name"), "{undone:?}");
    shell(&lab, "ip link del eth0");
}

#[test]
fn an_apply_of_another_namespace_is_not_undone_here() {
    udpath_lab::needs_root!();
    let (lab, folder) = (lab::lab("elsewhere", 2), tempfile::tempdir().unwrap());
    applied(&lab, folder.path(), &["eth0:rps/rx-0=0"]).unwrap();
    let journal = Journal::at(folder.path());
    let there = lab.machine("there").unwrap();
    let error = there
        .run(|| undo(&Live::new(), &journal.lock().unwrap(), Some(1), "test", false).unwrap_err())
        .unwrap();
    assert!(
        matches!(&error, UndoError::Elsewhere { place: Some(Place::Named(name)), .. } if name.ends_with("-here")),
        "{error}"
    );
    let none =
        there.run(|| undo(&Live::new(), &journal.lock().unwrap(), None, "test", false).unwrap_err()).unwrap();
    assert!(matches!(none, UndoError::Nothing(_)), "{none}");
    let status = there.run(|| Status::of(&Live::new(), &journal).unwrap()).unwrap();
    assert!(status.applies[0].elsewhere.as_ref().unwrap().contains("-here"), "{status:?}");
    undone(&lab, folder.path());
}

#[test]
fn drift_is_reported_with_the_current_value() {
    udpath_lab::needs_root!();
    let (lab, folder) = (lab::lab("drift", 2), tempfile::tempdir().unwrap());
    applied(&lab, folder.path(), &["eth0:rps/rx-0=0", "eth0:rps/rx-1=1"]).unwrap();
    shell(&lab, "echo 3 > /sys/class/net/eth0/queues/rx-1/rps_cpus");
    let status = || Status::of(&Live::new(), &Journal::at(folder.path())).unwrap();
    let status = lab.machine("here").unwrap().run(status).unwrap();
    let held: Vec<_> =
        status.applies[0].settings.iter().map(|held| (held.state, held.now.as_deref())).collect();
    assert_eq!(held, [(Hold::Holds, Some("0")), (Hold::Drifted, Some("0-1"))]);
    assert!(!status.applies[0].settings[1].suspects.is_empty());
    assert_eq!(status.drifted().count(), 1);
}

#[test]
fn a_thread_is_pinned_and_restored() {
    let (folder, mut sleeper) =
        (tempfile::tempdir().unwrap(), std::process::Command::new("sleep").arg("60").spawn().unwrap());
    let allowed = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", sleeper.id())).unwrap();
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
    };
    let (before, pid) = (allowed(), sleeper.id());
    let plan = resolved(&[&format!("thread:{pid}/{pid}:affinity=0")]).unwrap();
    let journal = Journal::at(folder.path());
    apply(&Live::new(), &journal.lock().unwrap(), &plan, None, |_| Ok(())).unwrap();
    assert_eq!(allowed(), "0");
    assert_eq!(undo(&Live::new(), &journal.lock().unwrap(), None, "test", false).unwrap().left, []);
    assert_eq!(allowed(), before);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

/// Only the kernel's netdev family has it: no file, no other program here.
#[test]
fn the_suspend_timeout_of_every_napi_instance_is_set_and_undone() {
    udpath_lab::needs_root!();
    let (lab, folder) = (lab::lab("suspend", 2), tempfile::tempdir().unwrap());
    let _napi = lab.machine("here").unwrap().interface("eth0").unwrap().ensure_napi().unwrap();
    let timeouts = || {
        let napis = || Live::new().source().napis().unwrap().value;
        let napis = lab.machine("here").unwrap().run(napis).unwrap();
        napis.into_iter().map(|napi| napi.irq_suspend_timeout).collect::<Vec<_>>()
    };
    let before = timeouts();
    assert_eq!(before, [Some(0); 2]);
    applied(&lab, folder.path(), &["eth0:napi/irq-suspend-timeout=20000000"]).unwrap();
    assert_eq!(timeouts(), [Some(20_000_000); 2]);
    undone(&lab, folder.path());
    assert_eq!(timeouts(), before);
}
