//! Other programs that change settings: daemons among the running processes, and files applied at boot or when a device
//! appears.
//!
//! A daemon is identified by its program (`/proc/PID/exe`), else by its name; a script by the file passed to its
//! interpreter. Arguments alone prove nothing: `grep irqbalance` is not irqbalance.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::processes::{self, Seen};
use crate::text::{field, of_process};
use crate::{Missing, Source};

pub mod config;
mod files;
mod known;
mod network;

use files::Applied;
pub use files::{LinkFile, SysctlLine, UdevRule};
pub use known::Touch;
use known::{KNOWN, Known};
pub use network::NetworkFile;

/// Other programs that change settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Actors {
    /// Running daemons, and packages whose files take effect without one.
    pub list: Vec<Actor>,
    /// `.link` files that set more than a name: systemd-udevd applies the first that matches when a device appears.
    pub link_files: Vec<LinkFile>,
    /// Files of NetworkManager, systemd-networkd and cloud agents that set anything that affects packets.
    #[serde(default)]
    pub network_files: Vec<NetworkFile>,
    /// udev rules that act on network devices when they appear or change.
    pub udev_rules: Vec<UdevRule>,
    /// Settings that are applied at boot.
    pub sysctl_lines: Vec<SysctlLine>,
}

impl Actors {
    /// Those that may revert a setting of this kind.
    pub fn of(&self, touch: Touch) -> impl Iterator<Item = &Actor> {
        self.list.iter().filter(move |actor| actor.touches.contains(&touch))
    }
}

/// A program or package that changes settings.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Actor {
    /// Its name: `irqbalance`, `tuned`, ...
    pub name: String,
    /// Its process; `None` for a package that acts through files and short runs.
    pub pid: Option<u32>,
    /// How it was detected: its program, its name, its script, or a file.
    pub seen_by: String,
    /// Its configuration files that exist.
    pub files: Vec<String>,
    /// Kinds of settings it may change or revert.
    pub touches: Vec<Touch>,
    /// When it does so, as text.
    pub when: String,
}

/// Maximum length of a process name (`TASK_COMM_LEN` of linux/sched.h, without the terminating zero).
const NAME: usize = 15;
/// Bytes of an interpreter's command line that are searched for its script. Lower: a script after many options is
/// missed. Higher: more memory per process; a process chooses the length of its command line, up to 64 GiB.
const ARGUMENTS: usize = 4096;

#[cfg(test)]
pub(crate) use files::any as applied;
#[cfg(test)]
pub(crate) use network::any as network_files;

/// Finds the actors. `seen`: the running processes.
pub fn read(source: &dyn Source, seen: &[Seen], missing: &mut Vec<Missing>) -> Actors {
    let mut there = There { source, folders: BTreeMap::new() };
    let list = KNOWN.iter().filter_map(|known| actor(&mut there, known, seen)).collect();
    let Applied { link_files, udev_rules, sysctl_lines } = files::read(source, missing);
    Actors { list, link_files, network_files: network::read(source, missing), udev_rules, sysctl_lines }
}

/// Whether it is a script of a known daemon.
pub fn is_script(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.strip_suffix(".py").unwrap_or(name);
    KNOWN.iter().any(|known| known.programs.contains(&name))
}

/// Whether it is the process name of a known daemon.
pub fn is_known(name: &str) -> bool {
    KNOWN
        .iter()
        .flat_map(|known| known.programs)
        .any(|program| *program == name || program[..program.len().min(NAME)] == *name)
}

/// Whether the reader checks if this file exists.
pub fn is_asked_for(path: &str) -> bool {
    KNOWN.iter().any(|known| known.acts_by.contains(&path) || known.files.contains(&path))
}

/// The part of a configuration file that is read; other lines are kept as empty ones to preserve line numbers. [`None`]
/// for a file that sets nothing, or of an unknown kind.
pub fn used(path: &str, text: &str) -> Option<String> {
    network::used(path, text).unwrap_or_else(|| files::used(path, text))
}

/// Those of these names that are running, each with its first process, by one pass over `/proc`.
pub fn running(source: &dyn Source, names: &[&str]) -> BTreeMap<&'static str, u32> {
    let scan = processes::scan(source, &HashMap::new()).unwrap_or_default();
    let wanted = KNOWN.iter().filter(|known| names.contains(&known.name));
    let runs = |known: &Known| {
        let seen = scan.seen.iter().find(|seen| runs(source, known, seen).is_some())?;
        Some((known.name, seen.pid))
    };
    wanted.filter_map(runs).collect()
}

/// Which files exist, from directory listings. They are not opened, so captures never contain their contents.
struct There<'a> {
    source: &'a dyn Source,
    folders: BTreeMap<&'static str, Vec<String>>,
}

impl There<'_> {
    fn of(&mut self, paths: &'static [&'static str]) -> Vec<String> {
        let mut is_there = |path: &&&'static str| {
            let (folder, name) = path.rsplit_once('/').unwrap_or(("/", path));
            let names =
                self.folders.entry(folder).or_insert_with(|| self.source.names(folder).unwrap_or_default());
            names.iter().any(|there| there == name)
        };
        paths.iter().filter(&mut is_there).map(|path| (*path).to_owned()).collect()
    }
}

fn actor(there: &mut There<'_>, known: &Known, seen: &[Seen]) -> Option<Actor> {
    let running = seen.iter().find_map(|one| Some((one.pid, runs(there.source, known, one)?)));
    let (pid, seen_by) = match running {
        Some((pid, seen_by)) => (Some(pid), seen_by),
        None => (None, there.of(known.acts_by).into_iter().next()?),
    };
    let files = there.of(known.files);
    Some(Actor {
        name: known.name.into(),
        pid,
        seen_by,
        files,
        touches: known.touches.to_vec(),
        when: known.when.into(),
    })
}

/// Whether the process is this daemon and belongs to the system; describes how it was identified. Any user may name a
/// program irqbalance: it counts if root runs it, or the system's service manager runs it as the daemon's unit. If
/// neither is known, as in a capture without this data, the program decides.
fn runs(source: &dyn Source, known: &Known, seen: &Seen) -> Option<String> {
    let found = is_called(source, known, seen)?;
    let status = of_process(source, &format!("/proc/{}/status", seen.pid)).unwrap_or_default();
    // Real, effective, saved, file system: the effective UID determines its permissions.
    let user =
        field(&status, "Uid").and_then(|line| line.split_ascii_whitespace().nth(1)?.parse::<u32>().ok());
    let root = user.is_none_or(|user| user == 0);
    (root || is_unit(source, known, seen.pid)).then_some(found)
}

/// Whether the system's service manager runs it as the daemon's unit.
fn is_unit(source: &dyn Source, known: &Known, pid: u32) -> bool {
    let unit = processes::unit(source, pid);
    unit.is_some_and(|unit| unit.stem() == known.name || known.programs.contains(&unit.stem()))
}

/// Whether the process has this daemon's name; describes how it was identified.
fn is_called(source: &dyn Source, known: &Known, seen: &Seen) -> Option<String> {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let is_it = |program: &str| known.programs.contains(&program);
    let Some(path) = &seen.executable else {
        // Another user's process: only its name is readable.
        let named = known.programs.iter().any(|program| seen.name == program[..program.len().min(NAME)]);
        return named.then(|| format!("name {}", seen.name));
    };
    // The program was replaced by an update while running.
    let program = base(path.strip_suffix(" (deleted)").unwrap_or(path));
    if is_it(&program) {
        return Some(format!("program {path}"));
    }
    if !["python", "perl", "bash", "sh", "dash", "ruby"].iter().any(|name| program.starts_with(name)) {
        return None;
    }
    let arguments = source.start(&format!("/proc/{}/cmdline", seen.pid), ARGUMENTS).ok()?;
    let script = arguments.split('\0').skip(1).find(|argument| !argument.starts_with('-'))?;
    let name = base(script);
    is_it(name.strip_suffix(".py").unwrap_or(&name)).then(|| format!("script {script}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::source::Folder;

    /// A machine with these processes: PID, name, program, arguments.
    fn machine(processes: &[(u32, &str, Option<&str>, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (pid, name, program, arguments) in processes {
            let process = folder.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("comm"), format!("{name}\n")).unwrap();
            fs::write(process.join("cmdline"), arguments).unwrap();
            if let Some(program) = program {
                symlink(program, process.join("exe")).unwrap();
            }
        }
        folder
    }

    fn actors(folder: &tempfile::TempDir) -> Vec<(String, Option<u32>)> {
        let source = Folder::captured(folder.path());
        let scan = processes::scan(&source, &Default::default()).unwrap();
        let found = read(&source, &scan.seen, &mut Vec::new());
        found.list.into_iter().map(|actor| (actor.name, actor.pid)).collect()
    }

    #[test]
    fn daemons_by_program_and_by_script() {
        let folder = machine(&[
            (10, "irqbalance", Some("/usr/sbin/irqbalance"), "/usr/sbin/irqbalance\0--foreground\0"),
            (11, "tuned", Some("/usr/bin/python3.11"), "/usr/bin/python3\0-Es\0/usr/sbin/tuned\0-l\0-P\0"),
            (12, "python3", Some("/usr/bin/python3.11"), "python3\0-u\0/usr/sbin/waagent\0-daemon\0"),
            (13, "google_guest_ag", Some("/usr/bin/google_guest_agent (deleted)"), "x\0"),
        ]);
        let wanted = [("irqbalance", 10), ("tuned", 11), ("google-guest-agent", 13), ("walinuxagent", 12)];
        assert_eq!(actors(&folder), wanted.map(|(name, pid)| (name.into(), Some(pid))));
    }

    #[test]
    fn a_users_program_of_that_name_does_not_count() {
        let program = "/home/me/bin/irqbalance";
        let system = "/usr/sbin/irqbalance";
        let of = |program: Option<&str>, uid: u32, group: &str| {
            let folder = machine(&[(10, "irqbalance", program, "irqbalance\0")]);
            let file =
                |name: &str, text: String| fs::write(folder.path().join("proc/10").join(name), text).unwrap();
            file("status", format!("Name:\tirqbalance\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"));
            file("cgroup", format!("0::{group}\n"));
            fs::create_dir_all(folder.path().join("udpath")).unwrap();
            let hidden = r#"{"absent": {"/proc/10/exe": {"not-permitted": {"needs": "root"}}}}"#;
            fs::write(folder.path().join("udpath/files.json"), hidden).unwrap();
            let source = Folder::captured(folder.path());
            assert_eq!(!running(&source, &["irqbalance"]).is_empty(), !actors(&folder).is_empty());
            !running(&source, &["irqbalance"]).is_empty()
        };
        let user = "/user.slice/user-1000.slice/user@1000.service/app.slice/irqbalance.service";
        assert!(of(Some(system), 0, "/system.slice/irqbalance.service"));
        assert!(of(Some(system), 0, "/user.slice"), "root's, by hand");
        assert!(
            of(Some("/opt/irqbalance"), 998, "/system.slice/irqbalance.service"),
            "a unit with a user of its own"
        );
        assert!(!of(Some(program), 1000, "/user.slice"));
        assert!(!of(Some(system), 1000, user), "a unit of a user's own manager");
        assert!(!of(Some(system), 1000, "/system.slice/other.service"));
        assert!(!of(None, 1000, "/user.slice"), "known by its name alone");
        assert!(of(None, 0, "/system.slice/irqbalance.service"), "root's, seen by somebody else");
    }

    #[test]
    fn arguments_alone_prove_nothing() {
        let folder = machine(&[
            (20, "grep", Some("/usr/bin/grep"), "grep\0irqbalance\0"),
            (21, "vim", Some("/usr/bin/vim.basic"), "vim\0/usr/sbin/tuned\0"),
            (22, "irqbalance", Some("/home/me/bin/notirqbalance"), "irqbalance\0"),
            (23, "kworker", None, ""),
        ]);
        assert_eq!(actors(&folder), []);
    }

    #[test]
    fn a_package_without_a_daemon_is_seen_by_its_files() {
        let folder = machine(&[(1, "systemd", Some("/usr/lib/systemd/systemd"), "/sbin/init\0")]);
        let rule = folder.path().join("usr/lib/udev/rules.d");
        fs::create_dir_all(&rule).unwrap();
        fs::write(rule.join("99-vpc-policy-routes.rules"), "# none\n").unwrap();
        assert_eq!(actors(&folder), [("amazon-ec2-net-utils".into(), None)]);
    }

    #[test]
    fn the_table_is_whole() {
        for known in &KNOWN {
            assert!(!known.touches.is_empty() && !known.when.is_empty(), "{}", known.name);
            assert!(!known.programs.is_empty() || !known.acts_by.is_empty(), "{}", known.name);
        }
        let irqs = KNOWN.iter().filter(|known| known.touches.contains(&Touch::IrqAffinity));
        assert!(irqs.count() >= 3);
    }
}
