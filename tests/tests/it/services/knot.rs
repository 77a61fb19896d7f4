//! Knot's answers past the kernel's sockets: its knob `listen-xdp`, with the real server on a veth.

use std::fs;
use std::path::Path;

use udpath_lab::Lab;
use udpath_rig::{Ended, TIMEOUT, awaited, client_and_server};

use super::{ROOTS, ended, stop};
use crate::inside::{addresses, udpath};

/// A running knotd, by the folder of its files.
struct Knot(tempfile::TempDir);

impl Drop for Knot {
    fn drop(&mut self) {
        stop(&self.0.path().join("pid"));
    }
}

/// Starts knotd again, in the background.
fn restart_script(here: &Path) -> String {
    let here = here.display();
    format!(
        "cd {here}\npid=$(cat pid 2>/dev/null) && kill $pid\n\
         while [ -n \"$pid\" ] && readlink /proc/$pid/exe > /dev/null 2>&1; do sleep 0.02; done\n\
         setsid knotd -c {here}/knot.conf > log 2>&1 < /dev/null &\n\
         echo $! > pid\n"
    )
}

/// The XDP program of the server's end, by its id.
fn program(lab: &Lab) -> Option<u64> {
    let server = lab.machine("server").unwrap();
    let shown = server.command("ip").args(["-j", "link", "show", "eth0"]).output().unwrap();
    let shown: serde_json::Value = udpath_rig::json(&shown.stdout);
    shown[0]["xdp"]["prog"]["id"].as_u64()
}

/// A query from the client's machine, by dig.
fn asked(lab: &Lab, server: &str) -> String {
    let mut dig = lab.machine("client").unwrap().command("dig");
    dig.args(["+short", "+tries=3", "+time=2", "-p", "5300", &format!("@{server}"), "a.example.test", "A"]);
    String::from_utf8(dig.output().unwrap().stdout).unwrap()
}

#[test]
fn knot_is_taken_past_the_sockets_and_back() {
    udpath_lab::needs_root!();
    let lab = client_and_server("knob-xdp", 2);
    let knot = Knot(tempfile::tempdir_in(ROOTS).unwrap());
    let (folder, here) = (&knot.0, knot.0.path().display());
    let conf = format!(
        "server:\n    rundir: \"{here}\"\n    listen: 0.0.0.0@5300\ndatabase:\n    storage: \"{here}\"\n\
         template:\n  - id: default\n    storage: \"{here}\"\n    file: \"zone\"\nzone:\n  - domain: example.test\n"
    );
    let zone = "$ORIGIN example.test.\n$TTL 60\n@ SOA ns host 1 60 60 60 60\n@ NS ns\nns A 192.0.2.53\na A 192.0.2.1\n";
    fs::write(folder.path().join("knot.conf"), &conf).unwrap();
    fs::write(folder.path().join("zone"), zone).unwrap();
    let script = folder.path().join("restart");
    fs::write(&script, restart_script(folder.path())).unwrap();
    assert!(lab.machine("server").unwrap().command("/bin/sh").arg(&script).status().unwrap().success());
    let [server, _] = addresses(&lab);
    let server = server.to_string();
    awaited("knotd to answer", TIMEOUT, || (asked(&lab, &server) == "192.0.2.1\n").then_some(()));
    assert_eq!(program(&lab), None);

    let state = folder.path().join("state").display().to_string();
    let restart = format!("exec env -u UDPATH_TEST_RUN /bin/sh {}", script.display());
    let run = |arguments: &[&str]| -> Ended {
        udpath(&lab, "server", &[arguments, &["--state", &state]].concat()).finish()
    };
    let with =
        |set: &'static str| ["apply", "--set", set, "--allow", "config", "--allow", "restart", "--restart"];
    // Knot finds out at its start that there is no such interface: everything is taken back.
    let refused = run(&[&with("service:5300:listen-xdp=eth7@5300")[..], &[&restart]].concat());
    assert!([Some(3), Some(4)].contains(&refused.code()), "{}", refused.err);
    assert_eq!(fs::read_to_string(folder.path().join("knot.conf")).unwrap(), conf);
    assert_eq!(asked(&lab, &server), "192.0.2.1\n");

    let seen = "seen at the running server: listen-xdp=eth0@5300: its XDP program is on eth0\n";
    ended(&run(&[&with("service:5300:listen-xdp=eth0@5300")[..], &[&restart]].concat()), 0, seen);
    assert!(program(&lab).is_some(), "Knot's program is on the interface");
    assert_eq!(asked(&lab, &server), "192.0.2.1\n");
    ended(&run(&["undo"]), 0, "");
    assert_eq!(fs::read_to_string(folder.path().join("knot.conf")).unwrap(), conf);
    awaited("Knot's program to be gone", TIMEOUT, || program(&lab).is_none().then_some(()));
    assert_eq!(asked(&lab, &server), "192.0.2.1\n");
}
