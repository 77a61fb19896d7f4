//! An apply and an undo of policies, killed (SIGKILL) before every system call that changes something: an element of a
//! map, a link, a pin, a sysctl, a file of the journal. Afterwards each option is as it was or as asked, and `undo`
//! restores everything.
//!
//! ```text
//! for n in 1..      strace --inject=CALLS:signal=KILL:when=n udpath apply ...      until it ends by itself
//! ```

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use udpath_rig::campaign::{record, rounds};
use udpath_rig::{SysctlGuard, program};

use super::{PINNED, Scene};

/// The system calls, with `?` where an architecture may lack one. Reads by bpf(2) are among them: they cannot be told
/// apart.
const CALLS: &str =
    "bpf,?mkdir,mkdirat,?unlink,unlinkat,?rmdir,?rename,?renameat,renameat2,write,fsync,fdatasync,ftruncate";
/// Calls between two kills in `make test`.
const STRIDE: u32 = 17;
/// More calls than either has, by far.
const MOST: u32 = 5_000;

/// What was or what was asked.
struct Wanted {
    limit: SysctlGuard,
    /// Twice what the limit allows as found, and some more.
    buffer: u32,
    before: [String; 2],
}

impl Wanted {
    fn of(scene: &Scene) -> Self {
        let limit = SysctlGuard::new("net/core/rmem_max");
        let buffer = 2 * limit.was().parse::<u32>().unwrap() + 65_536;
        Self { limit, buffer, before: options(scene) }
    }

    fn requests(&self, scene: &Scene) -> [String; 4] {
        let buffer = scene.request(&format!("receive-buffer={}", self.buffer));
        ["--set".to_owned(), buffer, "--set".to_owned(), scene.request("reuseport=on")]
    }

    /// Each option, and the limit, is as it was or as asked.
    fn is_one_or_the_other(&self, scene: &Scene, when: &str) {
        let limit = self.limit.now();
        let raised = (self.buffer / 2).to_string();
        assert!(limit == self.limit.was() || limit == raised, "{when}: the limit is {limit}");
        let now = options(scene);
        let asked = [self.buffer.to_string(), "1".to_owned()];
        for ((now, before), asked) in now.iter().zip(&self.before).zip(&asked) {
            assert!(now == before || now == asked, "{when}: {now}, neither {before} nor {asked}");
        }
    }

    fn is_undone(&self, scene: &Scene, when: &str) {
        let undone = scene.run(&["undo"]);
        // Nothing, if it was killed before its first change or after its last.
        let nothing = undone.code == Some(3) && undone.err.contains("nothing to undo");
        assert!(undone.code == Some(0) || nothing, "{when}: {}", undone.err);
        assert_eq!(self.limit.now(), self.limit.was(), "{when}: {}", undone.err);
        assert_eq!(options(scene), self.before, "{when}: {}", undone.err);
        assert!(!Path::new(PINNED).exists(), "{when}: {}", undone.err);
    }
}

/// SO_RCVBUF and SO_REUSEPORT of a server that starts now.
fn options(scene: &Scene) -> [String; 2] {
    let line = scene.server().line();
    let (buffer, reuseport) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
    [buffer.to_owned(), reuseport.to_owned()]
}

/// Runs udpath with a signal before these of the system calls above, as strace counts them.
fn signalled(scene: &Scene, signal: &str, when: &str, arguments: &[&str]) -> Output {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={CALLS}")]);
    strace.args(["-e", &format!("inject={CALLS}:signal={signal}:when={when}")]);
    strace.arg(program()).args(arguments).arg("--state").arg(scene.state.path());
    strace
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot run strace: {error}; scripts/setup.sh installs it"))
}

/// Runs udpath, killed before the system call number `at` of those above; returns whether it was.
fn killed(scene: &Scene, at: u32, arguments: &[&str]) -> bool {
    let ended = signalled(scene, "KILL", &at.to_string(), arguments);
    let said = String::from_utf8_lossy(&ended.stderr);
    let killed = ended.status.signal() == Some(9);
    assert!(killed || ended.status.success(), "{at}: {} {said}", ended.status);
    killed
}

/// Kills at every point, or at each of the short campaign's. `one`: given the arguments of an apply, does what is
/// killed at a call, and returns whether it was.
fn at_every_call(what: &str, one: impl Fn(&Scene, &[&str], u32) -> bool) {
    let scene = Scene::new();
    let wanted = Wanted::of(&scene);
    let requests = wanted.requests(&scene);
    let apply: Vec<&str> = ["apply"].into_iter().chain(requests.iter().map(String::as_str)).collect();
    let stride = rounds(STRIDE, 1);
    let mut kills = 0;
    for at in (1..MOST).step_by(stride as usize) {
        let killed = one(&scene, &apply, at);
        let when = format!("{what}, call {at}");
        wanted.is_one_or_the_other(&scene, &when);
        wanted.is_undone(&scene, &when);
        if !killed {
            break;
        }
        kills += 1;
    }
    assert!(kills > 2, "{what}: {kills} kills");
    record(
        &format!("kills at system calls of a policy's {what}, undone to equality"),
        &format!("{kills} of {kills}"),
    );
}

#[test]
fn an_apply_killed_at_any_call_leaves_what_was_or_what_was_asked() {
    udpath_lab::needs_root!();
    at_every_call("apply", |scene, apply, at| killed(scene, at, apply));
}

#[test]
fn an_undo_killed_at_any_call_is_finished_by_the_next() {
    udpath_lab::needs_root!();
    at_every_call("undo", |scene, apply, at| {
        scene.run(apply).fine();
        killed(scene, at, &["undo"])
    });
}

/// A signal before each of several calls in a row: one request. An apply is taken back or was whole; a removal goes to
/// its end.
#[test]
fn signals_at_any_call_take_an_apply_back_and_let_a_removal_end() {
    udpath_lab::needs_root!();
    let scene = Scene::new();
    let wanted = Wanted::of(&scene);
    let requests = wanted.requests(&scene);
    let apply: Vec<&str> = ["apply"].into_iter().chain(requests.iter().map(String::as_str)).collect();
    let target = scene.request("");
    let remove = ["policy", "remove", target.trim_start_matches("policy:").trim_end_matches('/')];
    let stride = rounds(3 * STRIDE, 1);
    let mut ends = [0, 0];
    for at in (1..MOST).step_by(stride as usize) {
        let calls = format!("{at}..{}", at + 5);
        let ended = signalled(&scene, "TERM", &calls, &apply);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        let when = format!("apply, calls {calls}: {} {said}", ended.status);
        match (ended.status.code(), ended.status.signal()) {
            // Before it watches for signals it has changed nothing.
            (None, Some(15)) => assert!(said.is_empty(), "{when}"),
            (Some(3), _) => assert!(said.contains("interrupted by SIGTERM; nothing was changed"), "{when}"),
            (Some(4), _) => assert!(said.contains("interrupted by SIGTERM"), "{when}"),
            (Some(0), _) => wanted.is_undone(&scene, &when),
            _ => panic!("{when}"),
        }
        assert_eq!(options(&scene), wanted.before, "{when}");
        ends[0] += u32::from(ended.status.code() == Some(4));

        scene.run(&apply).fine();
        let removed = signalled(&scene, "TERM", &calls, &remove);
        let said = String::from_utf8_lossy(&removed.stderr).into_owned();
        let when = format!("removal, calls {calls}: {} {said}", removed.status);
        if removed.status.signal() == Some(15) {
            scene.run(&remove).fine();
        } else {
            assert_eq!(removed.status.code(), Some(0), "{when}");
            assert!(!said.contains("at once"), "{when}");
        }
        wanted.is_undone(&scene, &when);
        ends[1] += u32::from(removed.status.success());
        if ended.status.success() {
            break;
        }
    }
    assert!(ends[0] > 0 && ends[1] > 0, "taken back and removed: {ends:?}");
    record(
        "policies with several SIGTERM at system calls",
        &format!("{} applies taken back, {} removals whole, leaving anything: 0", ends[0], ends[1]),
    );
}
