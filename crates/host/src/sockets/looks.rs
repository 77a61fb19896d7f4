//! Looks at the queues of UDP sockets within an interval.
//!
//! ```text
//!  snapshot ── look ─ look ── look ─ ... ── look ── snapshot ─▸ of each socket: looks, and those at which its queue was half full
//! ```
//! The two ends of an interval are chance: a queue that is full most of the time may have been emptied just then. Of a
//! steady load, the share of looks that find a queue full is the share of the time in which it is full.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Socket, list};
use crate::Source;

/// Time between two looks on average. Longer: a second has too few. Shorter: they cost, and say nothing new, since a
/// default buffer takes milliseconds to fill.
const PAUSE: Duration = Duration::from_millis(10);
/// Pauses last so much longer than looks: with many sockets a look takes longer, and must not keep a CPU busy.
const REST: u32 = 50;
/// Fill of a receive queue from which on datagrams wait in it. Of a queue that is emptied at once, filled by a steady
/// load and then overflows, this is more than half of the time.
const FULL: f64 = 0.5;
/// The golden ratio's fraction: pauses that differ by it do not keep step with anything periodic.
const IRREGULAR: f64 = 0.618_034;

/// What looks at a socket within an interval showed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct QueueLooks {
    /// How many there were.
    pub looks: u32,
    /// At how many its receive queue was at least half full.
    pub full: u32,
    /// Before how many it had dropped something since the look before.
    pub dropping: u32,
    /// At how many as many bytes waited as at the look before, and some did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub still: Option<u32>,
    /// At how many fewer bytes waited than at both looks before: something was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shrank: Option<u32>,
    /// At how many its send buffer had no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_room: Option<u32>,
}

/// Packets to and from one address of this machine and a socket's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Asked {
    /// The address.
    pub address: IpAddr,
    /// Packets that came to it.
    pub asked: u64,
    /// Packets that left from it.
    pub answered: u64,
}

/// What looks showed of a process that asks a name server: its socket is there for as long as it waits for the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct LookUps {
    /// The name server, by a socket of the process at the end of the interval.
    pub server: SocketAddr,
    /// How many looks there were.
    pub looks: u32,
    /// At how many a socket of its user was connected to a name server.
    pub open: u32,
}

/// The port of name servers, which a resolver's socket is connected to.
const NAME_SERVER: u16 = 53;

/// A socket by what no other one has.
type Key = (SocketAddr, u32, Option<u64>);

fn key(socket: &Socket) -> Key {
    (socket.local, socket.inode, socket.cookie)
}

/// The looks of an interval so far.
#[derive(Debug, Default)]
pub struct Looks {
    of: HashMap<Key, Seen>,
    /// Looks that saw a socket connected to a name server, by its user: whose process it is, no look can afford to find
    /// out.
    resolving: HashMap<u32, u32>,
    count: u32,
    /// By a port: the addresses that were asked and that answered.
    asked: (u16, Vec<Asked>),
}

/// A socket as it was last seen.
#[derive(Debug, Default)]
struct Seen {
    looks: QueueLooks,
    drops: u32,
    /// What waited at the last look, and at the one before. Two, because kernels before 6.18 count a datagram that does
    /// not fit until they have dropped it: one look may see more than waits.
    queued: [u32; 2],
}

impl Seen {
    fn add(&mut self, socket: &Socket) {
        let size = socket.memory.map_or(0, |memory| memory.receive_buffer);
        let is_full = size > 0 && f64::from(socket.receive_queue) >= FULL * f64::from(size);
        let [last, before] = self.queued;
        let is_still = socket.receive_queue > 0 && socket.receive_queue == last;
        let has_shrunk = socket.receive_queue < last.min(before);
        let has_no_room = socket.memory.is_some_and(|memory| memory.has_no_room(socket.send_queue));
        let looks = &mut self.looks;
        let count = |counted: &mut u32, one: bool| *counted = counted.saturating_add(u32::from(one));
        count(&mut looks.looks, true);
        count(&mut looks.full, is_full);
        count(&mut looks.dropping, self.drops != socket.drops);
        count(looks.still.get_or_insert(0), is_still);
        count(looks.shrank.get_or_insert(0), has_shrunk);
        count(looks.no_room.get_or_insert(0), has_no_room);
        (self.drops, self.queued) = (socket.drops, [socket.receive_queue, last]);
    }
}

impl Looks {
    /// Looks once; returns how long to pause before the next time.
    pub fn look(&mut self, source: &dyn Source) -> Duration {
        let began = Instant::now();
        // What cannot be read is missing from the snapshots as well, which say so.
        let sockets = list(source, &mut Vec::new()).map(|listed| listed.value).unwrap_or_default();
        self.add(&sockets);
        let mean = PAUSE.max(began.elapsed() * REST);
        mean.mul_f64(0.5 + (f64::from(self.count) * IRREGULAR).fract())
    }

    pub(crate) fn add(&mut self, sockets: &[Socket]) {
        self.count = self.count.wrapping_add(1);
        for socket in sockets {
            let new = || Seen { drops: socket.drops, ..Seen::default() };
            self.of.entry(key(socket)).or_insert_with(new).add(socket);
        }
        let users: HashSet<u32> = sockets.iter().filter(|one| asks(one)).map(|socket| socket.uid).collect();
        for user in users {
            let looks = self.resolving.entry(user).or_default();
            *looks = looks.saturating_add(1);
        }
    }

    /// What the first packets to and from a port showed of this machine's addresses.
    pub fn add_addresses(&mut self, port: u16, asked: Vec<Asked>) {
        self.asked = (port, asked);
    }

    /// What they showed of a socket.
    pub(crate) fn of(&self, socket: &Socket) -> Option<QueueLooks> {
        self.of.get(&key(socket)).map(|seen| seen.looks)
    }

    /// A port, and this machine's addresses in the first packets to and from it.
    pub(crate) const fn asked(&self) -> &(u16, Vec<Asked>) {
        &self.asked
    }

    /// What they showed of the look-ups of a socket's owners, if it is a resolver's.
    pub(crate) fn look_ups(&self, socket: &Socket) -> Option<LookUps> {
        let open = *self.resolving.get(&socket.uid).filter(|_| asks(socket))?;
        Some(LookUps { server: socket.peer?, looks: self.count, open })
    }
}

/// Is it connected to a name server?
fn asks(socket: &Socket) -> bool {
    socket.peer.is_some_and(|peer| peer.port() == NAME_SERVER) && socket.local.port() != NAME_SERVER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::SocketMemory;
    use crate::sockets::tests::socket;

    fn seen(receive_queue: u32, drops: u32, cookie: u64) -> Socket {
        let memory = SocketMemory { receive_buffer: 1000, ..SocketMemory::default() };
        Socket {
            receive_queue,
            drops,
            cookie: Some(cookie),
            memory: Some(memory),
            ..socket("0.0.0.0:53", 7, 0)
        }
    }

    #[test]
    fn looks_count_full_queues_and_intervals_with_drops() {
        let mut looks = Looks::default();
        for (queued, drops) in [(900, 40), (499, 40), (500, 45), (0, 45)] {
            looks.add(&[seen(queued, drops, 1)]);
        }
        let of = |cookie| looks.of[&key(&seen(0, 0, cookie))].looks;
        let counted = |looks, full, dropping, still, shrank| QueueLooks {
            looks,
            full,
            dropping,
            still: Some(still),
            shrank: Some(shrank),
            no_room: Some(0),
        };
        assert_eq!(of(1), counted(4, 2, 1, 0, 1), "drops before the first look do not count");
        // Another socket at the same place.
        looks.add(&[seen(900, 3, 2)]);
        let of = |cookie| looks.of[&key(&seen(0, 0, cookie))].looks;
        assert_eq!((of(2), of(1).looks), (counted(1, 1, 0, 0, 0), 4));
    }

    #[test]
    fn a_queue_that_is_read_shrinks_and_one_that_is_not_read_stands_still() {
        let moves = |queued: &[u32]| {
            let mut looks = Looks::default();
            for queued in queued {
                looks.add(&[seen(*queued, 0, 1)]);
            }
            let of = looks.of[&key(&seen(0, 0, 1))].looks;
            (of.still.unwrap(), of.shrank.unwrap())
        };
        assert_eq!(moves(&[0, 0, 0, 0]), (0, 0), "nothing waits");
        assert_eq!(moves(&[300, 600, 600, 900, 900, 900]), (3, 0), "filled");
        assert_eq!(
            moves(&[900, 900, 970, 900, 900]),
            (2, 0),
            "one that does not fit, seen before it is dropped"
        );
        assert_eq!(moves(&[900, 900, 890, 900, 860]), (1, 2), "read");
    }

    #[test]
    fn looks_count_full_send_buffers() {
        let mut looks = Looks::default();
        for send_queue in [899, 900, 2000] {
            let memory = SocketMemory { send_buffer: 1000, ..SocketMemory::default() };
            looks.add(&[Socket { send_queue, memory: Some(memory), ..seen(0, 0, 1) }]);
        }
        assert_eq!(looks.of[&key(&seen(0, 0, 1))].looks.no_room, Some(2));
    }

    #[test]
    fn pauses_are_irregular_and_long_beside_the_look() {
        let folder = crate::source::Folder::captured(std::path::Path::new("/no-such-folder"));
        let mut looks = Looks::default();
        let pauses: Vec<Duration> = (0..8).map(|_| looks.look(&folder)).collect();
        assert!(pauses.iter().all(|pause| *pause >= PAUSE / 2), "{pauses:?}");
        let distinct: std::collections::BTreeSet<_> = pauses.iter().collect();
        assert_eq!(distinct.len(), pauses.len());
    }
}
