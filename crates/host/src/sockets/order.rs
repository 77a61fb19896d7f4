//! The order of the sockets in a reuseport group, and what selects among them, from the kernel's own groups.
//!
//! ```text
//! groups of sockets that share an address  ─┐
//!                                           ├─ the same sockets ─▸ GroupOrder
//! the kernel's groups (BPF iterator, root) ─┘
//! ```
//! Sockets are the same by their cookies; by their inodes if the list has none, because the kernel lacks sock_diag and
//! it was read from `/proc/net/udp`.
//!
//! The two are read one after the other. Where they differ, a socket was bound or closed in between, or one of those
//! that share the address is not in the group; then the order is not known. The iterator may also skip a socket of a
//! group when another one of the same bucket closes, whosever it is: it is read again then.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ReuseportGroup, Socket};
use crate::client::reuseport::{KernelGroup, Member, Selector};
use crate::{Absence, Fact, Missing, Provenance, Source};

/// What selects in a group, and among which sockets.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct GroupOrder {
    /// What selects.
    pub selector: Selector,
    /// All sockets of the group by their index in it, which is the number that a program returns. It is the order in
    /// which they were bound, until one closes and the last one takes its place.
    pub sockets: Vec<Place>,
}

/// A socket at an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Place {
    /// The socket, as an index into the list.
    pub socket: usize,
    /// Its `SO_INCOMING_CPU`; for a connected socket, the CPU of the last datagram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incoming_cpu: Option<u32>,
}

/// How often the kernel's groups are read at most, where they have some of a group's sockets but not all. Fewer: beside
/// a program that opens and closes sockets all the time, orders are unknown. More: where sockets really differ, each
/// reading takes its time.
const READINGS: usize = 4;

/// Reads the orders of the groups, if there is one.
pub(super) fn read(
    source: &dyn Source,
    list: &[Socket],
    groups: &mut [ReuseportGroup],
    missing: &mut Vec<Missing>,
) {
    // Reading loads a program: not without need.
    if groups.is_empty() {
        return;
    }
    for _ in 0..READINGS {
        if join_read(source, list, groups, missing) {
            break;
        }
    }
}

/// Returns whether another reading would find no more.
fn join_read(
    source: &dyn Source,
    list: &[Socket],
    groups: &mut [ReuseportGroup],
    missing: &mut Vec<Missing>,
) -> bool {
    match source.reuseport_groups() {
        Ok(Fact { value, from }) => return join(list, groups, &value, &from),
        // A kernel without the iterator, or a capture of an earlier version.
        Err(Absence::NotSupported | Absence::NotThere | Absence::NotCaptured) => {}
        Err(why) => missing.push(Missing {
            what: "the order of sockets in reuseport groups, and the programs that select".into(),
            from: Provenance::Iterator("udp".into()),
            why,
        }),
    }
    true
}

/// Returns whether each group is whole, or unknown to the kernel.
fn join(list: &[Socket], groups: &mut [ReuseportGroup], kernel: &[KernelGroup], from: &Provenance) -> bool {
    let key = if list.iter().any(|socket| socket.cookie.is_some()) { Key::Cookie } else { Key::Inode };
    let members = |(at, group): (usize, &KernelGroup)| -> Vec<(u64, usize)> {
        group.members.iter().filter_map(|member| Some((key.of_member(member)?, at))).collect()
    };
    let of: HashMap<u64, usize> = kernel.iter().enumerate().flat_map(members).collect();
    let mut whole = true;
    for group in groups {
        let known = group.members.iter().find_map(|&at| of.get(&key.of_socket(&list[at])?));
        let order = known.and_then(|&at| order(key, list, group, &kernel[at]));
        whole &= known.is_none() || order.is_some();
        group.order = order.map(|order| Fact::new(order, from.clone()));
    }
    whole
}

/// What a socket of the list has in common with one of the kernel's group.
#[derive(Debug, Clone, Copy)]
enum Key {
    Cookie,
    Inode,
}

impl Key {
    fn of_member(self, member: &Member) -> Option<u64> {
        match self {
            Self::Cookie => member.cookie,
            Self::Inode => member.inode.map(u64::from),
        }
    }

    fn of_socket(self, socket: &Socket) -> Option<u64> {
        match self {
            Self::Cookie => socket.cookie,
            Self::Inode => (socket.inode != 0).then_some(socket.inode.into()),
        }
    }
}

/// `None` unless both have the same sockets, each at an index of its own.
fn order(key: Key, list: &[Socket], group: &ReuseportGroup, kernel: &KernelGroup) -> Option<GroupOrder> {
    if group.members.len() != kernel.sockets as usize {
        return None;
    }
    let mut sockets: Vec<Option<Place>> = vec![None; group.members.len()];
    for member in &kernel.members {
        let wanted = key.of_member(member)?;
        let socket = group.members.iter().copied().find(|&at| key.of_socket(&list[at]) == Some(wanted))?;
        let place = sockets.get_mut(member.index? as usize)?;
        *place = Some(Place { socket, incoming_cpu: member.incoming_cpu });
    }
    let sockets: Option<Vec<Place>> = sockets.into_iter().collect();
    Some(GroupOrder { selector: kernel.selector, sockets: sockets? })
}

/// Keeps the orders of groups that have the same sockets as before. `known`: the list that they were of.
pub(crate) fn keep(
    before: &[ReuseportGroup],
    known: &[Socket],
    list: &[Socket],
    groups: &mut [ReuseportGroup],
) {
    let ordered = before.iter().filter_map(|group| Some((group, group.order.as_ref()?)));
    let of: HashMap<(u32, Option<u64>), &Fact<GroupOrder>> = ordered
        .filter_map(|(group, order)| Some((identity(known.get(*group.members.first()?)?)?, order)))
        .collect();
    for group in groups {
        let first = group.members.iter().find_map(|&at| of.get(&identity(&list[at])?));
        group.order = first.and_then(|order| moved(order, known, list, group));
    }
}

/// Inode and cookie; `None` if it has neither.
fn identity(socket: &Socket) -> Option<(u32, Option<u64>)> {
    (socket.inode != 0 || socket.cookie.is_some()).then_some((socket.inode, socket.cookie))
}

fn moved(
    order: &Fact<GroupOrder>,
    known: &[Socket],
    list: &[Socket],
    group: &ReuseportGroup,
) -> Option<Fact<GroupOrder>> {
    if order.value.sockets.len() != group.members.len() {
        return None;
    }
    let place = |place: &Place| {
        let same = identity(known.get(place.socket)?)?;
        let socket = group.members.iter().copied().find(|&at| identity(&list[at]) == Some(same))?;
        Some(Place { socket, ..*place })
    };
    let sockets: Option<Vec<Place>> = order.value.sockets.iter().map(place).collect();
    Some(Fact::new(GroupOrder { sockets: sockets?, ..order.value }, order.from.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::groups;
    use crate::sockets::tests::socket;

    /// Sockets of a port with these cookies, in the order of their inodes.
    fn list(cookies: &[u64]) -> Vec<Socket> {
        let socket =
            |(inode, cookie): (u32, &u64)| Socket { cookie: Some(*cookie), ..socket("0.0.0.0:53", inode, 0) };
        (1..).zip(cookies).map(socket).collect()
    }

    fn kernel(cookies: &[u64]) -> KernelGroup {
        let member = |(index, cookie): (u32, &u64)| Member {
            cookie: Some(*cookie),
            inode: None,
            index: Some(index),
            incoming_cpu: Some(10 + index),
        };
        let members = (0..).zip(cookies).map(member).collect();
        KernelGroup { selector: Selector::Cpu { modulus: None }, sockets: cookies.len() as u32, members }
    }

    fn joined(list: &mut [Socket], kernel: &[KernelGroup]) -> Vec<ReuseportGroup> {
        let mut groups = groups(list);
        join(list, &mut groups, kernel, &Provenance::Iterator("udp".into()));
        groups
    }

    /// The cookies by index, and the incoming CPUs.
    fn cookies(list: &[Socket], group: &ReuseportGroup) -> Option<(Vec<u64>, Vec<Option<u32>>)> {
        let order = &group.order.as_ref()?.value;
        Some(
            order
                .sockets
                .iter()
                .map(|place| (list[place.socket].cookie.unwrap(), place.incoming_cpu))
                .unzip(),
        )
    }

    #[test]
    fn sockets_are_in_the_kernels_order() {
        let mut list = list(&[5, 6, 7]);
        let groups = joined(&mut list, &[kernel(&[1, 2]), kernel(&[5, 7, 6])]);
        assert_eq!(cookies(&list, &groups[0]), Some((vec![5, 7, 6], vec![Some(10), Some(11), Some(12)])));
    }

    /// On a kernel without sock_diag, cookies are not even assigned.
    #[test]
    fn sockets_without_cookies_are_matched_by_their_inodes() {
        let mut list = list(&[5, 6]);
        list.iter_mut().for_each(|socket| socket.cookie = None);
        let mut kernel = kernel(&[6, 5]);
        for (member, inode) in kernel.members.iter_mut().zip([2, 1]) {
            (member.cookie, member.inode) = (None, Some(inode));
        }
        let inodes = |list: &[Socket], group: &ReuseportGroup| -> Vec<u32> {
            group.order.as_ref().unwrap().value.sockets.iter().map(|place| list[place.socket].inode).collect()
        };
        let before = joined(&mut list, std::slice::from_ref(&kernel));
        assert_eq!(inodes(&list, &before[0]), [2, 1]);
        let mut now = groups(&mut list.clone());
        keep(&before, &list, &list, &mut now);
        assert_eq!(inodes(&list, &now[0]), [2, 1]);
        kernel.members[0].inode = Some(9);
        assert_eq!(joined(&mut list, &[kernel])[0].order, None);
    }

    #[test]
    fn groups_that_differ_have_no_order() {
        let mut list = list(&[5, 6, 7]);
        let mut twice = kernel(&[5, 6, 7]);
        twice.members[2].index = Some(1);
        let mut far = kernel(&[5, 6, 7]);
        far.members[2].index = None;
        let mut hidden = kernel(&[5, 6]);
        hidden.sockets = 3;
        for other in [kernel(&[5, 6]), kernel(&[5, 6, 7, 8]), kernel(&[5, 6, 8]), twice, far, hidden] {
            assert_eq!(joined(&mut list, std::slice::from_ref(&other))[0].order, None, "{other:?}");
        }
    }

    #[test]
    fn an_order_is_kept_while_its_sockets_are_the_same() {
        let mut known = list(&[5, 6]);
        let before = joined(&mut known, &[kernel(&[6, 5])]);
        // Another socket comes first in the list now.
        let mut later = [list(&[9]), known.clone()].concat();
        later[0].local = "0.0.0.0:52".parse().unwrap();
        let mut now = groups(&mut later);
        keep(&before, &known, &later, &mut now);
        assert_eq!(cookies(&later, &now[0]), Some((vec![6, 5], vec![Some(10), Some(11)])));
        for changed in [&[5, 8][..], &[5, 6, 7]] {
            let mut list = list(changed);
            let mut now = groups(&mut list);
            keep(&before, &known, &list, &mut now);
            assert_eq!(now[0].order, None, "{changed:?}");
        }
    }
}
