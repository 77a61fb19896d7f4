//! The server: which processes serve the port, with which sockets and threads.
//!
//! A server is its sockets, not a number: systemd-resolved has port 53 of 127.0.0.53 beside nsd's of 127.0.0.1, and is
//! neither measured nor changed with it.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use udpath_host::Source;
use udpath_host::process::{Error, Server, answering, find, serving};
use udpath_host::source::Folder;

use super::group::Group;
use super::{RunningConfig, RunningError, Traffic};

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// What serves this UDP port; of several programs at different addresses, those that get the load.
    Port(u16),
    /// This process; the port is that of its UDP socket, the lowest if it has several.
    Process(u32),
}

/// The server as it was found.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Its UDP port.
    pub(super) port: u16,
    /// The addresses that its sockets are bound to.
    pub(super) addresses: BTreeSet<SocketAddr>,
    /// Whether other programs have the port at other addresses.
    is_one_of_several: bool,
    /// What serves it, with those sockets only.
    pub(super) servers: Vec<Server>,
}

impl Target {
    /// The server, in the network namespace of the caller.
    pub(super) fn find(config: &RunningConfig) -> Result<Self, RunningError> {
        let targets = match &config.traffic {
            Traffic::Load(load) => load.plan.targets.as_slice(),
            Traffic::Live(_) => &[],
        };
        Self::of(config.served, targets)
    }

    fn of(served: Served, targets: &[SocketAddr]) -> Result<Self, RunningError> {
        let (port, addresses) = match served {
            Served::Port(port) => {
                // None, if the load's address is translated on its way.
                let reached = targets.iter().filter(|to| to.port() == port);
                let reached = reached.filter_map(|to| answering(&Folder::live(), *to).ok()).flatten();
                (port, bound(reached))
            }
            Served::Process(pid) => {
                let server = find(pid)?;
                let own = server.sockets.iter().filter(|socket| socket.peer.is_none());
                let lowest = own.map(|socket| socket.local.port()).filter(|port| *port > 0).min();
                let port = lowest.ok_or_else(|| RunningError::NoPort { pid, name: server.name.clone() })?;
                (port, bound([server.with_sockets(|socket| socket.local.port() == port)]))
            }
        };
        Self::at(port, addresses)
    }

    /// The same server after a restart.
    pub(super) fn again(&self) -> Result<Self, RunningError> {
        Self::at(self.port, self.addresses.clone())
    }

    /// What has the port at these addresses; at no address in particular, all that has it.
    fn at(port: u16, addresses: BTreeSet<SocketAddr>) -> Result<Self, RunningError> {
        let all = serving(&Folder::live(), port)?;
        let bound_by_all = bound(all.iter().cloned());
        let addresses = if addresses.is_empty() { bound_by_all.clone() } else { addresses };
        let own = |server: Server| server.with_sockets(|socket| addresses.contains(&socket.local));
        let servers: Vec<Server> =
            all.into_iter().map(own).filter(|server| !server.sockets.is_empty()).collect();
        if servers.is_empty() {
            return Err(Error::NobodyServes { port }.into());
        }
        let is_one_of_several = !bound_by_all.is_subset(&addresses);
        Ok(Self { port, addresses, is_one_of_several, servers })
    }

    /// A group whose requests mean this server alone: `port:53:` becomes `port:127.0.0.1:53:` where other programs have
    /// the port at other addresses.
    pub(super) fn narrowed(&self, group: Group) -> Group {
        if !self.is_one_of_several {
            return group;
        }
        let of_port = format!("port:{}:", self.port);
        let narrow = |request: String| match request.strip_prefix(&of_port) {
            Some(item) => self.addresses.iter().map(|address| format!("port:{address}:{item}")).collect(),
            None => vec![request],
        };
        Group { requests: group.requests.into_iter().flat_map(narrow).collect(), ..group }
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

/// The addresses of servers' sockets.
fn bound(servers: impl IntoIterator<Item = Server>) -> BTreeSet<SocketAddr> {
    let sockets = servers.into_iter().flat_map(|server| server.sockets);
    sockets.filter(|socket| socket.peer.is_none()).map(|socket| socket.local).collect()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::process::{Child, Command, Stdio};

    use udpath_tune::plan::Consent;
    use udpath_tune::{Live, Plan, SettingRequest};

    use super::*;

    /// Another program with a UDP socket at this address. It ends with its input.
    fn other(address: SocketAddr) -> Child {
        let lines = "use Socket; socket(S, PF_INET, SOCK_DGRAM, 0) and \
                     bind(S, pack_sockaddr_in($ARGV[1], inet_aton($ARGV[0]))) or die $!; print 'x'; close STDOUT; <STDIN>";
        let mut perl = Command::new("perl");
        perl.args(["-e", lines, &address.ip().to_string(), &address.port().to_string()]);
        let mut child = perl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut said).unwrap();
        assert_eq!(said, "x");
        child
    }

    #[test]
    fn another_program_on_the_port_is_neither_measured_nor_changed() {
        udpath_lab::needs_root!();
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (pid, local) = (std::process::id(), own.local_addr().unwrap());
        let port = local.port();
        let mut resolved = other(SocketAddr::from(([127, 0, 0, 53], port)));
        let pids = |target: &Target| target.servers.iter().map(|server| server.pid).collect::<Vec<_>>();
        let all = Target::of(Served::Port(port), &[]).unwrap();
        assert_eq!(pids(&all).len(), 2);
        // By a socket of this process or by where the load goes: other tests of this process have other ports.
        let by_load = Target::of(Served::Port(port), &[local]).unwrap();
        let server = find(pid).unwrap();
        let at = BTreeSet::from([local]);
        for target in [by_load, Target::at(port, at.clone()).unwrap().again().unwrap()] {
            assert_eq!((pids(&target), target.is_one_of_several), (vec![pid], true));
            assert!(server.sockets.iter().any(|socket| target.addresses.contains(&socket.local)));
            let group =
                Group::new("x", "x", vec![format!("port:{port}:receive-buffer=50000"), "a:b=c".into()]);
            let requests = target.narrowed(group).requests;
            assert_eq!(requests, [format!("port:{local}:receive-buffer=50000"), "a:b=c".to_owned()]);
            let request = SettingRequest::parse(&requests[0], "").unwrap();
            let plan = Plan::resolve(&Live::new(), vec![request], &Consent::default()).unwrap();
            let settings: Vec<String> = plan.settings().map(ToString::to_string).collect();
            assert!(
                settings.len() == 1 && settings[0].starts_with(&format!("socket:{pid}/")),
                "{settings:?}"
            );
        }
        // By its number: nothing of the other program at that port.
        let by_process = Target::of(Served::Process(resolved.id()), &[]).unwrap();
        assert_eq!((pids(&by_process), by_process.is_one_of_several), (vec![resolved.id()], true));
        assert_eq!(by_process.addresses, BTreeSet::from([SocketAddr::from(([127, 0, 0, 53], port))]));
        let again = by_process.again().unwrap();
        assert_eq!((pids(&again), &again.addresses), (vec![resolved.id()], &by_process.addresses));
        drop(resolved.stdin.take());
        resolved.wait().unwrap();
        let gone = Target::at(port, BTreeSet::from([SocketAddr::from(([127, 0, 0, 53], port))]));
        assert!(matches!(gone, Err(RunningError::Server(Error::NobodyServes { .. }))), "{gone:?}");
    }
}
