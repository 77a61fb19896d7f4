//! Which sockets a datagram may reach, by the kernel's rules (`__udp4_lib_lookup`, `compute_score` of `net/ipv4/udp.c`,
//! and their counterparts in `net/ipv6/udp.c`).
//!
//! ```text
//! bound to the port ─▸ to the exact address, if there is one; else to any
//!                        └▸ those with the highest score: own family, connected to the sender, bound to the interface
//! ```
//! Several that score equally are a reuseport group, from which one is selected ([`udpath_steer::reuseport`]); or they
//! have SO_REUSEADDR alone, and do not share. For root, the kernel shows the group, the order of its sockets and what
//! selects ([`GroupOrder`]). Otherwise the sockets' options show whether they share, if they were read
//! ([`look_closer`](crate::process::look_closer)), and udpath's own programs are in its journal; a program that another
//! program attached is not visible then.

use std::collections::BTreeMap;
use std::net::IpAddr;

use udpath_steer::Flow;
use udpath_steer::predict::Sockets;
use udpath_steer::reuseport::By;

use crate::Snapshot;
use crate::client::sockets::{Socket, SocketOptions};
use crate::processes::Process;
use crate::sockets::{GroupOrder, ReuseportGroup, Selector};

/// Kernels that use SO_INCOMING_CPU in groups: those before 4.5, and from this version on.
const BY_INCOMING_CPU: (u32, u32) = (6, 2);

/// Whether the kernel of this machine uses SO_INCOMING_CPU in reuseport groups.
#[must_use]
pub fn uses_incoming_cpu(snapshot: &Snapshot) -> bool {
    snapshot.kernel.version().is_some_and(|version| version >= BY_INCOMING_CPU)
}

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
    /// the snapshot's list; in the order of their group if it is known, else in bind order. Empty: no socket matches.
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
        let found = if exact.is_empty() { among(false) } else { exact };
        match self.order(&found) {
            Some(order) => order.sockets.iter().map(|place| place.socket).collect(),
            None => found,
        }
    }

    /// The group that all of these sockets are in.
    fn group(&self, found: &[usize]) -> Option<&'a ReuseportGroup> {
        let first = self.socket(*found.first()?).group?;
        let all = found.iter().all(|&at| self.socket(at).group == Some(first));
        self.snapshot.sockets.groups.get(first).filter(|_| all)
    }

    /// The order of the group that consists of these sockets, each of them once.
    fn order(&self, found: &[usize]) -> Option<&'a GroupOrder> {
        let order = &self.group(found)?.order.as_ref()?.value;
        (order.sockets.len() == found.len()).then_some(order)
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

    /// The sockets that score equally, as the input of a prediction. `found`: as [`Self::of`] returned it.
    #[must_use]
    pub fn sockets(&self, found: &[usize]) -> Sockets {
        let Some(order) = self.order(found) else {
            let cpu = |at: &usize| self.socket(*at).options.as_ref()?.incoming_cpu;
            return Sockets { by: self.by_options(found), cpus: found.iter().map(cpu).collect() };
        };
        let cpus: Vec<Option<u32>> = order.sockets.iter().map(|place| place.incoming_cpu).collect();
        let members = cpus.len() as u32;
        let by = match order.selector {
            Selector::Kernel => self.by_kernel(found, cpus.iter().any(Option::is_some)),
            Selector::Cpu { modulus: None } => By::CpuIndex,
            Selector::Cpu { modulus: Some(modulus) } if modulus == members => By::CpuModulo,
            Selector::Cpu { .. } | Selector::Classic { .. } | Selector::Extended { .. } => By::Unknown,
        };
        Sockets { by, cpus }
    }

    /// How one of them is selected, by their options and udpath's journal.
    fn by_options(&self, found: &[usize]) -> By {
        let options: Option<Vec<&SocketOptions>> =
            found.iter().map(|&at| self.socket(at).options.as_ref()).collect();
        let group = self.group(found);
        let set = group.and_then(|group| Some(group.selection.as_ref()?.value));
        match (set, options) {
            (Some(by @ (By::CpuModulo | By::Unknown)), _) => by,
            (_, None) => By::Unknown,
            _ if self.connected(found) => By::Unknown,
            (_, Some(options)) if options.iter().all(|options| !options.reuseport) => By::Last,
            (_, Some(options)) if group.is_none() || options.iter().any(|options| !options.reuseport) => {
                By::Unknown
            }
            (_, Some(options)) => {
                self.by_kernel(found, options.iter().any(|options| options.incoming_cpu.is_some()))
            }
        }
    }

    /// How the kernel selects without a program; `cpus`: some have SO_INCOMING_CPU.
    fn by_kernel(&self, found: &[usize], cpus: bool) -> By {
        match (self.connected(found), cpus && uses_incoming_cpu(self.snapshot)) {
            (true, _) => By::Unknown,
            (false, true) => By::Cpu,
            (false, false) => By::Hash,
        }
    }

    /// For connected sockets the kernel itself writes SO_INCOMING_CPU, with each datagram.
    fn connected(&self, found: &[usize]) -> bool {
        found.iter().any(|&at| self.socket(at).peer.is_some())
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
        // A program set on the group takes precedence over all of this, by the journal or by the kernel.
        let from = crate::Provenance::Derived("a test".to_owned());
        snapshot.sockets.groups[0].selection = Some(crate::Fact::new(By::CpuModulo, from));
        assert_eq!(chosen(&snapshot).by, By::CpuModulo);
        snapshot.sockets.list[1].peer = Some("192.0.2.7:9".parse().unwrap());
        snapshot.sockets.groups[0].selection = None;
        set(&mut snapshot, [true; 2], [Some(3), None]);
        assert_eq!(chosen(&snapshot).by, By::Unknown);
    }

    #[test]
    fn the_kernels_order_and_selector_take_precedence() {
        use crate::sockets::Place;

        let two = ("192.0.2.1:53", None, None, None);
        let mut snapshot = snapshot(&[two, two]);
        snapshot.kernel.release = "6.12.0".to_owned();
        snapshot.sockets.groups = crate::sockets::groups(&mut snapshot.sockets.list);
        let of = |snapshot: &mut Snapshot, selector, cpus: [Option<u32>; 2]| {
            // The socket that was bound last is the first.
            let place = |(socket, incoming_cpu)| Place { socket, incoming_cpu };
            let sockets = [1, 0].into_iter().zip(cpus).map(place).collect();
            let from = crate::Provenance::Iterator("udp".to_owned());
            snapshot.sockets.groups[0].order = Some(crate::Fact::new(GroupOrder { selector, sockets }, from));
            let found = of(snapshot, "192.0.2.7:1", "192.0.2.1:53");
            assert_eq!(found, [1, 0]);
            Receivers::new(snapshot).sockets(&found)
        };
        let by_cpu = |modulus| Selector::Cpu { modulus };
        for (selector, by) in [
            (by_cpu(None), By::CpuIndex),
            (by_cpu(Some(2)), By::CpuModulo),
            (by_cpu(Some(3)), By::Unknown),
            (Selector::Classic { length: 1 }, By::Unknown),
            (Selector::Extended { id: 7 }, By::Unknown),
            (Selector::Kernel, By::Hash),
        ] {
            assert_eq!(of(&mut snapshot, selector, [None; 2]), Sockets { by, cpus: vec![None; 2] });
        }
        let cpus = [Some(0), Some(1)];
        assert_eq!(of(&mut snapshot, Selector::Kernel, cpus), Sockets { by: By::Cpu, cpus: cpus.to_vec() });
    }
}
