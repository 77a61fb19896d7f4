//! The folder that a server was started in: what the relative paths of its arguments, and in some servers of its files,
//! begin with.
//!
//! ```text
//!  cd /lab; nsd -c nsd.conf       /proc/PID/cwd is /etc/nsd by now (zonesdir), and there is an nsd.conf, too
//!  chronyd, turnserver, knotd     stay where they were started, so that it is /proc/PID/cwd
//!  started by bash                has left the folder in PWD, and the program in _
//!  started by systemd             WorkingDirectory= of its unit, or else /
//! ```
//! Where nothing says it, nothing is guessed: another file would be read, and changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::fstat;
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};
use udpath_files::{Beneath, kernel};
use udpath_host::UnitName;
use udpath_host::source::Folder;

use super::arguments::{self, Arguments};
use super::profile::Profile;
use super::view;
use crate::units::manager::properties;

/// The folder, as the server sees it; `None` if that is not known.
pub(super) fn folder(
    pid: u32,
    profile: &Profile,
    arguments: &Arguments,
    unit: Option<&UnitName>,
) -> Option<String> {
    let root = fs::read_link(format!("/proc/{pid}/root")).ok()?;
    let same_root = root == Path::new("/");
    // `named -t DIR` is in the root of its own before it reads anything (named_os_chroot).
    if !same_root && !profile.check_root.is_empty() {
        return Some("/".to_owned());
    }
    // One that changes its root goes there.
    let stays = profile.stays && !arguments.has(&profile.moves_with);
    if stays && (same_root || profile.chroot.is_none()) {
        return Some(view::current(pid));
    }
    let bytes = kernel::start(format!("/proc/{pid}/environ"), arguments::MAX).ok()?;
    let environment = Environment::read(&String::from_utf8_lossy(&bytes));
    by_shell(pid, &environment).or_else(|| by_systemd(pid, &environment, unit?))
}

/// What a file's time may be later than the start that it was written before: the kernel's start time has hundredths of
/// a second, and the time of a file is that of the last tick. Shorter: files of just before are named. Longer: a change
/// of just after is not.
const SAME_MOMENT: Duration = Duration::from_millis(50);

/// When a process was started.
pub(super) fn time(pid: u32) -> Option<SystemTime> {
    let stat = String::from_utf8_lossy(&kernel::start(format!("/proc/{pid}/stat"), 4096).ok()?).into_owned();
    // The 22nd field; the second is a name in parentheses.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let started = Duration::from_millis(ticks * 1000 / clock_ticks_per_second().max(1));
    let booted = clock_gettime(ClockId::Boottime);
    let running = Duration::new(u64::try_from(booted.tv_sec).ok()?, u32::try_from(booted.tv_nsec).ok()?);
    SystemTime::now().checked_sub(running.checked_sub(started)?)?.checked_add(SAME_MOMENT)
}

/// What of a process's environment says how it was started.
#[derive(Debug, Default, PartialEq, Eq)]
struct Environment {
    /// Where the shell was.
    pwd: Option<String>,
    /// What bash started.
    program: Option<String>,
    /// systemd started it, or something before it.
    is_invocation: bool,
}

impl Environment {
    fn read(text: &str) -> Self {
        let mut found = Self::default();
        for (name, value) in text.split('\0').filter_map(|line| line.split_once('=')) {
            match name {
                "PWD" => found.pwd = Some(value.to_owned()),
                "_" => found.program = Some(value.to_owned()),
                "INVOCATION_ID" => found.is_invocation = true,
                _ => {}
            }
        }
        found
    }
}

/// Where the shell was that started this very program. Another program between them may have changed the folder, and
/// left PWD as it was.
fn by_shell(pid: u32, environment: &Environment) -> Option<String> {
    let pwd = environment.pwd.as_deref().filter(|pwd| pwd.starts_with('/'))?;
    let program =
        view::absolute(pwd, environment.program.as_deref().filter(|program| program.contains('/'))?);
    let root = Beneath::root_of(pid).ok()?;
    let named = fstat(root.find(&program).ok()?).ok()?;
    let runs = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    let is_it = (named.st_dev, named.st_ino) == (runs.dev(), runs.ino());
    // A shell keeps the links of a path; `..` goes up from what they lead to.
    let physical = view::real(pid, pwd).filter(|_| is_it && root.folder(pwd).is_ok())?;
    let own = fs::read_link(format!("/proc/{pid}/root")).ok()?;
    let within = Path::new(&physical).strip_prefix(own).ok()?;
    Some(Path::new("/").join(within).display().to_string())
}

/// The folder in which systemd starts a unit's first process, if nothing was between them: any shell would have left
/// PWD.
fn by_systemd(pid: u32, environment: &Environment, unit: &UnitName) -> Option<String> {
    if !environment.is_invocation || environment.pwd.is_some() {
        return None;
    }
    let [main, folder] = properties(&Folder::live(), unit, ["MainPID", "WorkingDirectory"]).ok()?;
    let is_main = main.parse() == Ok(pid);
    match folder.trim_start_matches('!') {
        "" => Some("/".to_owned()),
        folder if folder.starts_with('/') => Some(folder.to_owned()),
        // The home folder of its user.
        _ => None,
    }
    .filter(|_| is_main)
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that has changed to `/` since its start, started by `line` of bash in `folder`; and its PID.
    fn moved(folder: &Path, line: &str) -> (Child, u32) {
        let program = "perl -e 'chdir \"/\"; $| = 1; print \"$$\\n\"; <STDIN>'";
        let mut shell = Command::new("bash");
        shell.args(["-c", &line.replace("PROGRAM", program)]).current_dir(folder);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        std::io::BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        (child, said.trim().parse().unwrap())
    }

    #[test]
    fn a_shells_folder_is_known_only_where_the_shell_started_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        fs::create_dir(folder.join("below")).unwrap();
        std::os::unix::fs::symlink(folder.join("below"), folder.join("link")).unwrap();
        let below = folder.join("below").display().to_string();
        let moves = Profile::named("nsd").unwrap();
        let stays = Profile::named("chrony").unwrap();
        for (line, expected) in [
            ("PROGRAM; true", Some(folder.display().to_string())),
            ("cd below; PROGRAM; true", Some(below.clone())),
            ("cd link; PROGRAM; true", Some(below)),
            // What is between them may have changed it.
            ("env -C below PROGRAM; true", None),
            ("env PROGRAM; true", None),
            ("PWD=/none PROGRAM; true", None),
            ("env -u PWD PROGRAM; true", None),
        ] {
            let (mut child, pid) = moved(&folder, line);
            let arguments = Arguments::read("nsd", "");
            assert_eq!(super::folder(pid, moves, &arguments, None), expected, "{line}");
            assert_eq!(super::folder(pid, stays, &arguments, None).as_deref(), Some("/"), "{line}");
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn what_an_environment_says() {
        let read = Environment::read("A=1\0PWD=/x\0_=/usr/sbin/nsd\0PWDX=3\0INVOCATION_ID=7\0nothing\0");
        let expected = Environment {
            pwd: Some("/x".to_owned()),
            program: Some("/usr/sbin/nsd".to_owned()),
            is_invocation: true,
        };
        assert_eq!(read, expected);
        assert_eq!(Environment::read("\u{fffd}nsd: server 1\0\0"), Environment::default());
    }

    #[test]
    fn a_server_that_goes_into_the_background_may_have_moved() {
        let knot = Profile::named("knot").unwrap();
        let known = |line: &str| {
            let arguments = Arguments::read(&line.replace(' ', "\0"), &knot.switches);
            knot.stays && !arguments.has(&knot.moves_with)
        };
        assert!(known("knotd -c k.conf") && known("knotd -vc d"));
        assert!(!known("knotd -dc k.conf") && !known("knotd --daemonize=/run") && !known("knotd --daem"));
    }
}
