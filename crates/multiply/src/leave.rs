//! How an instance leaves without the loss of a datagram or a reply.
//!
//! ```text
//! retire         its slot is taken out of the orders    a CPU that has read them before may still queue a datagram
//! grace period   every lookup that ran has ended        from here on nothing is added to its queues
//! drain          its queues are empty                   its last datagram was taken, perhaps not answered
//!                all threads asleep for half a second   the reply was sent
//! keep           a duplicate of its socket              closing a port's first socket loses datagrams of others (kept.rs)
//! SIGTERM        it closes its socket and ends          nothing is in it, and nothing can reach it
//! ```
//! - **Grace period.** A lookup, the program that it runs, and the way to the socket's queue are one RCU read-side
//!   critical section (`ip_local_deliver_finish` of net/ipv4/ip_input.c), so that all which have read the earlier
//!   orders have queued their datagrams when the grace period ends. It also covers producers that wait in the kernel's
//!   own list in front of the queue (Linux 6.18). Before, an empty queue means nothing. A kernel with `nohz_full` CPUs
//!   offers no such wait: the half second takes its place.
//! - **Empty.** The length that sock_diag reports counts what the kernel has moved to the reader's second queue, and no
//!   longer what recvmsg has returned (`udp_rqueue_get` of include/net/udp.h).
//! - **Asleep.** A thread that has taken a datagram runs, wants to run (state R, whether it gets a CPU or not), waits
//!   for a disk (D), or is stopped (T): not asleep. Its CPU time alone would not show that: one that gets no CPU uses
//!   none, and the kernel accounts that of a running one at ticks, which some CPUs do not have. It must not have grown
//!   either, so that nothing ran between two looks.
//! - **For half a second.** One that sleeps (S) waits for its next datagram, or for something else that the reply
//!   needs, such as a database. These look alike: a reply that waits longer is lost. Timers that wake it more often
//!   look like work: then it leaves when the drain limit is over, with its queues empty.

use std::time::{Duration, Instant};

use crate::instance::Phase;
use crate::supervisor::Supervisor;
use crate::{Error, Event};

/// Time between two looks at an instance that drains. Shorter: more CPU time, some 0.3 ms each. Longer: it leaves
/// later.
const DRAIN_INTERVAL: Duration = Duration::from_millis(10);
/// Looks in a row that must find it asleep with empty queues: half a second. Fewer: replies that wait for something
/// outside are cut off. More: each instance leaves later.
const IDLE: u32 = 50;

impl Supervisor {
    /// Begins to end it: without further datagrams, until it has answered those that are queued.
    pub(crate) fn leave(&mut self, at: usize, now: Instant) -> Result<(), Error> {
        let (slot, until) = (self.instances[at].slot(), now + self.config.drain);
        self.instances[at].leaving = true;
        match self.instances[at].phase {
            Phase::Serving { .. } => {
                self.shares.retire(slot)?;
                self.instances[at].phase = Phase::Draining { until, idle: 0, look: now };
                Ok(())
            }
            Phase::Starting { .. } => self.cut_off(at, now),
            Phase::Stopped { .. } | Phase::Draining { .. } | Phase::Ending { .. } => Ok(()),
        }
    }

    /// One look at an instance that drains.
    pub(crate) fn draining(
        &mut self,
        at: usize,
        until: Instant,
        idle: u32,
        now: Instant,
    ) -> Result<(), Error> {
        let instance = &mut self.instances[at];
        // No queries any more: they would be read until the end.
        instance.query = None;
        // The queues first: a thread that takes the last datagram after this is not asleep.
        instance.look()?;
        let asleep = instance.is_asleep();
        let progress = instance.progress(0);
        let before = std::mem::replace(&mut instance.progress, progress);
        let is_idle = progress.queued == 0 && asleep && progress.ran == before.ran;
        let idle = if is_idle { idle + 1 } else { 0 };
        if idle < IDLE && now < until {
            instance.phase = Phase::Draining { until, idle, look: now + DRAIN_INTERVAL };
            return Ok(());
        }
        if progress.queued > 0 {
            let bytes = u32::try_from(progress.queued).unwrap_or(u32::MAX);
            self.events.push(Event::NotDrained { number: instance.number, bytes });
        }
        self.shares.keep_open(instance.slot(), instance.started, now)?;
        self.instances[at].terminate(now + self.config.drain);
        Ok(())
    }

    /// Ends it at once, without the loss of another one's datagrams.
    pub(crate) fn cut_off(&mut self, at: usize, now: Instant) -> Result<(), Error> {
        let (slot, started) = (self.instances[at].slot(), self.instances[at].started);
        self.shares.retire(slot)?;
        self.shares.keep_open(slot, started, now)?;
        self.shares.empty(slot)?;
        self.instances[at].kill(now + self.config.drain)
    }
}
