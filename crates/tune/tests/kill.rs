//! An apply killed (SIGKILL) at every write of a plan of forty changes, on a veth of a lab and on a running knotd, and
//! at the journal's own writes, syncs and renames between them; then undone. The same with every write rejected in
//! turn.
//!
//! ```text
//! kill                    the test: for each write, before and after it; for each moment of a step of the journal
//!   └─ kill child AT WHEN STATE      in the lab's machine: applies, and kills itself there
//! ```
//! A test without the standard harness, so that the child does nothing but apply.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test says what it did")]

mod door;
mod lab;

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use udpath_host::process;
use udpath_lab::Lab;
use udpath_tune::apply::ApplyError;
use udpath_tune::journal::State;
use udpath_tune::plan::Consent;
use udpath_tune::undo::UndoError;
use udpath_tune::{Journal, Live, Machine, Plan, SettingRequest, apply, undo};

use door::Door;

/// Queues of the veth. With the rest below this makes over thirty changes.
const QUEUES: u32 = 10;
/// knotd's port.
const PORT: u16 = 5300;
/// Errors the kernel may return for a write.
const REFUSALS: [i32; 5] = [libc::EIO, libc::EPERM, libc::ENOSPC, libc::EBUSY, libc::EOPNOTSUPP];
/// Selects the kills that are not at a write of a setting.
const JOURNAL: &str = "journal";
/// The file in which `make soak` collects results; campaigns then run in full.
const RESULTS: &str = "UDPATH_SOAK";
/// The short campaign kills at every n-th point of the journal's steps. A step has two or three points, so an odd
/// number covers all kinds.
const STRIDE: usize = 23;
/// Longest wait for knotd.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Receive queues that remain after the plan; the steering of the others is lost with them.
const LEFT: u32 = 8;

fn plan(machine: &dyn Machine) -> Plan {
    let mut requests: Vec<String> = [
        &format!("eth0:channels/rx={LEFT}"),
        "eth0:feature/rx-gro=on",
        "eth0:napi/threaded=on",
        "eth0:napi/defer-hard-irqs=2",
        "eth0:napi/gro-flush-timeout=20000",
        "eth0:qdisc=mq",
        "sysctl:net.ipv4.ip_default_ttl=70",
    ]
    .map(str::to_owned)
    .into();
    // For knotd's two sockets and the threads that read them.
    requests.extend(
        [
            "receive-buffer=3145728",
            "busy-poll=50",
            "busy-poll-budget=16",
            "incoming-cpu=one-per-cpu",
            "selection=by-cpu",
            "threads=0-1",
        ]
        .map(|request| format!("port:{PORT}:{request}")),
    );
    for queue in 0..QUEUES {
        if queue < LEFT {
            requests.push(format!("eth0:rps/rx-{queue}=0-1"));
            requests.push(format!("eth0:rfs/rx-{queue}=256"));
        }
        requests.push(format!("eth0:xps/tx-{queue}={}", queue % 2));
    }
    let requests = requests.iter().map(|request| SettingRequest::parse(request, "test").unwrap()).collect();
    Plan::resolve(machine, requests, &Consent::default()).unwrap()
}

fn die() -> ! {
    kill_process(getpid(), Signal::KILL).unwrap();
    // The signal may take a moment.
    loop {
        std::thread::park();
    }
}

fn child(at: &str, when: &str, state: &str) {
    let (at, after, own) = (at.parse::<usize>().unwrap(), when == "after", when == JOURNAL);
    let live = Live::new();
    let machine = Door::new(&live, move |call| {
        let struck = call.at == at && !own;
        let done = if struck && !after { die() } else { call.pass() };
        if struck { die() } else { done }
    });
    let moments = AtomicUsize::new(0);
    let watcher = move |_| if own && moments.fetch_add(1, Ordering::Relaxed) == at { die() } else { Ok(()) };
    let lock = Journal::watched(Path::new(state), Arc::new(watcher)).lock().unwrap();
    apply(&machine, &lock, &plan(&machine), None, |_| Ok(())).unwrap();
}

/// Records a figure, like the campaigns of the whole program's tests.
fn record(line: &str) {
    println!("{line}");
    let Some(path) = std::env::var_os(RESULTS) else { return };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// An apply with one rejected write.
fn refused(state: &Path, at: usize, errno: i32) -> ApplyError {
    let live = Live::new();
    let machine = Door::new(&live, |call| if call.at == at { call.refused(errno) } else { call.pass() });
    let lock = Journal::at(state).lock().unwrap();
    let error = apply(&machine, &lock, &plan(&machine), None, |_| Ok(())).unwrap_err();
    let name = plan(&live).changes[at].setting.to_string();
    assert!(error.to_string().contains(&name), "{at} {errno}: {error}");
    error
}

/// A knotd with two workers in the lab's machine.
struct Knotd {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Knotd {
    fn start(lab: &Lab) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (here, conf) = (folder.path().display(), folder.path().join("conf"));
        let text = format!(
            "server:\n  rundir: {here}\n  listen: 0.0.0.0@{PORT}\n  udp-workers: 2\n  tcp-workers: 1\n  \
             background-workers: 1\ndatabase:\n  storage: {here}\n"
        );
        std::fs::write(&conf, text).unwrap();
        let mut command = lab.machine("here").unwrap().command("knotd");
        command.arg("-c").arg(conf).stdout(Stdio::null()).stderr(Stdio::null());
        let child =
            lab.spawn(command).unwrap_or_else(|error| panic!("{error:?}; scripts/setup.sh installs it"));
        let knotd = Self { child, _folder: folder };
        let deadline = Instant::now() + TIMEOUT;
        // Its sockets, and the threads that read them.
        let ready = |server: process::Server| server.sockets.len() == 2 && process::waiting(&server).is_ok();
        while !process::find(knotd.child.id()).is_ok_and(ready) {
            assert!(Instant::now() < deadline, "knotd does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        knotd
    }

    /// The settings of its sockets and threads.
    fn look(&self) -> String {
        let server = process::find(self.child.id()).unwrap();
        let sockets =
            server.sockets.iter().map(|socket| format!("{} {:?}\n", socket.id.inode, socket.values));
        let threads = server.threads.iter().map(|thread| format!("{} {}\n", thread.id.tid, thread.affinity));
        sockets.chain(threads).collect()
    }
}

impl Drop for Knotd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [verb, at, when, state] = &arguments[..]
        && verb == "child"
    {
        return child(at, when, state);
    }
    udpath_lab::needs_root!();
    let lab = lab::lab("kill", QUEUES);
    let machine = lab.machine("here").unwrap();
    let knotd = Knotd::start(&lab);
    // Settings that will be lost and must be restored.
    machine
        .run(|| {
            for (file, text) in [("rx-9/rps_cpus", "2"), ("rx-9/rps_flow_cnt", "64"), ("rx-1/rps_cpus", "1")]
            {
                std::fs::write(format!("/sys/class/net/eth0/queues/{file}"), text).unwrap();
            }
        })
        .unwrap();
    let look = || format!("{}{}", lab::look(&lab), knotd.look());
    let before = look();
    let writes = machine.run(|| plan(&Live::new()).changes.len()).unwrap();
    assert!(writes >= 40, "{writes}");
    let folder = tempfile::tempdir().unwrap();
    let mut killed = 0;
    for when in ["before", "after"] {
        for at in 0.. {
            let state = folder.path().join(format!("{when}-{at}"));
            let mut command = machine.command(std::env::current_exe().unwrap());
            command.args(["child", &at.to_string(), when, state.to_str().unwrap()]);
            let ended = command.output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            let journal = Journal::at(&state);
            let was_killed = ended.status.signal() == Some(9);
            assert!(was_killed || ended.status.success(), "{when} {at}: {} {said}", ended.status);
            let expected = if was_killed { State::Unfinished } else { State::Applied };
            assert_eq!(journal.entry(1).unwrap().state, expected, "{when} {at}");
            if when == "after" {
                assert_ne!(look(), before, "{when} {at}: the write did nothing");
            }
            let left = machine
                .run(|| undo(&Live::new(), &journal.lock().unwrap(), None, "test", false).unwrap().left);
            assert_eq!(left.unwrap(), [], "{when} {at}");
            assert_eq!(look(), before, "{when} {at}");
            killed += usize::from(was_killed);
            if !was_killed {
                break;
            }
        }
    }
    assert!(killed >= 2 * writes, "{killed} of {writes}");
    let stride = if std::env::var_os(RESULTS).is_some() { 1 } else { STRIDE };
    let mut own = 0;
    for at in (0..).step_by(stride) {
        let state = folder.path().join(format!("{JOURNAL}-{at}"));
        let mut command = machine.command(std::env::current_exe().unwrap());
        command.args(["child", &at.to_string(), JOURNAL, state.to_str().unwrap()]);
        let ended = command.output().unwrap();
        let was_killed = ended.status.signal() == Some(9);
        assert!(was_killed || ended.status.success(), "{at}: {}", String::from_utf8_lossy(&ended.stderr));
        let journal = Journal::at(&state);
        let contents = journal.contents().unwrap();
        assert!(contents.unreadable.is_empty(), "{at}: {:?}", contents.unreadable);
        let undo = || undo(&Live::new(), &journal.lock().unwrap(), None, "test", false);
        match machine.run(undo).unwrap() {
            Ok(undone) => assert_eq!(undone.left, [], "{at}"),
            // It had not changed anything yet.
            Err(UndoError::Nothing(_)) => {}
            Err(error) => panic!("{at}: {error:?}"),
        }
        assert_eq!(look(), before, "{at}");
        own += usize::from(was_killed);
        if !was_killed {
            break;
        }
    }
    assert!(own > 10, "{own}");
    let sum = killed + own;
    record(&format!(
        "kills during apply: {sum} ({killed} at writes of settings, {own} at steps of the journal), undone to equality: {sum}"
    ));
    // Each point with the next errno; the in-memory machine (apply/) tests every errno at every point.
    for at in 0..writes {
        let errno = REFUSALS[at % REFUSALS.len()];
        let state = folder.path().join(format!("refused-{at}"));
        match machine.run(|| refused(&state, at, errno)).unwrap() {
            ApplyError::Nothing(_) => assert_eq!(at, 0),
            ApplyError::Reverted { changes, .. } => assert_eq!(changes, at, "{errno}"),
            other => panic!("{at} {errno}: {other}"),
        }
        assert_eq!(look(), before, "{at} {errno}");
    }
    println!("refused {writes} times, taken back to equality each time");
    drop(knotd);
    lab.down().unwrap();
}
