//! The server's own configuration: tried with NSD, and put back byte for byte.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use udpath_lab::Lab;
use udpath_rig::{Run, TIMEOUT, awaited, client_and_server, program};

use crate::inside::addresses;

const PORT: u16 = 5300;
/// A key that the configuration has, and no result.
const SECRET: &str = "czNjcmV0LW9mLWEta2V5";

/// NSD with one process, started and restarted by a script.
struct Nsd {
    lab: Lab,
    folder: tempfile::TempDir,
}

impl Nsd {
    fn new(name: &str) -> Self {
        let nsd = Self { lab: client_and_server(name, 2), folder: tempfile::tempdir_in("/run").unwrap() };
        let here = nsd.folder.path().display().to_string();
        let put = |name: &str, text: &str| fs::write(nsd.folder.path().join(name), text).unwrap();
        put(
            "zone",
            "$ORIGIN example.test.\n$TTL 60\n@ SOA ns host 1 60 60 60 60\n@ NS ns\nns A 192.0.2.53\n",
        );
        put("queries", "ns.example.test A\n");
        // Without Debian's limit of 200 answers a second to one query: trials of what it drops last as long as the
        // timeout.
        put(
            "nsd.conf",
            &format!(
                "server:\n  server-count: 1 # {SECRET}\n  ip-address: 0.0.0.0@{PORT}\n  username: \"\"\n  \
                 rrl-ratelimit: 0\n  zonesdir: {here}\n  pidfile: {here}/pid\n  database: \"\"\n  xfrdfile: {here}/xfrd\n  xfrdir: {here}\n  \
                 zonelistfile: {here}/list\nkey:\n  name: k\n  algorithm: hmac-sha256\n  secret: {SECRET}\nremote-control:\n  control-enable: no\nzone:\n  name: example.test\n  \
                 zonefile: zone\n"
            ),
        );
        // The old processes, NSD has several, have to release the port before the new ones bind it. One that is stopped
        // right after its start may hold it for longer than boost waits for an answer, and is killed; no other process
        // has this configuration. Without the environment by which a test knows what it has started: the server
        // outlives the boost.
        put(
            "restart",
            &format!(
                "#!/bin/sh\nold=$(cat {here}/pid 2>/dev/null) && kill $old && \
                 for i in $(seq 500); do [ \"$(ss -Huln sport = :{PORT})\" ] || break; \
                 [ $i -ne 150 ] || pkill -9 -f '^nsd -c {here}/nsd.conf'; sleep 0.02; done\n\
                 exec env -i PATH=\"$PATH\" nsd -c {here}/nsd.conf\n"
            ),
        );
        fs::set_permissions(nsd.folder.path().join("restart"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut start = nsd.lab.machine("server").unwrap().command(nsd.folder.path().join("restart"));
        assert!(start.status().unwrap().success(), "scripts/setup.sh installs nsd");
        awaited("nsd to answer", TIMEOUT, || nsd.answers().then_some(()));
        nsd
    }

    fn at(&self) -> SocketAddr {
        SocketAddr::new(addresses(&self.lab)[0], PORT)
    }

    fn answers(&self) -> bool {
        let mut dig = self.lab.machine("client").unwrap().command("dig");
        let (server, port) = (format!("@{}", self.at().ip()), PORT.to_string());
        dig.args(["+short", "+tries=1", "+time=1", "-p", &port, &server, "ns.example.test"]);
        dig.output().is_ok_and(|output| output.stdout.starts_with(b"192.0.2.53"))
    }

    fn configuration(&self) -> Vec<u8> {
        fs::read(self.folder.path().join("nsd.conf")).unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn boost(&self, more: &[&str]) -> Run {
        let [from, server] =
            ["client", "server"].map(|name| self.lab.machine(name).unwrap().namespace().to_owned());
        let (port, target) = (PORT.to_string(), self.at().to_string());
        let (state, queries) = (self.path("journal"), self.path("queries"));
        let mut command = Command::new(program());
        command.args([
            "boost", "--port", &port, "--netns", &server, "--from", &from, "--state", &state, "--json",
        ]);
        command.args(["--no-profile", "--duration", "100ms", "--bound", "10", "--blocks", "3"]).args(more);
        command.args(["--load", "dns", &target, "--queries", &queries, "--flows", "16", "--inflight", "2"]);
        // Each trial may restart the server, which takes seconds beside other tests.
        Run::of(command, "boost").within(TIMEOUT * 10)
    }
}

impl Drop for Nsd {
    fn drop(&mut self) {
        let pid = fs::read_to_string(PathBuf::from(self.path("pid"))).ok();
        if let Some(pid) = pid.and_then(|pid| Pid::from_raw(pid.trim().parse().ok()?)) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// The rung of this name.
fn rung<'a>(result: &'a Value, name: &str) -> Option<&'a Value> {
    result["rungs"].as_array().unwrap().iter().find(|rung| rung["name"] == name)
}

#[test]
fn it_is_tried_only_with_consent_and_put_back_byte_for_byte() {
    udpath_lab::needs_root!();
    let nsd = Nsd::new("boost-config");
    let (before, restart) = (nsd.configuration(), nsd.path("restart"));
    let ended = nsd.boost(&["--budget", "1s"]).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    let left_out = result["left_out"].as_array().unwrap();
    let offered = left_out.iter().find(|group| group["name"] == "configuration").unwrap();
    let reason = offered["reason"].as_str().unwrap();
    assert!(reason.contains("server-count=") && reason.contains("--allow config,restart"), "{reason}");
    assert_eq!(result["running"]["server"], "nsd");

    // Time for a race of each candidate, whichever comes first: each ends after three blocks, however much time is
    // left.
    let consent = ["--budget", "300s", "--allow", "config,restart", "--restart", &restart];
    let ended = nsd.boost(&consent).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert!(!ended.out.contains(SECRET) && !ended.err.contains(SECRET), "{}", ended.out);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    let tried = rung(&result, "configuration").unwrap();
    assert_ne!(tried["verdict"], "failed", "{}", tried["note"]);
    assert!(tried["tps"].as_f64().unwrap() > 0.0);
    assert_eq!(nsd.configuration(), before);
    assert!(nsd.answers());
}

/// The old process has ended then, as after a restart that works.
#[test]
fn a_restart_that_says_it_failed_does_not_end_the_boost() {
    udpath_lab::needs_root!();
    let nsd = Nsd::new("boost-config-fail");
    let (before, restart) = (nsd.configuration(), nsd.path("restart"));
    let (once, failed) = (nsd.path("once"), nsd.path("failed"));
    fs::write(&once, format!("#!/bin/sh\n{restart} || exit\n[ -e {failed} ] || {{ >{failed}; exit 3; }}\n"))
        .unwrap();
    fs::set_permissions(&once, fs::Permissions::from_mode(0o755)).unwrap();

    let consent = ["--budget", "20s", "--allow", "config,restart", "--restart", &once];
    let ended = nsd.boost(&consent).finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
    assert!(fs::exists(&failed).unwrap(), "it was restarted");
    assert_eq!(nsd.configuration(), before);
    assert!(nsd.answers());
}

#[test]
fn killed_in_a_trial_of_it_undo_brings_the_old_one_back() {
    udpath_lab::needs_root!();
    let nsd = Nsd::new("boost-config-kill");
    let (before, restart, state) = (nsd.configuration(), nsd.path("restart"), nsd.path("journal"));
    let server = nsd.lab.machine("server").unwrap().namespace().to_owned();
    let kills = udpath_rig::campaign::rounds(1, 30);
    for kill in 0..kills {
        let boost = nsd.boost(&["--allow", "config,restart", "--restart", &restart]).start();
        awaited("the new configuration", TIMEOUT * 2, || (nsd.configuration() != before).then_some(()));
        // At other moments each time: while it restarts, in a trial, while it is put back.
        std::thread::sleep(Duration::from_millis(u64::from(kill) * 137 % 1_000));
        boost.signal(Signal::KILL);
        assert_eq!(boost.finish().code(), None, "ended by the signal");
        let undo = Run::new(&["undo", "--netns", &server, "--state", &state]).finish();
        assert_eq!(undo.code(), Some(0), "{}", undo.err);
        assert_eq!(nsd.configuration(), before);
        awaited("nsd to answer again", TIMEOUT, || nsd.answers().then_some(()));
    }
    udpath_rig::campaign::record("kills of boost on nsd", &format!("{kills}, configurations left: 0"));
}
