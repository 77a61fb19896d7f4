//! Text of somebody else on a terminal: names of processes, paths, arguments, settings and labels that hold what a
//! terminal obeys.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use udpath_host::visible;
use udpath_rig::{Ended, Run, program};

/// Clears the screen, sets the title, begins in C1, reorders, and adds a line.
const BAD: &str = "\x1b[2J\x1b]0;x\x07\u{9b}31m\u{202e}\r\nudpath: all is well";

/// A server whose process names itself.
struct Named(Child);

impl Named {
    /// It is called `ESC [2J ESC ]0;x BEL` and has a UDP socket; returns its port.
    fn start() -> (Self, u16) {
        const SERVER: &str = "
import socket, sys
open('/proc/self/comm', 'wb').write(b'\\x1b[2J\\x1b]0;xyz\\x07')
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 0))
print(s.getsockname()[1], flush=True)
while True:
    s.recv(2048)
";
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", SERVER]).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Self(child), line.trim().parse().unwrap())
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn assert_shown(what: &str, text: &str) {
    let obeyed: Vec<char> = text.chars().filter(|c| *c != '\n' && visible::drives(*c)).collect();
    assert!(obeyed.is_empty(), "{what}: {obeyed:?} in {text:?}");
}

/// It failed with one line, which shows what was obeyed otherwise.
fn assert_one_line(what: &str, ended: &Ended) {
    assert_shown(what, &ended.err);
    assert_shown(what, &ended.out);
    assert!(matches!(ended.code(), Some(2 | 3)), "{what}: {:?} {}", ended.code(), ended.err);
    assert!(ended.err.lines().all(|line| !line.starts_with("udpath: all is well")), "{what}: {}", ended.err);
    // As itself, as a quoted word, or as far as clap quotes it.
    let shown = ["\\u001b[2J", "\\u{1b}[2J", "\\u009b31m"];
    assert!(shown.iter().any(|shown| ended.err.contains(shown)), "{what}: it is not shown: {}", ended.err);
}

#[test]
fn arguments_and_paths_of_errors_are_shown_and_not_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join(BAD.replace('\r', "")).display().to_string();
    let file = folder.path().join(format!("{BAD}.json")).display().to_string();
    fs::write(&file, "{}").unwrap();
    let nats = format!("nats://{BAD}");
    let setting = format!("{BAD}:rps/rx-0=1");
    let cases: [&[&str]; 17] = [
        &[BAD],
        &["load", BAD],
        &["load", "echo", BAD],
        &["load", "echo", "127.0.0.1:7", BAD],
        &["load", "echo", "127.0.0.1:7", "--rate", BAD],
        &["report", &missing],
        &["report", &file],
        &["compare", &missing, &file],
        &["merge", &file],
        &["fleet", &missing],
        &["show", "--sysroot", &missing],
        &["plan", "--set", &setting],
        &["plan", "--service", BAD],
        &["agent", "--nats", &nats, "--allow", "127.0.0.1", "--user", "root"],
        &["agent", "--nats", "nats://127.0.0.1:1", "--allow", BAD],
        &["agent", "--nats", "nats://127.0.0.1:1", "--allow", "127.0.0.1", "--name", BAD],
        &["serve", "dns", "--bind", "127.0.0.1:0", "--zone", &missing],
    ];
    for arguments in cases {
        assert_one_line(&format!("{arguments:?}"), &Run::new(arguments).finish());
    }
}

#[test]
fn names_of_processes_are_shown_and_not_obeyed() {
    udpath_lab::needs_root!();
    let (named, port) = Named::start();
    let service = port.to_string();
    let process = format!("pid/{}", named.0.id());
    // Among the sockets of other tests, the first shows the busiest only.
    let cases: [&[&str]; 8] = [
        &["export", "--once", "--sockets", "1000"],
        &["show"],
        &["show", "--all"],
        &["show", &service],
        &["top", "--once"],
        &["diagnose", "-d", "300ms"],
        &["plan", "--service", &service],
        &["plan", "--service", &process],
    ];
    let mut seen = 0;
    for arguments in cases {
        let ended = Run::new(arguments).finish();
        assert_shown(&format!("{arguments:?}"), &ended.out);
        assert_shown(&format!("{arguments:?}"), &ended.err);
        seen += usize::from([&ended.out, &ended.err].iter().any(|text| text.contains("]0;xyz")));
    }
    assert!(seen >= 2, "the process is named {seen} times");
}

#[test]
fn what_a_program_is_called_is_no_line_of_its_help() {
    let folder = tempfile::tempdir().unwrap();
    let called = folder.path().join(OsStr::from_bytes(b"x\x1b[2J\ny"));
    fs::hard_link(program(), &called).unwrap_or_else(|_| udpath_rig::copy_program(&program(), &called));
    for arguments in [&["--help"][..], &["load", "--help"], &["lab"], &["--version"]] {
        let mut command = Command::new(&called);
        let done = command.args(arguments).output().unwrap();
        for text in [done.stdout, done.stderr] {
            assert_shown(&format!("{arguments:?}"), &String::from_utf8(text).unwrap());
        }
    }
}

/// Entries of a journal hold names and values as well: nothing of them leaves its comment, and nothing is obeyed.
#[test]
fn comments_for_a_shell_are_one_line_and_shown() {
    let state = tempfile::tempdir().unwrap();
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/0.1/journal/000002.journal");
    let (mut sum, mut spoilt) = (0xcbf2_9ce4_8422_2325_u64, String::new());
    for line in fs::read_to_string(fixture).unwrap().lines() {
        let mut line: Value = serde_json::from_str(line.split_once(' ').unwrap().1).unwrap();
        if let Some(intent) = line.get_mut("intent") {
            intent["setting"] = Value::from(BAD);
            intent["new"] = Value::from(BAD);
        }
        let line = line.to_string();
        // The journal's own chain: FNV-1a of all lines so far.
        sum = line.bytes().fold(sum, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        spoilt += &format!("{sum:016x} {line}\n");
    }
    assert!(spoilt.contains("all is well"), "{spoilt}");
    let entry = state.path().join("000002.journal");
    fs::write(&entry, spoilt).unwrap();
    fs::set_permissions(&entry, fs::Permissions::from_mode(0o600)).unwrap();
    let state = state.path().display().to_string();
    let ended = Run::new(&["undo", "--print", "--state", &state, "2"]).finish();
    assert_shown("undo --print", &ended.out);
    assert_shown("undo --print", &ended.err);
    let shown = ended.out.lines().filter(|line| line.starts_with("# \\u001b[2J")).count();
    assert!(shown > 0 && ended.out.lines().all(|line| line.starts_with('#')), "{}{}", ended.out, ended.err);
}
