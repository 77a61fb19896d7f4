//! What the server that reads a socket can be told so that it reads more, loses less of a burst, or shares work evenly,
//! as commands: first its own knobs, then instances of it, then a policy for its sockets, then another way for its
//! datagrams.
//!
//! ```text
//!  known (services/*.toml)   udpath apply --set service:53:server-count=8 ...     the configuration, and a restart: by systemd, or, of one
//!                                                                                 that was started by hand, as it was started
//!                            udpath apply --set service:123:instances=8 ...       of one that reads with one thread
//!  udpath serve              its own command with another --io
//!  any other                 udpath multiply UNIT -n 8, or udpath multiply -n 8 -- COMMAND
//!  in a unit or cgroup       udpath policy set UNIT:53 receive-buffer=8M, and a restart
//! ```

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use udpath_advise::diagnosis::{Diagnosis, Lever, Reads, Stage, Want};
use udpath_host::namespace::Place;
use udpath_host::process::{self, Thread};
use udpath_host::shell::quoted;
use udpath_host::source::Folder;
use udpath_host::{Snapshot, UnitName, processes};
use udpath_tune::policy;
use udpath_tune::services::{self, Proposal, Service, ServiceError};
use udpath_tune::units::processes_of;

use crate::args::place::netns;

/// Most bytes of a command line that becomes part of a command here. Nobody reads a longer one.
const MAX_COMMAND: usize = 2000;
/// Most bytes of a process's status that are read; it has about 1,500, and the users are in its first lines.
const MAX_STATUS: usize = 1 << 14;

/// Programs that start others once, at an operator's word.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "fish", "ksh", "tmux: server", "screen"];
/// First processes of a whole machine.
const INITS: [&str; 2] = ["systemd", "init"];

/// Whether a program's own command line is part of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arguments {
    /// It is: for whoever could read it anyway.
    Shown,
    /// COMMAND stands for it: a result is kept and passed on, and arguments may be secret.
    Hidden,
}

/// Puts what the servers can be told before what the findings about their readers and buffers advise.
pub(super) fn offer(now: &Snapshot, diagnosis: &mut Diagnosis, place: &Place, arguments: Arguments) {
    for (socket, want) in diagnosis.wants() {
        let here = Here { port: 0, prefix: prefix(place), arguments };
        let levers = of(now, (socket, want), diagnosis, here);
        diagnosis.offer(socket, want, &levers);
    }
    if let Some(netns) = netns(place) {
        diagnosis.place(&netns);
    }
}

/// The levers of the server that reads the socket with this inode; none if it cannot be seen.
fn of(now: &Snapshot, (socket, want): (u32, Want), diagnosis: &Diagnosis, here: Here) -> Vec<Lever> {
    let Some(socket) = now.sockets.list.iter().find(|known| known.inode == socket) else { return Vec::new() };
    let port = socket.local.port();
    let Ok(servers) = process::serving(&Folder::live(), port) else { return Vec::new() };
    let owns = |pid: u32| socket.owners.iter().any(|owner| owner.pid == pid);
    let Some(server) = servers.into_iter().find(|server| owns(server.pid)) else { return Vec::new() };
    let here = Here { port, ..here };
    match (want, services::recognise(server.pid)) {
        (Want::Readers, Ok(service)) => here.of_known(&service, interface(diagnosis)),
        (Want::Readers, Err(ServiceError::Unknown { .. })) => here.of_program(server.pid),
        (Want::Readers, Err(_)) => Vec::new(),
        (Want::Buffer(bytes), service) => here.buffer(server.pid, service.ok().as_ref(), bytes),
        (Want::Even, _) => {
            let group = now.sockets.list.iter().filter(|other| other.local == socket.local).count();
            here.even(server.pid, group).into_iter().collect()
        }
    }
}

/// What a change of a server's configuration is to be allowed, all of it: a command that lacks something is refused
/// when it is pasted.
const fn consents(exposes: bool) -> &'static str {
    if exposes { "--allow config --allow restart --allow security" } else { "--allow config --allow restart" }
}

/// What a command begins with to run in the namespace that was looked at. Not `ip netns exec`: that hides the control
/// groups below /sys, which instances need.
fn prefix(place: &Place) -> String {
    match place {
        Place::Here => String::new(),
        Place::Named(name) => format!("nsenter --net={} ", quoted(&format!("/run/netns/{name}"))),
        Place::Process(pid) => format!("nsenter -t {pid} -n "),
    }
}

/// The interface that most datagrams come from; not the loopback interface.
fn interface(diagnosis: &Diagnosis) -> Option<&str> {
    let wire = diagnosis.links.iter().find(|link| link.stage == Stage::Wire)?;
    Some(&*wire.place).filter(|name| !name.is_empty() && *name != "lo")
}

/// Where commands run.
struct Here {
    port: u16,
    prefix: String,
    arguments: Arguments,
}

impl Here {
    fn of_known(&self, service: &Service, interface: Option<&str>) -> Vec<Lever> {
        let cpus = service.cpus.len().max(1);
        let mut levers = Vec::new();
        // What would be refused is no fix.
        let changeable = service.is_changeable();
        let settled = service.more_readers();
        if changeable && !settled.is_empty() {
            levers.push(self.configure(service, &settled, Reads::With(cpus)));
        }
        if cpus > 1 && service.multiplies().is_ok() {
            levers.extend(self.instances(service, cpus));
        }
        let all = service.proposals(cpus, interface);
        let past: Vec<Proposal> = all.into_iter().filter(|one| one.bypasses_packet_filter).collect();
        if changeable && !past.is_empty() && interface.is_some() {
            levers.push(self.configure(service, &past, Reads::PastSockets));
        }
        levers
    }

    /// Knobs, and the restart that they need.
    fn configure(&self, service: &Service, proposals: &[Proposal], reads: Reads) -> Lever {
        let ids: Vec<String> = proposals.iter().map(Proposal::id).collect();
        let sets: String = ids.iter().map(|id| format!(" --set service:{}:{id}", self.port)).collect();
        let mut what = format!(
            "set {} in the configuration of {} and restart it",
            ids.join(" and "),
            service.profile.name
        );
        if proposals.iter().any(|one| one.bypasses_packet_filter) {
            what += "; the packet filter sees none of its datagrams then";
        }
        let exposed: Vec<String> = proposals.iter().filter_map(Proposal::exposes).collect();
        for exposed in &exposed {
            what += &format!("; --allow security consents to this: {exposed}");
        }
        let (allow, restart) = (consents(!exposed.is_empty()), self.restart(service));
        let command = format!("{}udpath apply{sets} {allow}{restart}", self.prefix);
        Lever { what, command, reads }
    }

    /// The option for what restarts a server that systemd does not: starting it again, if nobody watches it; else only
    /// the operator knows.
    fn restart(&self, service: &Service) -> String {
        if service.unit.is_some() && has_systemd() {
            return String::new();
        }
        let again = |words: Vec<String>| services::started_again(&folder(service.pid, &words), &line(&words));
        let known = self.arguments == Arguments::Shown && is_watched_by_nobody(service.pid);
        let command = known.then(|| words(service.pid).map(again)).flatten();
        format!(" --restart {}", command.map_or_else(|| "COMMAND".to_owned(), |command| quoted(&command)))
    }

    /// A larger receive buffer that outlasts the server's process.
    fn buffer(&self, pid: u32, service: Option<&Service>, bytes: u64) -> Vec<Lever> {
        let mut levers = Vec::new();
        if let Some(service) = service {
            let larger = service.larger_buffers();
            if !larger.is_empty() && service.is_changeable() {
                levers.push(self.configure(service, &larger, Reads::AsNow));
            }
        }
        let what =
            format!("have the kernel give its sockets {bytes} bytes of receive buffer whenever it starts");
        levers.extend(self.policy(pid, &format!("receive-buffer={bytes}"), &what, Reads::AsNow));
        levers
    }

    /// Datagrams in turn to the sockets of a group, whatever flow they are of. Only a unit's start can select so.
    fn even(&self, pid: u32, group: usize) -> Option<Lever> {
        let what = "give each reader every n-th datagram whenever it starts, if it keeps nothing about a client between two requests";
        owner(pid).filter(Owner::is_unit)?;
        self.policy(pid, "spread=datagram", what, Reads::With(group))
    }

    /// A policy for what the unit or cgroup of a process binds from now on. Policies are by cgroup, wherever its
    /// network is.
    fn policy(&self, pid: u32, option: &str, what: &str, reads: Reads) -> Option<Lever> {
        let port = self.port;
        let (command, then) = match owner(pid)? {
            Owner::Unit(unit) => {
                let target = quoted(&format!("{unit}:{port}"));
                let set = format!("udpath policy set {target} {option} --persist");
                (format!("{set} && systemctl restart {}", quoted(&unit)), "restart it")
            }
            Owner::Cgroup(path) => {
                let target = quoted(&format!("{path}:{port}"));
                (format!("udpath policy set {target} {option}"), "then restart the server")
            }
        };
        Some(Lever { what: format!("{what}; {then}"), command, reads })
    }

    /// A known server that reads with one thread, several times.
    fn instances(&self, service: &Service, cpus: usize) -> Option<Lever> {
        if service.unit.is_none() || !has_systemd() {
            return self.multiplied(service.pid, cpus);
        }
        let what = format!("run {cpus} instances of {}, each with a socket of its own", service.profile.name);
        let set = format!("service:{}:instances={cpus}", self.port);
        let command = format!("{}udpath apply --set {set} --allow restart", self.prefix);
        Some(Lever { what, command, reads: Reads::With(cpus) })
    }

    /// A program that is not known: by how it was started.
    fn of_program(&self, pid: u32) -> Vec<Lever> {
        let cpus = cpus(pid);
        let serves = |words: &Vec<String>| {
            words[0].rsplit('/').next() == Some("udpath") && words.get(1).is_some_and(|verb| verb == "serve")
        };
        if let Some(words) = line_of(pid).filter(serves) {
            // One that gave up its privileges is another user's, who may have changed the words: they are not repeated.
            let arguments = match is_callers(pid) {
                true => Some(self.arguments),
                false => is_udpath(pid).then_some(Arguments::Hidden),
            };
            return arguments.map_or_else(Vec::new, |arguments| self.of_serve(pid, &words, cpus, arguments));
        }
        if cpus < 2 { Vec::new() } else { self.multiplied(pid, cpus).into_iter().collect() }
    }

    /// `udpath serve` with another Io.
    fn of_serve(&self, pid: u32, words: &[String], cpus: usize, arguments: Arguments) -> Vec<Lever> {
        let at = words.iter().position(|word| word == "--io").filter(|at| at + 1 < words.len());
        let io = at.map(|at| &*words[at + 1]);
        let with = |other: &str, what: &str, reads: Reads| {
            let mut words = words.to_vec();
            match at {
                Some(at) => other.clone_into(&mut words[at + 1]),
                None => words.extend(["--io".to_owned(), other.to_owned()]),
            }
            let command = match arguments {
                Arguments::Shown => format!("{}{}", self.prefix, line(&words)),
                Arguments::Hidden => format!("{}COMMAND --io {other}", self.prefix),
            };
            Lever { what: format!("end process {pid} and start it with {what}"), command, reads }
        };
        let own =
            (io == Some("shared")).then(|| with("reuseport", "a socket for each worker", Reads::With(cpus)));
        let xdp =
            (io != Some("xdp")).then(|| with("xdp", "AF_XDP, past the kernel's sockets", Reads::PastSockets));
        own.into_iter().chain(xdp).collect()
    }

    /// Instances under `udpath multiply`.
    fn multiplied(&self, pid: u32, cpus: usize) -> Option<Lever> {
        let each = "each with a socket of its own";
        if let Some(unit) = processes::unit(&Folder::live(), pid).filter(|_: &UnitName| has_systemd()) {
            let what = format!("run {cpus} instances of {unit}, {each}");
            let command = format!("{}udpath multiply {} -n {cpus}", self.prefix, quoted(&unit));
            return Some(Lever { what, command, reads: Reads::With(cpus) });
        }
        let words = words(pid)?;
        let what = format!("end process {pid} and run {cpus} instances of it, {each}");
        let (folder, line) = match self.arguments {
            Arguments::Shown => (folder(pid, &words), line(&words)),
            Arguments::Hidden => (String::new(), "COMMAND".to_owned()),
        };
        let command =
            format!("{folder}{}udpath multiply -n {cpus} --port {} -- {line}", self.prefix, self.port);
        Some(Lever { what, command, reads: Reads::With(cpus) })
    }
}

/// What a policy for a process's sockets is set for.
enum Owner {
    Unit(UnitName),
    Cgroup(String),
}

impl Owner {
    const fn is_unit(&self) -> bool {
        matches!(self, Self::Unit(_))
    }
}

/// The unit of a process, if systemd says so too: any user with control groups of their own can name one like it. Else
/// the cgroup that its next start has again; `None` if there is none.
fn owner(pid: u32) -> Option<Owner> {
    let source = Folder::live();
    let unit = processes::unit(&source, pid).filter(|_| has_systemd());
    match unit {
        Some(unit) => {
            processes_of(&source, &unit).is_ok_and(|pids| pids.contains(&pid)).then_some(Owner::Unit(unit))
        }
        None => policy::cgroup_of_process(&source, pid).ok().map(Owner::Cgroup),
    }
}

fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// The number of CPUs that a process may use.
fn cpus(pid: u32) -> usize {
    Thread::look(pid, pid).map_or(1, |thread| thread.affinity.len())
}

/// The command line of a process; `None` if it cannot be repeated here: too long, not text, a title in its place, or
/// not to be: of another user, whose program would get the caller's rights, or with other files than the caller's.
fn words(pid: u32) -> Option<Vec<String>> {
    line_of(pid).filter(|_| is_callers(pid))
}

/// The command line of a process, whoever's it is.
fn line_of(pid: u32) -> Option<Vec<String>> {
    let bytes = udpath_files::kernel::start(format!("/proc/{pid}/cmdline"), MAX_COMMAND + 1).ok()?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_COMMAND)?;
    let words: Vec<String> = text.strip_suffix('\0')?.split('\0').map(str::to_owned).collect();
    let shown = words.iter().all(|word| !word.chars().any(char::is_control));
    // A title is one word with spaces.
    (shown && !words[0].contains(' ')).then_some(words)
}

/// Whether a process has the caller's user, in all four of its identities, and its root, as one of a container has not.
/// Not by the owner of its folder in /proc: that is root's for a program that nobody may read.
fn is_callers(pid: u32) -> bool {
    let own = rustix::process::geteuid().as_raw().to_string();
    let users = status(pid, "Uid:").unwrap_or_default();
    let mut users = users.split_whitespace();
    let same_user = users.clone().count() == 4 && users.all(|user| user == own);
    let root =
        |whose: &str| fs::metadata(format!("/proc/{whose}/root/")).map(|root| (root.dev(), root.ino())).ok();
    let its = root(&pid.to_string());
    same_user && its.is_some() && its == root("self")
}

/// Whether a process runs this very program.
fn is_udpath(pid: u32) -> bool {
    let program =
        |whose: &str| fs::metadata(format!("/proc/{whose}/exe")).map(|file| (file.dev(), file.ino())).ok();
    let own = program("self");
    own.is_some() && program(&pid.to_string()) == own
}

/// Whether nothing starts a process again that ends: it belongs to a shell, or whatever started it has ended. A
/// supervisor would start it beside the one that a restart starts.
fn is_watched_by_nobody(pid: u32) -> bool {
    let Some(parent) = status(pid, "PPid:").and_then(|parent| parent.parse().ok()) else { return false };
    starts_once(parent, &status(parent, "Name:").unwrap_or_default())
}

/// Whether the process with this PID and name starts others once, and not again.
fn starts_once(pid: u32, name: &str) -> bool {
    // An init takes over what is left. In a container, the first process may be one that ends with the server.
    SHELLS.contains(&name) || (pid == 1 && INITS.contains(&name))
}

/// A field of `/proc/PID/status`, by its name with the colon. The name of a process may be any bytes.
fn status(pid: u32, field: &str) -> Option<String> {
    let status = udpath_files::kernel::start(format!("/proc/{pid}/status"), MAX_STATUS).ok()?;
    let status = String::from_utf8_lossy(&status).into_owned();
    Some(status.lines().find_map(|line| line.strip_prefix(field))?.trim().to_owned())
}

/// `cd FOLDER && `, if a word of the command line is a file there.
fn folder(pid: u32, words: &[String]) -> String {
    let Ok(folder) = fs::read_link(format!("/proc/{pid}/cwd")) else { return String::new() };
    let relative =
        |word: &String| !word.is_empty() && !word.starts_with(['/', '-']) && folder.join(word).exists();
    match folder != Path::new("/") && words.iter().any(relative) {
        true => format!("cd {} && ", quoted(&folder.display().to_string())),
        false => String::new(),
    }
}

fn line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
