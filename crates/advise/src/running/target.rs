//! The server: which processes serve the port, with which sockets and threads.

use udpath_host::Source;
use udpath_host::process::{Server, find, serving};
use udpath_host::source::Folder;

use super::RunningError;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// What serves this UDP port.
    Port(u16),
    /// This process; the port is that of its UDP socket, the lowest if it has several.
    Process(u32),
}

/// The server as it was found.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Its UDP port.
    pub(super) port: u16,
    /// What serves it, with those sockets only.
    pub(super) servers: Vec<Server>,
}

impl Target {
    /// The server, in the network namespace of the caller.
    pub(super) fn find(served: Served) -> Result<Self, RunningError> {
        let port = match served {
            Served::Port(port) => port,
            Served::Process(pid) => {
                let server = find(pid)?;
                let bound = server.sockets.iter().map(|socket| socket.local.port());
                let lowest = bound.filter(|port| *port > 0).min();
                lowest.ok_or_else(|| RunningError::NoPort { pid, name: server.name.clone() })?
            }
        };
        Ok(Self { port, servers: serving(&Folder::live(), port)? })
    }

    /// Its processes, workers included, ascending.
    pub(super) fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.servers.iter().flat_map(|server| &server.processes).copied().collect();
        pids.sort_unstable();
        pids
    }

    /// The names of its programs: `nsd`, or `a and b`. Not of its processes, which may call themselves `nsd: main`.
    pub(super) fn name(&self) -> String {
        let source = Folder::live();
        let program = |server: &Server| {
            let exe = source.target(&format!("/proc/{}/exe", server.pid)).ok()?;
            let name = exe.rsplit_once('/').map_or(exe.as_str(), |(_, name)| name);
            Some(name.trim_end_matches(" (deleted)").to_owned())
        };
        let names = self.servers.iter().map(|server| program(server).unwrap_or_else(|| server.name.clone()));
        let mut names: Vec<String> = names.collect();
        names.dedup();
        names.join(" and ")
    }

    /// Whether its first processes are still there; one that has ended but was not waited for is not.
    pub(super) fn is_there(&self) -> bool {
        let source = Folder::live();
        let runs = |pid: u32| {
            let stat = source.text(&format!("/proc/{pid}/stat")).ok()?;
            let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
            (!matches!(state, 'Z' | 'X')).then_some(())
        };
        self.servers.iter().all(|server| runs(server.pid).is_some())
    }

    /// Threads of all its processes.
    pub(super) fn threads(&self) -> usize {
        self.servers.iter().map(|server| server.threads.len()).sum()
    }

    /// Sockets of its largest reuseport group; 1 without one.
    pub(super) fn group(&self) -> usize {
        let groups = self.servers.iter().flat_map(|server| &server.groups);
        groups.map(|group| group.members.len()).max().unwrap_or(1)
    }
}
