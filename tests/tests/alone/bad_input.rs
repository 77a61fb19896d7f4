//! Bad input to any verb: one sentence, the right exit code, nothing left behind. Needs root.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use udpath_lab::LabBuilder;
use udpath_rig::{Ended, Host, Run, one_sentence, program};

/// Arguments, exit code, and a part of the sentence.
type Case<'a> = (&'a [&'a str], i32, &'a str);

/// Nothing listens there (discard, RFC 863), and nothing is sent: the arguments are rejected first.
const TO: &str = "127.0.0.1:9";

fn refused(ended: &Ended, code: i32, part: &str) {
    assert_eq!(ended.code(), Some(code), "{}: {}", ended.shown, ended.err);
    one_sentence(&ended.shown, &ended.err);
    assert!(ended.err.contains(part), "{}: {:?} is not in {}", ended.shown, part, ended.err);
    assert_eq!(ended.out, "", "{}", ended.shown);
}

/// Runs every case, and compares the machine before and after.
fn all_refused(verb: &[&str], cases: &[Case<'_>]) {
    let host = Host::now();
    let mut pids = Vec::new();
    for (arguments, code, part) in cases {
        let ended = Run::new(&[verb, arguments].concat()).finish();
        refused(&ended, *code, part);
        pids.push(ended.pid);
    }
    host.is_as_before(&pids);
}

#[test]
fn boost() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let cases: &[Case<'_>] = &[
        (&["--duration", "0"], 2, "expected 50ms to 1h"),
        (&["--duration=-1"], 2, "invalid time `-1`"),
        (&["-d", "NaN"], 2, "invalid time `NaN`"),
        (&["--seconds", "inf"], 2, "invalid time `inf`"),
        (&["--seconds", "1e300"], 2, "invalid time `1e300`"),
        (&["--duration", "soon"], 2, "--duration"),
        (&["--size", "0"], 2, "invalid payload size 0: expected 1 to 65507"),
        (&["--size", "17"], 2, "it needs at least 18 bytes"),
        (&["--size", "1473"], 2, "takes up to 1472 bytes; use the socket engine"),
        (&["--size", "65508"], 2, "invalid payload size 65508"),
        (&["--size", "-5"], 2, "unexpected argument '-5'"),
        (&["--queues", "0"], 2, "invalid number of queues 0: expected 1 to 4096"),
        (&["--queues", "100000"], 2, "10000invalid number of queues 0: expected 1 to 4096"),
        (&["--queues", "5000000000"], 2, "--queues"),
        (&["--workers", "0"], 2, "invalid number of workers 0: expected 1 to 1024"),
        (&["--workers", "100000"], 2, "invalid number of workers 100000: expected 1 to 1024"),
        (&["--flows", "0"], 2, "invalid number of flows 0"),
        (&["--flows", "1000000"], 2, "invalid number of flows 1000000"),
        (&["--inflight", "0"], 2, "--inflight must be at least 1"),
        (&["--inflight", "4294967295"], 2, "are too many"),
        (&["--io", "magic"], 2, "possible values: shared, reuseport, percpu, xdp"),
        (&["--io", "shared,,percpu"], 2, "--io"),
        (&["--engine", "magic"], 2, "possible values: kernel, socket"),
        (&["--bound", "0"], 2, "expected 0.001 to 0.5"),
        (&["--bound", "NaN"], 2, "expected 0.001 to 0.5"),
        (&["--blocks", "0"], 2, "expected 3 to 1000"),
        (&["--blocks", "1001"], 2, "expected 3 to 1000"),
        (&["--report", "/nowhere/x.html"], 3, "cannot write /nowhere/x.html: No such file or directory"),
        (&["--report", "/proc/x.html"], 3, "cannot write /proc/x.html"),
        (&["--report", "/proc"], 2, "/proc: it is a folder; name a file in it"),
        (&["--report", ""], 2, "--report"),
        (&["--sze", "100"], 2, "'--size'"),
    ];
    all_refused(&["boost", "--lab"], cases);
    all_refused(&["boost"], &[(&[], 2, "boost needs --lab")]);
}

#[test]
fn load() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let overlong = "9".repeat(400);
    let cases: &[Case<'_>] = &[
        (&["echo", TO, "--rate", "0"], 2, "invalid rate 0:"),
        (&["echo", TO, "--rate", "-5k"], 2, "invalid rate -5000:"),
        (&["echo", TO, "--rate", "99999G"], 2, "up to 1000000000"),
        (&["echo", TO, "--rate", &overlong], 2, "rate"),
        (&["echo", TO, "--rate", "NaN"], 2, "such as 1000, 100k or 2M"),
        (&["echo", TO, "--rate", ""], 2, "such as 1000, 100k or 2M"),
        (&["echo", TO, "--ramp", "5..NaN"], 2, "such as 1000, 100k or 2M"),
        (&["echo", TO, "--arrivals", "burst:0", "--rate", "10"], 2, "burst length must be at least 1"),
        (&["echo", TO, "-d", "0"], 2, "duration of 0ns is too short: at least 1 ms"),
        (&["echo", TO, "-d", "-1s"], 2, "invalid time"),
        (&["echo", TO, "-d", "99999999999999999999s"], 2, "invalid time"),
        (&["echo", TO, "-d", "1000000h"], 2, "is too long: at most 7 days"),
        (&["echo", TO, "-d", "NaN"], 2, "such as 5s"),
        (&["echo", TO, "--timeout", "0s"], 2, "timeout of 0ns is too short"),
        (&["echo", TO, "--warmup", "99999999h"], 2, "is too long: at most 7 days"),
        (&["echo", TO, "--size", "0"], 2, "invalid payload size 0"),
        (&["echo", TO, "--size", "17"], 2, "it needs at least 18 bytes"),
        (&["echo", TO, "--size", "65508"], 2, "invalid payload size 65508"),
        (&["echo", TO, "--size", "99999999999"], 2, "expected a whole number"),
        (&["echo", TO, "--flows", "0"], 2, "invalid number of flows 0"),
        (&["echo", TO, "--flows", "4294967295"], 2, "invalid number of flows 4294967295"),
        (&["echo", TO, "--inflight", "0"], 2, "--inflight must be at least 1"),
        (&["echo", TO, "--threads", "0"], 2, "invalid number of threads 0: expected 1 to 1024"),
        (&["echo", TO, "--threads", "9"], 2, "every thread needs its own flow"),
        (&["echo", TO, "--source-ports", "9-5"], 2, "invalid port range `9-5`"),
        (&["echo", TO, "--source", "::1"], 2, "have different address families"),
        (&["echo", TO, "--source", "192.0.2.9"], 3, "not an address of this machine"),
        (&["echo", TO, "[::1]:9"], 2, "have different address families"),
        (&["echo", "127.0.0.1"], 2, "expected ADDR:PORT"),
        (&["echo", "127.0.0.1:0"], 2, "name the server's port"),
        (&["echo", "0.0.0.0:7"], 2, "name an address of the server"),
        (&["echo", "[fe80::1%nosuch0]:7"], 2, "expected ADDR:PORT"),
        (&["echo"], 2, "name the server as ADDR:PORT, or use --lab"),
        (&["echo", TO, "--mode", "flood"], 2, "or `udpath load sink --mode flood`"),
        (&["sink", TO, "--mode", "rr"], 2, "sink does not support --mode rr: use stream or flood"),
        (&["echo", TO, "--engine", "magic"], 2, "possible values: socket, kernel, xdp"),
        (&["echo", TO, "--engine", "kernel"], 3, "the loopback, which has no native XDP"),
        (&["echo", TO, "--engine", "kernel", "--rate", "5"], 2, "it has no rate"),
        (&["echo", TO, "--engine", "kernel", "--tcp"], 2, "a closed loop over UDP"),
        (&["echo", TO, "--engine", "xdp"], 2, "the loopback, which has no native XDP"),
        (&["echo", TO, "--engine", "xdp", "--tcp"], 2, "remove --tcp, or use --engine socket"),
        (&["sink", TO, "--engine", "xdp"], 2, "the xdp engine does not support stream"),
        (&["echo", "192.0.2.1:9", "--engine", "xdp", "--flows", "5000"], 2, "exceed its limit of 4096"),
        (&["echo", TO, "--tcp"], 3, "start a server there"),
        (&["echo", TO, "--find-max", "--loss", "2"], 2, "expected a share from 0 % to below 100 %"),
        (&["echo", "--lab", "--queues", "0"], 2, "invalid number of queues 0: expected 1 to 4096"),
        (&["echo", "--lab", "--queues", "100000"], 2, "invalid number of queues 100000"),
        (&["echo", "--lab", "--pattern", "incast", "--hosts", "0"], 2, "invalid --hosts 0: expected 1 to 32"),
        (&["chess", TO], 2, "possible values: echo, sink"),
    ];
    all_refused(&["load"], cases);
}

#[test]
fn serve() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let busy = UdpSocket::bind("127.0.0.1:0").unwrap();
    let busy = busy.local_addr().unwrap().to_string();
    let here = ["--bind", "127.0.0.1:0"];
    let with = |more: &[&'static str]| [&["echo"], &here[..], more].concat();
    let cases: &[Case<'_>] = &[
        (&with(&["--io", "magic"]), 2, "possible values: auto, shared, reuseport, percpu, xdp"),
        (&with(&["--io", "percpu", "--workers", "1000"]), 3, "1000 workers do not fit"),
        (&with(&["--workers", "0"]), 2, "invalid number of workers 0: expected 1 to 1024"),
        (&with(&["--workers", "100000"]), 2, "invalid number of workers 100000"),
        (&with(&["--batch", "0"]), 2, "invalid batch 0: expected 1 to 1024"),
        (&with(&["--rcvbuf", "0"]), 2, "invalid receive buffer size 0"),
        (&with(&["--cpus", "3-1"]), 2, "runs backwards"),
        (&with(&["--cpus", "60000"]), 3, "CPU 60000 is not among those"),
        (&with(&["--flow-limit"]), 2, "--flow-limit needs --steer"),
        (&with(&["--io", "reuseport", "--steer"]), 2, "reuseport has no frames to steer"),
        (&with(&["--steer=0,2", "--workers", "2"]), 2, "cannot steer to worker 2: there are 2 workers"),
        (&with(&["--steer=3-1"]), 2, "runs backwards"),
        (&["echo"], 2, "--bind <ADDR:PORT>"),
        (&["echo", "--bind", "127.0.0.1:99999"], 2, "--bind"),
        (&["echo", "--bind", "[fe80::1%nosuch0]:7"], 2, "--bind"),
        (&["echo", "--bind", "192.0.2.1:7"], 3, "`ip address` lists the addresses of this host"),
        (
            &["echo", "--bind", &busy],
            3,
            "(stop the other server or choose another port): Address already in use",
        ),
        (
            &["sink", "--bind", &busy],
            3,
            "(stop the other server or choose another port): Address already in use",
        ),
        (&["chess", "--bind", "127.0.0.1:0"], 2, "possible values: echo, sink"),
    ];
    all_refused(&["serve"], cases);
}

#[test]
fn report() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("text"), "hello").unwrap();
    fs::write(path("cut.json"), "{\"schema\":\"udpath.boost/2\",\"rungs\":[").unwrap();
    fs::write(path("newer.json"), "{\"schema\":\"udpath.boost/9\"}").unwrap();
    all_refused(
        &["report"],
        &[
            (&[&path("nothing.json")], 3, "No such file or directory"),
            (&["/proc"], 3, "cannot read /proc: Is a directory"),
            (&["/dev/null"], 3, "is empty: expected a result of udpath boost, load or profile"),
            (&[&path("text")], 3, "is not JSON"),
            (&[&path("cut.json")], 3, "is truncated at line 1"),
            (&[&path("newer.json")], 3, "written by another version of udpath"),
            (&[], 2, "<FILE>"),
        ],
    );
}

#[test]
fn lab() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    all_refused(
        &["lab"],
        &[
            (&["up", "Bad Name"], 2, "expected 1 to 32 of a-z, 0-9 and -"),
            (&["up", "x", "--queues", "0"], 2, "invalid number of queues 0: expected 1 to 4096"),
            (&["up", "x", "--queues", "100000"], 2, "invalid number of queues 100000"),
            (&["up", "x", "--machines", "a,a"], 2, "two machines are named \"a\""),
            (&["up", "x", "--machines", ""], 2, "invalid machine name"),
            (&["down", "no-such-lab-here"], 3, "there is no lab \"no-such-lab-here\""),
            (&["exec", "no-such-lab-here/a", "--", "true"], 3, "there is no lab \"no-such-lab-here\""),
            (&["exec", "no-such-lab-here/a"], 2, "<CMD>"),
            (&["down"], 2, "--stale"),
            (&["frob"], 2, "frob"),
        ],
    );
}

/// The target is unreachable. Runs in a lab machine, so that nothing can leave the host.
#[test]
fn no_way_to_the_target() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let host = Host::now();
    let lab = LabBuilder::new("no-way").machine("alone").up().unwrap();
    let mut pids = Vec::new();
    for (arguments, part) in [
        (&["load", "echo", "192.0.2.1:7", "-d", "1s"][..], "add a route to it"),
        (&["load", "echo", "[2001:db8::1]:7", "-d", "1s"], "add a route to it"),
        (&["load", "echo", "192.0.2.1:7", "-d", "1s", "--engine", "kernel"], "add a route to it"),
        (&["load", "echo", "192.0.2.1:7", "-d", "1s", "--engine", "xdp"], "add a route to it"),
    ] {
        let mut inside = lab.machine("alone").unwrap().command(program());
        inside.args(arguments);
        let ended = Run::of(inside, &arguments.join(" ")).start_with(|command| lab.spawn(command)).finish();
        refused(&ended, 3, part);
        pids.push(ended.pid);
    }
    lab.down().unwrap();
    host.is_as_before(&pids);
}

/// A copy of the program that any user can run, wherever the build directory is.
fn for_everybody(folder: &Path) -> PathBuf {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.join("udpath");
    fs::copy(program(), &copy).unwrap();
    copy
}

#[test]
fn without_permission_it_says_what_is_missing() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let host = Host::now();
    let folder = tempfile::tempdir().unwrap();
    let copy = for_everybody(folder.path());
    let mut pids = Vec::new();
    let cases: &[Case<'_>] = &[
        (&["boost", "--lab", "--engine", "kernel"], 3, "run as root"),
        (&["load", "echo", "--lab", "--engine", "kernel", "-d", "1s"], 3, "run as root"),
        (&["load", "echo", "--lab", "--engine", "xdp", "-d", "1s"], 3, "run as root"),
        (&["lab", "up", "no-permission"], 3, "run as root"),
        (&["boost", "--lab", "--report", "/etc/x.html"], 3, "cannot write /etc/x.html: Permission denied"),
    ];
    for (arguments, code, part) in cases {
        let ended = Run::unprivileged(&copy, arguments).finish();
        refused(&ended, *code, part);
        pids.push(ended.pid);
    }
    host.is_as_before(&pids);
}

/// Without root, the climb runs in a user namespace with the socket engine. Rungs that need root are left out, each
/// with the reason.
#[test]
fn without_permission_the_climb_goes_as_far_as_it_can() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let host = Host::now();
    let folder = tempfile::tempdir().unwrap();
    let copy = for_everybody(folder.path());
    let arguments = [
        "boost",
        "--lab",
        "--json",
        "--seconds",
        "0.05",
        "--blocks",
        "3",
        "--bound",
        "20",
        "--queues",
        "2",
        "--io",
        "shared,reuseport",
    ];
    let ended = Run::unprivileged(&copy, &arguments).within(udpath_rig::TIMEOUT * 4).finish();
    let namespaces = Path::new("/proc/sys/user/max_user_namespaces");
    let forbidden = fs::read_to_string(namespaces).is_ok_and(|most| most.trim() == "0");
    if forbidden || ended.code() == Some(3) && ended.err.contains("enter a user namespace") {
        refused(&ended, 3, "run as root");
    } else {
        assert_eq!(ended.code(), Some(0), "{}", ended.err);
        let result: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!(result["load"]["engine"], "socket");
        let warnings = result["warnings"].to_string();
        assert!(warnings.contains("not root: the socket engine sends the load"), "{warnings}");
        let rungs = result["rungs"].as_array().unwrap();
        // Whether "together" has anything left to try depends on which of the others won.
        let names = rungs.iter().map(|rung| rung["name"].as_str().unwrap());
        let names: Vec<_> = names.filter(|name| *name != "together").collect();
        assert_eq!(names, ["one-queue", "shared", "reuseport", "pinned", "batched", "gso"]);
        for rung in rungs {
            assert!(rung["verdict"] != "failed" && rung["tps"].as_f64().unwrap() > 0.0, "{rung}");
        }
        let left_out = result["left_out"].as_array().unwrap();
        let names: Vec<_> = left_out.iter().map(|rung| rung["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["rps", "rps+reuseport", "rfs"]);
        for rung in left_out {
            let reason = rung["reason"].as_str().unwrap();
            assert!(reason.contains("RPS") && reason.contains("run as root"), "{reason}");
        }
        let profiles = &result["profiles"];
        let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
        if paranoid.trim().parse::<i32>().unwrap() > 0 {
            let absent = profiles["absent"].as_str().unwrap();
            assert!(absent.starts_with("one-queue: cannot sample CPU"), "{absent}");
            assert!(profiles["first"].is_null() && profiles["best"].is_null(), "{absent}");
        } else {
            assert!(profiles["first"]["samples"]["taken"].as_u64().unwrap() > 0);
        }
    }
    host.is_as_before(&[ended.pid]);
}

/// Where user namespaces are not allowed, the message says how to allow them.
#[test]
fn without_user_namespaces_it_says_how_to_get_them() {
    let _turn = udpath_rig::alone();
    let folder = tempfile::tempdir().unwrap();
    let copy = for_everybody(folder.path());
    // The limit belongs to the outer user namespace and ends with it.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" boost --lab";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script]).arg(copy);
    let ended = Run::of(command, "boost without user namespaces").finish();
    refused(&ended, 3, "sysctl user.max_user_namespaces=");
    assert!(ended.err.contains("run as root"), "{}", ended.err);
}
