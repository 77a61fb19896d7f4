//! Plans applied to an in-memory machine that rejects writes, ignores them, and kills the program at every write.

mod death;
mod journal;
mod rejected;
mod revert;
mod sim;
mod temporary;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use sim::{Fault, IRQ, Sim, faulty, faulty_from};
use udpath_tune::apply::{Applied, ApplyError};
use udpath_tune::plan::{Consent, PlanError};
use udpath_tune::status::{Hold, Status};
use udpath_tune::undo::{Left, UndoError};
use udpath_tune::{Journal, Live, Machine, Plan, SettingRequest, apply, undo};

/// Changes of every phase, including one that makes the machine lose others.
const REQUESTS: [&str; 10] = [
    "sysctl:net.core.rmem_max=4194304",
    "eth0:rps/rx-0=0-1",
    "eth0:xps/tx-1=1",
    "eth0:rfs/rx-0=2048",
    "eth0:channels/combined=2",
    "eth0:napi/threaded=on",
    "sysctl:net.ipv4.udp_mem=10 20 30",
    "socket:812/4026:receive-buffer=8388608",
    "group:812/4026:selection=by-cpu",
    "thread:812/815:affinity=1",
];

fn requests(texts: &[&str]) -> Vec<SettingRequest> {
    texts.iter().map(|text| SettingRequest::parse(text, "asked for").unwrap()).collect()
}

/// This machine does not report what selects in its groups, so a change needs this consent.
fn allowed() -> Consent {
    let groups = ["group:812/4026:selection", "group:812/4027:selection"];
    Consent { insecure: groups.map(str::to_owned).into(), ..Consent::default() }
}

fn plan(machine: &dyn Machine, texts: &[&str]) -> Plan {
    Plan::resolve(machine, requests(texts), &allowed()).unwrap()
}

fn applied(machine: &dyn Machine, journal: &Path, texts: &[&str]) -> Result<Applied, ApplyError> {
    let plan = plan(machine, texts);
    apply(machine, &Journal::at(journal).lock().unwrap(), &plan, None, |_| Ok(()))
}

fn undone(machine: &dyn Machine, journal: &Path) -> Result<Vec<Left>, UndoError> {
    undo(machine, &Journal::at(journal).lock().unwrap(), None, "test", false).map(|undone| undone.left)
}

#[test]
fn a_plan_is_applied_in_order_and_undone_exactly() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let before = sim.values();
    let plan = plan(&sim, &REQUESTS);
    let order: Vec<String> = plan.changes.iter().map(|change| change.setting.to_string()).collect();
    assert_eq!(order[0], "eth0:channels/combined");
    let done = applied(&sim, folder.path(), &REQUESTS).unwrap();
    assert_eq!(done.id, 1);
    let after = sim.values();
    for (name, value) in [
        ("eth0:channels/combined", "2"),
        ("eth0:rps/rx-0", "0-1"),
        ("eth0:rps/rx-1", "none"),
        ("eth0:rfs/rx-0", "2048"),
        ("sysctl:net.ipv4.udp_mem", "10 20 30"),
    ] {
        assert_eq!(after[name], value, "{name}");
    }
    assert!(!after.contains_key("eth0:rps/rx-3"));
    assert_eq!(undone(&sim, folder.path()).unwrap(), []);
    assert_eq!(sim.values(), before);
    assert!(matches!(undone(&sim, folder.path()), Err(UndoError::Nothing(_))));
    let again = undo(&sim, &Journal::at(folder.path()).lock().unwrap(), Some(1), "test", false);
    assert!(matches!(again, Err(UndoError::Already(1))), "{again:?}");
}

#[test]
fn settings_lost_in_a_reset_are_restored_at_once() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    sim.put("eth0:rps/rx-1", "0");
    let before = sim.values();
    let done = applied(&sim, folder.path(), &["eth0:channels/combined=2"]).unwrap();
    assert_eq!(
        (sim.values()["eth0:rps/rx-1"].as_str(), sim.values()["eth0:rfs/rx-0"].as_str()),
        ("0", "256")
    );
    assert_eq!(done.changes.len(), 4, "{:?}", done.changes);
    assert_eq!(undone(&sim, folder.path()).unwrap(), []);
    assert_eq!(sim.values(), before);
}

#[test]
fn the_drivers_new_spreading_is_kept_until_undo() {
    for touched in [false, true] {
        let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
        let mut before = sim.values();
        let done = applied(&sim, folder.path(), &["eth0:channels/combined=2"]).unwrap();
        // Set by a user before; the driver's choice for fewer channels differs.
        assert_eq!(sim.values()["eth0:xps/tx-0"], "none");
        let noted = done.changes.iter().find(|made| made.setting.to_string() == "eth0:xps/tx-0").unwrap();
        assert!(noted.note.as_ref().unwrap().contains("by the driver"), "{noted:?}");
        if touched {
            sim.put("eth0:xps/tx-0", "3");
        }
        assert_eq!(undone(&sim, folder.path()).unwrap(), []);
        if touched {
            // Changed by another program since: undo does not restore the older value. This driver has lost it again.
            before.insert("eth0:xps/tx-0".into(), "none".into());
        }
        assert_eq!(sim.values(), before);
    }
}

#[test]
fn cpus_that_irqbalance_chose_during_a_reset_are_its_own() {
    for banned in [false, true] {
        let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
        sim.balance(2);
        if banned {
            sim.put("irqbalance:ban", &IRQ.to_string());
        }
        let done = applied(&sim, folder.path(), &["eth0:ring/rx=512"]).unwrap();
        let irq = done.changes.iter().find(|made| made.setting.to_string() == "eth0:irq/rx-0").unwrap();
        // An IRQ that it leaves alone was moved by the driver.
        assert_eq!(irq.to.to_string(), if banned { "0" } else { "2" });
        assert_eq!(irq.note.as_deref(), (!banned).then_some("chosen by irqbalance, which runs"));
        // It moves it on, in its time.
        if !banned {
            sim.put("eth0:irq/rx-0", "3");
        }
        let status = Status::of(&sim, &Journal::at(folder.path())).unwrap();
        assert_eq!(status.drifted().count(), 0, "{status:?}");
        assert_eq!(undone(&sim, folder.path()).unwrap(), []);
        assert_eq!(sim.values()["eth0:ring/rx"], "256");
    }
}

/// The number of writes in the plan.
fn writes() -> usize {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let counting = faulty(&sim, usize::MAX, Fault::Ignores);
    applied(&counting, folder.path(), &REQUESTS).unwrap();
    counting.writes.get()
}

#[test]
fn unreported_values_are_restored_if_known() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let selection = || sim.values()["group:812/4026:selection"].clone();
    sim.attach();
    let refused = Plan::resolve(&sim, requests(&["group:812/4026:selection=by-cpu"]), &Consent::default());
    assert!(matches!(refused, Err(PlanError::Destroys { .. })), "{refused:?}");
    let plan = plan(&sim, &["group:812/4026:selection=by-cpu"]);
    assert!(
        plan.diff().contains("unknown -> by-cpu") && plan.diff().contains("undo sets by-flow"),
        "{}",
        plan.diff()
    );
    let done = applied(&sim, folder.path(), &["group:812/4026:selection=by-cpu"]).unwrap();
    assert!(done.changes[0].note.as_ref().unwrap().contains("undo sets by-flow"), "{done:?}");
    // The journal knows what the kernel does not report: the second undo restores the first apply's value.
    let done = applied(&sim, folder.path(), &["group:812/4026:selection=by-flow"]).unwrap();
    assert!(done.changes[0].note.as_ref().unwrap().contains("undo sets by-cpu"), "{done:?}");
    let status = Status::of(&sim, &Journal::at(folder.path())).unwrap();
    let held: Vec<Hold> =
        status.applies.iter().flat_map(|apply| &apply.settings).map(|held| held.state).collect();
    assert_eq!(held, [Hold::Superseded, Hold::Untold]);
    assert_eq!(selection(), "by-flow");
    // The value set by an earlier apply is known; before the first there may have been a program.
    for (now, left) in [("by-cpu", 0), ("by-flow", 1)] {
        let undone = undo(&sim, &Journal::at(folder.path()).lock().unwrap(), None, "test", false).unwrap();
        assert_eq!(undone.untold, ["group:812/4026:selection"]);
        assert_eq!(undone.left.len(), left, "{:?}", undone.left);
        assert!(undone.left.iter().all(|left| left.why.contains("undo cannot restore")), "{:?}", undone.left);
        assert_eq!(selection(), now);
    }
}

#[test]
fn settings_of_an_ended_process_are_reported_without_failure() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    applied(&sim, folder.path(), &REQUESTS).unwrap();
    sim.end_server();
    let journal = Journal::at(folder.path());
    let status = Status::of(&sim, &journal).unwrap();
    let gone: Vec<&str> = status.drifted().map(|held| held.setting.as_str()).collect();
    assert_eq!(
        gone,
        ["socket:812/4026:receive-buffer", "group:812/4026:selection", "thread:812/815:affinity"]
    );
    assert!(status.drifted().all(|held| held.state == Hold::Gone && held.suspects[0].contains("a restart")));
    let undone = undo(&sim, &journal.lock().unwrap(), None, "test", false).unwrap();
    assert!(undone.complete && undone.left.is_empty(), "{undone:?}");
    assert_eq!(undone.ended.len(), 3, "{undone:?}");
    let alive = Sim::new();
    alive.end_server();
    assert_eq!(sim.values(), alive.values());
}

#[test]
fn later_changes_by_others_are_kept_unless_forced() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    applied(&sim, folder.path(), &["eth0:rps/rx-0=0-1", "sysctl:net.core.rmem_max=5"]).unwrap();
    sim.put("eth0:rps/rx-0", "3");
    let left = undone(&sim, folder.path()).unwrap();
    assert_eq!((left.len(), left[0].setting.as_str()), (1, "eth0:rps/rx-0"));
    assert_eq!(
        (sim.values()["eth0:rps/rx-0"].as_str(), sim.values()["sysctl:net.core.rmem_max"].as_str()),
        ("3", "212992")
    );
    applied(&sim, folder.path(), &["eth0:rps/rx-0=0-1"]).unwrap();
    sim.put("eth0:rps/rx-0", "2");
    let forced = undo(&sim, &Journal::at(folder.path()).lock().unwrap(), None, "test", true).unwrap();
    assert_eq!((forced.left, sim.values()["eth0:rps/rx-0"].as_str()), (vec![], "3"));
}

#[test]
fn an_earlier_apply_is_not_undone_under_a_later_one() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    applied(&sim, folder.path(), &["eth0:rps/rx-0=0"]).unwrap();
    applied(&sim, folder.path(), &["eth0:rps/rx-0=1"]).unwrap();
    let journal = Journal::at(folder.path());
    let early = undo(&sim, &journal.lock().unwrap(), Some(1), "test", false);
    assert!(matches!(early, Err(UndoError::Later { id: 1, later: 2, .. })), "{early:?}");
    assert_eq!(undone(&sim, folder.path()).unwrap(), []);
    assert_eq!(sim.values()["eth0:rps/rx-0"], "0");
    assert_eq!(undone(&sim, folder.path()).unwrap(), []);
    assert_eq!(sim.values(), Sim::new().values());
}

#[test]
fn nothing_is_changed_if_the_revert_cannot_be_started() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let plan = plan(&sim, &REQUESTS);
    let journal = Journal::at(folder.path());
    let error =
        apply(&sim, &journal.lock().unwrap(), &plan, None, |_| Err("no such program".into())).unwrap_err();
    assert!(matches!(&error, ApplyError::Nothing(why) if why == "no such program"), "{error}");
    assert_eq!((sim.values(), journal.ids().unwrap()), (Sim::new().values(), vec![]));
}

#[test]
fn plan_errors_are_found_before_anything_is_written() {
    let sim = Sim::new();
    let resolve = |texts: &[&str], consent: &Consent| Plan::resolve(&sim, requests(texts), consent);
    let error = |texts: &[&str]| resolve(texts, &Consent::default()).unwrap_err();
    assert!(matches!(error(&["eth0:rps/rx-0=0", "eth0:rps/rx-0=1"]), PlanError::Twice { .. }));
    assert!(matches!(error(&["eth0:rps/rx-9=0"]), PlanError::Refused(_)));
    assert!(matches!(error(&["eth1:rps/rx-*=0"]), PlanError::Nothing { .. }));
    let rp_filter = ["sysctl:net.ipv4.conf.all.rp_filter=0"];
    assert!(error(&rp_filter).to_string().contains("--allow sysctl:net.ipv4.conf.all.rp_filter"));
    let consent =
        Consent { insecure: ["sysctl:net.ipv4.conf.all.rp_filter".to_owned()].into(), ..Consent::default() };
    assert_eq!(resolve(&rp_filter, &consent).unwrap().changes.len(), 1);
    let every = Consent { insecure: ["insecure".to_owned()].into(), ..Consent::default() };
    assert_eq!(resolve(&rp_filter, &every).unwrap().changes.len(), 1);
    // Every queue, and values that are already set.
    let all = resolve(&["eth0:rps/rx-*=1"], &Consent::default()).unwrap();
    assert_eq!((all.changes.len(), all.already.len()), (3, 1));
    // A queue that appears with the channels.
    let later = resolve(&["eth0:channels/combined=8", "eth0:rps/rx-7=1"], &Consent::default()).unwrap();
    assert_eq!(later.changes[1].from, None);
}

#[test]
fn a_plan_in_json_round_trips_and_detects_a_changed_machine() {
    let sim = Sim::new();
    let first = plan(&sim, &REQUESTS);
    let json = serde_json::to_string(&first.document()).unwrap();
    let again = || Plan::resolve(&sim, SettingRequest::from_json(&json).unwrap(), &allowed());
    assert_eq!(again().unwrap(), first);
    sim.put("sysctl:net.core.rmem_max", "7");
    assert!(matches!(again(), Err(PlanError::Stale { .. })));
}

#[test]
fn a_rollback_leaves_a_program_that_was_not_replaced() {
    // The last write fails or dies before it is made: the program is still attached, and stays.
    let texts = ["sysctl:net.core.rmem_max=7", "group:812/4026:selection=by-cpu"];
    for fault in [Fault::Refuses(5), Fault::DiesBefore] {
        let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
        sim.attach();
        let before = sim.values();
        let machine = faulty(&sim, 1, fault);
        let ended = catch_unwind(AssertUnwindSafe(|| applied(&machine, folder.path(), &texts)));
        match ended {
            Ok(refused) => assert!(matches!(refused, Err(ApplyError::Reverted { .. })), "{refused:?}"),
            Err(_) => assert_eq!(undone(&sim, folder.path()).unwrap(), []),
        }
        assert!(sim.attached(), "{fault:?}");
        assert_eq!(sim.values(), before);
    }
}

/// A machine with two cards of one IRQ each, as files.
fn cards() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (irq, action, device) in [(57, "eth0-rx-0", "0000:03:00.0"), (58, "nvme0q1", "0000:04:00.0")] {
        for (path, text) in [
            (format!("proc/irq/{irq}/smp_affinity_list"), "0\n"),
            (format!("sys/kernel/irq/{irq}/actions"), action),
            (format!("sys/bus/pci/devices/{device}/msi_irqs/{irq}"), "msix\n"),
        ] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }
    folder
}

#[test]
fn an_irq_is_identified_by_device_and_action() {
    let journal = tempfile::tempdir().unwrap();
    let cards = cards();
    let at = |path: &str| cards.path().join(path);
    let affinity = |irq: u32| {
        std::fs::read_to_string(at(&format!("proc/irq/{irq}/smp_affinity_list")))
            .unwrap()
            .trim_end()
            .to_owned()
    };
    let swap = |one: &str, other: &str| {
        std::fs::rename(at(one), at("aside")).unwrap();
        std::fs::rename(at(other), at(one)).unwrap();
        std::fs::rename(at("aside"), at(other)).unwrap();
    };
    let machine = Live::at(cards.path());
    applied(&machine, journal.path(), &["irq:57:affinity=1"]).unwrap();
    let text = std::fs::read_to_string(Journal::at(journal.path()).path(1)).unwrap();
    assert!(text.contains("eth0-rx-0") && text.contains("0000:03:00.0"), "{text}");
    // The drivers are reloaded in the opposite order.
    swap("sys/kernel/irq/57/actions", "sys/kernel/irq/58/actions");
    let msi = |device: &str, from: u32, to: u32| {
        let folder = format!("sys/bus/pci/devices/{device}/msi_irqs");
        std::fs::rename(at(&format!("{folder}/{from}")), at(&format!("{folder}/{to}"))).unwrap();
    };
    msi("0000:03:00.0", 57, 58);
    msi("0000:04:00.0", 58, 57);
    std::fs::write(at("proc/irq/58/smp_affinity_list"), "1\n").unwrap();
    // The IRQ is found under its new number, and the disk's is left alone.
    assert_eq!(undone(&machine, journal.path()).unwrap(), []);
    assert_eq!((affinity(57).as_str(), affinity(58).as_str()), ("1", "0"));
    // Without an IRQ of the same name nothing is changed, and the error names the current owner.
    let journal = tempfile::tempdir().unwrap();
    applied(&machine, journal.path(), &["irq:58:affinity=1"]).unwrap();
    std::fs::write(at("sys/kernel/irq/58/actions"), "eth1-rx-0").unwrap();
    let status = Status::of(&machine, &Journal::at(journal.path())).unwrap();
    assert_eq!(status.drifted().map(|held| held.state).collect::<Vec<_>>(), [Hold::Gone]);
    let left = undone(&machine, journal.path()).unwrap();
    assert_eq!(left.len(), 1);
    assert!(
        left[0].why.contains("is now eth1-rx-0 of 0000:03:00.0, but was eth0-rx-0 of 0000:03:00.0"),
        "{left:?}"
    );
    assert_eq!(affinity(58), "1");
}
