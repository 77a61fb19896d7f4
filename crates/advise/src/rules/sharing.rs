//! Programs that share a port although they are not one server: another one, or an instance that was left running.
//!
//! ```text
//! sockets of one address ─▸ their processes ─▸ servers: joined by a socket in common, parent and child, a unit, or the same program of
//!                                               one parent
//!                                                   │
//!          several ─┬─ of different programs ───────┼─▸ named
//!                   ├─ one runs a file that was replaced, another does not ─▸ named
//!                   ├─ one belongs to a unit, another to none  ─▸ named
//!                   ├─ one does not read, another does ─▸ named
//!                   └─ else: instances of one program, as somebody wants them ─▸ silent
//! ```

use std::collections::BTreeMap;

use udpath_host::map::SocketMap;
use udpath_host::processes::Process;
use udpath_host::sockets::{Selector, Socket};

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, counted, percent};
use crate::rules::readers::{Cause, cause};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "port-shared",
    severity: Severity::Loss,
    look: Look::Map(shared),
    cause: "",
    fix: &[
        "stop the one that should not be there (`systemctl status PID` shows what started it), or give it another port",
    ],
}];

/// Ports whose datagrams are multicast or broadcast: every socket gets a copy, and several programs are as it should
/// be. DHCP, PTP, SSDP, WS-Discovery, mDNS, LLMNR.
const FOR_ALL: [u16; 8] = [67, 68, 319, 320, 1900, 3702, 5353, 5355];
/// Programs that run others' files: the file is what tells two of them apart.
const INTERPRETERS: [&str; 8] = ["python", "perl", "ruby", "node", "java", "php", "bash", "sh"];
/// What the kernel adds to the path of a program whose file has been removed or replaced.
const REPLACED: &str = " (deleted)";
/// Servers that evidence lists. More: a line per instance of a large machine.
const LISTED: usize = 4;
/// The process that starts services, and takes over those whose parent has ended: to have it as parent says nothing.
const INIT: u32 = 1;

/// Processes that are one server, and its sockets of an address.
struct Server<'a> {
    processes: Vec<&'a Process>,
    sockets: Vec<&'a SocketMap>,
}

impl<'a> Server<'a> {
    fn is_related(&self, process: &Process) -> bool {
        let parent = process.parent.filter(|parent| *parent != INIT);
        self.processes.iter().any(|own| {
            own.parent == Some(process.pid)
                || parent == Some(own.pid)
                || (own.unit.is_some() && own.unit == process.unit)
                || (parent.is_some() && own.parent == parent && program(own) == program(process))
        })
    }

    fn has(&self, socket: &SocketMap) -> bool {
        self.sockets.iter().any(|own| own.inode == socket.inode)
    }

    fn join(&mut self, other: Self) {
        self.processes.extend(other.processes);
        for socket in other.sockets {
            if !self.has(socket) {
                self.sockets.push(socket);
            }
        }
    }

    fn program(&self) -> String {
        program(self.processes[0])
    }

    fn is_unit(&self) -> bool {
        self.processes.iter().any(|process| process.unit.is_some() || process.container.is_some())
    }

    /// Does it run a file that has been removed or replaced since?
    fn is_replaced(&self) -> bool {
        let replaced = |process: &&Process| {
            process.executable.as_ref().is_some_and(|executable| executable.ends_with(REPLACED))
        };
        self.processes.iter().all(replaced)
    }

    fn reads(&self, on: Observed<'_>) -> bool {
        let is_stuck = |socket: &&SocketMap| matches!(cause(on, socket), Cause::Blocked | Cause::Unread);
        !self.sockets.iter().all(is_stuck)
    }
}

/// What a process runs, by the name of its file; for an interpreter, with that of the script.
fn program(process: &Process) -> String {
    let Some(executable) = &process.executable else { return process.name.clone() };
    let executable = executable.trim_end_matches(REPLACED);
    let name = executable.rsplit('/').next().unwrap_or(executable);
    let interprets = INTERPRETERS.iter().any(|known| {
        name.strip_prefix(known)
            .is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
    });
    let script = || {
        let command = process.command.as_ref()?;
        command.split(' ').skip(1).find(|argument| !argument.starts_with('-'))
    };
    match script().filter(|_| interprets) {
        Some(script) => format!("{name} {}", script.rsplit('/').next().unwrap_or(script)),
        None => name.to_owned(),
    }
}

/// The sockets of each address that several have, among those that were selected.
fn addresses(on: Observed<'_>) -> Vec<Vec<&SocketMap>> {
    let read: BTreeMap<u32, &Socket> =
        on.snapshot.sockets.list.iter().map(|socket| (socket.inode, socket)).collect();
    let mut all: BTreeMap<_, Vec<&SocketMap>> = BTreeMap::new();
    let own = on.map.sockets.iter().filter(|socket| socket.peer.is_none() && socket.inode != 0);
    for socket in own.filter(|socket| !FOR_ALL.contains(&socket.local.port())) {
        let (interface, only) =
            read.get(&socket.inode).map_or((None, None), |read| (read.interface, read.v6only));
        all.entry((socket.local, interface, only)).or_default().push(socket);
    }
    all.into_values().filter(|sockets| sockets.len() > 1 && !sockets[0].local.ip().is_multicast()).collect()
}

/// The servers behind sockets, those with the most sockets first.
fn servers<'a>(on: Observed<'a>, sockets: &[&'a SocketMap]) -> Vec<Server<'a>> {
    let mut servers: Vec<Server<'_>> = Vec::new();
    for socket in sockets {
        for process in socket.pids.iter().filter_map(|pid| on.snapshot.sockets.process(*pid)) {
            let mut new = Server { processes: vec![process], sockets: vec![socket] };
            // It may be what joins servers that had nothing in common so far.
            let (joined, others): (Vec<_>, Vec<_>) = servers.into_iter().partition(|server| {
                server.has(socket)
                    || server.is_related(process)
                    || server.processes.iter().any(|own| own.pid == process.pid)
            });
            joined.into_iter().for_each(|server| new.join(server));
            servers = others;
            servers.push(new);
        }
    }
    for server in &mut servers {
        server.processes.sort_by_key(|process| process.pid);
        server.processes.dedup_by_key(|process| process.pid);
    }
    servers.sort_by_key(|server| (std::cmp::Reverse(server.sockets.len()), server.processes[0].pid));
    servers
}

fn shared(on: Observed<'_>) -> Vec<Found> {
    addresses(on).into_iter().filter_map(|sockets| of(on, &sockets)).collect()
}

fn of(on: Observed<'_>, sockets: &[&SocketMap]) -> Option<Found> {
    let servers = servers(on, sockets);
    let [first, others @ ..] = &servers[..] else { return None };
    if others.is_empty() {
        return None;
    }
    let differ = others.iter().any(|other| other.program() != first.program());
    let replaced = |replaced| servers.iter().any(|server| server.is_replaced() == replaced);
    let unit = |unit| servers.iter().any(|server| server.is_unit() == unit);
    let reads = |reads| servers.iter().any(|server| server.reads(on) == reads);
    let takes_all = sockets
        .iter()
        .any(|socket| socket.options.as_ref().is_some_and(|options| options.reuseaddr && !options.reuseport));
    let cause = if takes_all {
        "with SO_REUSEADDR alone, the program that bound the address last gets every datagram, and the others get none"
    } else if !differ && replaced(true) && replaced(false) {
        "an instance from before the program's file was replaced still runs: the kernel gives it a part of the flows"
    } else if reads(true) && reads(false) {
        "the kernel gives each socket a part of the flows, and those of a program that does not read are lost"
    } else if !differ && unit(true) && unit(false) {
        "an instance that no unit started runs beside the unit's: the kernel gives it a part of the flows"
    } else if differ {
        "with SO_REUSEPORT the kernel gives each socket a part of the flows, whichever program has it"
    } else {
        return None;
    };
    let hashed = sockets
        .iter()
        .all(|socket| socket.place.is_none_or(|place| matches!(place.selector, Selector::Kernel)));
    let described = servers.iter().take(LISTED).map(|server| {
        let share = server.sockets.len() as f64 / sockets.len() as f64;
        let flows = (hashed && !takes_all).then(|| format!(", about {} of the flows", percent(share)));
        let replaced = if server.is_replaced() { ", of a file that was replaced" } else { "" };
        let unread = if server.reads(on) { "" } else { ", which it does not read" };
        format!(
            "{} (pid {}{replaced}; {}{}{unread})",
            server.program(),
            server.processes[0].pid,
            counted(server.sockets.len(), "socket"),
            flows.unwrap_or_default()
        )
    });
    let described: Vec<String> = described.collect();
    let more = match servers.len().saturating_sub(LISTED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let evidence = format!(
        "{} is shared by {}{more}, of which none started another",
        sockets[0].local,
        described.join(" and ")
    );
    let pids = servers.iter().map(|server| Location::Process(server.processes[0].pid));
    let found = Found::new(evidence).cause(cause).at_all(pids);
    Some(found.at_all(others.iter().map(|other| Location::Socket(other.sockets[0].inode))))
}

#[cfg(test)]
mod tests;
