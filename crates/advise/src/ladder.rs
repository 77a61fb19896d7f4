//! The ladder as data: what each rung changes against the best configuration before it.
//!
//! A rung is a step, not a place: it is applied to whatever was best when its turn came, and undone if it does not pay.
//! A step brings its prerequisites along, for the ladder is not monotonic: what loses alone may win together.
//! The order is that of the first seed: nothing spreads before the socket is split, nothing is pinned to a CPU before
//! the CPU decides the socket. Later rungs are added here, and nowhere else.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// How the service moves datagrams. The names are those of `udpath serve --io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Io {
    /// One socket, all workers.
    Shared,
    /// A socket per worker, chosen by flow hash.
    Reuseport,
    /// A socket per worker, chosen by receiving CPU.
    Percpu,
    /// Frames off the device's queues, past the kernel's stack.
    Xdp,
}

impl Io {
    /// All of them, in ladder order.
    pub const ALL: [Self; 4] = [Self::Shared, Self::Reuseport, Self::Percpu, Self::Xdp];

    /// Those over kernel sockets alone.
    pub const KERNEL: [Self; 3] = [Self::Shared, Self::Reuseport, Self::Percpu];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Reuseport => "reuseport",
            Self::Percpu => "percpu",
            Self::Xdp => "xdp",
        }
    }
}

impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a socket is charged for one small datagram that came as an XDP frame: a page and its descriptor, where a
/// datagram of a local sender is charged 832 bytes. Lower: requests are lost in the socket's buffer for want of room.
const CHARGED: usize = 4096 + 512;

/// The kernel's own default (`net.core.rmem_default`), bytes.
const DEFAULT_RECEIVE_BUFFER: usize = 212_992;

/// Everything that a rung can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How the service moves datagrams.
    pub io: Io,
    /// Workers of the service.
    pub workers: usize,
    /// Datagrams per system call, 1..=1024. 1 is recvfrom and sendto.
    pub batch: usize,
    /// Replies to one peer in a row handed to the kernel in one piece (GSO).
    pub gso: bool,
    /// Workers bound to one CPU each.
    pub pin: bool,
    /// With `xdp`: frames spread over all workers by flow, not only to the one whose queue they came on.
    pub steer: bool,
    /// With `xdp`: the kernel polls the device when a worker asks.
    pub busy_poll: bool,
    /// With `xdp`: over a link of one queue, as a device that cannot spread flows gives them.
    pub one_queue: bool,
    /// Transmit mapping on both ends of the link: each CPU sends on a queue of its own.
    pub xps: bool,
    /// Receive buffer of each socket, bytes. The same for every rung: a request that does not fit is lost, and what is
    /// compared is how fast a server is, not how much it can hold.
    pub receive_buffer: usize,
}

impl Settings {
    /// Where every climb begins: what a simple server does on an untouched machine, with room for `inflight` requests
    /// in each socket.
    #[must_use]
    pub fn base(workers: usize, inflight: u32) -> Self {
        let receive_buffer = (inflight as usize * CHARGED).max(DEFAULT_RECEIVE_BUFFER);
        Self {
            io: Io::Shared,
            workers,
            batch: 1,
            gso: false,
            pin: false,
            steer: false,
            busy_poll: false,
            one_queue: false,
            xps: false,
            receive_buffer,
        }
    }

    /// Every setting as `key=value`, in a fixed order.
    #[must_use]
    pub fn pairs(&self) -> Vec<(String, String)> {
        let on = |yes: bool| if yes { "on" } else { "off" }.to_owned();
        vec![
            ("io".into(), self.io.to_string()),
            ("workers".into(), self.workers.to_string()),
            ("batch".into(), self.batch.to_string()),
            ("gso".into(), on(self.gso)),
            ("pin".into(), on(self.pin)),
            ("steer".into(), on(self.steer)),
            ("busy_poll".into(), on(self.busy_poll)),
            ("one_queue".into(), on(self.one_queue)),
            ("xps".into(), on(self.xps)),
            ("rcvbuf".into(), self.receive_buffer.to_string()),
        ]
    }
}

/// One step of the ladder.
#[derive(Debug, Clone)]
pub struct Rung {
    /// Short name, unique in the ladder.
    pub name: Cow<'static, str>,
    /// What it changes, in words.
    pub change: Cow<'static, str>,
    /// The change itself.
    pub step: Step,
}

/// A change to the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// None: the first rung.
    Base,
    /// Another Io, with what it needs to make sense.
    Io(Io),
    /// Transmit mapping on.
    Xps,
    /// Pinning on.
    Pin,
    /// Another batch size.
    Batch(usize),
    /// Segmentation offload for replies on.
    Gso,
    /// A socket per worker, batches and segmentation offload at once.
    Together,
    /// `xdp` with one queue and one worker.
    OneQueue,
    /// `xdp` with one queue, whose frames go to all workers.
    Steer,
    /// Busy polling of `xdp` on.
    BusyPoll,
}

impl Step {
    /// Does it take frames off an interface?
    #[must_use]
    pub fn needs_xdp(self) -> bool {
        matches!(self, Self::Io(Io::Xdp) | Self::OneQueue | Self::Steer | Self::BusyPoll)
    }

    /// Does it need a link of one queue?
    #[must_use]
    pub fn needs_one_queue(self) -> bool {
        matches!(self, Self::OneQueue | Self::Steer)
    }

    /// The settings after this step from `best`, on a machine where a server has `workers` workers if nothing speaks
    /// against it.
    #[must_use]
    pub fn apply(self, best: &Settings, workers: usize) -> Settings {
        let mut next = best.clone();
        match self {
            Self::Base => {}
            Self::Io(io) => {
                next.io = io;
                next.workers = workers;
                // What only xdp knows goes back with it.
                (next.steer, next.busy_poll, next.one_queue) = (false, false, false);
                // Its prerequisite comes with it, also if it did not pay by itself: without a transmit mapping all
                // flows drift to one CPU, and so to one socket or one queue.
                next.xps |= matches!(io, Io::Percpu | Io::Xdp);
                // A worker per queue, on a CPU of its own: two on one CPU would wait for each other.
                next.pin |= io == Io::Xdp;
            }
            Self::Xps => next.xps = true,
            Self::Pin => next.pin = true,
            Self::Batch(batch) => next.batch = batch,
            // Settings of xdp alone, tried together with it where it did not win by itself.
            Self::OneQueue => next = Settings { one_queue: true, ..Self::Io(Io::Xdp).apply(best, 1) },
            Self::Steer => {
                next = Settings { one_queue: true, steer: true, ..Self::Io(Io::Xdp).apply(best, workers) };
            }
            Self::BusyPoll => next = Settings { busy_poll: true, ..Self::Io(Io::Xdp).apply(best, workers) },
            // Each lost, or gained little, without the others: a shared socket hands every worker a mix of all peers, so
            // that replies to one are seldom in a row, and split sockets pay once the calls are few.
            Self::Together => {
                next = Self::Gso.apply(&Self::Io(Io::Reuseport).apply(best, workers), workers);
                next.xps = true;
            }
            Self::Gso => {
                next.gso = true;
                // One reply alone cannot be joined with another.
                if next.batch == 1 {
                    next.batch = BATCH;
                }
            }
        }
        next
    }
}

/// Datagrams per system call of the batched rung. Fewer: the cost of the call is spread over less. More: nothing is
/// gained (measured elsewhere: 8 brings 25 %, 32 nothing beyond 16) and each datagram waits longer for its burst.
const BATCH: usize = 32;

/// The ladder of this version, with only the Io in `ios` and what a link of `queues` queues can do. The first rung is
/// always there.
#[must_use]
pub fn ladder(ios: &[Io], queues: u32) -> Vec<Rung> {
    let all = [
        ("shared", "one socket, every worker reads it, one datagram per call", Step::Base),
        ("xps", "each CPU sends on a transmit queue of its own", Step::Xps),
        ("reuseport", "a socket per worker, chosen by flow hash", Step::Io(Io::Reuseport)),
        ("percpu", "a socket per worker, chosen by the CPU that received (needs xps)", Step::Io(Io::Percpu)),
        ("pinned", "each worker on a CPU of its own", Step::Pin),
        ("batched", "32 datagrams per system call", Step::Batch(BATCH)),
        ("gso", "replies to one peer in one piece, cut apart below the stack (needs batch)", Step::Gso),
        (
            "together",
            "a socket per worker, batched, replies in one piece, each CPU its transmit queue",
            Step::Together,
        ),
        ("xdp-1-queue", "frames off one queue past the kernel's stack, by one pinned worker", Step::OneQueue),
        ("steered", "the frames of that queue spread over all workers by flow", Step::Steer),
        (
            "xdp",
            "frames off all queues past the kernel's stack, a pinned worker each (needs xps)",
            Step::Io(Io::Xdp),
        ),
        ("busy-poll", "the kernel polls the queues when a worker of xdp asks", Step::BusyPoll),
    ];
    all.into_iter()
        .filter(|(_, _, step)| match step {
            Step::Io(Io::Percpu) => queues > 1 && ios.contains(&Io::Percpu),
            Step::Io(io) => ios.contains(io),
            Step::Xps => queues > 1,
            Step::OneQueue => queues > 1 && ios.contains(&Io::Xdp),
            Step::Together => queues > 1 && ios.contains(&Io::Reuseport),
            step if step.needs_xdp() => ios.contains(&Io::Xdp),
            _ => true,
        })
        .map(|(name, change, step)| Rung { name: name.into(), change: change.into(), step })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_the_first_rung_changes_nothing() {
        let ladder = ladder(&Io::ALL, 2);
        let names: std::collections::HashSet<_> = ladder.iter().map(|r| &r.name).collect();
        assert_eq!(names.len(), ladder.len());
        let base = Settings::base(2, 64);
        assert_eq!(ladder[0].step.apply(&base, 2), base);
        for rung in &ladder[1..] {
            assert_ne!(rung.step.apply(&base, 2), base, "{} changes nothing", rung.name);
        }
    }

    #[test]
    fn only_the_wanted_io_are_tried() {
        assert!(Step::Io(Io::Percpu).apply(&Settings::base(2, 64), 2).xps, "its prerequisite comes with it");
        assert!(!ladder(&Io::ALL, 1).iter().any(|r| r.step == Step::Xps), "one queue has nothing to map");
        let names: Vec<_> = ladder(&[Io::Shared, Io::Percpu], 2).iter().map(|r| r.name.to_string()).collect();
        assert_eq!(names, ["shared", "xps", "percpu", "pinned", "batched", "gso"]);
    }
}
