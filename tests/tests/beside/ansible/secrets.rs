//! Secrets of a host: nothing that Ansible prints, registers or fetches has one, however much it is asked to say.

use udpath_rig::{TIMEOUT, awaited};

use super::*;

/// A key of TSIG in the server's file, and words beside the line that is changed and at the end.
const IN_FILES: [&str; 3] = ["c2VjcmV0LXRzaWcta2V5", "s3cret-beside", "s3cret-at-the-end"];
/// The shared secret of a load, as an option of its own and as a joined one.
const IN_LOADS: [&str; 2] = ["radius-s3cret-1", "radius-s3cret-2"];

/// A server with one process, in /etc of the host, which is its own.
fn configuration() -> String {
    let [key, beside, end] = IN_FILES;
    format!(
        "server:\n  server-count: 1 # {beside}\n  ip-address: 127.0.0.1@5300\n  username: \"\"\n  database: \"\"\n  \
         zonesdir: /run\n  pidfile: /run/nsd.pid\n  xfrdfile: /run/nsd.xfrd\n  xfrdir: /run\n  zonelistfile: /run/nsd.list\n\
         remote-control:\n  control-enable: no\nkey:\n  name: k\n  algorithm: hmac-sha256\n  secret: \"{key}\"\n# {end}\n"
    )
}

/// Ends the server, and whatever an apply has started in its place. It waits for the process: nsd removes its pid file
/// before it closes its sockets.
const STOP: &str = "pid=$(cat /run/nsd.pid) && kill $pid && while [ -e /proc/$pid/exe ]; do sleep 0.1; done";

/// Everything of a run of Ansible that stays: what it printed, and what `--tree` wrote.
struct Trace {
    tree: tempfile::TempDir,
    said: String,
}

impl Trace {
    /// Runs a module with everything that Ansible can be made to say.
    fn run(fleet: &Fleet, name: &str, arguments: &Value, more: &[&str]) -> Self {
        let tree = tempfile::tempdir_in(fleet.folder.path()).unwrap();
        let (module, arguments) = (format!("udpath.udpath.{name}"), arguments.to_string());
        let fixed = ["host-1", "--become", "-vvv", "--diff", "-m", &module, "-a", &arguments, "--tree"];
        let said = fleet.run("ansible", &[&fixed[..], &[tree.path().to_str().unwrap()], more].concat());
        Self { tree, said: format!("{}{}", said.out, said.err) }
    }

    fn result(&self) -> Value {
        let file = std::fs::read(self.tree.path().join("host-1"));
        serde_json::from_slice(&file.unwrap_or_else(|why| panic!("{why}: {}", self.said))).unwrap()
    }

    fn hides(&self, secrets: &[&str]) {
        let result = self.result().to_string();
        for secret in secrets {
            assert!(!result.contains(secret), "{secret} is registered: {result}");
            assert!(!self.said.contains(secret), "{secret} is printed: {}", self.said);
        }
    }
}

/// A command on the host, as root.
fn on_host(fleet: &Fleet, command: &str) -> Said {
    fleet.run("ansible", &["host-1", "--become", "-m", "shell", "-a", command])
}

#[test]
fn ansible_shows_no_secret_of_a_host() {
    udpath_lab::needs_root!();
    let fleet = Fleet::new("ansible-secret", 1, &BTreeMap::new());
    fleet.write("nsd.conf", &configuration());
    let copied = ["host-1", "--become", "-m", "copy", "-a", "src=nsd.conf dest=/etc/nsd.conf mode=0600"];
    fleet.run("ansible", &copied).fine();
    let start = "setsid -f nsd -d -c /etc/nsd.conf > /run/nsd.log 2>&1 < /dev/null";
    on_host(&fleet, start).fine();
    awaited("nsd to write its pid", TIMEOUT, || {
        on_host(&fleet, "test -s /run/nsd.pid").code.filter(|code| *code == 0)
    });

    let knob = json!({
        "settings": ["service:5300:server-count=2"],
        "allow": ["config", "restart"],
        "restart": format!("{STOP}; {start}"),
    });
    let planned = Trace::run(&fleet, "settings", &knob, &["--check"]);
    planned.hides(&IN_FILES);
    let diff = planned.result()["diff"]["prepared"]
        .as_str()
        .unwrap_or_else(|| panic!("{}", planned.said))
        .to_owned();
    assert!(diff.contains("server-count: 2"), "{diff}");
    let applied = Trace::run(&fleet, "settings", &knob, &[]);
    assert_eq!(applied.result()["changed"], true, "{}", applied.said);
    applied.hides(&IN_FILES);
    let now = on_host(&fleet, "cat /etc/nsd.conf").fine().out.clone();
    assert!(now.contains("server-count: 2 # s3cret-beside") && now.contains(IN_FILES[0]), "{now}");
    let facts = Trace::run(&fleet, "facts", &json!({ "snapshot": true }), &[]);
    assert_eq!(
        facts.result()["ansible_facts"]["udpath"]["status"]["applies"][0]["state"],
        "applied",
        "{}",
        facts.said
    );
    facts.hides(&IN_FILES);

    // A capture of the host: the file that arrives, and every file in it.
    let captured = Trace::run(&fleet, "support", &json!({ "dest": "captures" }), &[]);
    captured.hides(&IN_FILES);
    let archive = fleet.folder.path().join("captures/host-1.tar.gz");
    let text = fleet.run("tar", &["-xOzf", archive.to_str().unwrap()]).fine().out.clone();
    assert!(text.contains("nsd") && IN_FILES.iter().all(|secret| !text.contains(secret)), "{text}");

    // A load's secret, which the module is given: Ansible itself would print a module's arguments.
    let [separate, joined] = IN_LOADS;
    for load in [
        json!(["radius", "127.0.0.1:5300", "--secret", separate]),
        json!(format!("radius 127.0.0.1:5300 --secret={joined}")),
    ] {
        let boosted =
            Trace::run(&fleet, "boost", &json!({ "port": 5300, "load": load, "budget": "1s" }), &[]);
        boosted.hides(&IN_LOADS);
    }
    on_host(&fleet, STOP).fine();
}
