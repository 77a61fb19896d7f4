//! UDP sockets: where they are bound, their queues and drops, their owners, and which share a port. The kernel's list,
//! one pass over `/proc` for the owners, and the groups derived from both.
//!
//! ```text
//! sock_diag            else /proc/net/udp and udp6        sockets, drops, buffers
//!      | inodes
//! /proc/PID/fd         one pass for all of them           owners
//!      | pids
//! /proc/PID/...        of owners only                     names, limits, threads
//!      | cookies, or inodes
//! BPF iterator         as root, if sockets share a port   their order, and the program that selects
//! ```

use std::collections::{HashMap, HashSet};
use std::iter::successors;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_steer::reuseport::By;

use crate::processes::{self, Process, Scan};
use crate::{Absence, Fact, Missing, Provenance, Source, limits};

pub mod looks;
pub(crate) mod order;
pub mod table;

pub use crate::client::reuseport::{KernelGroup, Member, Selector};
pub use crate::client::sockets::{Owner, Socket, SocketMemory, SocketOptions};
pub use order::{GroupOrder, Place};

/// The UDP sockets of one network namespace. Unbound sockets are not listed: they receive nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Sockets {
    /// By port, address and inode.
    pub list: Vec<Socket>,
    /// Source of the list.
    pub from: Option<Provenance>,
    /// The processes that own them, by PID.
    pub processes: Vec<Process>,
    /// Sockets that share an address and port.
    pub groups: Vec<ReuseportGroup>,
}

impl Sockets {
    /// The process with this PID, if it has a UDP socket.
    #[must_use]
    pub fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.binary_search_by_key(&pid, |process| process.pid).ok().map(|at| &self.processes[at])
    }
}

/// Sockets that share an address and port.
///
/// With `SO_REUSEPORT` they share the datagrams; with `SO_REUSEADDR` alone the last one bound gets them all. Only their
/// options show which.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ReuseportGroup {
    /// The address they share.
    pub address: IpAddr,
    /// The port they share.
    pub port: u16,
    /// The interface they are bound to.
    pub interface: Option<u32>,
    /// The user who created them: only sockets of the same user form a group.
    pub uid: u32,
    /// The sockets, as indices into the list, in creation order. This is the bind order, unless a program created
    /// several before binding them.
    pub members: Vec<usize>,
    /// What selects, and the order of the sockets. `None`: it could not be read, or the sockets changed meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Fact<GroupOrder>>,
    /// How the kernel selects a socket for a datagram, if udpath set it, as its journal records; for those who may not
    /// read the order. `Hash`: no program selects, so SO_INCOMING_CPU applies where set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Fact<By>>,
}

/// The UDP sockets, as the kernel lists them; owners and groups are still empty.
pub fn list(source: &dyn Source, missing: &mut Vec<Missing>) -> Option<Fact<Vec<Socket>>> {
    match source.udp_sockets() {
        Ok(listed) => Some(listed),
        Err(why) => {
            let listed = table::read(source, missing)?;
            let what = "buffers, cookies and devices of the UDP sockets".into();
            missing.push(Missing { what, from: Provenance::SockDiag, why });
            Some(listed)
        }
    }
}

/// The place of a socket in a list: by port, address and inode.
pub fn place(socket: &Socket) -> (u16, IpAddr, u32) {
    (socket.local.port(), socket.local.ip(), socket.inode)
}

/// Sorts the list by [`place`].
pub fn sort(sockets: &mut [Socket]) {
    // Moves each socket once: a socket is ten times as long as its place.
    sockets.sort_by_cached_key(place);
}

/// Sorts the list, and returns the index of each inode.
pub fn inodes(sockets: &mut [Socket]) -> HashMap<u32, usize> {
    sort(sockets);
    let at = |(at, socket): (usize, &Socket)| (socket.inode != 0).then_some((socket.inode, at));
    sockets.iter().enumerate().filter_map(at).collect()
}

/// Joins sockets and owners. `inodes`: from [`inodes`] of the same list; `scan`: made for them.
pub fn join(
    source: &dyn Source,
    listed: Fact<Vec<Socket>>,
    inodes: &HashMap<u32, usize>,
    scan: &Scan,
    missing: &mut Vec<Missing>,
) -> Sockets {
    let Fact { value: mut list, from } = listed;
    for holder in &scan.holders {
        if let Some(&at) = inodes.get(&holder.inode) {
            list[at].owners.push(Owner { pid: holder.pid, fd: holder.fd });
        }
    }
    let mut pids: Vec<u32> = scan.holders.iter().map(|holder| holder.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let mounts = if pids.is_empty() { limits::Mounts::default() } else { limits::mounts(source, missing) };
    let owners = scan.seen.iter().filter(|seen| pids.binary_search(&seen.pid).is_ok());
    let processes: Vec<_> = owners.map(|seen| processes::read(source, &mounts, seen, missing)).collect();
    by_descent(&mut list, &processes);
    let unknown = list.iter().filter(|socket| socket.inode != 0 && socket.owners.is_empty()).count();
    if unknown > 0 {
        let hidden = scan.hidden;
        let (how, why) = if hidden > 0 {
            let how = format!("the descriptors of {hidden} processes cannot be read");
            (how, Absence::NotPermitted { needs: "root, or CAP_SYS_PTRACE".into() })
        } else {
            let why =
                "they belong to another PID namespace, /proc is mounted with hidepid, or they were closed";
            ("no visible process has them".to_owned(), Absence::Failed(why.into()))
        };
        missing.push(Missing {
            what: format!("owners of {unknown} of {} UDP sockets: {how}", list.len()),
            from: Provenance::File("/proc/PID/fd".into()),
            why,
        });
    }
    let mut groups = groups(&mut list);
    order::read(source, &list, &mut groups, missing);
    Sockets { list, from: Some(from), processes, groups }
}

/// Orders each socket's owners: a process comes after the one it inherited the socket from. The order of PIDs says
/// nothing, since they wrap.
fn by_descent(list: &mut [Socket], processes: &[Process]) {
    let started = |process: &Process| Some((process.pid, process.parent?));
    let parents: HashMap<u32, u32> = processes.iter().filter_map(started).collect();
    for socket in list.iter_mut().filter(|socket| socket.owners.len() > 1) {
        let owners: HashSet<u32> = socket.owners.iter().map(|owner| owner.pid).collect();
        // In a capture, which anyone may have written, processes may have started each other.
        let ancestors = |pid| {
            let all = successors(parents.get(&pid), |parent| parents.get(parent)).take(owners.len());
            all.filter(|parent| owners.contains(parent)).count()
        };
        socket.owners.sort_by_cached_key(|owner| ancestors(owner.pid));
    }
}

/// What two sockets must have in common to form a group (`udp_reuseport_add_sock`): port, address, interface, user,
/// IPv6 only.
type Shared = (u16, IpAddr, Option<u32>, u32, Option<bool>);

/// Finds the groups, and stores each socket's group.
pub fn groups(list: &mut [Socket]) -> Vec<ReuseportGroup> {
    let shared = |at: usize| -> Shared {
        let socket = &list[at];
        (socket.local.port(), socket.local.ip(), socket.interface, socket.uid, socket.v6only)
    };
    // Most sockets share with no other one, and most lists are almost in this order: sorting is cheaper than a table.
    // Inodes are assigned in ascending order, and wrap only after four billion.
    let mut order: Vec<usize> = (0..list.len()).collect();
    order.sort_by_key(|&at| (shared(at), list[at].inode));
    let sharing = order.chunk_by(|&a, &b| shared(a) == shared(b)).filter(|members| members.len() > 1);
    let mut all: Vec<(Shared, Vec<usize>)> =
        sharing.map(|members| (shared(members[0]), members.to_vec())).collect();
    all.sort_by_key(|(_, members)| members[0]);
    let numbered = all.into_iter().enumerate().map(|(number, (shared, members))| {
        for &at in &members {
            list[at].group = Some(number);
        }
        let (port, address, interface, uid, _) = shared;
        ReuseportGroup { address, port, interface, uid, members, order: None, selection: None }
    });
    numbered.collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn socket(local: &str, inode: u32, uid: u32) -> Socket {
        Socket {
            local: local.parse().unwrap(),
            peer: None,
            interface: None,
            inode,
            cookie: None,
            uid,
            v6only: None,
            receive_queue: 0,
            send_queue: 0,
            memory: None,
            drops: 0,
            owners: Vec::new(),
            group: None,
            options: None,
        }
    }

    #[test]
    fn groups_share_address_port_device_and_user() {
        let mut list = vec![
            socket("10.0.0.1:53", 30, 0),
            socket("10.0.0.1:53", 10, 0),
            socket("10.0.0.2:53", 11, 0),
            socket("10.0.0.1:53", 12, 99),
            Socket { interface: Some(2), ..socket("10.0.0.1:53", 13, 0) },
            socket("[::]:53", 14, 0),
            socket("[::]:53", 15, 0),
            Socket { v6only: Some(true), ..socket("[::]:53", 16, 0) },
        ];
        let of = inodes(&mut list);
        assert_eq!(list[of[&10]].inode, 10);
        let found = groups(&mut list);
        let inodes: Vec<Vec<u32>> =
            found.iter().map(|group| group.members.iter().map(|&at| list[at].inode).collect()).collect();
        assert_eq!(inodes, [vec![10, 30], vec![14, 15]]);
        assert_eq!(list.iter().filter(|socket| socket.group == Some(0)).count(), 2);
        assert_eq!(list.iter().filter(|socket| socket.group.is_none()).count(), 4);
        assert_eq!((found[0].port, found[1].address.to_string().as_str()), (53, "::"));
    }

    #[test]
    fn a_process_comes_after_the_one_it_inherited_a_socket_from() {
        let of = |parents: &[(u32, Option<u32>)]| {
            let owners = parents.iter().map(|(pid, _)| Owner { pid: *pid, fd: 3 }).collect();
            let mut list = [Socket { owners, ..socket("0.0.0.0:53", 7, 0) }];
            let process = |&(pid, parent)| Process { pid, parent, ..Process::default() };
            by_descent(&mut list, &parents.iter().map(process).collect::<Vec<_>>());
            list[0].owners.iter().map(|owner| owner.pid).collect::<Vec<_>>()
        };
        // PIDs wrapped after the server had started; the second worker is a child of the first.
        assert_eq!(of(&[(301, Some(32_760)), (302, Some(301)), (32_760, Some(1))]), [32_760, 301, 302]);
        assert_eq!(of(&[(9, Some(1)), (812, Some(9)), (813, Some(9))]), [9, 812, 813]);
        assert_eq!(of(&[(9, None), (812, Some(1))]), [9, 812]);
        assert_eq!(of(&[(9, Some(812)), (812, Some(9)), (5, Some(9))]).len(), 3);
    }

    #[test]
    fn sockets_of_the_kernel_have_no_inode_and_no_owner() {
        let mut list =
            vec![socket("0.0.0.0:4789", 0, 0), socket("0.0.0.0:51820", 0, 0), socket("0.0.0.0:53", 7, 0)];
        assert_eq!(inodes(&mut list), HashMap::from([(7, 0)]));
    }
}
