//! The ladder as data: what each rung changes in the best configuration so far.
//!
//! A rung is a step: it is applied to the best configuration when its turn comes, and undone if it does not win. A step
//! brings its prerequisites along, because the ladder is not monotonic: a change that loses alone may win with another.
//! The order matters: the socket is split before anything spreads the load, and the CPU selects the socket before
//! workers are pinned to CPUs. New rungs are added here and nowhere else.
//!
//! The link is a NIC's with RSS: several queues, each with its CPU. On a veth the CPU that sends selects the receiver's
//! queue, so XPS on both ends and flows with a home (`udpath_bpf::Layout::homes`) stand for RSS. A rung whose flows
//! drift to one CPU all the same is refused (`Error::Drifted`): it would be measured on one core. The rung before the
//! first real one, `one-queue`, shows what lack of RSS costs. It is a reference, never a base: every later rung spreads
//! again.

mod order;

use std::borrow::Cow;

use udpath_serve::Io;

use crate::result::LeftOut;
pub use order::{Place, ordered};

/// Socket memory charged for a small datagram that arrived as an XDP frame: a page and its descriptor. One from a local
/// sender is charged 832 bytes. Lower: the socket's buffer overflows and requests are lost.
const CHARGED: usize = 4096 + 512;

/// The kernel's own default (`net.core.rmem_default`), bytes.
const DEFAULT_RECEIVE_BUFFER: usize = 212_992;

/// All settings a rung can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How the service moves datagrams.
    pub io: Io,
    /// Workers of the service.
    pub workers: usize,
    /// Datagrams per system call, 1..=1024. 1 is recvfrom and sendto.
    pub batch: usize,
    /// Consecutive replies to one peer are sent as one message (UDP_SEGMENT, GSO).
    pub gso: bool,
    /// Each worker is pinned to a CPU.
    pub pin: bool,
    /// With `xdp`: frames are spread over all workers by flow, instead of staying with the worker of their queue.
    pub steer: bool,
    /// With `xdp`: busy polling.
    pub busy_poll: bool,
    /// With `xdp`: replies are sent as live frames, without an skb for each, where the kernel can.
    pub live_frames: bool,
    /// The link has one queue, like a device without RSS.
    pub one_queue: bool,
    /// RPS: every CPU processes what the server's queues receive, by flow hash.
    pub rps: bool,
    /// RFS: with RPS, the CPU that last read from a flow's socket processes the flow.
    pub rfs: bool,
    /// Receive buffer of each socket, bytes. The same for every rung: the ladder compares speed, not buffering.
    pub receive_buffer: usize,
}

impl Settings {
    /// The first rung: a simple server on an untuned machine, with receive buffers for `inflight` requests in each
    /// socket.
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
            live_frames: true,
            one_queue: false,
            rps: false,
            rfs: false,
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
            ("live_frames".into(), on(self.live_frames)),
            ("one_queue".into(), on(self.one_queue)),
            ("rps".into(), on(self.rps)),
            ("rfs".into(), on(self.rfs)),
            ("rcvbuf".into(), self.receive_buffer.to_string()),
        ]
    }
}

/// One step of the ladder.
#[derive(Debug, Clone)]
pub struct Rung {
    /// Short name, unique in the ladder.
    pub name: Cow<'static, str>,
    /// Description of the change.
    pub change: Cow<'static, str>,
    /// The change itself.
    pub step: Step,
}

/// A change to the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A link of one queue, as without RSS.
    RssOff,
    /// No change: a link of all queues.
    Base,
    /// Another Io, with its prerequisites.
    Io(Io),
    /// RPS on, over all CPUs.
    Rps,
    /// RPS on, and a socket per worker.
    RpsReuseport,
    /// RPS and RFS on, and a socket per worker.
    Rfs,
    /// Pinning on.
    Pin,
    /// Another batch size.
    Batch(usize),
    /// GSO for replies on.
    Gso,
    /// A socket per worker, batches and GSO at once.
    Together,
    /// `xdp` with one queue and one worker.
    OneQueue,
    /// `xdp` with one queue and frames spread over all workers.
    Steer,
    /// Busy polling of `xdp` on.
    BusyPoll,
    /// These settings, whatever won before: for races outside of the ladder.
    Exactly(Settings),
}

impl Step {
    /// True if it uses AF_XDP.
    #[must_use]
    pub fn needs_xdp(self) -> bool {
        match self {
            Self::Io(Io::Xdp) | Self::OneQueue | Self::Steer | Self::BusyPoll => true,
            Self::Exactly(settings) => settings.io == Io::Xdp,
            _ => false,
        }
    }

    /// True if it needs AF_XDP on a link of one queue.
    #[must_use]
    pub fn needs_one_queue(self) -> bool {
        match self {
            Self::OneQueue | Self::Steer => true,
            Self::Exactly(settings) => settings.io == Io::Xdp && settings.one_queue,
            _ => false,
        }
    }

    /// True if it changes receive steering, which only root of the initial user namespace may.
    #[must_use]
    pub fn needs_rps(self) -> bool {
        matches!(self, Self::Rps | Self::RpsReuseport | Self::Rfs)
    }

    /// Applies this step to `best`. `workers` is the usual number of workers of a server.
    #[must_use]
    pub fn apply(self, best: &Settings, workers: usize) -> Settings {
        // RSS is the link's property, not something that has to win.
        let mut next = Settings { one_queue: false, ..*best };
        match self {
            Self::RssOff => next.one_queue = true,
            Self::Exactly(settings) => next = settings,
            Self::Base => {}
            Self::Io(io) => {
                next.io = io;
                next.workers = workers;
                // Settings of xdp alone are reset.
                (next.steer, next.busy_poll) = (false, false);
                // By CPU means by the CPU that the device selected; frames of AF_XDP never reach RPS.
                if matches!(io, Io::Percpu | Io::Xdp) {
                    (next.rps, next.rfs) = (false, false);
                }
                // A worker per queue, each on its own CPU: two on one CPU would wait for each other.
                next.pin |= io == Io::Xdp;
            }
            Self::Rps => next.rps = true,
            // With one socket for all, spreading only makes more CPUs contend for it.
            Self::RpsReuseport => {
                next = Self::Rps.apply(&Self::Io(Io::Reuseport).apply(best, workers), workers);
            }
            Self::Rfs => next = Settings { rfs: true, ..Self::RpsReuseport.apply(best, workers) },
            Self::Pin => next.pin = true,
            Self::Batch(batch) => next.batch = batch,
            // Settings of xdp alone bring xdp along, even where it did not win.
            Self::OneQueue => next = Settings { one_queue: true, ..Self::Io(Io::Xdp).apply(best, 1) },
            Self::Steer => {
                next = Settings { one_queue: true, steer: true, ..Self::Io(Io::Xdp).apply(best, workers) };
            }
            Self::BusyPoll => next = Settings { busy_poll: true, ..Self::Io(Io::Xdp).apply(best, workers) },
            // Each gains little or loses without the others: on a shared socket every worker gets a mix of peers, so
            // that few consecutive replies go to one peer; split sockets win once there are few system calls.
            Self::Together => {
                next = Self::Gso.apply(&Self::Io(Io::Reuseport).apply(best, workers), workers);
            }
            Self::Gso => {
                next.gso = true;
                // GSO joins replies of one batch.
                if next.batch == 1 {
                    next.batch = BATCH;
                }
            }
        }
        next
    }
}

/// Datagrams per system call of the batched rung. Fewer: less of the call's cost is shared. More: no gain (8 brings 25
/// %, 32 no more than 16), and each datagram waits longer for its burst.
const BATCH: usize = 32;

/// The ladder for the Io in `ios` on a link of `queues` queues. It always has the rung `shared`.
#[must_use]
pub fn ladder(ios: &[Io], queues: u32) -> Vec<Rung> {
    let all = [
        ("one-queue", "a link of one queue, as without RSS; one socket, one datagram per call", Step::RssOff),
        ("shared", "one socket, every worker reads it, one datagram per call", Step::Base),
        (
            "rps",
            "RPS: every CPU processes what any queue received (one socket: more contend for it)",
            Step::Rps,
        ),
        ("reuseport", "a socket per worker, chosen by flow hash", Step::Io(Io::Reuseport)),
        ("rps+reuseport", "RPS, with a socket per worker", Step::RpsReuseport),
        ("rfs", "the same with RFS: a flow is processed on the CPU of its reader", Step::Rfs),
        ("percpu", "a socket per worker, chosen by the CPU that received", Step::Io(Io::Percpu)),
        ("pinned", "each worker pinned to its own CPU", Step::Pin),
        ("batched", "32 datagrams per system call", Step::Batch(BATCH)),
        ("gso", "consecutive replies to one peer sent as one message (UDP_SEGMENT; needs batch)", Step::Gso),
        ("together", "reuseport, batched and gso at once", Step::Together),
        ("xdp-1-queue", "AF_XDP on a link of one queue, one pinned worker", Step::OneQueue),
        ("steered", "the same, with frames spread over all workers by flow", Step::Steer),
        ("xdp", "AF_XDP on all queues, a pinned worker for each", Step::Io(Io::Xdp)),
        ("busy-poll", "AF_XDP with busy polling", Step::BusyPoll),
    ];
    all.into_iter()
        .filter(|(_, _, step)| match step {
            Step::Io(Io::Percpu) => queues > 1 && ios.contains(&Io::Percpu),
            Step::Io(io) => ios.contains(io),
            Step::RssOff => queues > 1,
            Step::RpsReuseport | Step::Rfs => ios.contains(&Io::Reuseport),
            Step::OneQueue => queues > 1 && ios.contains(&Io::Xdp),
            Step::Together => queues > 1 && ios.contains(&Io::Reuseport),
            step if step.needs_xdp() => ios.contains(&Io::Xdp),
            _ => true,
        })
        .map(|(name, change, step)| Rung { name: name.into(), change: change.into(), step })
        .collect()
}

/// Splits a ladder into the rungs that a process without root can try in a user namespace, and those it cannot.
#[must_use]
pub fn without_root(ladder: Vec<Rung>) -> (Vec<Rung>, Vec<LeftOut>) {
    let (mut possible, mut left_out) = (Vec::new(), Vec::new());
    for rung in ladder {
        let reason = if rung.step.needs_xdp() {
            "AF_XDP needs CAP_BPF in the initial user namespace; run as root"
        } else if rung.step.needs_rps() {
            "RPS needs CAP_NET_ADMIN in the initial user namespace; run as root"
        } else if rung.step == Step::Io(Io::Percpu) {
            "it needs XPS on the link, and so CAP_NET_ADMIN in the initial user namespace; run as root"
        } else {
            possible.push(rung);
            continue;
        };
        left_out.push(LeftOut { name: rung.name.into_owned(), reason: reason.to_owned() });
    }
    (possible, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_only_the_base_changes_nothing() {
        let ladder = ladder(&Io::ALL, 2);
        let names: std::collections::HashSet<_> = ladder.iter().map(|r| &r.name).collect();
        assert_eq!(names.len(), ladder.len());
        let base = Settings::base(2, 64);
        assert_eq!((&*ladder[1].name, ladder[1].step.apply(&base, 2)), ("shared", base));
        for rung in ladder.iter().filter(|rung| rung.step != Step::Base) {
            assert_ne!(rung.step.apply(&base, 2), base, "{} changes nothing", rung.name);
        }
    }

    /// Whatever won before, also where RSS off did.
    #[test]
    fn rss_is_off_in_its_own_rungs_alone() {
        let without = Step::RssOff.apply(&Settings::base(2, 64), 2);
        assert!(without.one_queue);
        for rung in ladder(&Io::ALL, 2) {
            let own = rung.step == Step::RssOff || rung.step.needs_one_queue();
            assert_eq!(rung.step.apply(&without, 2).one_queue, own, "{}", rung.name);
        }
    }

    #[test]
    fn rps_brings_its_prerequisites_along_and_goes_with_them() {
        let base = Settings::base(2, 64);
        let rps = Step::Rps.apply(&base, 2);
        assert_eq!(rps, Settings { rps: true, ..base }, "the shared socket stays");
        let rfs = Step::Rfs.apply(&base, 2);
        assert_eq!((rfs.io, rfs.rps, rfs.rfs), (Io::Reuseport, true, true));
        for io in [Io::Percpu, Io::Xdp] {
            let next = Step::Io(io).apply(&rfs, 2);
            assert!(!next.rps && !next.rfs, "{io}");
        }
    }

    #[test]
    fn only_the_wanted_io_are_tried() {
        assert!(!ladder(&Io::ALL, 1).iter().any(|r| r.step == Step::RssOff), "one queue is all there is");
        let names: Vec<_> = ladder(&[Io::Shared, Io::Percpu], 2).iter().map(|r| r.name.to_string()).collect();
        assert_eq!(names, ["one-queue", "shared", "rps", "percpu", "pinned", "batched", "gso"]);
    }

    #[test]
    fn without_root_kernel_sockets_remain_and_every_other_rung_has_a_reason() {
        let (possible, left_out) = without_root(ladder(&Io::ALL, 2));
        let names: Vec<_> = possible.iter().map(|rung| rung.name.to_string()).collect();
        assert_eq!(names, ["one-queue", "shared", "reuseport", "pinned", "batched", "gso", "together"]);
        let reason = |name: &str| &left_out.iter().find(|rung| rung.name == name).expect(name).reason;
        for name in ["xdp-1-queue", "steered", "xdp", "busy-poll"] {
            assert!(reason(name).contains("AF_XDP"), "{}", reason(name));
        }
        for name in ["rps", "rps+reuseport", "rfs"] {
            assert!(reason(name).contains("RPS"), "{}", reason(name));
        }
        assert!(reason("percpu").contains("XPS"), "{}", reason("percpu"));
        assert_eq!(possible.len() + left_out.len(), ladder(&Io::ALL, 2).len());
    }
}
