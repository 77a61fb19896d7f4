//! The stages of the path, and what they have in common: what a CPU does next, written as short programs.
//!
//! ```text
//!              ┌ card.rs      rings, RSS, interrupts
//!   arrival ─▸ │ softirq.rs   polls, budgets, RPS, backlogs                runs on a CPU, above threads
//!              │ socket.rs    admission, locks, queue, wake-ups
//!              └ reader.rs    read, serve, reply, transmit                 runs in a thread
//!   cpu.rs       which of them a CPU runs: interrupts, softirqs, ksoftirqd, threads
//!   scheduler.rs whose turn it is among threads
//!   balance.rs   which CPU a waiting thread moves to
//!   sharing.rs   lines and locks: what waiting for other CPUs costs
//! ```
//! Always: a CPU runs one program at a time. Work takes time and can be interrupted in a thread; lines and locks may
//! have to be waited for; an act changes state at once, and may add to the program.

mod balance;
pub(crate) mod card;
pub(crate) mod cpu;
pub(crate) mod reader;
mod scheduler;
pub(crate) mod sharing;
pub(crate) mod socket;
pub(crate) mod softirq;

use crate::agenda::Time;

/// A datagram, or a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    /// When it arrived.
    pub(crate) born: Time,
    pub(crate) flow: u32,
    /// The CPU that last touched it.
    pub(crate) cpu: u16,
}

/// A step of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    /// The CPU works.
    Work(Time),
    /// It reads a line that others write.
    Read(usize),
    /// It writes a line that others read or write.
    Write(usize),
    /// It takes a lock, and spins until it has it.
    Take(usize),
    /// It releases a lock: a write of its line, then the release.
    Give(usize),
    /// It has written the line of a lock that it releases.
    Given(usize),
    /// It allows softirqs again, and runs those that are pending.
    Enable,
    /// It changes state.
    Do(Act),
}

/// A change of state.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    /// RPS: a packet goes into the backlog of a CPU.
    Backlog(u16, Item),
    /// A socket's admission: is there room?
    Admit(u32, Item),
    /// The same again, under the socket's lock.
    Recheck(u32, Item),
    /// A datagram enters a socket's queue.
    Append(u32, Item),
    /// A datagram enters the ring of a node.
    Collect(u32, Item),
    /// The rings' datagrams enter the queue.
    Splice(u32),
    /// A reader that sleeps is woken.
    Wake(u32),
    /// The thread looks whether there is something to read.
    Look,
    /// It takes from the queue, whose lock it has.
    Pop,
    /// It takes the whole queue, whose lock it has.
    Refill,
    /// It returns the memory of a datagram, under the socket's lock.
    Release,
    /// It has read a datagram.
    Got(Item),
    /// It has served all it read, and sends the next reply.
    Reply,
    /// A reply is with the device.
    Sent(Item, u16),
}

/// Where a datagram was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    Ring,
    Backlog,
    Socket,
}

impl Op {
    /// Whether a transaction is on its way in this step.
    #[cfg(test)]
    pub(crate) const fn carries(self) -> bool {
        use Act::{Admit, Append, Backlog, Collect, Got, Recheck, Sent};
        matches!(
            self,
            Self::Do(Backlog(..) | Admit(..) | Recheck(..) | Append(..) | Collect(..) | Got(_) | Sent(..))
        )
    }
}
