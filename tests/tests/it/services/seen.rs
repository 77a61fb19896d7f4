//! After a restart each knob is looked for at the running server: one that shows is seen there, one that does not is
//! not called verified, and one that is not in force is named.

use serde_json::{Value, json};

use super::*;

/// unbound with a folder of drop-ins, and the script that restarts it.
struct Unbound {
    folder: TempDir,
    lab: Lab,
}

impl Unbound {
    fn start(name: &str) -> Self {
        let unbound = Self { folder: tempfile::tempdir_in(ROOTS).unwrap(), lab: client_and_server(name, 1) };
        let here = unbound.folder.path().display().to_string();
        let conf = format!(
            "server:\n  interface: 127.0.0.1\n  port: 5300\n  username: \"\"\n  chroot: \"\"\n  directory: \"{here}\"\n  pidfile: \"\"\n  \
             use-syslog: no\n  num-threads: 2\n  module-config: \"iterator\"\n  local-zone: \".\" refuse\n\
             remote-control:\n  control-enable: no\ninclude: \"{here}/etc/conf.d/*.conf\"\n"
        );
        fs::create_dir_all(unbound.path("etc/conf.d")).unwrap();
        fs::write(unbound.path("etc/unbound.conf"), conf).unwrap();
        let command = format!("unbound -d -p -c {here}/etc/unbound.conf");
        fs::write(unbound.path("restart"), restarts(&here, &command)).unwrap();
        let mut first = unbound.lab.machine("server").unwrap().command("/bin/sh");
        assert!(first.arg(unbound.path("restart")).status().unwrap().success());
        awaited("unbound to answer", TIMEOUT, || answers(&unbound.lab).then_some(()));
        unbound
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let state = self.path("state").display().to_string();
        udpath(&self.lab, "server", &[arguments, &["--state", &state]].concat()).finish()
    }
}

impl Drop for Unbound {
    fn drop(&mut self) {
        stop(&self.path("pid"));
    }
}

/// An apply of these knobs that is allowed everything.
fn apply<'a>(knobs: &[&'a str], restart: &'a str) -> Vec<&'a str> {
    let set = knobs.iter().flat_map(|knob| ["--set", *knob]);
    let allowed = ["--restart", restart, "--allow", "config", "--allow", "restart"];
    ["apply"].into_iter().chain(set).chain(allowed).collect()
}

fn restart_of(script: &Path) -> String {
    format!("exec env -u UDPATH_TEST_RUN /bin/sh {}", script.display())
}

#[test]
fn what_shows_is_seen_at_the_running_server_and_what_does_not_is_not_called_verified() {
    udpath_lab::needs_root!();
    let unbound = Unbound::start("seen-unbound");
    let restart = restart_of(&unbound.path("restart"));
    let knobs = [
        "service:5300:so-sndbuf=131072",
        "service:5300:so-reuseport=no",
        "service:5300:num-queries-per-thread=2048",
    ];
    let applied = unbound.run(&apply(&knobs, &restart));
    ended(&applied, 0, "");
    let lines: Vec<&str> = applied.err.lines().collect();
    for line in [
        "seen at the running server: so-sndbuf=131072: send buffers of 131072 bytes",
        "seen at the running server: so-reuseport=no: 1 socket at an address without SO_REUSEPORT, 2 with before",
        "note: num-queries-per-thread=2048 does not show from outside: not verified at the running server",
        "applied and verified (except 1 that does not show at the running server) as 1; undo with `udpath undo 1`",
    ] {
        assert!(lines.contains(&line), "{line}: {}", applied.err);
    }
    ended(&unbound.run(&["undo"]), 0, "undid apply 1");

    let applied = unbound.run(&[&apply(&knobs[1..], &restart)[..], &["--json"]].concat());
    ended(&applied, 0, "");
    let document: Value = udpath_rig::json(applied.out.as_bytes());
    let seen = "1 socket at an address without SO_REUSEPORT, 2 with before";
    assert_eq!(document["seen"], json!([{ "change": "so-reuseport=no", "seen": seen, "in_effect": true }]));
    let hidden = json!([{ "change": "num-queries-per-thread=2048", "why": "does not show from outside" }]);
    assert_eq!(document["unverified"], hidden);
    ended(&unbound.run(&["undo"]), 0, "undid apply 2");
}

#[test]
fn processes_sockets_and_buffers_are_seen() {
    udpath_lab::needs_root!();
    let nsd = Nsd::start("seen-nsd");
    let restart = nsd.restart();
    let knobs = [
        "service:5300:server-count=2",
        "service:5300:reuseport=yes",
        "service:5300:receive-buffer-size=262144",
        "service:5300:send-buffer-size=131072",
    ];
    let applied = nsd.run(&apply(&knobs, &restart));
    ended(&applied, 0, "\napplied and verified as 1; undo with");
    for seen in [
        "server-count=2: 4 processes, 3 before",
        "reuseport=yes: 2 sockets at an address with SO_REUSEPORT, 1 without before",
        "receive-buffer-size=262144: receive buffers of 262144 bytes",
        "send-buffer-size=131072: send buffers of 131072 bytes",
    ] {
        let line = format!("seen at the running server: {seen}");
        assert!(applied.err.lines().any(|found| found == line), "{line}: {}", applied.err);
    }
    ended(&nsd.run(&["undo"]), 0, "undid apply 1");
}

/// It is restarted, and answers, with another file than was changed: as with a unit whose `ExecStart` names one.
#[test]
fn a_knob_that_is_not_in_force_after_the_restart_is_named() {
    udpath_lab::needs_root!();
    let nsd = Nsd::start("seen-other");
    let before = nsd.files();
    let conf = fs::read_to_string(nsd.path("etc/nsd.conf")).unwrap();
    let other = conf.lines().filter(|line| !line.starts_with("include:")).collect::<Vec<_>>().join("\n");
    fs::write(nsd.path("other.conf"), other + "\n").unwrap();
    let script = fs::read_to_string(nsd.path("restart")).unwrap();
    fs::write(nsd.path("other"), script.replace("etc/nsd.conf", "other.conf")).unwrap();
    let restart = restart_of(&nsd.path("other"));

    let knobs = ["service:5300:server-count=2", "service:5300:send-buffer-size=131072"];
    let said = nsd.run(&apply(&knobs, &restart));
    let why = "udpath: the restarted server does not show server-count=2 (3 processes, 3 before), send-buffer-size=131072 (send buffers of \
               1048576 bytes): does it read these files, or does another setting prevent it? `udpath undo` takes the change back";
    ended(&said, 1, why);
    assert!(said.err.contains("applied as 1; undo with `udpath undo 1`"), "{}", said.err);
    assert!(!said.err.contains("verified") && !said.err.contains("seen at"), "{}", said.err);
    ended(&nsd.run(&["undo"]), 0, "undid apply 1");
    assert_eq!(nsd.files(), before);

    // As it was: the undo has started it with the other file, which udpath would change now.
    let mut again = nsd.lab.machine("server").unwrap().command("/bin/sh");
    assert!(again.arg(nsd.path("restart")).status().unwrap().success());
    awaited("nsd to answer", TIMEOUT, || nsd.answers().then_some(()));
    let said = nsd.run(&[&apply(&knobs[..1], &restart)[..], &["--json"]].concat());
    ended(
        &said,
        1,
        "does not show server-count=2 (3 processes, 3 before): does it read these files, or does another setting prevent it?",
    );
    let document: Value = udpath_rig::json(said.out.as_bytes());
    let seen = json!([{ "change": "server-count=2", "seen": "3 processes, 3 before", "in_effect": false }]);
    assert_eq!(document["seen"], seen);
    ended(&nsd.run(&["undo"]), 0, "undid apply 2");
}
