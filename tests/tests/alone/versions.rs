//! What earlier versions wrote is read: every folder of tests/fixtures, whose README says what is in it. All verbs work
//! on copies.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use udpath_rig::{Run, Said, client_and_server, json, program};

/// The policy's setting in the journal, without its option.
const POLICY: &str = "policy:/udpath-fixture.slice/collector.service/";
/// The unit that the policy belongs to.
const TARGET: &str = "/udpath-fixture.slice/collector.service";

/// A released version's folder, and a copy of it.
struct Kept {
    copy: tempfile::TempDir,
}

impl Kept {
    fn path(&self, name: &str) -> PathBuf {
        self.copy.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn document(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap()
    }

    /// Runs a verb; arguments that name a file of the copy become its path.
    fn run(&self, arguments: &[&str]) -> Said {
        let files: Vec<String> = arguments
            .iter()
            .map(|one| if self.path(one).exists() { self.text(one) } else { (*one).into() })
            .collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let ended = Run::new(&files).finish();
        Said { code: ended.code(), out: ended.out, err: ended.err }
    }
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copied(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Each version that has been released.
fn versions() -> Vec<Kept> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folders: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    assert!(folders.iter().any(|path| path.ends_with("0.1")), "{folders:?}");
    folders
        .iter()
        .map(|from| {
            let copy = tempfile::tempdir().unwrap();
            copied(from, copy.path());
            Kept { copy }
        })
        .collect()
}

/// Values of a field of each element of a list.
fn each<'a>(list: &'a Value, field: &str) -> Vec<&'a Value> {
    list.as_array().unwrap().iter().map(|one| &one[field]).collect()
}

#[test]
fn results_are_rendered_compared_and_added() {
    let _together = udpath_rig::together();
    for kept in versions() {
        for name in ["load-1.json", "boost.json", "profile-1.json"] {
            let again = kept.run(&["report", name, "--json"]);
            assert!(json(&again.fine().out) == kept.document(name), "{name}");
            assert!(kept.run(&["report", name]).fine().out.lines().count() > 3, "{name}");
            let page = kept.text("page.html");
            kept.run(&["report", name, "-o", &page]).fine();
            assert!(fs::read_to_string(&page).unwrap().contains("</html>"), "{name}");
            fs::remove_file(&page).unwrap();
        }
        for kind in ["load", "profile"] {
            let (a, b) = (format!("{kind}-1.json"), format!("{kind}-2.json"));
            let compared = kept.run(&["compare", &a, &b, "--json"]);
            assert!(matches!(compared.code, Some(0 | 1)), "{}", compared.err);
            assert!(!json(&compared.out)["figures"].as_array().unwrap().is_empty(), "{kind}");
        }
        let difference =
            json(&kept.run(&["profile", "--diff", "profile-1.json", "profile-2.json", "--json"]).fine().out);
        assert!(difference["busy"]["a"].as_f64().unwrap() > 0.0, "{difference}");
        let sum = json(&kept.run(&["merge", "segment-1.json", "segment-2.json", "--json"]).fine().out);
        let sent = |document: &Value| document["counts"]["sent"].as_u64().unwrap();
        let parts = ["segment-1.json", "segment-2.json"].map(|name| sent(&kept.document(name)));
        assert_eq!(sent(&sum), parts.iter().sum::<u64>());
        assert_eq!(sum["segments"]["rows"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_history_is_listed_and_goes_on() {
    let _together = udpath_rig::together();
    for kept in versions() {
        let exported = kept.run(&["history", "export", "--store", "history.db", "--bare"]);
        let lines: Vec<Value> = exported.fine().out.lines().map(json).collect();
        assert_eq!(lines.len(), 3);
        for name in ["load-1.json", "boost.json", "profile-1.json"] {
            assert!(lines.contains(&kept.document(name)), "{name}");
        }
        let runs = || {
            let listed = json(&kept.run(&["history", "--store", "history.db", "--json"]).fine().out);
            each(&listed["series"], "runs").iter().map(|runs| runs.as_array().unwrap().len()).sum::<usize>()
        };
        assert_eq!(runs(), 3);
        kept.run(&["history", "add", "load-2.json", "--store", "history.db", "--name", "kept"]).fine();
        assert_eq!(runs(), 4);
    }
}

#[test]
fn a_capture_is_shown_diagnosed_and_predicted_from() {
    let _together = udpath_rig::together();
    for kept in versions() {
        let read = |verb: &str, more: &[&str]| {
            let said = kept.run(&[&[verb, "--sysroot", "capture.tar.gz", "--json"], more].concat());
            assert!(matches!(said.code, Some(0 | 1)), "{verb}: {}", said.err);
            json(&said.out)
        };
        let map = read("show", &[]);
        // What the program saw then, that of today sees in the capture: the server's link and its port.
        let seen = |map: &Value| {
            let interfaces: BTreeSet<String> =
                each(&map["interfaces"], "name").iter().map(ToString::to_string).collect();
            let ports: BTreeSet<String> = each(&map["sockets"], "local")
                .iter()
                .map(|local| local.as_str().unwrap().rsplit(':').next().unwrap().to_owned())
                .collect();
            (interfaces, ports)
        };
        assert_eq!(seen(&map), seen(&kept.document("map.json")));
        assert!(seen(&map).1.contains("7"), "{map}");
        assert!(!read("diagnose", &["--no-profile"])["links"].as_array().unwrap().is_empty());
        let path = read("predict", &["10.0.0.1:5000", "10.0.0.2:7"]);
        assert_eq!(path["flow"]["destination"], "10.0.0.2:7", "{path}");
        let machines = tempfile::tempdir().unwrap();
        for name in ["one.tar.gz", "two.tar.gz"] {
            fs::copy(kept.path("capture.tar.gz"), machines.path().join(name)).unwrap();
        }
        let fleet =
            json(&kept.run(&["fleet", "report", machines.path().to_str().unwrap(), "--json"]).fine().out);
        assert!(fleet["unread"].as_array().unwrap().is_empty(), "{fleet}");
        assert_eq!(fleet["machines"].as_array().unwrap().len() + fleet["older"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_plan_is_applied_and_undone() {
    udpath_lab::needs_root!();
    let _together = udpath_rig::together();
    let lab = client_and_server("versions", 2);
    let machine = lab.machine("server").unwrap();
    let rps = || {
        let read = || fs::read_to_string("/sys/class/net/eth0/queues/rx-0/rps_cpus");
        machine.run(read).unwrap().unwrap().trim().to_owned()
    };
    for kept in versions() {
        let run = |verb: &str, more: &[&str]| {
            let mut command = machine.command(program());
            command.arg(verb).args(more).args(["--state", &kept.text("state")]).stdin(Stdio::null());
            Said::from(command.output().unwrap())
        };
        let before = rps();
        run("apply", &[&kept.text("plan.json")]).fine();
        assert_eq!(rps(), "1");
        run("undo", &[]).fine();
        assert_eq!(rps(), before);
    }
    lab.down().unwrap();
}

#[test]
fn a_journal_is_listed_and_undone() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    for kept in versions() {
        let journal = kept.text("journal");
        let status = || {
            let said = kept.run(&["status", "--json", "--state", &journal]);
            assert!(matches!(said.code, Some(0 | 1)), "{}", said.err);
            json(&said.out)
        };
        let (then, now) = (kept.document("status.json"), status());
        assert_eq!(each(&now["applies"], "id"), [2, 3]);
        assert!(now["unreadable"].as_array().unwrap().is_empty(), "{now}");
        assert_eq!(each(&now["applies"], "booted"), [true, true]);
        assert_eq!(each(&now["applies"][0]["settings"], "setting"), ["eth0:rps/rx-1", "eth0:xps/tx-0"]);
        assert_eq!(each(&now["applies"][0]["settings"], "applied"), ["0-1", "0"]);
        // The status of then was taken in another namespace, which has no setting of apply 2.
        for field in ["setting", "before", "applied"] {
            let of = |status: &Value| format!("{:?}", each(&status["applies"][1]["settings"], field));
            assert_eq!(of(&now), of(&then), "{field}");
        }
        kept.run(&["undo", "1", "--state", &journal]).refused(3, "apply 1");
        let printed = kept.run(&["undo", "2", "--print", "--state", &journal]);
        assert!(printed.fine().out.contains("rps_cpus"), "{}", printed.out);
        let undone = json(&kept.run(&["undo", "2", "--json", "--state", &journal]).fine().out);
        // The boot has reset them already.
        assert_eq!(
            (&undone["complete"], &undone["gone_with_boot"].as_array().unwrap().len()),
            (&true.into(), &2)
        );
        kept.run(&["undo", "3", "--state", &journal]).fine();
        assert!(status()["applies"].as_array().unwrap().is_empty());
        // The next apply goes on counting.
        assert_eq!(fs::read_dir(&journal).unwrap().flatten().filter(is_entry).count(), 3);
    }
}

fn is_entry(file: &fs::DirEntry) -> bool {
    file.path().extension().is_some_and(|extension| extension == "journal")
}

/// As at the first boot with the new program: the unit's command, with the plan and the journal of the old one.
#[test]
fn a_policy_is_in_effect_after_the_upgrade() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    for kept in versions() {
        let journal = kept.text("journal");
        let unit = fs::read_to_string(kept.path("etc/systemd/system/udpath-3-policy.service")).unwrap();
        let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        assert_eq!(words, ["apply", "/etc/udpath/3-policy.json", "--adopt", "3"]);
        let adopted = kept.run(&["apply", "etc/udpath/3-policy.json", "--adopt", "3", "--state", &journal]);
        let policies = json(&kept.run(&["policy", "list", "--json"]).out);
        let removed = kept.run(&["policy", "remove", TARGET, "--state", &journal]);
        adopted.fine();
        let then = kept.document("policy.json");
        for field in ["setting", "value"] {
            assert_eq!(each(&policies["options"], field), each(&then["options"], field), "{field}");
        }
        // The unit has not been started.
        assert!(each(&policies["options"], "state").iter().all(|state| *state == "later"), "{policies}");
        assert!(
            each(&policies["options"], "setting")
                .iter()
                .all(|name| name.as_str().unwrap().starts_with(POLICY))
        );
        removed.fine();
        assert!(
            json(&kept.run(&["policy", "list", "--json"]).fine().out)["options"]
                .as_array()
                .unwrap()
                .is_empty()
        );
    }
}

/// A version that this program does not know is refused by name, not misread.
#[test]
fn what_a_later_version_wrote_is_refused() {
    let _together = udpath_rig::together();
    for kept in versions() {
        let changed = |name: &str, from: &str, to: &str| {
            let text = fs::read_to_string(kept.path(name)).unwrap();
            assert!(text.contains(from), "{name}: {from}");
            fs::write(kept.path(name), text.replacen(from, to, 1)).unwrap();
        };
        let result = kept.document("load-1.json")["schema"].as_str().unwrap().to_owned();
        changed("load-1.json", &result, "udpath.load/99");
        kept.run(&["report", "load-1.json"]).refused(3, "udpath.load/99");
        changed("etc/udpath/3-policy.json", "udpath.plan/2", "udpath.plan/99");
        kept.run(&["plan", "etc/udpath/3-policy.json"]).refused(2, "udpath.plan/99");
    }
}
