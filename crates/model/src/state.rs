//! The state of what a path consists of: queues, CPUs, threads and sockets. What they do is in [`crate::stages`].

use std::collections::VecDeque;

use crate::agenda::Time;
use crate::kernel::{Kernel, NAPI_WEIGHT, Receive};
use crate::stages::sharing::Sharing;
use crate::stages::{Item, Op};

/// What a CPU polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Queue(usize),
    Backlog,
}

/// A receive queue, with the completions of the transmit queues that share its interrupt.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) ring: VecDeque<Item>,
    /// Sent packets to complete: from the CPU of the poll, and from others.
    pub(crate) sent: [u32; 2],
    /// On the poll list of a CPU.
    pub(crate) polled: bool,
    pub(crate) armed: bool,
    pub(crate) next_interrupt: Time,
}

impl Queue {
    pub(crate) fn has_work(&self) -> bool {
        !self.ring.is_empty() || self.sent != [0, 0]
    }
}

/// What a CPU is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Idle,
    /// Softirqs, at once.
    Softirq,
    /// Softirqs, in ksoftirqd.
    Ksoftirqd,
    /// The current thread.
    Thread,
}

/// Time by mode.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Spent {
    pub(crate) softirq: Time,
    pub(crate) thread: Time,
    /// Of both, spinning for locks.
    pub(crate) spinning: Time,
}

/// One CPU.
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(crate) mode: Mode,
    /// Invalidates the `Ready` events of interrupted work.
    pub(crate) epoch: u32,
    /// When the current work ends; 0: there is none.
    pub(crate) until: Time,
    /// It takes longer because of a busy sibling.
    pub(crate) slowed: bool,
    pub(crate) spinning_since: Option<Time>,
    /// Locks held.
    pub(crate) atomic: u32,
    /// An interrupt came while it held one.
    pub(crate) missed: bool,
    pub(crate) since: Time,
    pub(crate) spent: Spent,

    /// Softirq: its program, what to poll, and its limits.
    pub(crate) program: Vec<Op>,
    pub(crate) poll: VecDeque<Source>,
    pub(crate) left: u32,
    pub(crate) budget: u32,
    pub(crate) restarts: u32,
    pub(crate) end_jiffy: u64,
    /// Interrupts whose cost is still to be paid.
    pub(crate) interrupts: u32,
    /// CPUs to interrupt at the end of the round.
    pub(crate) to_interrupt: Vec<usize>,
    pub(crate) backlog: VecDeque<Item>,
    pub(crate) backlog_polled: bool,
    /// This CPU has put itself on its poll list for its backlog, while it polled a queue.
    pub(crate) backlog_in_round: bool,
    pub(crate) ksoftirqd: bool,
    pub(crate) ksoftirqd_ran: f64,

    /// The thread that runs, or that an interrupt suspends.
    pub(crate) current: Option<usize>,
    /// Other runnable threads.
    pub(crate) runnable: Vec<usize>,
    /// The least that any of its threads ran, virtual picoseconds.
    pub(crate) ran: f64,
    pub(crate) started: Time,
    /// Share of time in softirqs, over some milliseconds.
    pub(crate) softirq_load: f64,
    pub(crate) softirq_seen: Time,
}

impl Cpu {
    pub(crate) fn new() -> Self {
        Self {
            mode: Mode::Idle,
            epoch: 0,
            until: 0,
            slowed: false,
            spinning_since: None,
            atomic: 0,
            missed: false,
            since: 0,
            spent: Spent::default(),
            program: Vec::new(),
            poll: VecDeque::new(),
            left: NAPI_WEIGHT,
            budget: 0,
            restarts: 0,
            end_jiffy: 0,
            interrupts: 0,
            to_interrupt: Vec::new(),
            backlog: VecDeque::new(),
            backlog_polled: false,
            backlog_in_round: false,
            ksoftirqd: false,
            ksoftirqd_ran: 0.0,
            current: None,
            runnable: Vec::new(),
            ran: 0.0,
            started: 0,
            softirq_load: 0.0,
            softirq_seen: 0,
        }
    }

    /// No thread runs or waits: what `idle_cpu()` says, also while a softirq interrupts the idle task.
    pub(crate) fn is_free(&self) -> bool {
        self.current.is_none() && self.runnable.is_empty() && !self.ksoftirqd
    }

    /// Threads that want to run.
    pub(crate) fn load(&self) -> usize {
        self.runnable.len() + usize::from(self.current.is_some()) + usize::from(self.ksoftirqd)
    }

    /// In which it is not interrupted: a lock is held or waited for.
    pub(crate) const fn is_atomic(&self) -> bool {
        self.atomic > 0
    }
}

/// A thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) program: Vec<Op>,
    pub(crate) socket: usize,
    /// Where it runs, or ran last.
    pub(crate) cpu: usize,
    /// It has to be switched to before it goes on.
    pub(crate) switched: bool,
    /// How long it ran, virtual picoseconds.
    pub(crate) ran: f64,
    /// Read, and not yet answered.
    pub(crate) batch: VecDeque<Item>,
}

impl Thread {
    pub(crate) fn new(socket: usize, cpu: usize) -> Self {
        Self { program: Vec::new(), socket, cpu, switched: false, ran: 0.0, batch: VecDeque::new() }
    }

    /// Datagrams that it has read and not yet answered.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.batch.len()
    }
}

/// A socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) queue: VecDeque<Item>,
    /// The reader's own queue, since 4.13.
    pub(crate) own: VecDeque<Item>,
    /// Collected by the CPUs of each node, since 6.18.
    pub(crate) rings: Vec<VecDeque<Item>>,
    /// Bytes charged, and of those, read but not yet returned.
    pub(crate) charged: usize,
    pub(crate) unreturned: usize,
    /// Bytes that it may charge without asking.
    pub(crate) advance: usize,
    /// Readers that sleep, the first to be woken in front.
    pub(crate) sleepers: VecDeque<usize>,

    pub(crate) account: usize,
    /// Written by a lookup and after the packet, if lookups count references.
    pub(crate) references: Option<usize>,
    pub(crate) file: usize,
    pub(crate) sending: usize,
    pub(crate) drops: usize,
    pub(crate) tail: usize,
    pub(crate) ring_lines: Vec<usize>,
    /// The lock of the socket, of its queue, and that producers take first.
    pub(crate) lock: usize,
    pub(crate) queue_lock: usize,
    /// Of the reader's own queue.
    pub(crate) own_lock: usize,
    pub(crate) busy_lock: usize,
}

impl Socket {
    pub(crate) fn new(sharing: &mut Sharing, kernel: Kernel, nodes: usize) -> Self {
        let (account, queue) = (sharing.line(), sharing.line());
        let (own, busy) = (sharing.line(), sharing.line());
        // Apart since the layout of 4.11.
        let apart = kernel.receive() >= Receive::Bulk;
        let drops = if apart { sharing.line() } else { account };
        let lock = if apart { sharing.line() } else { queue };
        Self {
            queue: VecDeque::new(),
            own: VecDeque::new(),
            rings: vec![VecDeque::new(); nodes],
            charged: 0,
            unreturned: 0,
            advance: 0,
            sleepers: VecDeque::new(),
            account,
            references: kernel.counts_lookups().then_some(queue),
            file: sharing.line(),
            sending: sharing.line(),
            drops,
            tail: sharing.line(),
            ring_lines: (0..nodes).map(|_| sharing.line()).collect(),
            lock: sharing.lock(lock, true),
            queue_lock: sharing.lock(queue, false),
            own_lock: sharing.lock(own, true),
            busy_lock: sharing.lock(busy, false),
        }
    }

    /// Nothing to read, in any queue.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.own.is_empty()
    }

    /// Datagrams in its queues.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.queue.len() + self.own.len() + self.rings.iter().map(VecDeque::len).sum::<usize>()
    }
}
