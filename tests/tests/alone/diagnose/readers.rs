//! The first fix of a reader at its limit is a command for the very server that reads, and carrying it out helps.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use udpath_lab::LinkSpec;
use udpath_rig::{Bed, Run, Running, TIMEOUT, program};

use super::{HARDLY_HELD_UP, PORT, file, right};

const ZONE: &str =
    "$ORIGIN example.test.\n$TTL 60\n@ SOA ns host 1 60 60 60 60\n@ NS ns\nns A 192.0.2.53\n* A 192.0.2.1\n";

/// A server with one reader, as its packages start it: a configuration, and a command line with `{folder}`.
struct Single {
    program: &'static str,
    config: &'static str,
    command: &'static [&'static str],
    /// What it says once it serves.
    ready: &'static str,
    protocol: &'static [&'static str],
    /// The settings of the first fix.
    first: &'static [&'static str],
    /// What its command does not consent to, and the remedy says.
    consent: &'static str,
}

const KNOWN: [Single; 3] = [
    Single {
        program: "nsd",
        config: "server:\n  server-count: 1\n  ip-address: 0.0.0.0@7000\n  rrl-ratelimit: 0\n  username: \"\"\n  chroot: \"\"\n  \
                 zonesdir: {folder}\n  database: \"\"\n  pidfile: {folder}/pid\n  xfrdfile: {folder}/xfrd\n  zonelistfile: {folder}/list\n  \
                 xfrdir: {folder}\nremote-control:\n  control-enable: no\nzone:\n  name: example.test\n  zonefile: zone\n",
        command: &["nsd", "-d", "-c", "{folder}/conf"],
        ready: "nsd started",
        protocol: &["dns", "--name", "a.example.test"],
        first: &["server-count=2", "reuseport=yes"],
        consent: "",
    },
    Single {
        program: "knot",
        config: "server:\n    listen: 0.0.0.0@7000\n    rundir: {folder}\n    udp-workers: 1\n    tcp-workers: 1\n    \
                 background-workers: 1\ndatabase:\n    storage: {folder}/db\nlog:\n  - target: stderr\n    any: info\nzone:\n  - domain: example.test\n    \
                 storage: {folder}\n    file: zone\n",
        command: &["knotd", "-c", "{folder}/conf"],
        ready: "server started",
        protocol: &["dns", "--name", "a.example.test"],
        first: &["udp-workers=2"],
        consent: "",
    },
    Single {
        program: "unbound",
        config: "server:\n  interface: 0.0.0.0@7000\n  access-control: 0.0.0.0/0 allow\n  num-threads: 1\n  username: \"\"\n  chroot: \"\"\n  \
                 directory: \"{folder}\"\n  pidfile: \"{folder}/pid\"\n  use-syslog: no\n  module-config: \"iterator\"\n  \
                 local-zone: \"example.test.\" redirect\n  local-data: \"example.test. A 192.0.2.1\"\n",
        command: &["unbound", "-d", "-c", "{folder}/conf"],
        ready: "start of service",
        protocol: &["dns", "--name", "a.example.test"],
        first: &["num-threads=2"],
        consent: " --allow security",
    },
];

fn bed(name: &str) -> Bed {
    Bed::new(name, &LinkSpec::with_queues(2)).polled()
}

/// The first finding of the port under a closed loop, which is that its reader is at its limit; `None` where others
/// took too much of the CPUs to tell.
fn diagnosed(bed: &Bed, protocol: &[&str]) -> Option<Value> {
    let mut first = Value::Null;
    let wrong = right("a reader at its limit", || {
        let json = looked(bed, protocol);
        first = json["findings"][0].clone();
        (first["id"] != "reader-limit").then(|| format!("{:#}", json["findings"]))
    });
    assert_eq!(wrong, None);
    (first["id"] == "reader-limit").then_some(first)
}

fn looked(bed: &Bed, protocol: &[&str]) -> Value {
    let target = bed.target(PORT);
    let loop_of = ["--engine", "kernel", "--flows", "64", "--inflight", "2", "-d", "20s"];
    let load = bed.load(&[protocol, &[&*target], &loop_of].concat());
    std::thread::sleep(Duration::from_millis(300));
    let ended = bed.diagnose(&[&PORT.to_string(), "-d", "2s", "--json"]);
    load.signal(Signal::TERM);
    drop(load);
    udpath_rig::json(&ended.out)
}

/// The command sets what the server's own configuration has for more readers, and starts it again as it was started:
/// pasted, it does, and `undo` puts both back.
fn first_fix_is_its_own(single: &Single, (bed, conf): (&Bed, &Path), first: &Value) {
    let inside = format!("nsenter --net=/run/netns/{}", bed.namespace());
    let mut expected = format!("{inside} udpath apply");
    for knob in single.first {
        write!(expected, " --set service:{PORT}:{knob}").unwrap();
    }
    let started = single.command.join(" ").replace("{folder}/conf", &conf.display().to_string());
    write!(
        expected,
        " --allow config --allow restart{} --restart 'kill $UDPATH_PID && {{ while kill -0 $UDPATH_PID; do sleep 0.1; done \
         2>/dev/null; setsid -f {started} </dev/null >/dev/null 2>&1; }}'",
        single.consent
    )
    .unwrap();
    assert_eq!(first["commands"][0], *expected, "{}: {first:#}", single.program);
    // Each command has a rate, also that past the kernel's sockets. What udpath cannot do comes last.
    for command in first["remedies"].as_array().unwrap().iter().filter_map(|remedy| remedy.get("command")) {
        assert!(command["expected"].as_f64().is_some_and(|rate| rate > 1000.0), "{command:#}");
    }
    let last = first["remedies"].as_array().unwrap().last().unwrap();
    assert!(last["advice"].as_str().is_some_and(|advice| advice.starts_with("let the program")), "{last}");

    let text = fs::read_to_string(conf).unwrap();
    let paste = |command: &str| {
        let pasted = command.replace(" udpath ", &format!(" {} ", program().display()));
        // Not a Run, which waits for all that it starts: the server goes on.
        let ended = Command::new("sh").args(["-c", &pasted]).output().unwrap();
        assert!(ended.status.success(), "{pasted}: {ended:?}");
    };
    paste(&expected);
    assert_eq!(readers(bed), 2, "{}", single.program);
    paste(&format!("{inside} udpath undo"));
    assert_eq!((readers(bed), fs::read_to_string(conf).unwrap()), (1, text), "{}", single.program);
}

/// Threads or processes that read the port, each with a socket of its own.
fn readers(bed: &Bed) -> usize {
    let arguments = ["show", &PORT.to_string(), "--json"];
    let shown = bed.command("server", program()).args(arguments).output().unwrap();
    let shown = udpath_rig::json(&shown.stdout);
    let sockets = shown["sockets"].as_array().unwrap().iter();
    sockets.filter(|socket| socket["peer"].is_null()).count()
}

#[test]
fn the_first_fix_is_the_servers_own_knob() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::alone();
    for single in KNOWN {
        let bed = bed("knobs");
        // Where only root can change files; below /tmp, udpath changes none.
        let folder = tempfile::tempdir_in("/run").unwrap();
        let path = folder.path().display().to_string();
        let conf = folder.path().join("conf");
        fs::write(folder.path().join("zone"), ZONE).unwrap();
        fs::write(&conf, single.config.replace("{folder}", &path)).unwrap();
        // As an operator does: by a shell, which waits for it.
        let line = single.command.join(" ").replace("{folder}", &path);
        let line = format!("nice {} {line}; true", HARDLY_HELD_UP.join(" "));
        let mut server = bed.start("server", "sh", &["-c", &line]);
        server.says(single.ready);
        if let Some(first) = diagnosed(&bed, single.protocol) {
            first_fix_is_its_own(&single, (&bed, &conf), &first);
        }
        drop(server);
        bed.down();
    }
}

/// Of a program that nobody knows, the command is pasted: then two processes read.
#[test]
fn the_first_fix_of_an_unknown_program_runs_it_twice() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::alone();
    let bed = bed("unknown");
    let (script, port) = (file("server.py"), PORT.to_string());
    let folder = Path::new(&script).parent().unwrap();
    let start = format!("cd {} && exec python3 server.py {PORT} 0 8000000 1", folder.display());
    let mut server = bed.start("server", "nice", &[&HARDLY_HELD_UP[..], &["sh", "-c", &start]].concat());
    server.says("ready");
    let Some(first) = diagnosed(&bed, &["echo"]) else { return };
    let command = first["commands"][0].as_str().unwrap().to_owned();
    let (folder, inside) = (folder.display(), format!("nsenter --net=/run/netns/{}", bed.namespace()));
    let head = format!("cd {folder} && {inside} udpath multiply -n 2 --port {PORT} -- ");
    assert!(command.starts_with(&head), "{command}");
    assert!(command.ends_with(&format!("python3 server.py {PORT} 0 8000000 1")), "{command}");
    server.signal(Signal::KILL);
    drop(server);
    let pasted = command.replace("udpath multiply", &format!("{} multiply", program().display()));
    // Without a shell that would get the signal in its place.
    let pasted = pasted.replace("&& nsenter", "&& exec nsenter");
    let mut shell = Command::new("sh");
    shell.args(["-c", &pasted]);
    let mut instances = Run::of(shell, &pasted).within(TIMEOUT * 2).start();
    instances.says("ready: 2 instances");
    let shown = bed.command("server", program()).args(["show", &port, "--json"]).output().unwrap();
    let shown = udpath_rig::json(&shown.stdout);
    let readers = shown["sockets"].as_array().unwrap().iter().filter(|socket| socket["group"] == 2).count();
    assert_eq!(readers, 2, "{shown:#}");
    stop(instances);
    bed.down();
}

/// `udpath serve` has given up its privileges: its arguments, which its user may have changed, are not repeated. Each
/// command has a rate.
#[test]
fn the_first_fixes_of_udpaths_own_server_are_other_ways() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::alone();
    let bed = bed("own");
    let server = bed.serve(&["echo", "--io", "shared", "--bind", &format!("0.0.0.0:{PORT}")]);
    let mut first = Value::Null;
    let wrong = right("one socket of two workers", || {
        first = looked(&bed, &["echo"])["findings"][0].clone();
        (first["id"] != "shared-socket").then(|| format!("{first:#}"))
    });
    assert_eq!(wrong, None);
    if first["id"] == "shared-socket" {
        let inside = format!("nsenter --net=/run/netns/{}", bed.namespace());
        let ways = ["reuseport", "xdp"].map(|io| format!("{inside} COMMAND --io {io}"));
        assert_eq!(first["commands"], serde_json::json!(ways), "{first:#}");
        for command in first["remedies"].as_array().unwrap().iter().filter_map(|remedy| remedy.get("command"))
        {
            assert!(command["expected"].as_f64().is_some_and(|rate| rate > 1000.0), "{command:#}");
        }
    }
    server.signal(Signal::TERM);
    drop(server);
    bed.down();
}

/// Replies that are sent as one message, and cut by the kernel, are as many transactions.
#[test]
fn replies_sent_as_one_message_are_all_counted() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::alone();
    let bed = bed("gso");
    let server = bed.serve(&["echo", "--io", "reuseport", "--bind", &format!("0.0.0.0:{PORT}")]);
    let target = bed.target(PORT);
    // Few flows with many requests each: long messages.
    let arguments =
        ["echo", &*target, "--engine", "kernel", "--flows", "8", "--inflight", "32", "-d", "5s", "--json"];
    let wrong = right("messages of several replies", || {
        let load = bed.load(&arguments);
        let seen = udpath_rig::json(&bed.diagnose(&[&PORT.to_string(), "-d", "3s", "--json"]).out);
        let (slowest, fastest) = rates(&udpath_rig::json(&load.finish().out)["series"], 3.0);
        let shown = seen["capacity"]["carried"]["rate"].as_f64().unwrap();
        // Messages here are of six or more: counted as one, it would be a fifth.
        (!(0.8 * slowest..1.25 * fastest).contains(&shown))
            .then(|| format!("{shown:.0} of {slowest:.0} to {fastest:.0}/s"))
    });
    assert_eq!(wrong, None);
    server.signal(Signal::TERM);
    drop(server);
    bed.down();
}

/// The lowest and the highest mean rate of a load over any so many seconds in a row: of one that varies, the part that
/// was watched is not the mean of the whole.
fn rates(series: &Value, seconds: f64) -> (f64, f64) {
    let rates: Vec<f64> = series["tps"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    let slices = (seconds / series["slice"].as_f64().unwrap()) as usize;
    let windows = rates.windows(slices).map(|window| window.iter().sum::<f64>() / slices as f64);
    windows.fold((f64::INFINITY, 0.0), |(low, high), rate| (low.min(rate), high.max(rate)))
}

/// The program of another user is not offered to whoever diagnoses, who may be root.
#[test]
fn another_users_program_is_no_fix() {
    udpath_lab::needs_root!();
    udpath_rig::needs_cpus!(2);
    let _turn = udpath_rig::alone();
    let bed = bed("other");
    // Where the other user may read it, wherever this repository is.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("server.py");
    fs::copy(file("server.py"), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o644)).unwrap();
    let (script, port) = (copy.display().to_string(), PORT.to_string());
    let as_nobody = [
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "/usr/bin/python3",
        &script,
        &port,
        "0",
        "0",
        "1",
    ];
    let mut server = bed.start("server", "nice", &[&HARDLY_HELD_UP[..], &["setpriv"], &as_nobody].concat());
    server.says("ready");
    if let Some(first) = diagnosed(&bed, &["echo"]) {
        assert_eq!(first["commands"], serde_json::json!([]), "{first:#}");
    }
    server.signal(Signal::TERM);
    drop(server);
    bed.down();
}

fn stop(instances: Running) {
    instances.signal(Signal::TERM);
    let ended = instances.finish();
    assert_eq!(ended.code(), Some(0), "{}", ended.err);
}
