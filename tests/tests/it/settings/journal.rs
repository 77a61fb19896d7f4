//! A journal that is damaged, shared with other users, locked, or for a network namespace that is gone.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::FlockOperation;
use udpath_rig::{Said, TIMEOUT, awaited, program};

use super::place::{Place, RPS};
use super::revert::series;

#[test]
fn a_damaged_entry_blocks_itself_alone_and_can_be_closed() {
    udpath_lab::needs_root!();
    let place = Place::new("damaged");
    place.run(&["apply", "--set", RPS]).fine();
    let (entry, after) = (place.state.path().join("000001.journal"), place.rps());
    let text = fs::read_to_string(&entry).unwrap();
    for damaged in [text.replace("none", "1"), text.lines().skip(1).collect(), String::new()] {
        fs::write(&entry, damaged).unwrap();
        for arguments in [&["undo"][..], &["undo", "1"], &["confirm", "1"]] {
            place.run(arguments).refused(3, "000001.journal");
        }
        assert_eq!(place.rps(), after);
        let status = place.run(&["status"]);
        assert_eq!(status.code, Some(1), "{}", status.err);
        assert!(status.err.contains("udpath undo --forget 1"), "{}", status.err);
        // Everything else works, and reports the damage.
        let other = place.run(&["apply", "--set", "eth0:rps/rx-1=0"]);
        assert!(other.fine().err.contains("warning: journal entry 1 cannot be used"), "{}", other.err);
        assert_eq!(series(&place, "udpath_settings{state=\"holds\"}"), "1");
        assert_eq!(series(&place, "udpath_applies{state=\"unreadable\"}"), "1");
        place.run(&["undo"]).fine();
    }
    // The entry is still readable.
    fs::write(&entry, text.replace("none", "1")).unwrap();
    let print = place.run(&["undo", "--print", "1"]);
    assert!(print.fine().out.contains("echo 2 > /sys/class/net/eth0/queues/rx-0/rps_cpus"), "{}", print.out);
    assert!(print.err.contains("edited"), "{}", print.err);
    fs::write(&entry, "").unwrap();
    place.run(&["undo", "--print", "1"]).refused(3, "cannot read any change from apply 1");
    place.run(&["undo", "--forget", "1"]).fine();
    place.run(&["status"]).fine();
    place.run(&["undo", "--forget", "1"]).refused(2, "has no entry 1");
    place.run(&["undo", "--forget"]).refused(2, "<ID>");
    // An entry that can be undone is not given up by mistake.
    fs::write(&entry, text).unwrap();
    place.run(&["undo", "--forget", "1"]).refused(3, "can still be undone");
    place.run(&["undo", "1"]).fine();
}

#[test]
fn other_users_cannot_open_the_lock_and_its_holder_is_named() {
    udpath_lab::needs_root!();
    let place = Place::new("lock");
    let (folder, lock) = (place.state.path().join("j"), place.state.path().join("j/lock"));
    // As created by earlier versions.
    fs::set_permissions(place.state.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    place.shell("mkdir -m 755 $S/j; echo 4711 > $S/j/lock; chmod 644 $S/j/lock").fine();
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all";
    place.shell(&format!("{nobody} flock -n $S/j/lock true")).fine();
    place.shell(&format!("$U apply --state $S/j --set {RPS}")).fine();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&lock), mode(&folder.join("000001.journal"))), (0o700, 0o600, 0o600));
    assert_ne!(place.shell(&format!("{nobody} flock -n $S/j/lock true")).code, Some(0));
    // The build directory may be closed to others.
    let status = "cp $U $S/open; chmod 755 $S/open";
    place.shell(&format!("{status}; {nobody} $S/open status --state $S/j")).refused(3, "run as root");
    // The holder is named, whatever the file says.
    let mut holder = place.command("flock");
    let mut holder = holder.arg(&lock).args(["sleep", "1000"]).stdout(Stdio::null()).spawn().unwrap();
    awaited("flock to hold the lock", TIMEOUT, || {
        let file = fs::File::open(&lock).unwrap();
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err().then_some(())
    });
    fs::write(&lock, "4711\n").unwrap();
    let said = place.shell("$U undo --state $S/j");
    let sleep = fs::read_to_string(format!("/proc/{0}/task/{0}/children", holder.id())).unwrap();
    let sleep = sleep.trim().parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(sleep).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    holder.wait().unwrap();
    said.refused(3, &format!("pid {} (flock) holds", holder.id()));
    place.shell("$U undo --state $S/j").fine();
}

#[test]
fn of_two_one_waits_and_gives_up_in_the_end() {
    udpath_lab::needs_root!();
    let place = Place::new("two");
    let lock = place.state.path().join("lock");
    let file = fs::File::create(&lock).unwrap();
    fs::write(&lock, "4711\n").unwrap();
    rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
    place.run(&["apply", "--set", RPS]).refused(3, &format!("pid {} (", std::process::id()));
    // Reading is not blocked.
    place.run(&["status"]).fine();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| place.run(&["apply", "--set", RPS]));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished());
        drop(file);
        waiting.join().unwrap().fine();
    });
    place.run(&["undo"]).fine();
}

/// A named network namespace; deleted on drop.
struct Named(String);

impl Named {
    fn new(name: &str) -> Self {
        let this = Self(format!("udpath-test-{}-{name}", std::process::id()));
        assert!(Command::new("ip").args(["netns", "add", &this.0]).status().unwrap().success());
        this
    }

    fn inode(&self) -> u64 {
        fs::metadata(Path::new("/run/netns").join(&self.0)).unwrap().ino()
    }

    fn ttl(&self, set: &str) -> String {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, "sh", "-e", "-c"]);
        command.arg(format!("{set} cat /proc/sys/net/ipv4/ip_default_ttl"));
        Said::from(command.output().unwrap()).fine().out.trim().to_owned()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// A namespace with this inode. The kernel assigns the lowest free number, which is free some time after its namespace
/// was removed; those below it are held.
fn of_inode(inode: u64) -> Option<Named> {
    let mut held = Vec::new();
    (0..40).find_map(|round| {
        let next = Named::new(&round.to_string());
        if next.inode() == inode {
            return Some(next);
        }
        held.push(next);
        // Five seconds in total.
        std::thread::sleep(Duration::from_millis(6 * round));
        None
    })
}

/// The kernel reuses the inode of a deleted namespace for a new one.
#[test]
fn another_namespace_of_the_same_inode_is_left_alone() {
    udpath_lab::needs_root!();
    let run = |state: &tempfile::TempDir, arguments: &[&str], name: &str| {
        let mut command = Command::new(program());
        command.args(arguments).args(["--state", state.path().to_str().unwrap(), "--netns", name]);
        Said::from(command.stdin(Stdio::null()).output().unwrap())
    };
    // Another test's lab may take the number, and keep it for a minute: then another number is tried.
    let found = (0..8).find_map(|_| {
        let state = tempfile::tempdir().unwrap();
        let first = Named::new("first");
        run(&state, &["apply", "--set", "sysctl:net.ipv4.ip_default_ttl=70"], &first.0).fine();
        let inode = first.inode();
        drop(first);
        Some((state, of_inode(inode)?))
    });
    let (state, second) = found.expect("an inode is used again");
    let run = |arguments: &[&str], name: &str| run(&state, arguments, name);
    let name = second.0.as_str();
    assert_eq!(second.ttl("echo 70 > /proc/sys/net/ipv4/ip_default_ttl;"), "70");
    run(&["status"], name).refused(1, "udpath undo --forget 1");
    run(&["undo", "1"], name).refused(3, "`udpath undo --forget 1` closes the entry");
    run(&["undo"], name).refused(3, "nothing to undo");
    assert_eq!(second.ttl(""), "70", "the other namespace was changed");
    let closed = run(&["undo", "--forget", "1"], name);
    assert!(
        closed.fine().err.contains("not restored: sysctl:net.ipv4.ip_default_ttl (was 64)"),
        "{}",
        closed.err
    );
    run(&["status"], name).fine();
}
