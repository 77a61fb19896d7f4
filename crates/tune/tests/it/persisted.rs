//! What a boot keeps already, as far as the journal and the files show.

use std::fs;
use std::path::Path;

use udpath_tune::persist::{Boot, files};
use udpath_tune::plan::Consent;
use udpath_tune::status::Status;
use udpath_tune::{Journal, Live, Plan, SettingRequest};

/// The same plan is kept once; a change of a file, another value, or undo, and it is no longer.
#[test]
fn what_is_kept_already_is_known() {
    const KEPT: [&str; 2] = ["sysctl:net.core.rmem_max=4194304", "sysctl:net.core.wmem_max=4194304"];
    let folder = tempfile::tempdir().unwrap();
    let sysctl = |name: &str| folder.path().join("proc/sys/net/core").join(name);
    fs::create_dir_all(sysctl("")).unwrap();
    // The first is there in the initial network namespace only.
    for (name, value) in [("netdev_max_backlog", "1000"), ("rmem_max", "212992"), ("wmem_max", "4194304")] {
        fs::write(sysctl(name), value).unwrap();
    }
    let live = Live::at(folder.path());
    let journal = Journal::at(&folder.path().join("journal"));
    let plan = |texts: &[&str]| {
        let requests = texts.iter().map(|text| SettingRequest::parse(text, "").unwrap()).collect();
        Plan::resolve(&live, requests, &Consent::default()).unwrap()
    };
    let persists = |texts: &[&str]| Status::of(&live, &journal).unwrap().persists(&plan(texts));
    let apply = |texts: &[&str], id: u64| {
        let (mut plan, consent) = (plan(texts), Consent::default());
        let boot = Boot { program: Path::new("/usr/bin/env"), journal: folder.path(), consent: &consent };
        plan.changes.extend(files(&live, &plan, id, &boot).unwrap().changes);
        udpath_tune::apply(&live, &journal.lock().unwrap(), &plan, None, |_| Ok(())).unwrap()
    };
    assert!(!persists(&KEPT));
    // The one that had its value already is kept as well.
    apply(&KEPT, 1);
    assert!(persists(&KEPT) && persists(&KEPT[1..]));
    assert!(!persists(&["sysctl:net.core.rmem_max=8388608"]));
    let file = folder.path().join("etc/sysctl.d/90-udpath-000001.conf");
    let ours = fs::read(&file).unwrap();
    fs::write(&file, "# by someone else\n").unwrap();
    assert!(!persists(&KEPT));
    fs::write(&file, ours).unwrap();
    assert!(persists(&KEPT));
    // A later one keeps another value, whatever the setting's value is now.
    apply(&["sysctl:net.core.rmem_max=8388608"], 2);
    fs::write(sysctl("rmem_max"), "4194304\n").unwrap();
    assert!(!persists(&KEPT) && persists(&KEPT[1..]));
    udpath_tune::undo(&live, &journal.lock().unwrap(), Some(1), "test", true).unwrap();
    assert!(!persists(&KEPT[1..]));
}
