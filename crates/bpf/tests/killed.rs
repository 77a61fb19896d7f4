//! Killing the tracing process (SIGKILL) leaves no program behind. Requires root.
//!
//! A test without the standard harness, so that the child does nothing but trace.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test says what it did")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aya::programs::loaded_programs;
use udpath_bpf::trace::{Loader, LockWaits, PortServed, SkbDelays, SkbDrops, SoftirqRuns};

/// Programs of all tracers.
const PROGRAMS: usize = 2 + 1 + 7 + 4 + 4;
/// The kernel frees programs some time after their last descriptor is closed.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The argument that selects the child's role.
const CHILD: &str = "trace";

fn main() {
    if std::env::args().nth(1).as_deref() == Some(CHILD) {
        trace();
        return;
    }
    udpath_lab::needs_root!();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg(CHILD)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0];
    let told = child.stdout.take().unwrap().read(&mut ready);
    let programs = programs_of(&child);
    let loaded = loaded();
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(told.unwrap(), 1, "the child could not start tracing");
    assert_eq!(programs.len(), PROGRAMS, "{programs:?}");
    assert!(programs.is_subset(&loaded), "{programs:?}");
    let begin = Instant::now();
    while !programs.is_disjoint(&self::loaded()) {
        assert!(begin.elapsed() < TIMEOUT, "of {programs:?} some are left");
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("killed: {PROGRAMS} programs gone");
}

/// Starts every tracer, and waits for the parent to end.
fn trace() {
    let mut loader = Loader::default();
    let _all = (
        LockWaits::attach(&mut loader).unwrap(),
        SkbDrops::attach(&mut loader).unwrap(),
        SoftirqRuns::attach(&mut loader).unwrap(),
        SkbDelays::attach(&mut loader).unwrap(),
        PortServed::attach(7, 0).unwrap(),
    );
    std::io::stdout().write_all(b"!").unwrap();
    std::io::stdout().flush().unwrap();
    // The parent's end of the pipe closes when the parent exits.
    let _ = std::io::stdin().read(&mut [0]);
}

/// IDs of the programs that a process has descriptors of.
fn programs_of(child: &Child) -> BTreeSet<u32> {
    let files = fs::read_dir(format!("/proc/{}/fdinfo", child.id())).unwrap();
    files
        .filter_map(|file| fs::read_to_string(file.unwrap().path()).ok())
        .filter_map(|text| text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok()))
        .collect()
}

/// IDs of all loaded programs.
fn loaded() -> BTreeSet<u32> {
    loaded_programs().filter_map(|program| Some(program.ok()?.id())).collect()
}
