//! The end of the path: UDP as a whole, and its sockets.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::selection::Selection;
use super::view::View;
use crate::client::sockets::{Socket, SocketOptions};
use crate::sockets::looks::{Asked, QueueLooks};
use crate::sockets::{Selector, place};
use crate::udp::{UdpCounters, UdpMemory};

/// UDP as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct UdpMap {
    /// Over IPv4.
    pub v4: Option<UdpCounters>,
    /// Over IPv6.
    pub v6: Option<UdpCounters>,
    /// The memory of all UDP sockets of the machine.
    pub memory: Option<UdpMemory>,
}

/// A socket on the path.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct SocketMap {
    /// Its inode, which identifies it in this map.
    pub inode: u32,
    /// Where it is bound.
    pub local: SocketAddr,
    /// Its peer, if it is connected.
    pub peer: Option<SocketAddr>,
    /// Processes that have it open.
    pub pids: Vec<u32>,
    /// Sockets that share its address and port, itself included.
    pub group: usize,
    /// Its place in its reuseport group, if it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<PlaceMap>,
    /// Bytes waiting to be received, by the kernel's accounting.
    pub queued: u32,
    /// Its receive buffer size, by the same accounting.
    pub buffer: Option<u32>,
    /// Bytes that were waiting at the beginning of the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_before: Option<u32>,
    /// What looks in between showed, where somebody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks: Option<QueueLooks>,
    /// Of a socket that is bound to any address: which ones were asked, and which answered, where somebody looked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Asked>,
    /// Datagrams dropped at it.
    pub drops: u64,
    /// The options its program has set, if they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<SocketOptions>,
}

/// A socket's place in its reuseport group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct PlaceMap {
    /// Its index, from 0: the number with which a program selects it.
    pub index: usize,
    /// What selects.
    pub selector: Selector,
    /// Its `SO_INCOMING_CPU`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incoming_cpu: Option<u32>,
}

impl SocketMap {
    /// Fill level of its receive buffer now, as a fraction of 1.
    #[must_use]
    pub fn fill(&self) -> Option<f64> {
        self.buffer.filter(|size| *size > 0).map(|size| f64::from(self.queued) / f64::from(size))
    }
}

pub(super) fn udp(view: View<'_>) -> UdpMap {
    let then = view.earlier.map(|then| &then.udp);
    let both = |now: Option<UdpCounters>, then: Option<UdpCounters>| {
        now.map(|now| then.map_or(now, |then| now.since(&then)))
    };
    UdpMap {
        v4: both(view.now.udp.v4, then.and_then(|then| then.v4)),
        v6: both(view.now.udp.v6, then.and_then(|then| then.v6)),
        memory: view.now.udp.memory,
    }
}

pub(super) fn map(view: View<'_>, selection: &Selection) -> Vec<SocketMap> {
    // Both lists have one order.
    let mut earlier = view.earlier.map_or(&[][..], |then| &then.sockets.list).iter().peekable();
    let mut was = |socket: &Socket| {
        while earlier.next_if(|was| place(was) < place(socket)).is_some() {}
        earlier.next_if(|was| place(was) == place(socket) && was.cookie == socket.cookie)
    };
    let mut sockets: Vec<SocketMap> = view
        .now
        .sockets
        .list
        .iter()
        .enumerate()
        .filter(|(_, socket)| selection.takes(socket))
        .map(|(at, socket)| {
            let mut pids: Vec<u32> = socket.owners.iter().map(|owner| owner.pid).collect();
            pids.dedup();
            let members = socket.group.and_then(|group| view.now.sockets.groups.get(group));
            let was = was(socket);
            let drops = was.map_or(socket.drops, |was| socket.drops.wrapping_sub(was.drops));
            SocketMap {
                inode: socket.inode,
                local: socket.local,
                peer: socket.peer,
                pids,
                group: members.map_or(1, |group| group.members.len()),
                place: members.and_then(|group| {
                    let order = &group.order.as_ref()?.value;
                    let index = order.sockets.iter().position(|place| place.socket == at)?;
                    let incoming_cpu = order.sockets[index].incoming_cpu;
                    Some(PlaceMap { index, selector: order.selector, incoming_cpu })
                }),
                queued: socket.receive_queue,
                queued_before: was.map(|was| was.receive_queue),
                looks: None,
                asked: Vec::new(),
                buffer: socket.memory.map(|memory| memory.receive_buffer),
                drops: u64::from(drops),
                options: socket.options.clone(),
            }
        })
        .collect();
    sockets.sort_by_key(|socket| std::cmp::Reverse((socket.drops, socket.queued)));
    sockets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Snapshot;
    use crate::sockets::tests::socket;
    use crate::source::Folder;

    #[test]
    fn drops_are_those_since_the_same_socket_was_seen() {
        let before = |drops| Socket { cookie: Some(1), drops, ..socket("0.0.0.0:53", 7, 0) };
        let gone = socket("0.0.0.0:52", 6, 0);
        let mut then = Snapshot::read(&Folder::captured(std::path::Path::new("/no-such-folder")));
        let mut now = then.clone();
        then.sockets.list = vec![gone, before(5), socket("[::]:53", 9, 0)];
        let drops = |now: &Snapshot| -> Vec<u64> {
            let view = View { now, earlier: Some(&then) };
            map(view, &Selection::All).iter().map(|socket| socket.drops).collect()
        };
        let new = Socket { drops: 2, ..socket("0.0.0.0:54", 8, 0) };
        now.sockets.list = vec![before(15), new];
        assert_eq!(drops(&now), [10, 2], "in the interval; all of a new socket's");
        now.sockets.list = vec![Socket { cookie: Some(2), ..before(15) }];
        assert_eq!(drops(&now), [15], "another socket at the same place");
        now.sockets.list = vec![before(4)];
        assert_eq!(drops(&now), [u64::from(u32::MAX)], "the counter wraps at 32 bits");
    }
}
