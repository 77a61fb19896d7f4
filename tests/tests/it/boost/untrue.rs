//! A load that cannot be measured with, whatever is changed.

use std::process::Command;

use udpath_rig::{Run, TIMEOUT, client_and_server, program};

use crate::inside::{addresses, udpath};

/// The server's port.
const PORT: u16 = 7000;

/// The kernel engine over a veth whose other end takes no XDP frames.
#[test]
fn a_load_whose_engine_cannot_work_here_ends_it_with_the_cause() {
    udpath_lab::needs_root!();
    let lab = client_and_server("boost-untrue", 1);
    let mut server = udpath(&lab, "server", &["serve", "echo", "--io", "shared", "--bind", "0.0.0.0:7000"]);
    server.says("ready io=shared");
    let (state, [v4, _]) = (tempfile::tempdir().unwrap(), addresses(&lab));
    let (target, pid) = (format!("{v4}:{PORT}"), server.pid().to_string());
    let from = lab.machine("client").unwrap().namespace();
    let mut command = Command::new(program());
    command.args(["boost", "--pid", &pid, "--from", from, "--state", state.path().to_str().unwrap()]);
    command.args(["--no-profile", "--duration", "100ms", "--budget", "20s"]);
    command.args(["--load", "echo", &target, "--flows", "64", "--inflight", "4", "--engine", "kernel"]);
    let ended = Run::of(command, "boost").within(TIMEOUT * 4).finish();
    assert_eq!(ended.code(), Some(3), "{}{}", ended.out, ended.err);
    assert!(ended.err.contains("attach an XDP program there"), "{}", ended.err);
}
