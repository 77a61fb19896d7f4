//! One run: the state of the path, and its events.
//!
//! ```text
//!   Description, Costs, seed ─▸ Path::new ─▸ run: warm-up, window ─▸ Measured
//! ```
//! Always: offered = completed + lost (ring, backlog, socket) + in the path. A run depends on its arguments alone.

use crate::agenda::{Agenda, MICROSECOND, MILLISECOND, NANOSECOND, SECOND, Time};
use crate::costs::Costs;
use crate::description::{Description, Io, Link, Times as Distribution};
use crate::kernel::{Kernel, Receive};
use crate::random::{Random, split_mix};
use crate::stages::sharing::{Distances, Sharing};
use crate::stages::{Act, Item, Loss};
use crate::state::{Cpu, Mode, Queue, Socket, Source, Spent, Thread};

mod durations;
mod measured;

use durations::Durations;
pub(crate) use measured::{Counts, Measured};

/// What happens at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// A CPU's work ends, if it was not interrupted since.
    Ready(u16, u32),
    /// The interrupt of a queue.
    Interrupt(u16),
    /// The interrupt for a CPU's backlog.
    BacklogInterrupt(u16),
    /// A CPU has a thread that was woken elsewhere.
    Reschedule(u16),
    /// A request of a flow arrives.
    Arrive(u32),
    /// The next request of an open loop arrives.
    Next,
    /// Timer interrupts of all CPUs.
    Tick,
    /// Load balancing.
    Balance,
}

/// The state of the path.
pub(crate) struct Path<'a> {
    pub(crate) description: &'a Description,
    pub(crate) kernel: Kernel,
    pub(crate) receive: Receive,
    pub(crate) times: Durations,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) random: Random,
    pub(crate) sharing: Sharing,
    pub(crate) queues: Vec<Queue>,
    pub(crate) irq_cpus: Vec<usize>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) sockets: Vec<Socket>,
    /// The socket of the worker that is pinned to a CPU.
    pub(crate) socket_on: Vec<Option<usize>>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) backlog_lines: Vec<usize>,
    pub(crate) transmit_locks: Vec<usize>,
    pub(crate) memory: usize,
    /// Counters of IP's identifications, one of them for each client address (`ip_idents`).
    pub(crate) identifications: Vec<usize>,
    pub(crate) counts: Counts,
    pub(crate) jiffy: Time,
    pub(crate) slice: Time,
    pub(crate) wake_lead: Time,
    pub(crate) balance_every: Time,
    pub(crate) siblings_ratio: f64,
}

/// When a lost request of a closed loop is sent again. Shorter: a full queue is flooded. Longer: one loss idles its
/// slot for most of a run.
const RETRY: Time = 10 * MILLISECOND;
/// Counters of identifications that clients are spread over. The kernel has 2048 and more; a few already keep CPUs
/// apart.
const IDENTIFICATIONS: usize = 256;
/// How often load is balanced. The kernel's interval is a few ticks between CPUs of a node.
const BALANCE: Time = 4 * MILLISECOND;

impl<'a> Path<'a> {
    /// The path at rest. The description and the costs have been checked.
    pub(crate) fn new(description: &'a Description, costs: &Costs, seed: u64) -> Self {
        let terms = costs.scaled(description.speed, description.interconnect);
        let times = Durations::new(&terms, description);
        let time = |nanoseconds: f64| (nanoseconds * NANOSECOND as f64).round() as Time;
        let distances = Distances::new(description, time(terms.line), time(terms.handover), terms.remote);
        let mut sharing = Sharing::new(distances, time(terms.lock), description.kernel.queues_waiters());
        let receive = description.kernel.receive();
        let cpus = description.cpus();
        let sockets: Vec<Socket> = (0..description.sockets())
            .map(|_| Socket::new(&mut sharing, description.kernel, description.nodes))
            .collect();
        let threads: Vec<Thread> = (0..description.threads())
            .map(|thread| Thread::new(thread % sockets.len(), description.worker_cpu(thread)))
            .collect();
        let mut socket_on = vec![None; cpus];
        if description.io == Io::Percpu {
            for (at, thread) in threads.iter().enumerate() {
                socket_on[thread.cpu].get_or_insert(at);
            }
        }
        let transmit_locks = (0..description.transmit_queues())
            .map(|_| {
                let line = sharing.line();
                sharing.lock(line, true)
            })
            .collect();
        Self {
            description,
            kernel: description.kernel,
            receive,
            times,
            agenda: Agenda::default(),
            random: Random::new(seed),
            queues: (0..description.queues).map(|_| Queue::default()).collect(),
            irq_cpus: (0..description.queues).map(|queue| description.irq_cpu(queue)).collect(),
            cpus: (0..cpus).map(|_| Cpu::new()).collect(),
            sockets,
            socket_on,
            threads,
            backlog_lines: (0..cpus).map(|_| sharing.line()).collect(),
            transmit_locks,
            memory: sharing.line(),
            identifications: (0..description.clients.min(IDENTIFICATIONS)).map(|_| sharing.line()).collect(),
            sharing,
            counts: Counts::default(),
            jiffy: SECOND / Time::from(description.hz),
            slice: Kernel::slice(cpus),
            wake_lead: Kernel::wake_lead(cpus),
            balance_every: BALANCE,
            siblings_ratio: terms.siblings,
        }
    }

    /// Runs a warm-up and a window.
    pub(crate) fn run(&mut self, warm_up: Time, window: Time) -> Measured {
        self.begin();
        self.until(warm_up);
        let before = self.state();
        self.until(warm_up + window);
        let after = self.state();
        let share = |at: usize| (after.locks[at] - before.locks[at]) as f64 / window as f64;
        let of_sockets = 2 * self.sockets.len();
        let spent = |(after, before): (&Spent, &Spent)| Spent {
            softirq: after.softirq - before.softirq,
            thread: after.thread - before.thread,
            spinning: after.spinning - before.spinning,
        };
        Measured {
            seconds: window as f64 / SECOND as f64,
            counts: after.counts.since(&before.counts),
            cpus: after.cpus.iter().zip(&before.cpus).map(spent).collect(),
            socket_lock: (0..of_sockets).map(share).fold(0.0, f64::max),
            transmit_lock: (of_sockets..after.locks.len()).map(share).fold(0.0, f64::max),
            events: self.agenda.happened(),
        }
    }

    /// Every thread looks for work, and the load begins.
    fn begin(&mut self) {
        for thread in 0..self.threads.len() {
            let cpu = self.threads[thread].cpu;
            self.cpus[cpu].runnable.push(thread);
        }
        for cpu in 0..self.cpus.len() {
            if !self.cpus[cpu].runnable.is_empty() {
                self.restart(cpu);
            }
        }
        self.agenda.after(self.jiffy, Event::Tick);
        self.agenda.after(self.balance_every, Event::Balance);
        let (flows, inflight) = (self.description.flows, self.description.inflight);
        match self.description.link {
            _ if inflight == 0 => self.agenda.after(0, Event::Next),
            // Requests spread over some microseconds, not all at once.
            Link::Card => {
                let spread = (self.description.wire_us * MICROSECOND as f64) as usize;
                for slot in 0..inflight {
                    let delay = self.random.below(spread + 1) as Time;
                    self.agenda.after(delay, Event::Arrive((slot % flows) as u32));
                }
            }
            // The load starts on each CPU alike, as XPS spreads it.
            Link::Veth => {
                let queues = self.queues.len();
                for slot in 0..inflight {
                    let cpu = slot % self.cpus.len();
                    let queue = cpu % queues;
                    self.counts.offered += 1;
                    let flow = (slot / self.cpus.len() % flows) as u32;
                    self.queues[queue].ring.push_back(Item { born: 0, flow, cpu: cpu as u16 });
                    self.poll_here(queue, cpu);
                }
                for cpu in 0..self.cpus.len() {
                    self.restart(cpu);
                }
            }
        }
    }

    fn until(&mut self, end: Time) {
        while let Some(event) = self.agenda.next(end) {
            self.happen(event);
        }
        for cpu in 0..self.cpus.len() {
            self.settle(cpu);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Ready(cpu, epoch) => self.ready(cpu.into(), epoch),
            Event::Interrupt(queue) => self.interrupted(queue.into()),
            Event::BacklogInterrupt(cpu) => {
                self.cpus[usize::from(cpu)].poll.push_back(Source::Backlog);
                self.interrupt(cpu.into());
            }
            Event::Reschedule(cpu) => self.restart(cpu.into()),
            Event::Arrive(flow) => self.arrive(flow),
            Event::Next => {
                let flow = self.random.below(self.description.flows) as u32;
                self.arrive(flow);
                let mean = SECOND as f64 / self.description.rate;
                let gap = match self.description.arrivals {
                    Distribution::Constant => mean,
                    Distribution::Exponential => self.random.exponential(mean),
                };
                self.agenda.after(gap as Time, Event::Next);
            }
            Event::Tick => {
                for cpu in 0..self.cpus.len() {
                    self.tick(cpu);
                }
                self.agenda.after(self.jiffy, Event::Tick);
            }
            Event::Balance => {
                self.balance();
                self.agenda.after(self.balance_every, Event::Balance);
            }
        }
    }

    /// Changes state as a program says.
    pub(crate) fn act(&mut self, cpu: usize, act: Act) {
        match act {
            Act::Backlog(target, item) => self.append_to_backlog(cpu, target.into(), item),
            Act::Admit(socket, item) => self.admit(cpu, socket as usize, item),
            Act::Recheck(socket, item) => self.recheck(cpu, socket as usize, item),
            Act::Append(socket, item) => self.append(cpu, socket as usize, item),
            Act::Collect(socket, item) => self.collect(cpu, socket as usize, item),
            Act::Splice(socket) => self.splice(cpu, socket as usize),
            Act::Wake(socket) => self.wake(cpu, socket as usize),
            Act::Look | Act::Pop | Act::Refill | Act::Release | Act::Got(_) | Act::Reply | Act::Sent(..) => {
                // Only threads have these in their programs.
                let Some(thread) = self.cpus[cpu].current else { return };
                match act {
                    Act::Look => self.look(cpu, thread),
                    Act::Pop => self.pop(cpu, thread),
                    Act::Refill => self.refill_own(thread),
                    Act::Release => self.release(cpu, thread),
                    Act::Got(item) => self.got(cpu, thread, item),
                    Act::Reply => self.reply(cpu, thread),
                    Act::Sent(item, queue) => self.sent(cpu, item, queue.into()),
                    _ => {}
                }
            }
        }
    }

    pub(crate) fn complete(&mut self, item: Item) {
        self.counts.completed += 1;
        self.counts.time += u128::from(self.agenda.now() - item.born);
    }

    /// A datagram is lost; a closed loop sends the request again.
    pub(crate) fn lose(&mut self, item: Item, loss: Loss) {
        *match loss {
            Loss::Ring => &mut self.counts.ring,
            Loss::Backlog => &mut self.counts.backlog,
            Loss::Socket => &mut self.counts.socket,
        } += 1;
        if self.description.inflight > 0 {
            self.agenda.after(RETRY, Event::Arrive(item.flow));
        }
    }

    /// Transactions in the path.
    #[cfg(test)]
    pub(crate) fn inside(&self) -> usize {
        let rings = self.queues.iter().map(|queue| queue.ring.len());
        let backlogs = self.cpus.iter().map(|cpu| cpu.backlog.len());
        let sockets = self.sockets.iter().map(Socket::queued);
        let threads = self.threads.iter().map(Thread::held);
        let programs = self.cpus.iter().map(|cpu| &cpu.program);
        let programs = programs.chain(self.threads.iter().map(|thread| &thread.program));
        let moving = programs.flatten().filter(|op| op.carries()).count();
        rings.chain(backlogs).chain(sockets).chain(threads).sum::<usize>() + moving
    }

    /// From interrupting a CPU until it handles that.
    pub(crate) fn interrupt_delay(&self, from: usize, to: usize) -> Time {
        let asleep = if self.cpus[to].mode == Mode::Idle { self.times.sleeping } else { 0 };
        self.sharing.distances.of(self.times.ipi_delay, from, to) + asleep
    }

    fn state(&self) -> State {
        let now = self.agenda.now();
        let sockets = self.sockets.iter().flat_map(|socket| [socket.lock, socket.queue_lock]);
        let locks = sockets.chain(self.transmit_locks.iter().copied());
        State {
            counts: self.counts,
            cpus: self.cpus.iter().map(|cpu| cpu.spent).collect(),
            locks: locks.map(|lock| self.sharing.busy(lock, now)).collect(),
        }
    }
}

/// The sums at a moment.
struct State {
    counts: Counts,
    cpus: Vec<Spent>,
    locks: Vec<Time>,
}

/// The hash of a flow, one for each salt.
pub(crate) fn hash(flow: u32, salt: u64) -> u64 {
    let mut state = u64::from(flow) << 8 | salt;
    split_mix(&mut state)
}

#[cfg(test)]
mod tests;
