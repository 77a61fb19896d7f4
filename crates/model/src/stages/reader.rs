//! A worker: reads, serves, replies. One thread, or one for each connection.
//!
//! ```text
//!   call ─▸ look ─┬─ lock { take one } ─▸ copy, free ─▸ more of the batch?    since 4.13 of its own queue, refilled whole
//!                 └─ nothing: sleep until woken
//!        ─▸ serve ─▸ call ─▸ for each: UDP, IP ─▸ transmit queue, with its lock if it is shared ─▸ device
//! ```

use super::{Act, Item, Op};
use crate::agenda::{MICROSECOND, NANOSECOND, Time};
use crate::description::{Link, Times, Transport};
use crate::kernel::Receive;
use crate::path::{Event, Path, hash};
use crate::state::Mode;

/// Salt of the hash that chooses a transmit queue without XPS.
const TRANSMIT: u64 = 3;
/// Lines that the CPU of the softirq wrote and the reader reads: of the skb its list, length and data pointers, and its
/// end; of the data the headers with the address, and the payload (`struct sk_buff`). And those that freeing writes:
/// the count of the data's page, and the free list of the skb's slab (`put_page`, `__slab_free`).
const READ_LINES: Time = 5 + 2;
/// Lines of a connection that both the softirq and its thread write: its lock, what was received and acknowledged, its
/// queues, timers and memory (`struct tcp_sock`, whose fast path is grouped into about as many).
pub(crate) const CONNECTION_LINES: Time = 6;
/// Lines that waking a thread of another CPU moves: its run queue's lock and tree, and the task.
const WAKE_LINES: Time = 3;

impl Path<'_> {
    /// The next receiving call of the current thread.
    pub(crate) fn next_call(&mut self, cpu: usize) {
        let Some(thread) = self.current(cpu) else { return };
        let [file, returned] = self.call(thread);
        self.add(cpu, &[Op::Work(self.times.call), file, returned, Op::Do(Act::Look)]);
    }

    /// A call's references to its file, taken and returned.
    fn call(&self, thread: usize) -> [Op; 2] {
        [Op::Write(self.sockets[self.threads[thread].socket].file); 2]
    }

    /// Something to read?
    pub(crate) fn look(&mut self, cpu: usize, thread: usize) {
        let socket = self.threads[thread].socket;
        let it = &mut self.sockets[socket];
        if !it.is_empty() {
            let two = self.receive >= Receive::TwoQueues;
            let take = Op::Take(if two { it.own_lock } else { it.queue_lock });
            return self.add(cpu, &[take, Op::Do(Act::Pop)]);
        }
        if !self.threads[thread].batch.is_empty() {
            return self.serve(cpu, thread);
        }
        it.sleepers.push_back(thread);
        self.settle(cpu);
        self.threads[thread].switched = true;
        self.schedule(cpu);
    }

    /// Takes a datagram, under the lock of the queue, or of the reader's own.
    pub(crate) fn pop(&mut self, cpu: usize, thread: usize) {
        let socket = self.threads[thread].socket;
        let two = self.receive >= Receive::TwoQueues;
        let it = &mut self.sockets[socket];
        let give = Op::Give(if two { it.own_lock } else { it.queue_lock });
        let taken = if two { it.own.pop_front() } else { it.queue.pop_front() };
        let Some(item) = taken else {
            if two && !it.queue.is_empty() {
                let (take, refill) = (Op::Take(it.queue_lock), Op::Do(Act::Refill));
                let back = Op::Give(it.queue_lock);
                return self.add(cpu, &[take, refill, back, Op::Do(Act::Pop)]);
            }
            return self.add(cpu, &[give, Op::Do(Act::Look)]);
        };
        self.fetch(cpu, item);
        self.add(cpu, &[give]);
        match self.receive {
            // Its memory returns under the socket's lock, once it is copied.
            Receive::SocketLock if self.description.transport == Transport::Udp => {}
            // TCP's reader has the socket for itself.
            Receive::SocketLock => self.release(cpu, thread),
            Receive::QueueLock => {
                let bytes = self.datagram_charge();
                self.uncharge(cpu, socket, bytes);
                self.add(cpu, &[Op::Write(self.sockets[socket].account)]);
            }
            _ => self.defer_return(cpu, socket),
        }
    }

    /// Since 4.13: takes the whole queue, under its lock.
    pub(crate) fn refill_own(&mut self, thread: usize) {
        let it = &mut self.sockets[self.threads[thread].socket];
        it.own.append(&mut it.queue);
    }

    /// Copies and frees a datagram.
    fn fetch(&mut self, cpu: usize, item: Item) {
        let moved = self.sharing.distances.of(self.sharing.distances.line, item.cpu.into(), cpu);
        let connection = if self.description.transport == Transport::Tcp { CONNECTION_LINES } else { 0 };
        let work = Op::Work(self.times.read + (READ_LINES + connection) * moved);
        let got = Op::Do(Act::Got(item));
        match (self.receive, self.current(cpu)) {
            (Receive::SocketLock, Some(thread)) if self.description.transport == Transport::Udp => {
                let it = &self.sockets[self.threads[thread].socket];
                let (take, account, give) = (Op::Take(it.lock), Op::Write(it.account), Op::Give(it.lock));
                self.add(cpu, &[work, take, account, Op::Do(Act::Release), give, got]);
            }
            _ => self.add(cpu, &[work, got]),
        }
    }

    /// Before 4.10: the memory of each datagram, under the socket's lock.
    pub(crate) fn release(&mut self, cpu: usize, thread: usize) {
        let bytes = self.datagram_charge();
        self.uncharge(cpu, self.threads[thread].socket, bytes);
    }

    /// Since 4.11: memory returns when it is a quarter of the buffer, or nothing else is queued.
    fn defer_return(&mut self, cpu: usize, socket: usize) {
        let charge = self.datagram_charge();
        let it = &mut self.sockets[socket];
        it.unreturned += charge;
        if it.unreturned >= self.description.receive_buffer / 4 || it.is_empty() {
            let bytes = std::mem::take(&mut it.unreturned);
            let account = it.account;
            self.uncharge(cpu, socket, bytes);
            self.add(cpu, &[Op::Write(account)]);
        }
    }

    /// A datagram has been read: more for the batch, or serve.
    pub(crate) fn got(&mut self, cpu: usize, thread: usize, item: Item) {
        let batch = &mut self.threads[thread].batch;
        batch.push_back(Item { cpu: cpu as u16, ..item });
        if batch.len() < self.description.batch {
            return self.add(cpu, &[Op::Do(Act::Look)]);
        }
        self.serve(cpu, thread);
    }

    fn serve(&mut self, cpu: usize, thread: usize) {
        let requests = self.threads[thread].batch.len();
        let mut work = self.times.service * requests as Time;
        for _ in 0..requests {
            work += self.service_time();
        }
        if self.description.replies {
            let [file, returned] = self.call(thread);
            self.add(cpu, &[Op::Work(work + self.times.call), file, returned, Op::Do(Act::Reply)]);
        } else {
            self.add(cpu, &[Op::Work(work), Op::Do(Act::Reply)]);
        }
    }

    fn service_time(&mut self) -> Time {
        let mean = self.description.service_ns * NANOSECOND as f64;
        match self.description.service_times {
            Times::Constant => mean as Time,
            Times::Exponential => self.random.exponential(mean) as Time,
        }
    }

    /// Sends the next reply of the batch.
    pub(crate) fn reply(&mut self, cpu: usize, thread: usize) {
        if !self.description.replies {
            while let Some(item) = self.threads[thread].batch.pop_front() {
                self.complete(item);
            }
            return;
        }
        let Some(item) = self.threads[thread].batch.pop_front() else { return };
        let queues = self.description.transmit_queues();
        let queue = match self.description.xps {
            true => cpu % queues,
            false => hash(item.flow, TRANSMIT) as usize % queues,
        };
        let (protocols, device) = (Op::Work(self.times.send), Op::Work(self.times.device_send));
        let (sent, next) = (Op::Do(Act::Sent(item, queue as u16)), Op::Do(Act::Reply));
        let lock = self.transmit_locks[queue];
        let (take, give) = (Op::Take(lock), Op::Give(lock));
        let shared = !self.description.xps || queues < self.cpus.len();
        let device = match (shared, self.description.link) {
            (false, _) => [device, sent, Op::Work(0), Op::Work(0)],
            // A card's lock is held while its driver fills the descriptor.
            (true, Link::Card) => [take, device, give, sent],
            // A veth's only for the append to the ring of its other end.
            (true, Link::Veth) => [device, take, sent, give],
        };
        let client = item.flow as usize % self.identifications.len();
        let ident = Op::Write(self.identifications[client]);
        let sending = Op::Write(self.sockets[self.threads[thread].socket].sending);
        self.add(cpu, &[Op::Enable, next]);
        self.add(cpu, &device);
        self.add(cpu, &[protocols, sending, ident]);
    }

    /// A reply is with the device.
    pub(crate) fn sent(&mut self, cpu: usize, item: Item, queue: usize) {
        self.complete(item);
        match self.description.link {
            Link::Card => {
                let receive = queue % self.queues.len();
                let here = self.irq_cpus[receive] == cpu;
                self.queues[receive].sent[usize::from(!here)] += 1;
                self.arm(receive);
                if self.description.inflight > 0 {
                    let wire = (self.description.wire_us * MICROSECOND as f64) as Time;
                    self.agenda.after(wire, Event::Arrive(item.flow));
                }
            }
            // The other end's program turns it into the next request, here and now.
            Link::Veth => {
                let queue = queue % self.queues.len();
                self.counts.offered += 1;
                let born = self.agenda.now();
                self.receive(queue, Item { born, ..item });
                self.poll_here(queue, cpu);
            }
        }
    }

    /// Wakes the reader that has slept longest.
    pub(crate) fn wake(&mut self, cpu: usize, socket: usize) {
        let Some(thread) = self.sockets[socket].sleepers.pop_front() else { return };
        let (target, looked_at) = self.place(thread, cpu);
        let line = self.sharing.distances.line;
        let moved = self.sharing.distances.of(line, cpu, target);
        let mut work = self.times.wake + WAKE_LINES * moved + looked_at * line;
        // A CPU that runs something sees the thread at its next turn; an idle one is interrupted.
        if target != cpu && self.cpus[target].mode == Mode::Idle {
            work += self.times.ipi;
            let delay = work + self.interrupt_delay(cpu, target);
            self.agenda.after(delay, Event::Reschedule(target as u16));
        }
        self.enqueue(thread, target);
        self.add(cpu, &[Op::Work(work)]);
    }

    /// The CPU of a thread that is woken, and at how many CPUs the scheduler had to look. Where it ran, if that is
    /// free; else here; else a free CPU of the node; else the less loaded of the two (`select_task_rq_fair`:
    /// `wake_affine`, then `select_idle_sibling`). Until 4.13, here comes first.
    fn place(&self, thread: usize, here: usize) -> (usize, Time) {
        let before = self.threads[thread].cpu;
        let allowed = &self.description.worker_cpus;
        let may = |cpu: usize| allowed.is_empty() || allowed.contains(cpu as u32);
        if self.description.pin && self.description.transport == Transport::Udp {
            return (before, 0);
        }
        let node = |cpu| self.sharing.distances.node_of(cpu);
        let free = |cpu: usize| self.cpus[cpu].is_free() && may(cpu);
        let near = node(before) == node(here);
        let stays = self.kernel.wakes_where_it_ran() && near && free(before);
        for cpu in [stays.then_some(before), Some(here), Some(before)].into_iter().flatten() {
            if free(cpu) {
                return (cpu, 1);
            }
        }
        let less = if may(here) && self.cpus[here].load() < self.cpus[before].load() { here } else { before };
        let of_node = (0..self.cpus.len()).filter(|cpu| node(*cpu) == node(less));
        // The search begins at the target.
        let (below, above): (Vec<usize>, Vec<usize>) = of_node.partition(|cpu| *cpu < less);
        let search = above.iter().chain(&below);
        let found = search.clone().position(|cpu| free(*cpu));
        let looked_at = found.map_or(above.len() + below.len(), |at| at + 1);
        (found.and_then(|at| search.clone().nth(at).copied()).unwrap_or(less), looked_at as Time)
    }

    fn current(&self, cpu: usize) -> Option<usize> {
        self.cpus[cpu].current
    }
}
