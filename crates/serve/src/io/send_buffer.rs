//! Replies for which a socket's send buffer has no room, so that no peer keeps out the replies to others.
//!
//! The kernel charges a packet to its socket until the device has sent it. For a neighbour that does not answer ARP or
//! neighbour discovery it keeps packets for up to 3 s, up to `unres_qlen_bytes` per neighbour: some 280 small replies
//! to addresses where nobody answers, forged ones for example, fill the buffer of a socket. A send call that waits for
//! room then waits for those neighbours.
//!
//! ```text
//!              0             usual                     most = 2 x usual
//! send buffer  [ all replies | absent   | resolved alone ]
//!                            ^ SO_SNDBUF, raised only while a reply is sent again from here
//!
//! no room ─▸ room within 2 ms? (the device was the cause)         ─▸ sent
//!         └▸ next hop: unresolved                                 ─▸ dropped: neighbour
//!                      resolved, or absent and little is waiting  ─▸ sent, in the part of the buffer above `usual`
//!                      no room there either                       ─▸ dropped: neighbour if absent, or else buffer_full
//! ```
//! The packet path pays nothing for it: sends never wait, and only a full buffer leads here.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use udpath_stack::tables::{NextHop, NextHops};

use crate::outcome::SendError;
use crate::sys::{self, NotSent};

/// How long to wait for a device to make room. Shorter: replies are dropped that a device of 10 Mbit/s would send.
/// Longer: a device that is stuck holds up the worker for a larger share of [`PAUSE`].
const DEVICE_WAIT: Duration = Duration::from_millis(2);

/// How often to try again within [`DEVICE_WAIT`]. Shorter: more system calls. Longer: a fast device is idle in between.
const RETRY_INTERVAL: Duration = Duration::from_micros(50);

/// How long not to wait after waiting in vain. Shorter: while neighbours fill the buffer, a larger share of time is
/// spent waiting for them, now 2 %. Longer: after they are gone, replies are dropped for that long instead of waiting
/// for a device.
const PAUSE: Duration = Duration::from_millis(100);

/// The send buffer of one socket.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    /// Its size, bytes, and the largest that this process may set.
    usual: usize,
    most: usize,
    /// Whether it is larger than usual at this moment.
    crowded: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_hops: NextHops,
    /// When to wait for the device again.
    wait_after: Option<Instant>,
}

impl SendBuffer {
    /// That of an open socket, which stays as it is.
    pub(super) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let usual = sys::send_buffer(socket)?;
        // Without privilege, `net.core.wmem_max` limits it. If it is no more than usual, nothing is ever raised.
        let most = sys::send_buffer_limit(usual.saturating_mul(2)).unwrap_or(usual).max(usual);
        Ok(Self { usual, most, crowded: AtomicBool::new(false), state: Mutex::default() })
    }

    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded.load(Relaxed)
    }

    /// See [`Sender::retry`](sys::Sender::retry).
    pub(super) fn retry(
        &self,
        socket: BorrowedFd<'_>,
        peer: SocketAddr,
        send: &mut dyn FnMut() -> io::Result<usize>,
    ) -> Result<usize, NotSent> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(done) = state.wait_for_device(send) {
            return Ok(done?);
        }
        let (limit, cause) = match state.next_hops.of(peer) {
            NextHop::Unresolved => return Err(unresolved()),
            // Somebody has to send for it to be resolved. Many that never answer must leave room for the others.
            NextHop::Absent => (self.usual.midpoint(self.most), SendError::Neighbour),
            NextHop::Resolved | NextHop::Unknown => (self.most, SendError::BufferFull),
        };
        match self.send_within(limit, socket, send) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && cause == SendError::Neighbour => {
                Err(unresolved())
            }
            done => Ok(done?),
        }
    }

    /// Sends while the buffer has a size of `limit`. The caller holds the lock, so one thread at a time does this.
    fn send_within(
        &self,
        limit: usize,
        socket: BorrowedFd<'_>,
        send: &mut dyn FnMut() -> io::Result<usize>,
    ) -> io::Result<usize> {
        if limit <= self.usual {
            return send();
        }
        self.crowded.store(true, Relaxed);
        let done = sys::set_send_buffer(socket, limit).and_then(|()| send());
        // Up to its usual size every process may set it, so this fails only for an invalid descriptor.
        let _ = sys::set_send_buffer(socket, self.usual);
        self.crowded.store(false, Relaxed);
        done
    }
}

impl State {
    /// Sends as soon as there is room at the usual size; `None` if there is none in time, or was none a moment ago.
    fn wait_for_device(&mut self, send: &mut dyn FnMut() -> io::Result<usize>) -> Option<io::Result<usize>> {
        let began = Instant::now();
        if self.wait_after.is_some_and(|after| began < after) {
            return None;
        }
        loop {
            match send() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Some(done),
            }
            if began.elapsed() >= DEVICE_WAIT {
                self.wait_after = Some(Instant::now() + PAUSE);
                return None;
            }
            thread::sleep(RETRY_INTERVAL);
        }
    }
}

/// The next hop does not answer.
fn unresolved() -> NotSent {
    NotSent { cause: SendError::Neighbour, error: io::ErrorKind::HostUnreachable.into() }
}
