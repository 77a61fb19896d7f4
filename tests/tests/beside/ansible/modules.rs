//! Each module and playbook on a few hosts: what it changes once and only once, and what it says to bad input.

use std::path::PathBuf;
use std::process::Command;

use udpath_rig::{Cgroup, Run, Running};

use super::fleet::LONG;
use super::*;

/// Options that only the action plugin of a module knows.
const ACTIONS: [&str; 2] = ["src", "dest"];

/// A playbook of the collection.
pub(super) fn playbook(name: &str) -> String {
    format!("{}/../deploy/ansible/playbooks/{name}.yml", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn documentation_names_the_options_and_playbooks_are_sound() {
    udpath_lab::needs_root!();
    let fleet = Fleet::new("ansible-doc", 1, &BTreeMap::new());
    let modules = [
        ("boost", json!({ "port": 7 })),
        ("facts", json!({})),
        ("policy", json!({ "target": "/", "state": "absent" })),
        ("settings", json!({ "settings": [] })),
        ("support", json!({ "dest": "captures" })),
    ];
    for (name, required) in modules {
        let said = fleet.run("ansible-doc", &["--json", &format!("udpath.udpath.{name}")]);
        let all: Value = serde_json::from_str(&said.fine().out).unwrap();
        let module = &all[format!("udpath.udpath.{name}")];
        assert!(module["examples"].as_str().unwrap().contains(&format!("udpath.udpath.{name}:")), "{name}");
        assert!(!module["return"].as_object().unwrap().is_empty(), "{name}");
        let options = module["doc"]["options"].as_object().unwrap();
        let documented = options.keys().filter(|option| !ACTIONS.contains(&option.as_str()));
        let documented: Vec<&str> = documented.map(String::as_str).collect();
        let mut arguments = required.clone();
        arguments["nonesuch"] = json!(1);
        let refused = fleet.module_on("host-1", name, &arguments, &[]);
        let said = refused["msg"].as_str().unwrap_or_else(|| panic!("{refused}"));
        let supported = said.split("include: ").nth(1).unwrap_or_else(|| panic!("{said}"));
        let supported: Vec<&str> = supported.trim_end_matches('.').split(", ").collect();
        assert_eq!(documented, supported, "{name}");
        fleet.run("ansible-playbook", &["--syntax-check", &playbook(name)]).fine();
    }
}

/// Bad input ends with one sentence that says what is wrong, and changes nothing.
#[test]
fn bad_input_is_one_sentence() {
    udpath_lab::needs_root!();
    let fleet = Fleet::new("ansible-bad", 1, &BTreeMap::new());
    fleet.write("broken.json", "{\"schema\":");
    fleet.write("settings.txt", "# none of them\n\neth0:chanels/combined=8\n");
    fleet.write("occupied", "");
    let cases = [
        (
            "settings",
            json!({ "settings": ["eth0:chanels/combined=8"] }),
            "did you mean \"channels/combined\"",
        ),
        ("settings", json!({ "settings": ["eth0"] }), "eth0"),
        ("settings", json!({ "settings": ["eth9:rps/rx-0=0"] }), "eth9"),
        (
            "settings",
            json!({ "settings": [SETTING], "confirm": 5 }),
            "confirm is 5: expected 10 to 86400 seconds",
        ),
        ("settings", json!({}), "one of the following is required: settings, plan"),
        ("settings", json!({ "settings": [SETTING], "plan": { "changes": [] } }), "mutually exclusive"),
        ("settings", json!({ "plan": { "changes": 3 } }), "plan.json"),
        ("settings", json!({ "src": "broken.json" }), "broken.json is not a plan: "),
        ("settings", json!({ "src": "settings.txt" }), "did you mean \"channels/combined\""),
        (
            "settings",
            json!({ "src": "settings.txt", "settings": [SETTING] }),
            "src cannot be used with settings or plan",
        ),
        ("settings", json!({ "src": "nonexistent" }), "nonexistent"),
        (
            "settings",
            json!({ "settings": [SETTING], "program": "/nonexistent/udpath" }),
            "/nonexistent/udpath not found on this host",
        ),
        ("facts", json!({ "what": "eth9" }), "eth9"),
        ("facts", json!({ "interval": "soon" }), "'soon'"),
        ("facts", json!({ "netns": "nonesuch" }), "nonesuch"),
        ("policy", json!({ "target": "/", "state": "present" }), "state is present but all of the following"),
        ("policy", json!({ "target": "/", "options": { "recieve-buffer": "8M" } }), "recieve-buffer"),
        ("policy", json!({ "target": "/", "options": { "receive-buffer": "much" } }), "much"),
        ("boost", json!({ "port": 7 }), "set either `load`, or `live: true`"),
        ("boost", json!({ "live": true }), "one of the following is required: port, pid, unit"),
        ("boost", json!({ "port": 7, "live": true }), "7"),
        ("boost", json!({ "port": 7, "load": "echo 127.0.0.1:7 --json" }), "boost has its own --json"),
        ("support", json!({}), "missing required arguments: dest"),
        ("support", json!({ "dest": "occupied/captures" }), "cannot write occupied/captures/host-1.tar.gz: "),
    ];
    for (name, arguments, wanted) in cases {
        let result = fleet.module_on("host-1", name, &arguments, &[]);
        let what = format!("{name} {arguments}: {result}");
        assert_eq!(result["failed"], true, "{what}");
        assert_ne!(result["changed"], true, "{what}");
        let said = result["msg"].as_str().unwrap_or_else(|| panic!("{what}"));
        assert!(said.contains(wanted) && !said.contains("Traceback"), "{what}");
        assert!(said.lines().count() == 1 || wanted == "nonexistent", "{what}");
    }
    assert_eq!(fleet.status("host-1")["applies"], json!([]));
}

#[test]
fn plans_and_policies_are_applied_once_and_captures_are_fetched() {
    udpath_lab::needs_root!();
    let fleet = Fleet::new("ansible-once", 2, &BTreeMap::new());

    // A plan that was reviewed in check mode, from a file.
    let planned = fleet.module_on("host-1", "settings", &json!({ "settings": [SETTING] }), &["--check"]);
    fleet.write("plan.json", &planned["plan"].to_string());
    for changed in [true, false] {
        let applied = fleet.module_on("host-1", "settings", &json!({ "src": "plan.json" }), &[]);
        assert_eq!(applied["changed"], changed, "{applied}");
    }
    assert_eq!(fleet.sys("host-1", "class/net/eth0/tx_queue_len"), "2000");
    // It cannot be kept here, as a network namespace has no boot: it stays as it is, and that is said.
    let request = json!({ "settings": ["eth0:tx-queue-len=3000"], "persist": true });
    let kept = fleet.module_on("host-1", "settings", &request, &[]);
    let said = kept["msg"].as_str().unwrap_or_else(|| panic!("{kept}"));
    assert!(said.starts_with("the settings are in effect, but not kept across boots: "), "{said}");
    assert_eq!((&kept["failed"], &kept["changed"]), (&json!(true), &json!(true)));
    assert_eq!(fleet.sys("host-1", "class/net/eth0/tx_queue_len"), "3000");

    // The next run does not take it for kept.
    let again = fleet.module_on("host-1", "settings", &request, &[]);
    assert!(again["msg"].as_str().unwrap().starts_with("cannot persist settings of this"), "{again}");

    // A policy of a cgroup.
    let cgroup = Cgroup::new();
    let target = format!("/{}", cgroup.path("").file_name().unwrap().display());
    let set = json!({ "target": target, "options": { "receive-buffer": "8M", "reuseport": true } });
    let remove = json!({ "target": target, "state": "absent" });
    for (request, more, changed, left) in [
        (&set, &["--check"][..], true, 0),
        (&set, &[], true, 2),
        (&set, &[], false, 2),
        (&remove, &["--check"], true, 2),
        (&remove, &[], true, 0),
        (&remove, &[], false, 0),
    ] {
        let result = fleet.module_on("host-2", "policy", request, more);
        assert_eq!(result["changed"], changed, "{request}: {result}");
        assert_eq!(result["policies"].as_array().unwrap().len(), left, "{request}: {result}");
    }

    // The playbooks.
    let recap =
        |name: &str, more: &[&str]| fleet.run("ansible-playbook", &[&[&playbook(name)[..]], more].concat());
    let facts = recap("facts", &["-e", "udpath_interval=100ms"]);
    assert!(facts.fine().out.contains("Show findings"), "{}", facts.out);
    let list = format!("{{\"udpath_settings\": [\"{SETTING}\"]}}");
    let settings = recap("settings", &["-e", &list]);
    assert_eq!(settings.fine().out.matches("changed=1").count(), 2, "{}", settings.out);
    let captures = recap("support", &["-e", "udpath_captures=captures"]);
    assert_eq!(captures.fine().out.matches("changed=1").count(), 2, "{}", captures.out);
    for name in ["host-1", "host-2"] {
        let path = fleet.folder.path().join(format!("captures/{name}.tar.gz"));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let shown = Run::new(&["show", "--json", "--sysroot", path.to_str().unwrap()]).finish();
        let map: Value = serde_json::from_str(&shown.out).unwrap_or_else(|_| panic!("{}", shown.err));
        assert!(map["interfaces"].to_string().contains("\"eth0\""), "{map}");
    }
}

/// Three runs on this machine itself, which has boots that could keep something; what they write is gone with their
/// mount namespace. Prints how many files keep it after each.
const KEEPING: &str = r#"
for folder in /etc/sysctl.d /var/lib; do mount -n -t tmpfs test $folder; done
setting=sysctl:net.core.optmem_max=$(cat /proc/sys/net/core/optmem_max)
settings() {
    ansible localhost --connection local --one-line "$@" -m udpath.udpath.settings \
        -a "{\"settings\": [\"$setting\"], \"persist\": true, \"program\": \"$PROGRAM\"}" | cut -d' ' -f3
    find /etc/sysctl.d -type f | wc -l
}
settings --check
settings
settings
"#;

#[test]
fn settings_are_kept_across_boots_once() {
    udpath_lab::needs_root!();
    let fleet = Fleet::new("ansible-keep", 1, &BTreeMap::new());
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-e", "-c", KEEPING])
        .env("PROGRAM", program());
    let said = fleet.ended(command);
    assert_eq!(said.fine().out, "CHANGED\n0\nCHANGED\n1\nSUCCESS\n1\n", "{}", said.err);
}

/// A load on a server of a host, from the controller.
fn traffic(fleet: &Fleet, name: &str) -> [Running; 2] {
    let target = format!("{}:7", fleet.lab.address_of(name, "controller").unwrap().ipv4);
    let start = |machine: &str, arguments: &[&str]| {
        let mut command = fleet.lab.machine(machine).unwrap().command(program());
        command.args(arguments);
        Run::of(command, arguments[0]).within(LONG).start_with(|command| fleet.lab.spawn(command))
    };
    let mut server = start(name, &["serve", "echo", "--io", "shared", "--bind", &target]);
    server.says("ready");
    let arguments = ["load", "echo", &target, "--flows", "16", "--rate", "5k", "-d", "120s"];
    [server, start("controller", &arguments)]
}

#[test]
fn boost_measures_and_a_loss_on_the_canary_stops_the_play() {
    udpath_lab::needs_root!();
    // A canary whose boost ends with the result of another host's, but for a gain that is a loss.
    let folder = tempfile::tempdir().unwrap();
    let stub = folder.path().join("udpath");
    let result = folder.path().join("result.json");
    let real = program();
    let script = format!(
        "#!/bin/sh\ncase $1 in boost) exec cat {} ;; *) exec {} \"$@\" ;; esac\n",
        result.display(),
        real.display()
    );
    std::fs::write(&stub, script).unwrap();
    std::fs::set_permissions(&stub, Permissions::from_mode(0o755)).unwrap();
    let programs: BTreeMap<usize, PathBuf> = [(1, stub)].into();
    let fleet = Fleet::new("ansible-boost", 3, &programs);

    let load = traffic(&fleet, "host-2");
    let request = json!({ "port": 7, "live": true, "budget": "1s", "bound": 10, "blocks": 3 });
    let skipped = fleet.module_on("host-2", "boost", &request, &["--check"]);
    assert_eq!((&skipped["skipped"], &skipped["failed"]), (&json!(true), &json!(false)));
    let mut boosted = fleet.module_on("host-2", "boost", &request, &[]);
    drop(load);
    assert_eq!((&boosted["failed"], &boosted["changed"]), (&json!(false), &json!(false)), "{boosted}");
    assert!(boosted["gain"]["ratio"].as_f64().unwrap() > 0.5, "{}", boosted["gain"]);
    assert_eq!(fleet.status("host-2")["applies"], json!([]));

    // What was kept is undone, and the other hosts are left alone.
    let kept = fleet.module_on("host-1", "settings", &json!({ "settings": [SETTING] }), &[]);
    assert_eq!(kept["apply"], 1, "{kept}");
    let mut loss = boosted["result"].take();
    loss["gain"] = json!({ "ratio": 0.91, "low": 0.88, "high": 0.94 });
    loss["running"]["applies"] = json!([1]);
    std::fs::write(&result, loss.to_string()).unwrap();
    let said = fleet.run("ansible-playbook", &[&playbook("boost"), "-e", "udpath_unit=echo.service"]);
    assert_eq!(said.code, Some(2), "{}{}", said.out, said.err);
    let sentence = "gain 0.91 (0.88 to 0.94) of the rate as found is below 1; what was kept is undone";
    assert!(said.out.contains(sentence), "{}", said.out);
    assert!(said.out.contains("host-1") && !said.out.contains("host-2"), "{}", said.out);
    assert_ne!(fleet.sys("host-1", "class/net/eth0/tx_queue_len"), "2000");
}
