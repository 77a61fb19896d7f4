//! What cannot be multiplied: one sentence, and nothing is left.

use std::process::Command;

use udpath_rig::{Said, one_sentence, program};

use super::*;

/// The last line of stderr, behind the output of instances, is the sentence.
fn refused(ended: &Ended, code: i32, says: &str) {
    let last = ended.err.lines().last().unwrap_or_default();
    assert_eq!(ended.code(), Some(code), "{}", ended.err);
    one_sentence(&ended.shown, last);
    assert!(last.contains(says), "{says:?} is not in {last}");
}

#[test]
fn arguments_that_name_nothing_to_run() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    for (arguments, code, says) in [
        (&["-n", "2"][..], 2, "no command: expected udpath multiply -n N -- COMMAND"),
        (&["-n", "0", "--", "true"], 2, "invalid number of instances 0: expected 1 to"),
        (&["-n", "10000", "--", "true"], 2, "invalid number of instances 10000: expected 1 to"),
        (&["-n", "-1", "--", "true"], 2, "invalid"),
        (&["a/b", "-n", "1", "--", "true"], 2, "invalid name \"a/b\""),
        (&["-n", "1", "--port", "0", "--", "true"], 2, "--port"),
        (&["-n", "1", "--choose", "random", "--", "true"], 2, "hash, cpu"),
        (
            &["-n", "1", "--cpus", "4000", "--", "true"],
            2,
            "CPU 4000 of --cpus is not one that this process may use",
        ),
        (&["nothing", "-n", "2"], 3, "nothing runs under the name \"nothing\""),
        (&["nothing", "--stop"], 3, "nothing runs under the name"),
        (&["-n", "1", "--", "/nonexistent/server"], 3, "cannot run /nonexistent/server"),
        (&["-n", "1", "--", "nsd", "-d"], 3, "nsd cannot be multiplied: NSD has processes of its own"),
        (&["-n", "1", "--", "turnserver"], 3, "only the process that made an allocation"),
        (&["-n", "1", "--", "chronyd", "-d"], 3, "start it with -x"),
    ] {
        let state = tempfile::tempdir().unwrap();
        let state = state.path().to_str().unwrap();
        let ended = Run::new(&[&["multiply", "--state", state], arguments].concat()).finish();
        refused(&ended, code, says);
    }
    let scene = Scene::new("none");
    let raddb = scene.text("raddb");
    fs::create_dir(&raddb).unwrap();
    fs::write(scene.path("raddb/radiusd.conf"), "").unwrap();
    let ended = scene.run(&["-n", "1", "--choose", "cpu"], &["freeradius", "-f", "-d", &raddb]).finish();
    refused(&ended, 2, "freeradius cannot be chosen by CPU");
    scene.nothing_is_left();
}

#[test]
fn servers_that_do_not_serve() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let scene = Scene::new("bad");
    let (file, port) = (scene.text("server.py"), scene.port.to_string());
    let other = (scene.port ^ 1).to_string();
    let twice = scene.text("twice.py");
    let text = SERVER.replace(
        "s.bind(",
        "second = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                                          second.bind((\"127.0.0.1\", int(sys.argv[1])))\ns.bind(",
    );
    fs::write(&twice, text).unwrap();
    for (options, command, says) in [
        (&[][..], &["sh", "-c", "exit 3"][..], "instance 1 ended before it served (exit status: 3)"),
        (&[], &["true"], "must stay in the foreground"),
        (&["--start-limit", "500ms"], &["sleep", "60"], "instance 1 did not bind a UDP port within 0.5 s"),
        (
            &["--start-limit", "1s", "--port", &other],
            &["python3", &file, &port, "pid"],
            &format!("did not bind UDP port {other} within 1 s, but 127.0.0.1:{port}"),
        ),
        (&[], &["python3", &twice, &port, "pid"], "has 2 sockets at 127.0.0.1"),
    ] {
        let ended = scene.run(&[&["-n", "1"], options].concat(), command).finish();
        refused(&ended, 3, says);
        scene.nothing_is_left();
    }
    // A number that was never reached is given up, and the others serve on.
    if rustix::thread::sched_getaffinity(None).unwrap().count() >= 2 {
        let command = format!("test {{n}} = 1 && exec python3 {file} {port} pid");
        let mut running = scene.run(&["-n", "1"], &["sh", "-c", &command]).start();
        running.says("ready: 1 instance");
        let asked = Run::new(&["multiply", &scene.name, "-n", "2"]).finish();
        refused(&asked, 3, "instance 2 ended before it served (exit status: 1)");
        let asked = Run::new(&["multiply", &scene.name, "-n", "10000"]).finish();
        refused(&asked, 3, "invalid number of instances 10000");
        assert_eq!(scene.answered(8, 1).len(), 1);
        let again = scene.run(&["-n", "1"], &["true"]).finish();
        refused(&again, 3, &format!("{} is already running, with supervisor {}", scene.name, running.pid()));
        scene.end(running);
    }
}

#[test]
fn a_port_that_another_process_has() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let scene = Scene::new("foreign");
    let (file, port) = (scene.text("server.py"), scene.port.to_string());
    let foreign = UdpSocket::bind(("127.0.0.1", scene.port)).unwrap();
    let ended = scene.run(&["-n", "1", "--port", &port], &["python3", &file, &port, "pid"]).finish();
    refused(&ended, 3, &format!("(pid {}) has UDP 127.0.0.1:{port}", std::process::id()));
    drop(foreign);
    // One that would share it, and whose datagrams the instances would get.
    let _foreign = udpath_rig::member(([127, 0, 0, 1], scene.port).into());
    let ended = scene.run(&["-n", "1"], &["python3", &file, &port, "pid"]).finish();
    refused(&ended, 3, &format!("(pid {}) also receives at UDP 127.0.0.1:{port}", std::process::id()));
    scene.nothing_is_left();
}

#[test]
fn without_root_or_cgroup_v2_it_says_so() {
    udpath_lab::needs_root!();
    let _alone = udpath_rig::alone();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("udpath");
    udpath_rig::copy_program(&program(), &copy);
    Command::new("chmod").args(["-R", "a+rX"]).arg(folder.path()).status().unwrap();
    let ended = Run::unprivileged(&copy, &["multiply", "-n", "1", "--", "true"]).finish();
    refused(&ended, 3, "run as root");
    let mut command = Command::new("unshare");
    let script = "umount -l \"$0\" && exec \"$@\"";
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(Cgroup::root());
    command.arg(program()).args(["multiply", "-n", "1", "--", "true"]);
    Said::from(command.output().unwrap()).refused(3, "no cgroup v2 mounted, only version 1");
}
