//! A socket's queue: admission, locks, memory, and waking the reader, as each kernel does it.
//!
//! ```text
//!   room? ─▸ socket lock { queue lock { append } wake }              before 4.10
//!         ─▸ charge, queue lock { append }, wake                     4.10
//!         ─▸ charge, busy lock { queue lock { append } }, wake       4.11; the reader takes all at once since 4.13
//!         ─▸ ring of the node; its first: queue lock { append all }  6.18
//! ```
//! Lines of `struct sock`, 64 bytes each:
//! - `queue`: the queue's head and lock; until 4.10 also the socket's lock, and its reference count, which until 4.6
//!   each lookup takes and each packet, dropped or not, returns;
//! - `account`: the charged memory; until 4.10 also the advance and the counter of drops;
//! - `tail`: the datagram that the next one is linked to; `sending`: memory of replies under way (`sk_wmem_alloc`);
//! - `file`: the count of the file that all threads of a process share (`fget`, twice per call).
//!
//! Memory of all UDP sockets together is one line, `memory`.

use super::{Act, Item, Loss, Op};
use crate::description::{Io, Link, Transport};
use crate::kernel::Receive;
use crate::path::{Path, hash};

/// Salt of the hash that chooses a socket of a group.
const GROUP: u64 = 2;
/// Memory charged for a small datagram, bytes: half a page and the skb (cards that build skbs around half pages: ixgbe,
/// mlx5); on a veth, for what arrived as an XDP frame, a page and the skb.
const CHARGED_CARD: usize = 2048 + 256;
const CHARGED_VETH: usize = 4096 + 512;
/// What a socket gets of the memory of all at once, and returns if it has more: a page (`SK_MEM_QUANTUM`).
const QUANTUM: usize = 4096;

impl Path<'_> {
    /// The socket of a flow's datagrams that this CPU processes.
    pub(crate) fn socket_of(&self, flow: u32, cpu: usize) -> usize {
        let by_hash = || hash(flow, GROUP) as usize % self.sockets.len();
        match (self.description.transport, self.description.io) {
            (Transport::Tcp, _) => flow as usize,
            (Transport::Udp, Io::Shared) => 0,
            (Transport::Udp, Io::Reuseport) => by_hash(),
            (Transport::Udp, Io::Percpu) => self.socket_on[cpu].unwrap_or_else(by_hash),
        }
    }

    fn is_full(&self, socket: usize) -> bool {
        self.sockets[socket].charged >= self.description.receive_buffer
    }

    /// Is there room? Asked before any lock is taken.
    pub(crate) fn admit(&mut self, cpu: usize, socket: usize, item: Item) {
        if self.is_full(socket) {
            return self.refuse(cpu, socket, item, None);
        }
        let it = &self.sockets[socket];
        let (id, work) = (socket as u32, Op::Work(self.times.enqueue));
        let append = [Op::Take(it.queue_lock), Op::Write(it.tail), Op::Do(Act::Append(id, item))];
        let [take, tail, append] = append;
        let (account, give) = (Op::Write(it.account), Op::Give(it.queue_lock));
        let wake = Op::Do(Act::Wake(id));
        match self.receive {
            Receive::SocketLock => {
                let recheck = Op::Do(Act::Recheck(id, item));
                let lock = Op::Take(it.lock);
                self.add(cpu, &[lock, recheck]);
            }
            Receive::QueueLock => self.add(cpu, &[work, account, take, tail, append, give, wake]),
            Receive::Bulk | Receive::TwoQueues if it.charged * 2 > self.description.receive_buffer => {
                let [busy, not_busy] = [Op::Take(it.busy_lock), Op::Give(it.busy_lock)];
                self.add(cpu, &[work, busy, account, take, tail, append, give, not_busy, wake]);
            }
            Receive::Bulk | Receive::TwoQueues => {
                self.add(cpu, &[work, account, take, tail, append, give, wake]);
            }
            Receive::Rings => {
                let ring = it.ring_lines[self.sharing.distances.node_of(cpu)];
                self.add(cpu, &[work, Op::Write(ring), Op::Do(Act::Collect(id, item))]);
            }
        }
    }

    /// The same, under the socket's lock.
    pub(crate) fn recheck(&mut self, cpu: usize, socket: usize, item: Item) {
        let lock = self.sockets[socket].lock;
        if self.is_full(socket) {
            return self.refuse(cpu, socket, item, Some(lock));
        }
        let it = &self.sockets[socket];
        let (id, work) = (socket as u32, Op::Work(self.times.enqueue));
        let (take, give) = (Op::Take(it.queue_lock), Op::Give(it.queue_lock));
        let (account, tail) = (Op::Write(it.account), Op::Write(it.tail));
        let append = Op::Do(Act::Append(id, item));
        // The reader is woken under the lock.
        self.add(cpu, &[work, account, take, tail, append, give, Op::Do(Act::Wake(id)), Op::Give(lock)]);
    }

    fn refuse(&mut self, cpu: usize, socket: usize, item: Item, held: Option<usize>) {
        self.lose(item, Loss::Socket);
        let drops = Op::Write(self.sockets[socket].drops);
        let give = held.map_or(Op::Work(0), Op::Give);
        self.add(cpu, &[drops, give, Op::Work(self.times.discard)]);
    }

    /// Bytes that one of its datagrams is charged.
    pub(crate) fn datagram_charge(&self) -> usize {
        match self.description.link {
            Link::Card => CHARGED_CARD,
            Link::Veth => CHARGED_VETH,
        }
    }

    /// Charges a datagram; asks for memory of all sockets if the advance is used up.
    fn charge(&mut self, cpu: usize, socket: usize) {
        let charge = self.datagram_charge();
        let it = &mut self.sockets[socket];
        it.charged += charge;
        if it.advance < charge {
            it.advance += charge.next_multiple_of(QUANTUM);
            // Since 6.0 each CPU has a reserve.
            if self.receive < Receive::Rings {
                self.add(cpu, &[Op::Write(self.memory)]);
            }
        }
        self.sockets[socket].advance -= charge;
    }

    /// Returns the memory of datagrams that were read.
    pub(crate) fn uncharge(&mut self, cpu: usize, socket: usize, bytes: usize) {
        let it = &mut self.sockets[socket];
        it.charged = it.charged.saturating_sub(bytes);
        it.advance += bytes;
        if it.advance > QUANTUM {
            it.advance %= QUANTUM;
            if self.receive < Receive::Rings {
                self.add(cpu, &[Op::Write(self.memory)]);
            }
        }
    }

    pub(crate) fn append(&mut self, cpu: usize, socket: usize, item: Item) {
        self.charge(cpu, socket);
        self.sockets[socket].queue.push_back(item);
    }

    /// Into the ring of this CPU's node; the CPU that finds it empty appends everything that is in it by then.
    pub(crate) fn collect(&mut self, cpu: usize, socket: usize, item: Item) {
        self.charge(cpu, socket);
        let node = self.sharing.distances.node_of(cpu);
        let it = &mut self.sockets[socket];
        it.rings[node].push_back(item);
        if it.rings[node].len() == 1 {
            let (take, give) = (Op::Take(it.queue_lock), Op::Give(it.queue_lock));
            let (tail, account) = (Op::Write(it.tail), Op::Write(it.account));
            self.add(cpu, &[take, tail, account, Op::Do(Act::Splice(socket as u32)), give]);
        }
    }

    pub(crate) fn splice(&mut self, cpu: usize, socket: usize) {
        let node = self.sharing.distances.node_of(cpu);
        let it = &mut self.sockets[socket];
        let all = std::mem::take(&mut it.rings[node]);
        // One wake-up for each datagram, while readers sleep.
        let wakes = all.len().min(it.sleepers.len());
        it.queue.extend(all);
        for _ in 0..wakes {
            self.wake(cpu, socket);
        }
    }
}
