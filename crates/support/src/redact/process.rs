//! Names of programs, their control groups and their threads: by the name of the executable. Anything that a program,
//! or the user who started it, can set itself (arguments including argv[0], process and thread names, folders, unit
//! instances) may contain private data.

use std::collections::BTreeMap;

use super::{Kind, Redactor};
use udpath_host::{actors, kernel};

/// Folders whose names reveal nothing, including their subfolders.
const FOLDERS: [&str; 8] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/libexec",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/bin",
    "/sbin",
];
/// Maximum characters of a process name (`TASK_COMM_LEN` without the NUL).
const NAME: usize = 15;
/// Fields of `/proc/PID/task/TID/stat` after the name, up to the CPU (field 39).
const FIELDS: usize = 39 - 3;

/// Components of control group paths that are the same everywhere.
const GROUPS: [&str; 16] = [
    "cpu",
    "cpuacct",
    "cpu,cpuacct",
    "cpuset",
    "systemd",
    "unified",
    "docker",
    "lxc",
    "libpod",
    "kubepods",
    "besteffort",
    "burstable",
    "guaranteed",
    "containerd",
    "libpod_parent",
    "payload",
];

/// Group name prefixes followed by a container's name.
const CONTAINERS: [&str; 4] = ["lxc.payload.", "lxc.monitor.", "machine-", "systemd-nspawn@"];

impl Redactor {
    /// Learns which program each process runs.
    pub(super) fn programs(&mut self, links: &BTreeMap<String, String>) {
        for (path, target) in links {
            if let Some(pid) = path.strip_prefix("/proc/").and_then(|path| path.strip_suffix("/exe")) {
                let name = target.strip_suffix(" (deleted)").unwrap_or(target);
                let name = name.rsplit('/').next().unwrap_or_default().to_owned();
                self.programs.insert(pid.to_owned(), name);
            }
        }
    }

    /// A program's path: its name, and its folder if it is one used by distributions.
    pub(super) fn program(&mut self, path: &str) -> String {
        let text = self.text(path);
        let (folder, name) = text.rsplit_once('/').unwrap_or(("", &text));
        let below = |known: &str| {
            folder.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        // Homes have already been replaced.
        let home = folder.strip_prefix("/home/").is_some_and(|owner| !owner.contains('/'));
        if home || FOLDERS.iter().any(|known| below(known)) || !text.starts_with('/') {
            return text;
        }
        let other = format!("/redacted/{name}");
        self.note(Kind::Path, path, &other);
        other
    }

    /// A process or thread name that follows from its program's name, or a known daemon's.
    fn explained(&mut self, pid: &str, name: &str) -> Option<String> {
        let program = self.programs.get(pid).map(String::as_str).unwrap_or_default();
        let of_program = name.len() >= 2 && program.starts_with(name);
        let known = actors::is_known(name) || kernel::is_telling(name);
        (of_program || known).then(|| self.text(name))
    }

    /// `/proc/PID/comm`.
    pub(super) fn process_name(&mut self, pid: &str, name: &str) -> String {
        if let Some(name) = self.explained(pid, name) {
            return name;
        }
        let program = self.programs.get(pid).cloned();
        let other = program.map_or_else(|| "process".to_owned(), |program| self.text(&program));
        let other: String = other.chars().take(NAME).collect();
        self.note(Kind::ProcessName, name, &other);
        other
    }

    /// `/proc/PID/task/TID/stat`: number, name, and of the other fields only the state and the CPU.
    pub(super) fn thread(&mut self, pid: &str, text: &str) -> String {
        let parts = text.split_once('(').and_then(|(tid, rest)| Some((tid, rest.rsplit_once(')')?)));
        let Some((tid, (name, rest))) = parts else { return String::new() };
        let name = match self.explained(pid, name) {
            Some(name) => name,
            None => self.numbered(Kind::ProcessName, name, "thread"),
        };
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let cpu = fields.get(FIELDS).filter(|cpu| digits(cpu));
        let cpu = cpu.map_or(String::new(), |cpu| format!("{} {cpu}", " 0".repeat(FIELDS - 1)));
        let state =
            fields.first().filter(|state| state.len() == 1 && state.bytes().all(|b| b.is_ascii_alphabetic()));
        format!("{} ({name}) {}{cpu}\n", tid.trim(), state.unwrap_or(&"S"))
    }

    /// `/proc/PID/cmdline`: the program's name. For an interpreter, the script is kept if it is a known daemon's, since
    /// nothing else identifies it.
    pub(super) fn command(&mut self, pid: &str, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let program = self.programs.get(pid).cloned().unwrap_or_else(|| "process".to_owned());
        let mut kept = self.text(&program);
        let script = text.split('\0').skip(1).find(|argument| !argument.starts_with('-'));
        if let Some(script) = script.filter(|script| actors::is_script(script)) {
            kept = format!("{kept}\0{}", self.program(script));
        }
        kept.push('\0');
        if kept != text {
            self.note(Kind::CommandLine, text, &kept);
        }
        kept
    }

    /// `/proc/PID/cgroup`: the number, controllers and path of each group.
    pub(super) fn groups(&mut self, text: &str) -> String {
        let mut line = |line: &str| {
            let mut parts = line.splitn(3, ':');
            let (Some(number), Some(names), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
                return String::new();
            };
            let name = match names.strip_prefix("name=") {
                Some("systemd") | None
                    if names.chars().all(|c| c.is_ascii_lowercase() || matches!(c, ',' | '_' | '=')) =>
                {
                    names
                }
                _ => "name=other",
            };
            format!("{number}:{name}:{}\n", self.group(path))
        };
        text.lines().map(&mut line).collect()
    }

    /// A control group's path, component by component: units are kept; their instances, containers and everything else
    /// are numbered.
    pub(super) fn group(&mut self, path: &str) -> String {
        path.split('/').map(|part| self.group_part(part)).collect::<Vec<_>>().join("/")
    }

    fn group_part(&mut self, part: &str) -> String {
        let text = self.text(part);
        // Identifiers have already been replaced.
        if part.is_empty() || GROUPS.contains(&part) || text != part && is_identifier(part) {
            return text;
        }
        if let Some((start, name)) =
            CONTAINERS.iter().find_map(|start| Some((start, part.strip_prefix(start)?)))
        {
            let (name, end) = name.split_at(name.rfind('.').unwrap_or(name.len()));
            return format!("{start}{}{end}", self.numbered(Kind::Unit, name, "container"));
        }
        let unit = [".service", ".slice", ".scope", ".socket", ".mount"]
            .into_iter()
            .find_map(|end| Some((part.strip_suffix(end)?, end)));
        match unit {
            Some((name, end)) => match name.split_once('@') {
                Some((template, instance)) if !instance.bytes().all(|byte| byte.is_ascii_digit()) => {
                    format!(
                        "{}@{}{end}",
                        self.text(template),
                        self.numbered(Kind::Unit, instance, "instance")
                    )
                }
                // A unit's name with a dot contains a host's or a user's name.
                None if name.contains('.') => format!("{}{end}", self.numbered(Kind::Unit, name, "unit")),
                _ => text,
            },
            None => self.numbered(Kind::Unit, part, "group"),
        }
    }

    /// A mount of control groups: `/proc/self/mountinfo`.
    pub(super) fn mounts(&mut self, text: &str) -> String {
        let mut line = |line: &str| {
            let (place, kind) = line.split_once(" - ")?;
            let place: Vec<&str> = place.split(' ').collect();
            let [id, parent, device, root, point, ..] = place[..] else { return None };
            let mut kind = kind.split(' ');
            let (name, _, options) = (kind.next()?, kind.next()?, kind.next()?);
            let options: Vec<&str> = options
                .split(',')
                .filter(|option| {
                    *option == "name=systemd"
                        || option.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
                })
                .collect();
            let (root, point) = (self.group(root), self.cgroup_folder(point));
            Some(format!("{id} {parent} {device} {root} {point} rw - {name} {name} {}\n", options.join(",")))
        };
        text.lines().filter_map(&mut line).collect()
    }

    /// A path below a control group mount. The mount point is `/sys/fs/cgroup` nearly everywhere.
    pub(super) fn cgroup_folder(&mut self, path: &str) -> String {
        match path.strip_prefix("/sys/fs/cgroup") {
            // Every path ends in a group file's name, which starts with the controller's.
            Some(below) => {
                let is_file = |part: &str| ["cpu.", "cpuset."].iter().any(|start| part.starts_with(start));
                let parts: Vec<&str> = below.split('/').collect();
                let last = parts.len() - 1;
                let other = parts.iter().enumerate().map(|(at, part)| match at == last && is_file(part) {
                    true => (*part).to_owned(),
                    false => self.group_part(part),
                });
                format!("/sys/fs/cgroup{}", other.collect::<Vec<_>>().join("/"))
            }
            None => self.text(path),
        }
    }

    /// The replacement for an arbitrary name: `WHAT-N`, the same for equal names.
    pub(super) fn numbered(&mut self, kind: Kind, name: &str, what: &'static str) -> String {
        let numbers = self.numbers.entry(what).or_default();
        let next = numbers.len() + 1;
        let number = *numbers.entry(name.to_owned()).or_insert(next);
        let other = format!("{what}-{number}");
        self.note(kind, name, &other);
        other
    }
}

/// Is this component a container or pod identifier, with only what runtimes put around it?
fn is_identifier(part: &str) -> bool {
    let name = part.strip_suffix(".scope").or_else(|| part.strip_suffix(".slice")).unwrap_or(part);
    let starts = ["docker-", "cri-containerd-", "crio-", "libpod-", "libpod-conmon-", "pod", "kubepods-", ""];
    starts.into_iter().filter_map(|start| name.strip_prefix(start)).any(|id| {
        id.len() >= 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-' || byte == b'_')
    })
}
