//! Which sockets a datagram may reach, by the kernel's rules (`__udp4_lib_lookup`, `compute_score` of `net/ipv4/udp.c`,
//! and their counterparts in `net/ipv6/udp.c`).
//!
//! ```text
//! bound to the port ─▸ to the exact address, if there is one; else to any
//!                        └▸ those with the highest score: own family, connected to the sender, bound to the interface
//! ```
//! Several that score equally are a reuseport group, from which one is selected ([`udpath_steer::reuseport`]); or they
//! have SO_REUSEADDR alone, and do not share. Their options show which, if they were read
//! ([`look_closer`](crate::process::look_closer)). A BPF program that another program attached to a group is not
//! visible; udpath's own programs are in its journal.

use std::collections::BTreeMap;
use std::net::IpAddr;

use udpath_steer::Flow;
use udpath_steer::predict::Sockets;
use udpath_steer::reuseport::By;

use crate::Snapshot;
use crate::client::sockets::{Socket, SocketOptions};
use crate::processes::Process;

/// Kernels that use SO_INCOMING_CPU in groups: those before 4.5, and from this version on.
const BY_INCOMING_CPU: (u32, u32) = (6, 2);

/// The sockets of a snapshot by port, for many flows.
#[derive(Debug)]
pub struct Receivers<'a> {
    snapshot: &'a Snapshot,
    by_port: BTreeMap<u16, Vec<usize>>,
}

impl<'a> Receivers<'a> {
    /// Sorts the sockets by port.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let mut by_port = BTreeMap::<u16, Vec<usize>>::new();
        for (at, socket) in snapshot.sockets.list.iter().enumerate() {
            by_port.entry(socket.local.port()).or_default().push(at);
        }
        Self { snapshot, by_port }
    }

    /// The sockets that datagrams of the flow may reach when they arrive on the interface with that index: indices into
    /// the snapshot's list, in bind order. Empty: no socket matches.
    #[must_use]
    pub fn of(&self, flow: &Flow, interface: u32) -> Vec<usize> {
        let bound = self.by_port.get(&flow.destination_port).map_or(&[][..], Vec::as_slice);
        let among = |exact: bool| -> Vec<usize> {
            let scored = bound.iter().filter_map(|&at| {
                let socket = &self.snapshot.sockets.list[at];
                Some((score(socket, flow, interface, exact)?, at))
            });
            let scored: Vec<(u32, usize)> = scored.collect();
            let best = scored.iter().map(|(score, _)| *score).max();
            scored.iter().filter(|(score, _)| Some(*score) == best).map(|(_, at)| *at).collect()
        };
        let exact = among(true);
        if exact.is_empty() { among(false) } else { exact }
    }

    /// A socket of the list.
    #[must_use]
    pub fn socket(&self, at: usize) -> &'a Socket {
        &self.snapshot.sockets.list[at]
    }

    /// The processes that have it open.
    pub fn processes(&self, at: usize) -> impl Iterator<Item = &'a Process> {
        let mut pids: Vec<u32> = self.socket(at).owners.iter().map(|owner| owner.pid).collect();
        pids.dedup();
        pids.into_iter().filter_map(|pid| self.snapshot.sockets.process(pid))
    }

    /// The sockets that score equally, as the input of a prediction.
    #[must_use]
    pub fn sockets(&self, found: &[usize]) -> Sockets {
        let cpu = |at: &usize| self.socket(*at).options.as_ref()?.incoming_cpu;
        Sockets { by: self.by(found), cpus: found.iter().map(cpu).collect() }
    }

    /// How one of them is selected.
    fn by(&self, found: &[usize]) -> By {
        let sockets = found.iter().map(|&at| self.socket(at));
        let options: Option<Vec<&SocketOptions>> =
            sockets.clone().map(|socket| socket.options.as_ref()).collect();
        let first = found.first().and_then(|&at| self.socket(at).group);
        let group = first.filter(|_| sockets.clone().all(|socket| socket.group == first));
        let group = group.and_then(|group| self.snapshot.sockets.groups.get(group));
        let set = group.and_then(|group| Some(group.selection.as_ref()?.value));
        match (set, options) {
            (Some(by @ (By::CpuModulo | By::Unknown)), _) => by,
            (_, None) => By::Unknown,
            // For connected sockets the kernel itself writes SO_INCOMING_CPU, with each datagram.
            _ if sockets.clone().any(|socket| socket.peer.is_some()) => By::Unknown,
            (_, Some(options)) if options.iter().all(|options| !options.reuseport) => By::Last,
            (_, Some(options)) if group.is_none() || options.iter().any(|options| !options.reuseport) => {
                By::Unknown
            }
            (_, Some(options)) if options.iter().any(|options| options.incoming_cpu.is_some()) => {
                let asked = self.snapshot.kernel.version().is_some_and(|version| version >= BY_INCOMING_CPU);
                if asked { By::Cpu } else { By::Hash }
            }
            _ => By::Hash,
        }
    }
}

/// How well a socket matches; `None` if it does not. `exact`: by its own address, else by any.
fn score(socket: &Socket, flow: &Flow, interface: u32, exact: bool) -> Option<u32> {
    let (local, destination) = (socket.local.ip(), flow.destination().ip());
    let own_family = local.is_ipv4() == flow.is_ipv4();
    let fits = match local {
        // An IPv6 socket bound to any address receives IPv4 as well, unless IPV6_V6ONLY is set.
        IpAddr::V6(any) if any.is_unspecified() && flow.is_ipv4() => !exact && socket.v6only != Some(true),
        local if local.is_unspecified() => !exact && own_family,
        // `::ffff:192.0.2.1`: an IPv6 socket with an IPv4 address.
        local => exact && local.to_canonical() == destination,
    };
    if !fits {
        return None;
    }
    let mut score = u32::from(local.is_ipv4()) + 1;
    if let Some(peer) = socket.peer {
        if (peer.ip().to_canonical(), peer.port()) != (flow.source().ip(), flow.source_port) {
            return None;
        }
        // Address and port, each 4.
        score += 8;
    }
    match socket.interface {
        Some(bound) if bound != interface => None,
        Some(_) => Some(score + 4),
        None => Some(score),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bound address, peer address, interface, whether IPv6 only.
    type Bound<'a> = (&'a str, Option<&'a str>, Option<u32>, Option<bool>);

    fn snapshot(sockets: &[Bound<'_>]) -> Snapshot {
        let folder = tempfile::tempdir().unwrap();
        let mut snapshot = Snapshot::read(&crate::source::Folder::captured(folder.path()));
        snapshot.sockets.list = (1..)
            .zip(sockets)
            .map(|(inode, (local, peer, interface, v6only))| Socket {
                local: local.parse().unwrap(),
                peer: peer.map(|peer| peer.parse().unwrap()),
                interface: *interface,
                inode,
                cookie: None,
                uid: 0,
                v6only: *v6only,
                receive_queue: 0,
                send_queue: 0,
                memory: None,
                drops: 0,
                owners: Vec::new(),
                group: None,
                options: None,
            })
            .collect();
        snapshot
    }

    fn of(snapshot: &Snapshot, from: &str, to: &str) -> Vec<usize> {
        let flow = Flow::udp(from.parse().unwrap(), to.parse().unwrap()).unwrap();
        Receivers::new(snapshot).of(&flow, 2)
    }

    #[test]
    fn the_best_match_receives() {
        let snapshot = snapshot(&[
            ("0.0.0.0:53", None, None, None),
            ("0.0.0.0:53", None, None, None),
            ("192.0.2.1:53", None, None, None),
            ("192.0.2.1:53", Some("192.0.2.7:4000"), None, None),
            ("192.0.2.3:53", None, Some(2), None),
            ("192.0.2.3:53", None, Some(3), None),
            ("192.0.2.3:53", None, None, None),
            ("192.0.2.1:54", None, None, None),
        ]);
        let to = |address: &str| of(&snapshot, "192.0.2.7:4000", address);
        assert_eq!(to("192.0.2.9:53"), [0, 1], "a group on any address");
        assert_eq!(to("192.0.2.1:53"), [3], "connected to this very sender");
        assert_eq!(of(&snapshot, "192.0.2.7:4001", "192.0.2.1:53"), [2]);
        assert_eq!(to("192.0.2.3:53"), [4], "bound to this interface");
        assert_eq!(to("192.0.2.3:55"), Vec::<usize>::new());
    }

    #[test]
    fn ipv6_sockets_receive_ipv4_without_an_ipv4_socket() {
        let both = snapshot(&[("[::]:53", None, None, Some(false)), ("[::]:54", None, None, Some(true))]);
        assert_eq!(of(&both, "192.0.2.7:1", "192.0.2.1:53"), [0]);
        assert_eq!(of(&both, "192.0.2.7:1", "192.0.2.1:54"), Vec::<usize>::new());
        assert_eq!(of(&both, "[2001:db8::7]:1", "[2001:db8::1]:54"), [1]);
        let beside = snapshot(&[("[::]:53", None, None, None), ("0.0.0.0:53", None, None, None)]);
        assert_eq!(of(&beside, "192.0.2.7:1", "192.0.2.1:53"), [1]);
        let mapped = snapshot(&[("[::ffff:192.0.2.1]:53", None, None, None)]);
        assert_eq!(of(&mapped, "192.0.2.7:1", "192.0.2.1:53"), [0]);
    }

    #[test]
    fn their_options_say_how_one_is_chosen() {
        let two = ("192.0.2.1:53", None, None, None);
        let mut snapshot = snapshot(&[two, two]);
        snapshot.sockets.groups = crate::sockets::groups(&mut snapshot.sockets.list);
        let chosen = |snapshot: &Snapshot| Receivers::new(snapshot).sockets(&[0, 1]);
        assert_eq!(chosen(&snapshot).by, By::Unknown, "nobody has read them");
        let set = |snapshot: &mut Snapshot, reuseport: [bool; 2], cpus: [Option<u32>; 2]| {
            for ((socket, reuseport), incoming_cpu) in
                snapshot.sockets.list.iter_mut().zip(reuseport).zip(cpus)
            {
                socket.options = Some(SocketOptions { reuseport, incoming_cpu, ..SocketOptions::default() });
            }
        };
        set(&mut snapshot, [true; 2], [None; 2]);
        assert_eq!(chosen(&snapshot), Sockets { by: By::Hash, cpus: vec![None; 2] });
        set(&mut snapshot, [true; 2], [Some(3), None]);
        snapshot.kernel.release = "6.2.0".to_owned();
        assert_eq!(chosen(&snapshot), Sockets { by: By::Cpu, cpus: vec![Some(3), None] });
        snapshot.kernel.release = "6.1.9".to_owned();
        assert_eq!(chosen(&snapshot).by, By::Hash);
        set(&mut snapshot, [false; 2], [None; 2]);
        assert_eq!(chosen(&snapshot).by, By::Last);
        set(&mut snapshot, [true, false], [None; 2]);
        assert_eq!(chosen(&snapshot).by, By::Unknown);
        // A program set on the group takes precedence over all of this.
        let from = crate::Provenance::Derived("a test".to_owned());
        snapshot.sockets.groups[0].selection = Some(crate::Fact::new(By::CpuModulo, from));
        assert_eq!(chosen(&snapshot).by, By::CpuModulo);
        snapshot.sockets.list[1].peer = Some("192.0.2.7:9".parse().unwrap());
        snapshot.sockets.groups[0].selection = None;
        set(&mut snapshot, [true; 2], [Some(3), None]);
        assert_eq!(chosen(&snapshot).by, By::Unknown);
    }
}
