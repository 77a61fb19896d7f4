//! Sockets: where a datagram waits for the thread that reads it, for applications that are not a [`Handler`].
//!
//! ```text
//!   worker 0 ─┐ enqueue: lock once per burst                    ┌ recv_from, recv_batch
//!   worker 1 ─┼─▸ [ producer queue │ reader's own ] ─▸ UdpSocket┤ reply: written into the request's frame
//!             │                                                 └ send_to: a free frame, addressed by the tables
//!             │                                                        │
//!   worker 0 ◂┴── return queue: the frame comes back, to send or free ◂┘ once per burst, one wake-up
//! ```
//! - [`queue`]: many workers put datagrams in, one reader takes them out; two queues, so that they rarely contend.
//! - [`memory`]: the bytes that a socket, and all sockets together, may hold.
//! - [`returns`](mod@returns): the way back to the worker, and free frames.
//! - [`UdpSocket`]: what an application reads and answers with. [`Sockets`] opens them.
//!
//! # Who owns a frame
//! ```text
//! worker ─▸ producer queue ─▸ reader ─▸ return ring ─▸ the worker whose port it is from ─▸ sent, or free
//!    └ refused: stays with the worker, counted by reason
//! ```
//! One owner at a time; each hand-over moves the frame. A waiting frame is charged to its socket; one that the reader
//! has taken is not, so a reader returns what it has before it takes more. Closing a socket returns all its frames. A
//! worker that ends takes back the frames in its rings; frames that sockets still hold then can be read but not
//! answered, and their memory stays mapped ([`crate::frame`]). So close the sockets first.
//!
//! # Accounting, at rest
//! ```text
//! socket:  offered = enqueued + refused (by reason)        enqueued = received + waiting
//! workers: received = answered + declined + delivered + dropped (by reason)        delivered = enqueued, over all
//! sending: handed over by sockets = sent + unsent, over all workers
//! ```
//!
//! # Where a flow is processed
//! With [`set_flow_recorder`](UdpSocket::set_flow_recorder) a socket records at each read which worker is closest to
//! its reader, and [`Steering::following`](crate::steering::Steering::following) moves the flow there once none of
//! its frames waits where it was (the kernel's RFS).
//!
//! [`Handler`]: crate::handler::Handler

pub mod memory;
pub mod queue;
pub mod returns;

#[cfg(not(loom))]
mod batch;
#[cfg(not(loom))]
mod flow_recorder;
#[cfg(not(loom))]
mod send;
#[cfg(not(loom))]
mod slot;
#[cfg(not(loom))]
mod udp;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;

use crate::frame::{Burst, Frame};
use crate::mesh::WorkerRings;
use crate::ring::CapacityError;
use memory::{Charged, Pool};
use queue::{Producer, Refused};
use returns::ReturnHandle;

#[cfg(not(loom))]
pub use batch::{Batch, Datagram};
#[cfg(not(loom))]
pub use flow_recorder::{FlowRecorder, ReaderLocation};
#[cfg(not(loom))]
pub use send::{Egress, Paths, SendError};
#[cfg(not(loom))]
pub use slot::ReplyError;
#[cfg(not(loom))]
pub use udp::{Counts, UdpSocket, Wait};

/// The smallest limit of a socket, bytes: one frame of the larger size.
pub const MIN_LIMIT: usize = 4096;

/// Settings shared by all sockets of a group of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The most frames that any worker's port has: the length of the return rings. The same as
    /// [`mesh::Config::frames`](crate::mesh::Config).
    pub frames: usize,
    /// Free frames that each worker keeps ready for [`UdpSocket::send_to`], at least 1, rounded up to a power of two.
    /// Lower: a burst of datagrams without requests runs out of frames. Higher: the worker's port has that many fewer
    /// to receive with.
    pub free_frames: usize,
    /// Maximum bytes charged to all sockets together (the kernel's `net.ipv4.udp_mem`). A frame is charged in full,
    /// 2048 or 4096 bytes. Lower: busy sockets are refused memory that idle ones do not use. Higher: up to all frames
    /// of the ports, which unread sockets can then hold, so that nothing is received at all.
    pub pool: usize,
}

impl Default for Config {
    /// For ports with the default number of AF_XDP frames; a quarter of one port's may wait.
    fn default() -> Self {
        Self { frames: 4096, free_frames: 64, pool: 1024 * 2048 }
    }
}

/// Why sockets could not be joined to workers, or one could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Invalid ring size.
    #[error("cannot join sockets and workers")]
    Ring(#[from] CapacityError),
    /// The workers have been joined already.
    #[error("cannot join sockets to worker {0} twice; open further sockets from the existing Sockets")]
    Joined(u16),
    /// A limit smaller than one frame.
    #[error(
        "cannot open a socket at {bind} with a limit of {limit} bytes: one frame is charged up to {MIN_LIMIT}; use at least that"
    )]
    Limit {
        /// The socket's address.
        bind: SocketAddr,
        /// The requested limit, bytes.
        limit: usize,
    },
    /// The socket's queue could not be created.
    #[error("cannot open a socket at {bind}")]
    Queue {
        /// The socket's address.
        bind: SocketAddr,
        /// The cause.
        #[source]
        cause: queue::Error,
    },
}

/// Opens the sockets of a group of workers. A clone opens sockets of the same workers.
#[derive(Clone)]
pub struct Sockets {
    /// By the number of the worker that owns the frames.
    return_handles: Arc<[ReturnHandle<Frame>]>,
    pool: Pool,
}

/// Creates the rings between sockets and the workers that get `rings`. Call it before the workers are created.
///
/// # Errors
/// Invalid ring sizes; rings that were joined before.
pub fn join(rings: &mut [WorkerRings], config: Config) -> Result<Sockets, Error> {
    let mut return_handles = Vec::with_capacity(rings.len());
    for rings in rings.iter_mut() {
        if rings.return_queue.is_some() {
            return Err(Error::Joined(rings.index()));
        }
        let (return_handle, return_queue) = returns::pair(rings.waker(), config.frames, config.free_frames)?;
        rings.return_queue = Some(return_queue);
        return_handles.push(return_handle);
    }
    Ok(Sockets { return_handles: return_handles.into(), pool: Pool::new(config.pool) })
}

impl Sockets {
    /// Opens a socket for the binding `bind`, holding at most `limit` bytes of frames (the kernel's `SO_RCVBUF`; from
    /// [`MIN_LIMIT`] to [`queue::MAX_BYTES`]). Datagrams arrive once its [`SocketHandle`] is in the table of
    /// [groups](crate::groups::Groups::delivering).
    ///
    /// # Errors
    /// An invalid limit; no file descriptor to sleep on.
    #[cfg(not(loom))]
    pub fn open(&self, bind: SocketAddr, limit: usize) -> Result<UdpSocket, Error> {
        if limit < MIN_LIMIT {
            return Err(Error::Limit { bind, limit });
        }
        let (producer, reader) = queue::queue(queue::Config::new(limit), &self.pool)
            .map_err(|cause| Error::Queue { bind, cause })?;
        Ok(UdpSocket::new(SocketHandle { bind, producer }, reader, Arc::clone(&self.return_handles)))
    }

    /// Bytes charged to all sockets now, or reserved for them.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.pool.used()
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets")
            .field("workers", &self.return_handles.len())
            .field("pool", &self.pool)
            .finish()
    }
}

/// The workers' side of a socket: what the table of groups holds. A clone refers to the same socket; it may outlive
/// the socket, and then refuses everything.
#[derive(Clone)]
pub struct SocketHandle {
    bind: SocketAddr,
    producer: Producer<Frame>,
}

impl SocketHandle {
    /// The address it was opened for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.bind
    }

    /// The counts so far. Takes the workers' lock.
    #[must_use]
    pub fn counts(&self) -> queue::Counts {
        self.producer.counts()
    }

    /// Offers a burst to the socket. What it refuses stays in `burst`; returns the reasons.
    #[inline]
    pub(crate) fn offer_burst(&self, burst: &mut Burst) -> Refused {
        self.producer.offer_burst(burst)
    }
}

impl fmt::Debug for SocketHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketHandle").field("bind", &self.bind).finish_non_exhaustive()
    }
}

impl Charged for Frame {
    fn charge(&self) -> usize {
        self.size()
    }
}

/// Moves the first item of `from`, and all others with the same key, to the end of `same`, in order; returns that
/// key. The others stay, in order.
#[inline]
pub(crate) fn bundle<T, U, K: PartialEq, const N: usize>(
    from: &mut ArrayVec<T, N>,
    same: &mut ArrayVec<U, N>,
    key: impl Fn(&T) -> K,
    take: impl Fn(T) -> U,
) -> Option<K> {
    let wanted = key(from.first()?);
    let mut rest = ArrayVec::<T, N>::new();
    for item in from.drain(..) {
        if key(&item) == wanted {
            same.push(take(item));
        } else {
            rest.push(item);
        }
    }
    if !rest.is_empty() {
        from.extend(rest);
    }
    Some(wanted)
}
