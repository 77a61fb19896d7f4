//! The rings between workers: a set for every ordered pair.
//!
//! ```text
//!   worker i                                    worker j
//!   backlog  ── frames that j is to serve ────▸          bounded: what does not fit is dropped
//!            ◂── done: how many j has served ──          read by the no-reorder rule of RFS
//!   returns  ◂── i's frames, to send or free ──          room for all of i's frames: never full
//! ```
//! Workers shut down together: none stops while another may still hand frames over to it, or serve frames of its port
//! ([`crate::worker::Worker::finish`]).
//!
//! Each worker has one sleeper; everything that writes to its rings, sockets included, has its waker. A burst is
//! pushed, then its worker is woken once.

use crossbeam_utils::CachePadded;

use crate::frame::{Burst, Frame};
use crate::primitive::{Arc, AtomicU32, AtomicUsize, Ordering};
use crate::ring::{self, Consumer, Producer};
use crate::socket::returns::ReturnQueue;
use crate::wake::{self, Announced, Sleeper, Waker};

mod shutdown;

pub(crate) use shutdown::Shutdown;

/// Sizes of the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Frames that may wait for one worker from one other; a power of two. The kernel's `netdev_max_backlog` is 1000.
    /// Lower: bursts are dropped that the worker could have served in time. Higher: a worker that cannot keep up
    /// answers old requests whose clients have long given up.
    pub backlog: usize,
    /// The most frames that any worker's port has: the length of the return rings.
    pub frames: usize,
}

/// Why the mesh could not be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Invalid ring size.
    #[error(transparent)]
    Ring(#[from] ring::CapacityError),
    /// No file descriptor for a worker's waker.
    #[error("cannot create the eventfd that wakes worker {worker}")]
    Wake {
        /// The worker.
        worker: usize,
        /// The kernel's error.
        #[source]
        cause: std::io::Error,
    },
}

/// The ends of all rings of one worker.
pub struct WorkerRings {
    index: u16,
    pub(crate) to: Vec<Option<Outgoing>>,
    pub(crate) from: Vec<Option<Incoming>>,
    /// By worker: the longest frame its port sends, bytes; 0 without a port.
    max_frame_len: Arc<Box<[AtomicUsize]>>,
    /// Returns from sockets, if there are any ([`crate::socket::join`]).
    pub(crate) return_queue: Option<ReturnQueue<Frame>>,
    /// How far all workers are with their shutdown.
    pub(crate) shutdown: Shutdown,
    sleeper: Sleeper,
}

/// To another worker.
pub(crate) struct Outgoing {
    backlog: Producer<Frame>,
    returns: Producer<Frame>,
    waker: Waker,
    /// Frames put into the backlog so far, wrapping; and how many of them were served.
    queued: u32,
    done: Arc<CachePadded<AtomicU32>>,
    woken: u64,
}

/// From another worker.
pub(crate) struct Incoming {
    backlog: Consumer<Frame>,
    returns: Consumer<Frame>,
    served: u32,
    done: Arc<CachePadded<AtomicU32>>,
}

/// Creates the rings of `workers` workers; returns those of each, in order.
///
/// # Errors
/// Invalid ring sizes; out of file descriptors.
pub fn mesh(workers: u16, config: Config) -> Result<Vec<WorkerRings>, Error> {
    let mut all = Vec::new();
    let max_frame_len = Arc::new((0..workers).map(|_| AtomicUsize::new(0)).collect::<Box<[_]>>());
    for (index, shutdown) in (0..workers).zip(Shutdown::of(workers.into())) {
        let (_, sleeper) = wake::pair().map_err(|cause| Error::Wake { worker: index.into(), cause })?;
        let (mut to, mut from) = (Vec::new(), Vec::new());
        to.resize_with(workers.into(), || None);
        from.resize_with(workers.into(), || None);
        all.push(WorkerRings {
            index,
            to,
            from,
            max_frame_len: Arc::clone(&max_frame_len),
            return_queue: None,
            shutdown,
            sleeper,
        });
    }
    for i in 0..usize::from(workers) {
        for j in (0..usize::from(workers)).filter(|j| *j != i) {
            let (backlog_in, backlog) = ring::ring(config.backlog)?;
            // Towards j: what i wants served, and j's own frames on their way back.
            let (returns_in, returns) = ring::ring(config.frames.next_power_of_two())?;
            let done = Arc::new(CachePadded::new(AtomicU32::new(0)));
            let waker = all[j].sleeper.waker();
            all[i].to[j] = Some(Outgoing {
                backlog: backlog_in,
                returns: returns_in,
                waker,
                queued: 0,
                done: Arc::clone(&done),
                woken: 0,
            });
            all[j].from[i] = Some(Incoming { backlog, returns, served: 0, done });
        }
    }
    Ok(all)
}

impl WorkerRings {
    /// The worker's number.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Publishes the length of the longest frame that this worker's port sends. Called before it hands over any
    /// frame.
    pub(crate) fn set_max_frame_len(&self, bytes: usize) {
        // Relaxed: readers get the first frame through a ring, which orders this store before it.
        self.max_frame_len[usize::from(self.index)].store(bytes, Ordering::Relaxed);
    }

    /// The longest frame that a worker's port sends: the limit for a reply in one of its frames.
    #[inline]
    pub(crate) fn max_frame_len_of(&self, worker: usize) -> usize {
        self.max_frame_len.get(worker).map_or(0, |max_frame_len| max_frame_len.load(Ordering::Relaxed))
    }

    /// A waker of this worker.
    pub(crate) fn waker(&self) -> Waker {
        self.sleeper.waker()
    }

    /// The number of workers, this one included.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.to.len()
    }

    /// Announces sleep, unless something has arrived in the meantime.
    pub(crate) fn announce_if_idle(&mut self) -> Option<Announced<'_>> {
        let announced = self.sleeper.announce();
        let idle = self.from.iter().flatten().all(|from| from.backlog.is_empty() && from.returns.is_empty())
            && self.return_queue.as_mut().is_none_or(ReturnQueue::is_idle);
        idle.then_some(announced)
    }

    /// System calls made to wake other workers.
    #[must_use]
    pub fn wake_ups(&self) -> u64 {
        self.to.iter().flatten().map(|to| to.woken).sum()
    }
}

impl Outgoing {
    /// Frames that wait for the worker, at most `Outgoing::bound`.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.queued.wrapping_sub(self.head()) as usize
    }

    #[inline]
    pub(crate) fn bound(&self) -> usize {
        self.backlog.capacity()
    }

    /// How many of the frames queued so far have been served, wrapping.
    #[inline]
    pub(crate) fn head(&self) -> u32 {
        self.done.load(Ordering::Acquire)
    }

    /// How many were queued so far, wrapping.
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.queued
    }

    /// Queues a burst for the worker to serve, and wakes it. What does not fit stays in `frames`.
    #[inline]
    pub(crate) fn hand_over(&mut self, frames: &mut Burst) {
        let pushed = self.backlog.push_burst(frames);
        self.queued = self.queued.wrapping_add(pushed as u32);
        self.wake(pushed);
    }

    /// Returns the worker's own frames to it.
    #[inline]
    pub(crate) fn return_frames(&mut self, frames: &mut Burst) {
        let pushed = self.returns.push_burst(frames);
        debug_assert!(frames.is_empty(), "the return ring has room for every frame");
        self.wake(pushed);
    }

    #[inline]
    fn wake(&mut self, pushed: usize) {
        if pushed > 0 && self.waker.wake() {
            self.woken += 1;
        }
    }
}

impl Incoming {
    /// Takes frames that the other worker wants served.
    #[inline]
    pub(crate) fn take(&mut self, into: &mut Burst) -> usize {
        self.backlog.pop_burst(into)
    }

    /// Reports `count` of the frames taken as served.
    #[inline]
    pub(crate) fn done(&mut self, count: usize) {
        self.served = self.served.wrapping_add(count as u32);
        // Release: the effects of serving them happen before the other worker sends more of the flow elsewhere.
        self.done.store(self.served, Ordering::Release);
    }

    /// Takes our own frames back.
    #[inline]
    pub(crate) fn take_returned(&mut self, into: &mut Burst) -> usize {
        self.returns.pop_burst(into)
    }
}
