//! Labs whose owner is killed, and labs of a process without root. Both need a separate process, and the second needs a
//! single-threaded one, so this target has its own `main`: called with a role it runs that role, otherwise it runs the
//! tests below, one after the other. Needs root.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test says what it did")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use error_reporter::Report;
use udpath_lab::{Error, Lab, LabBuilder, LinkSpec, State};
use udpath_rig::VmSpec;

/// Long enough for anything here on a machine busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Moments at which an owner is killed.
const KILLS: u32 = 24;
/// The kills are spread over this time: building and taking down a lab takes about that long.
const SPREAD: Duration = Duration::from_millis(240);
/// UID of `nobody` on every distribution.
const NOBODY: u32 = 65_534;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("role-owner") => owner(),
        Some("role-resident") => resident(),
        Some("role-emulating") => emulating(),
        Some("role-flows") => flows(),
        Some("role-spawner") => spawner(&arguments[2]),
        Some("role-nobody") => nobody(),
        _ => return run_tests(&arguments[1..]),
    }
    ExitCode::SUCCESS
}

fn run_tests(arguments: &[String]) -> ExitCode {
    let tests: [(&str, fn()); 6] = [
        ("a_killed_owner_leaves_nothing_that_a_sweep_does_not_remove", killed_at_any_moment),
        ("the_flow_table_of_a_killed_owner_is_switched_off", flow_table_of_a_killed_owner),
        ("programs_of_a_killed_owner_end", || end_with_their_owner("role-resident", 1, 2)),
        ("an_emulated_machine_of_a_killed_owner_ends", || end_with_their_owner("role-emulating", 0, 1)),
        ("a_kept_lab_outlives_its_owner_until_it_is_taken_down", kept),
        ("a_lab_without_root_carries_traffic_and_says_what_is_missing", without_root),
    ];
    // From cargo test: a filter, or flags meant for the test harness.
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| filter.is_none_or(|filter| name.contains(filter.as_str()));
    if arguments.iter().any(|argument| argument == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut failed = false;
    for (name, test) in tests.into_iter().filter(|(name, _)| wanted(name)) {
        let passed = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed |= !passed;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

// Roles.

fn pair(name: &str) -> LabBuilder {
    LabBuilder::new(name).machine("client").machine("server").link(
        "client",
        "server",
        &LinkSpec::with_queues(2),
    )
}

/// Builds and takes down labs until it is killed.
fn owner() {
    say("ready");
    loop {
        pair("killed").up().unwrap().down().unwrap();
    }
}

/// Owns a lab that runs programs, one of which has started a child that it does not wait for.
fn resident() {
    let lab = pair("resident").up().unwrap();
    let server = lab.machine("server").unwrap();
    let mut sleeper = server.command("sleep");
    sleeper.arg("1000");
    let mut sleeper = lab.spawn(sleeper).unwrap();
    let _orphan = server.command("sh").args(["-c", "setsid sleep 1000 & exit 0"]).status().unwrap();
    say("ready");
    sleeper.wait().unwrap();
}

/// Owns an emulated machine that is booting, and does not wait for it.
fn emulating() {
    let spec = VmSpec { cpus: 1, nodes: 1, queues: 1, ..VmSpec::default() };
    let _machine = spec.boot(&["sleep".into(), "1000".into()]).unwrap();
    say("ready");
    std::thread::sleep(Duration::from_secs(1000));
}

/// Owns a lab that has switched on the machine's flow table.
fn flows() {
    let lab = pair("flows").up().unwrap();
    lab.set_flow_table(true).unwrap();
    say("ready");
    std::thread::sleep(Duration::from_secs(1000));
}

fn spawner(name: &str) {
    let blueprint = pair(name).up_kept().unwrap();
    assert_eq!(blueprint.pid, std::process::id());
}

/// Runs as an ordinary user.
fn nobody() {
    let denied = pair("denied").up().unwrap_err();
    assert!(denied.is_permission() && denied.to_string().contains("run as root"), "{denied}");
    let missing = udpath_lab::enter_user_namespace().unwrap();
    assert!(missing.iter().any(|what| what.contains("BPF")), "{missing:?}");
    let lab: Lab = pair("nobody").up().unwrap();
    let (client, server) = (lab.machine("client").unwrap(), lab.machine("server").unwrap());
    let there = lab.address_of("server", "client").unwrap();
    for ip in [there.ipv4.into(), there.ipv6.into()] {
        let ip: std::net::IpAddr = ip;
        let service = server.run(|| std::net::UdpSocket::bind((ip, 0))).unwrap().unwrap();
        service.set_read_timeout(Some(TIMEOUT)).unwrap();
        let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let user = client.run(|| std::net::UdpSocket::bind(any)).unwrap().unwrap();
        user.send_to(b"hello", service.local_addr().unwrap()).unwrap();
        assert_eq!(service.recv(&mut [0; 16]).unwrap(), 5);
    }
    let eth0 = client.interface("eth0").unwrap();
    let xps = eth0.spread_xps().unwrap_err();
    assert!(xps.is_permission() && xps.to_string().contains("run as root"), "{xps}");
    assert!(missing.iter().any(|what| what.contains("XPS")), "{missing:?}");
    eth0.set_offloads(&udpath_lab::Offloads::OFF).unwrap();
    assert_eq!(client.command("ls").arg("/sys/class/net").output().unwrap().stdout, b"eth0\nlo\n");
    // What is reported as missing fails with that error.
    let napi = Report::new(eth0.ensure_napi().unwrap_err()).to_string();
    assert!(napi.contains("run as root"), "{napi}");
    assert!(matches!(pair("kept").up_kept(), Err(Error::KeptNeedsRoot)));
    let listed: Vec<String> =
        udpath_lab::list().unwrap().into_iter().map(|listed| listed.blueprint.name).collect();
    assert_eq!(listed, ["nobody"]);
    lab.down().unwrap();
    assert!(udpath_lab::list().unwrap().is_empty());
    let late = std::thread::scope(|scope| {
        scope.spawn(udpath_lab::enter_user_namespace).join().unwrap().unwrap_err()
    });
    assert!(matches!(late, Error::Threads { .. }), "{late}");
    say("ready");
}

fn say(what: &str) {
    println!("{what}");
    std::io::stdout().flush().unwrap();
}

// Tests.

fn play(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(role).stdout(Stdio::piped());
    command
}

/// Starts a role and waits until it reports that it is ready.
fn start(role: &str) -> Child {
    let mut child = play(role).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "{role}");
    child
}

/// Everything on this machine that belongs to a lab of this process: names, mounts, records.
fn traces(pid: u32) -> BTreeSet<String> {
    let mark = format!("udpath-{pid}-");
    let names = |directory: &str| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().display().to_string()).collect::<Vec<_>>()
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut traces: BTreeSet<String> =
        names("/run/netns").into_iter().filter(|name| name.contains(&mark)).collect();
    let of_this = |name: &String| name.contains(&format!("/{pid}-"));
    traces.extend(names("/run/udpath/lab").into_iter().filter(of_this));
    traces.extend(mounts.lines().filter(|line| line.contains(&mark)).map(str::to_owned));
    traces
}

/// Everything else there: must be the same before and after.
fn others() -> BTreeSet<String> {
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().into_string().unwrap());
    let links = fs::read_dir("/sys/class/net")
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with("udpath-")).chain(links).collect()
}

fn killed_at_any_moment() {
    udpath_lab::needs_root!();
    let foreign = format!("udpath-lab-test-{}", std::process::id());
    let ip = |arguments: &[&str]| assert!(Command::new("ip").args(arguments).status().unwrap().success());
    ip(&["netns", "add", &foreign]);
    let before = others();
    let mut left_something = 0;
    for kill in 0..KILLS {
        let mut owner = start("role-owner");
        // Not a wait for an event: the kill times sweep over a lab's whole life.
        std::thread::sleep(SPREAD * kill / KILLS);
        owner.kill().unwrap();
        owner.wait().unwrap();
        left_something += u32::from(!traces(owner.id()).is_empty());
        let swept = udpath_lab::sweep_stale().unwrap();
        assert!(!swept.left.iter().any(|left| left.contains("killed")), "{:?}", swept.left);
        // Another test's lab may have swept just before; its sweep is complete once its lock is free.
        let deadline = Instant::now() + TIMEOUT;
        while !traces(owner.id()).is_empty() {
            assert!(Instant::now() < deadline, "kill {kill} left {:?}", traces(owner.id()));
            udpath_lab::sweep_stale().unwrap();
        }
    }
    // Otherwise nothing was tested.
    assert!(left_something > KILLS / 4, "only {left_something} of {KILLS} kills left something to sweep");
    let there = Path::new("/run/netns").join(&foreign).exists();
    assert!(there, "the sweep removed what was not ours");
    assert_eq!(others(), before);
    ip(&["netns", "del", &foreign]);
}

fn flow_table_of_a_killed_owner() {
    udpath_lab::needs_root!();
    let table = || {
        fs::read_to_string("/proc/sys/net/core/rps_sock_flow_entries").unwrap().trim().parse::<u32>().unwrap()
    };
    let before = table();
    for next_lab in [false, true] {
        let mut owner = start("role-flows");
        // A machine that uses it already is left alone.
        let on = table();
        assert!(if before == 0 { on > 0 } else { on == before }, "{before}, then {on}");
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert_eq!(table(), on, "the kernel does not put it back");
        if next_lab {
            pair("next").up().unwrap().down().unwrap();
        } else {
            udpath_lab::sweep_stale().unwrap();
        }
        assert_eq!(table(), before);
        assert!(traces(owner.id()).is_empty());
    }
}

/// The record of an owner's lab.
fn record(owner: u32) -> Option<PathBuf> {
    let all = fs::read_dir("/run/udpath/lab").ok()?.flatten().map(|entry| entry.path());
    let of = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{owner}-")))
    };
    all.filter(|path| path.extension().is_some_and(|extension| extension == "record")).find(of)
}

/// Holds the lock of a record for a while, in a thread.
fn hold_record(owner: u32, time: Duration) -> std::thread::JoinHandle<()> {
    let file = fs::File::open(record(owner).expect("its record is there")).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockShared).unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(time);
        drop(file);
    })
}

/// Kills an owner; `processes` run in its lab's machine with this index.
fn end_with_their_owner(role: &str, machine: usize, processes: usize) {
    udpath_lab::needs_root!();
    let mut owner = start(role);
    let listed = udpath_lab::list().unwrap();
    let listed = listed.iter().find(|listed| listed.blueprint.pid == owner.id()).unwrap();
    assert_eq!(listed.state, State::Owned);
    let namespace = listed.blueprint.machines[machine].namespace.clone();
    let inside = || {
        let output = Command::new("ip").args(["netns", "pids", &namespace]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let pids = inside();
    assert_eq!(pids.len(), processes, "{role}");
    owner.kill().unwrap();
    owner.wait().unwrap();
    // As a child of the owner does that was between fork and exec.
    let holder = hold_record(owner.id(), Duration::from_millis(100));
    udpath_lab::sweep_stale().unwrap();
    assert_eq!(record(owner.id()), None, "the first sweep waited for the lock, and removed it");
    holder.join().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while !traces(owner.id()).is_empty() {
        assert!(Instant::now() < deadline, "left {:?}", traces(owner.id()));
        udpath_lab::sweep_stale().unwrap();
    }
    assert!(inside().is_empty());
    // Ended means gone, or a zombie that its new parent has not reaped yet.
    let ended = |pid: &String| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        !status.lines().any(|line| line.starts_with("State:") && !line.contains("zombie"))
    };
    while !pids.iter().all(ended) {
        assert!(Instant::now() < deadline, "not all of {pids:?} have ended");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn kept() {
    udpath_lab::needs_root!();
    let name = format!("keep-{}", std::process::id());
    let spawner = || play("role-spawner").arg(&name).stderr(Stdio::piped()).output().unwrap();
    let first = spawner();
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    // Its owner has ended: the lab persists, even across a sweep, and its name is taken.
    udpath_lab::sweep_stale().unwrap();
    let second = String::from_utf8(spawner().stderr).unwrap();
    assert!(second.contains("Exists"), "{second}");
    let listed = udpath_lab::list().unwrap();
    let listed = listed.iter().find(|listed| listed.blueprint.name == name).unwrap();
    assert_eq!(listed.state, State::Kept);
    let pid = listed.blueprint.pid;
    {
        let lab = udpath_lab::attach(&name).unwrap();
        let there = lab.address_of("server", "client").unwrap().ipv4;
        let service =
            lab.machine("server").unwrap().run(|| std::net::UdpSocket::bind((there, 0))).unwrap().unwrap();
        service.set_read_timeout(Some(TIMEOUT)).unwrap();
        let to = service.local_addr().unwrap();
        let user =
            lab.machine("client").unwrap().run(|| std::net::UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        user.send_to(b"hello", to).unwrap();
        assert_eq!(service.recv(&mut [0; 16]).unwrap(), 5);
    }
    // Using it does not end it.
    let attached = udpath_lab::attach(&name).unwrap();
    assert!(matches!(attached.machine("nobody"), Err(Error::UnknownMachine { .. })));
    drop(attached);
    udpath_lab::down(&name).unwrap();
    assert_eq!(traces(pid), BTreeSet::new());
    assert!(!Path::new(&format!("/run/udpath/lab/kept-{name}.record")).exists());
    assert!(matches!(udpath_lab::down(&name), Err(Error::UnknownLab { .. })));
    assert!(matches!(udpath_lab::attach(&name), Err(Error::UnknownLab { .. })));
}

fn without_root() {
    udpath_lab::needs_root!();
    let output = {
        // The program may be in a directory that `nobody` cannot enter: it is opened as root and run by descriptor.
        let own = fs::File::open(std::env::current_exe().unwrap()).unwrap();
        rustix::io::fcntl_setfd(&own, rustix::io::FdFlags::empty()).unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&own));
        let mut command = Command::new(path);
        command.arg("role-nobody").current_dir("/").uid(NOBODY).gid(NOBODY);
        command.output().unwrap()
    };
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}");
    assert_eq!(said, "ready\n", "{told}");
}
