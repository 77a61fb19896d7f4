//! Lines and locks: what CPUs cost each other.
//!
//! ```text
//!   line   written by one CPU at a time (MESI): a write waits until the line is free, then for its move from the last
//!          writer. A read of a line that was written elsewhere waits likewise, but reads overlap.
//!   lock   FIFO. Free: a write of its line. Taken: the CPU spins; when it is its turn, a hand-over from the releaser.
//! ```
//! So a line that N CPUs write all the time is a queue with one server, and a lock's turn costs what its holder waits
//! for lines, the work under it, and the hand-over: neither is a parameter of the number of contenders.

use std::collections::VecDeque;

use crate::agenda::Time;
use crate::description::Description;

/// How far apart two CPUs are, and what moves between them cost.
#[derive(Debug)]
pub(crate) struct Distances {
    core: Vec<usize>,
    node: Vec<usize>,
    /// Between cores of a node.
    pub(crate) line: Time,
    pub(crate) handover: Time,
    remote: f64,
}

impl Distances {
    pub(crate) fn new(description: &Description, line: Time, handover: Time, remote: f64) -> Self {
        let cpus = 0..description.cpus();
        Self {
            core: cpus.clone().map(|cpu| description.core_of(cpu)).collect(),
            node: cpus.map(|cpu| description.node_of(cpu)).collect(),
            line,
            handover,
            remote,
        }
    }

    pub(crate) fn node_of(&self, cpu: usize) -> usize {
        self.node[cpu]
    }

    /// What `near` within a node costs between these CPUs. Threads of a core share its caches.
    pub(crate) fn of(&self, near: Time, from: usize, to: usize) -> Time {
        if self.core[from] == self.core[to] {
            0
        } else if self.node[from] == self.node[to] {
            near
        } else {
            (near as f64 * self.remote) as Time
        }
    }
}

/// A cache line.
#[derive(Debug, Clone)]
struct Line {
    writer: usize,
    /// CPUs that have its current content.
    sharers: u128,
    /// When the last move of it ends.
    free_at: Time,
}

/// A lock.
#[derive(Debug)]
struct Lock {
    line: usize,
    holder: Option<usize>,
    last: usize,
    waiters: VecDeque<usize>,
    since: Time,
    /// Time held or handed over.
    busy: Time,
    bh: bool,
}

/// A lock changes hands: to whom, and after what time.
pub(crate) struct Granted {
    pub(crate) cpu: usize,
    pub(crate) after: Time,
}

/// All lines and locks.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub(crate) distances: Distances,
    lines: Vec<Line>,
    locks: Vec<Lock>,
    /// Taking and releasing a lock that nobody else wants.
    lock: Time,
    /// Waiters watch a line of their own.
    queued: bool,
}

impl Sharing {
    pub(crate) fn new(distances: Distances, lock: Time, queued: bool) -> Self {
        Self { distances, lines: Vec::new(), locks: Vec::new(), lock, queued }
    }

    /// A new line.
    pub(crate) fn line(&mut self) -> usize {
        self.lines.push(Line { writer: 0, sharers: u128::MAX, free_at: 0 });
        self.lines.len() - 1
    }

    /// A new lock, on a line of its own or on that of the data that it guards. `bh`: its release runs pending softirqs.
    pub(crate) fn lock(&mut self, line: usize, bh: bool) -> usize {
        let lock = Lock { line, holder: None, last: 0, waiters: VecDeque::new(), since: 0, busy: 0, bh };
        self.locks.push(lock);
        self.locks.len() - 1
    }

    pub(crate) fn line_of(&self, lock: usize) -> usize {
        self.locks[lock].line
    }

    pub(crate) fn is_bh(&self, lock: usize) -> bool {
        self.locks[lock].bh
    }

    /// Time until a CPU has read a line.
    pub(crate) fn read(&mut self, line: usize, cpu: usize, now: Time) -> Time {
        let line = &mut self.lines[line];
        if line.sharers >> cpu & 1 == 1 {
            return 0;
        }
        line.sharers |= 1 << cpu;
        line.free_at.saturating_sub(now) + self.distances.of(self.distances.line, line.writer, cpu)
    }

    /// Time until a CPU may write a line.
    pub(crate) fn write(&mut self, line: usize, cpu: usize, now: Time) -> Time {
        let line = &mut self.lines[line];
        if line.sharers == 1 << cpu {
            return 0;
        }
        // Readers on other nodes have to give up their copies as well, but at the same time as the writer.
        let moved = self.distances.of(self.distances.line, line.writer, cpu);
        line.free_at = line.free_at.max(now) + moved;
        (line.writer, line.sharers) = (cpu, 1 << cpu);
        line.free_at - now
    }

    /// Takes a lock: the time until the CPU has it, or `None` if it has to spin.
    pub(crate) fn take(&mut self, lock: usize, cpu: usize, now: Time) -> Option<Time> {
        if self.locks[lock].holder.is_some() {
            self.locks[lock].waiters.push_back(cpu);
            return None;
        }
        let line = self.locks[lock].line;
        let taken = self.write(line, cpu, now) + self.lock;
        let lock = &mut self.locks[lock];
        (lock.holder, lock.since) = (Some(cpu), now);
        Some(taken)
    }

    /// Releases a lock.
    pub(crate) fn give(&mut self, lock: usize, cpu: usize, now: Time) -> Option<Granted> {
        let held = &mut self.locks[lock];
        held.busy += now - held.since;
        held.last = cpu;
        held.since = now;
        held.holder = held.waiters.pop_front();
        let next = held.holder?;
        let (line, waiters) = (held.line, held.waiters.len() as Time);
        let moved = self.distances.of(self.distances.line, cpu, next);
        // The next one writes the lock's line, and waits for it like everybody else.
        let wait = self.lines[line].free_at.saturating_sub(now) + moved;
        let mut after = wait.max(self.distances.of(self.distances.handover, cpu, next));
        if !self.queued {
            // Each of the others reads the line before the next can write it; half of them on average.
            after += waiters * moved / 2;
        }
        let line = &mut self.lines[line];
        line.free_at = line.free_at.max(now + after);
        (line.writer, line.sharers) = (next, 1 << next);
        Some(Granted { cpu: next, after })
    }

    /// Time that a lock was held or handed over until now.
    pub(crate) fn busy(&self, lock: usize, now: Time) -> Time {
        let lock = &self.locks[lock];
        lock.busy + lock.holder.map_or(0, |_| now - lock.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agenda::NANOSECOND;

    fn sharing(cpus: usize, queued: bool) -> Sharing {
        let description = Description { cores: cpus, nodes: 2, ..Description::default() };
        let distances = Distances::new(&description, 60 * NANOSECOND, 100 * NANOSECOND, 2.0);
        Sharing::new(distances, 20 * NANOSECOND, queued)
    }

    #[test]
    fn a_line_is_written_by_one_at_a_time_and_read_by_many_at_once() {
        let mut sharing = sharing(4, true);
        let line = sharing.line();
        assert_eq!(sharing.write(line, 0, 0), 0);
        assert_eq!(sharing.write(line, 0, 0), 0);
        // From CPU 0, near; then from CPU 1 to the other node, after the first move.
        assert_eq!(sharing.write(line, 1, 0), 60_000);
        assert_eq!(sharing.write(line, 2, 0), 60_000 + 120_000);
        assert_eq!(sharing.read(line, 0, 180_000), 120_000);
        assert_eq!(sharing.read(line, 3, 180_000), 60_000);
        assert_eq!(sharing.read(line, 3, 180_000), 0);
    }

    #[test]
    fn a_lock_is_first_in_first_out() {
        let mut sharing = sharing(4, true);
        let line = sharing.line();
        let lock = sharing.lock(line, false);
        assert_eq!(sharing.take(lock, 0, 0), Some(20_000));
        assert_eq!((sharing.take(lock, 3, 10), sharing.take(lock, 1, 20)), (None, None));
        let next = sharing.give(lock, 0, 50_000).unwrap();
        assert_eq!((next.cpu, next.after), (3, 200_000));
        let next = sharing.give(lock, 3, 300_000).unwrap();
        assert_eq!(next.cpu, 1);
        assert!(sharing.give(lock, 1, 400_000).is_none());
        assert_eq!(sharing.busy(lock, 500_000), 400_000);
    }

    #[test]
    fn waiters_that_watch_one_line_slow_its_hand_over() {
        let handover = |queued| {
            let mut sharing = sharing(4, queued);
            let line = sharing.line();
            let lock = sharing.lock(line, false);
            sharing.take(lock, 0, 0);
            for cpu in 1..4 {
                sharing.take(lock, cpu, 0);
            }
            sharing.give(lock, 0, 0).unwrap().after
        };
        assert_eq!((handover(true), handover(false)), (100_000, 160_000));
    }
}
