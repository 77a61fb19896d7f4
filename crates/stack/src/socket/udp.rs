//! A socket, as its reader uses it.
//!
//! ```text
//! queue ─▸ slots: a burst, each datagram in its frame
//!            │ recv_from: the next one, copied        reply: its frame, at once
//!            │ recv_batch: all of them                replies: with the batch
//!            ▾
//!          returns ─▸ grouped by owner ─▸ return queue, one lock and one wake-up for each
//! ```
//! A datagram that was read stays in its slot until the burst is used up, so that frames are returned together;
//! before the reader sleeps it holds none.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;

use super::flow_recorder::FlowRecorder;
use super::queue::{Reader, Received, Refused};
use super::returns::ReturnHandle;
use super::send::{Paths, SendError};
use super::slot::{ReplyError, Slot};
use super::{SocketHandle, bundle};
use crate::frame::{BURST, Burst, Frame};
use crate::wake::Announced;
use crate::wire::Packet;

/// What a read does when nothing is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Returns at once.
    No,
    /// Sleeps until something arrives, for at most the given time, if any.
    Sleep(Option<Duration>),
    /// Busy-polls for this long (the kernel's `SO_BUSY_POLL`): no wake-up latency, at the cost of CPU time.
    Poll(Duration),
}

/// The counts of a socket so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams enqueued.
    pub enqueued: u64,
    /// Datagrams refused, by reason. `enqueued + refused.total()` is what was offered.
    pub refused: Refused,
    /// Datagrams that the reader has taken. `enqueued - received` are waiting.
    pub received: u64,
    /// Frames handed to workers for sending: replies, and others.
    pub sent: u64,
    /// Frames returned, or handed over for sending, after their worker had ended: they are lost.
    pub orphaned: u64,
}

/// A UDP socket of the datapath, in the style of [`std::net::UdpSocket`], used by one thread at a time. See the
/// header of [`socket`](crate::socket). [`Sockets::open`](super::Sockets::open) creates one. Dropping it returns all
/// its frames.
pub struct UdpSocket {
    handle: SocketHandle,
    reader: Reader<Frame>,
    return_handles: Arc<[ReturnHandle<Frame>]>,
    flow_recorder: Option<FlowRecorder>,
    paths: Option<Paths>,
    wait: Wait,
    slots: ArrayVec<Slot, BURST>,
    /// How many of the slots have been read.
    read: usize,
    returns: Burst,
    received: u64,
    sent: u64,
    orphaned: u64,
}

impl UdpSocket {
    pub(super) fn new(
        handle: SocketHandle,
        reader: Reader<Frame>,
        return_handles: Arc<[ReturnHandle<Frame>]>,
    ) -> Self {
        Self {
            handle,
            reader,
            return_handles,
            flow_recorder: None,
            paths: None,
            wait: Wait::Sleep(None),
            slots: ArrayVec::new(),
            read: 0,
            returns: Burst::new(),
            received: 0,
            sent: 0,
            orphaned: 0,
        }
    }

    /// The binding it was opened for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local_addr()
    }

    /// Its handle for the workers, for the table of [groups](crate::groups::Groups::delivering).
    #[must_use]
    pub fn handle(&self) -> SocketHandle {
        self.handle.clone()
    }

    /// Sets what [`recv_from`](Self::recv_from) does when nothing is available. The default is to sleep without a
    /// timeout.
    pub fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    /// Lets flows follow this socket's reader; `None`: no longer. What was recorded stays until other flows or
    /// readers overwrite it.
    pub fn set_flow_recorder(&mut self, flow_recorder: Option<FlowRecorder>) {
        self.flow_recorder = flow_recorder;
    }

    /// Lets it send datagrams that are not replies.
    pub fn set_paths(&mut self, paths: Paths) {
        self.give_back_free();
        self.paths = Some(paths);
    }

    /// Copies the next datagram into `buffer` and returns its length and sender. What does not fit is cut off, as
    /// with kernel sockets.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock): nothing arrived in time, or a Unix signal was handled. Others: the
    /// kernel fails to wait.
    pub fn recv_from(&mut self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        if self.unread().is_empty() && self.fill(self.wait)? == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let slot = &self.slots[self.read];
        self.read += 1;
        let payload = slot.payload();
        let len = payload.len().min(buffer.len());
        buffer[..len].copy_from_slice(&payload[..len]);
        Ok((len, slot.headers.source()))
    }

    /// Answers the datagram that [`recv_from`](Self::recv_from) returned last, in its frame and over the reverse
    /// path. It is sent at once; to answer many, use [`recv_batch`](Self::recv_batch).
    ///
    /// # Errors
    /// Nothing was read, it was answered already, the reply does not fit a frame, or the worker has ended.
    pub fn reply(&mut self, payload: &[u8]) -> Result<(), ReplyError> {
        let last = self.read.checked_sub(1).and_then(|last| self.slots.get_mut(last));
        let slot = last.ok_or(ReplyError::NoRequest)?;
        if slot.answered {
            return Err(ReplyError::Answered);
        }
        slot.reply(&self.return_handles, payload)?;
        let orphaned = self.orphaned;
        let owner = slot.frame.as_ref().map_or(0, Frame::owner);
        // Together with those that were read before it.
        for slot in &mut self.slots[..self.read] {
            self.returns.extend(slot.frame.take());
        }
        self.return_frames();
        if self.orphaned == orphaned { Ok(()) } else { Err(ReplyError::WorkerEnded(owner)) }
    }

    /// How many datagrams the socket had refused when it enqueued the one that [`recv_from`](Self::recv_from)
    /// returned last, modulo 2^32 (`SO_RXQ_OVFL`).
    #[must_use]
    pub fn refused_before(&self) -> u32 {
        self.read.checked_sub(1).and_then(|last| self.slots.get(last)).map_or(0, |slot| slot.refused_before)
    }

    /// Sends a datagram to any destination that the tables have a path to, in a frame of its own. It is sent at once.
    ///
    /// # Errors
    /// The socket has no [paths](Self::set_paths), there is no path to `to`, or no free frame.
    pub fn send_to(&mut self, payload: &[u8], to: SocketAddr) -> Result<(), SendError> {
        self.prepare(payload, to)?;
        let orphaned = self.orphaned;
        let owner = self.returns.last().map_or(0, Frame::owner);
        self.return_frames();
        if self.orphaned == orphaned { Ok(()) } else { Err(SendError::WorkerEnded(owner)) }
    }

    /// Announces to the workers that the reader is about to sleep, until the guard is dropped; `None` if there is
    /// something to read. Then wait on the guard's descriptor, or on the socket's, which is the same, with `poll` or
    /// `epoll`.
    pub fn announce(&mut self) -> Option<Announced<'_>> {
        if !self.unread().is_empty() {
            return None;
        }
        self.give_back();
        self.reader.announce()
    }

    /// The counts so far. Takes the workers' lock.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let queue = self.reader.counts();
        let (received, sent, orphaned) = (self.received, self.sent, self.orphaned);
        Counts { enqueued: queue.enqueued, refused: queue.refused, received, sent, orphaned }
    }

    /// Datagrams waiting.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.unread().len() + self.reader.waiting()
    }

    pub(super) fn unread(&self) -> &[Slot] {
        &self.slots[self.read..]
    }

    pub(super) fn unread_mut(&mut self) -> (&mut [Slot], &[ReturnHandle<Frame>]) {
        (&mut self.slots[self.read..], &self.return_handles)
    }

    /// Prepares a datagram, which is sent with the next burst.
    pub(super) fn prepare(&mut self, payload: &[u8], to: SocketAddr) -> Result<(), SendError> {
        let paths = self.paths.as_mut().ok_or(SendError::NoPaths(to))?;
        let frame = paths.frame(&self.return_handles, self.handle.local_addr(), to, payload)?;
        if self.returns.is_full() {
            self.return_frames();
        }
        self.returns.push(frame);
        Ok(())
    }

    /// Returns what was read and reads a burst; returns the number of datagrams.
    pub(super) fn fill(&mut self, wait: Wait) -> io::Result<usize> {
        self.give_back();
        let mut burst = ArrayVec::<Received<Frame>, BURST>::new();
        match wait {
            Wait::No => self.reader.try_receive_burst(&mut burst),
            Wait::Sleep(limit) => self.reader.receive_burst(&mut burst, limit)?,
            Wait::Poll(budget) => self.reader.busy_receive_burst(&mut burst, budget),
        };
        // They are in another core's cache: fetched together, they cost as much as one or two.
        burst.iter().for_each(|received| received.item.prefetch());
        self.received += burst.len() as u64;
        let recorder = self
            .flow_recorder
            .as_ref()
            .and_then(|flow_recorder| Some((flow_recorder, flow_recorder.worker()?)));
        for Received { item: frame, refused_before, .. } in burst {
            if let (Some((flow_recorder, worker)), Some(hash)) = (recorder, frame.offloads().hash) {
                flow_recorder.wanted.record(hash, worker);
            }
            // Parsed again, which is cheaper than carrying the headers over; what a worker delivers always parses.
            match Packet::parse(frame.bytes()) {
                Ok(headers) => {
                    self.slots.push(Slot { frame: Some(frame), headers, refused_before, answered: false });
                }
                Err(_) => self.returns.push(frame),
            }
        }
        self.return_frames();
        Ok(self.slots.len())
    }

    /// Returns all frames, and sends those with replies.
    pub(super) fn give_back(&mut self) {
        for slot in self.slots.drain(..) {
            let Some(frame) = slot.frame else { continue };
            if self.returns.is_full() {
                return_frames(&mut self.returns, &self.return_handles, &mut self.sent, &mut self.orphaned);
            }
            self.returns.push(frame);
        }
        self.read = 0;
        self.return_frames();
    }

    fn return_frames(&mut self) {
        return_frames(&mut self.returns, &self.return_handles, &mut self.sent, &mut self.orphaned);
    }

    fn give_back_free(&mut self) {
        let Some(paths) = &mut self.paths else { return };
        for mut frame in paths.free() {
            frame.set_to_send(false);
            if self.returns.is_full() {
                return_frames(&mut self.returns, &self.return_handles, &mut self.sent, &mut self.orphaned);
            }
            self.returns.push(frame);
        }
        self.return_frames();
    }
}

/// Returns frames to the workers that own them, grouped by worker.
#[inline]
fn return_frames(
    returns: &mut Burst,
    return_handles: &[ReturnHandle<Frame>],
    sent: &mut u64,
    orphaned: &mut u64,
) {
    let mut burst = Burst::new();
    while let Some(owner) = bundle(returns, &mut burst, Frame::owner, |frame| frame) {
        let to_send = burst.iter().filter(|frame| frame.to_send()).count();
        let count = burst.len();
        let given =
            return_handles.get(usize::from(owner)).map_or(0, |return_handle| return_handle.push(&mut burst));
        if given == count {
            *sent += to_send as u64;
        } else {
            // Its worker has ended: there is nothing left to return it to.
            *orphaned += burst.len() as u64;
            burst.clear();
        }
    }
}

/// Readable when woken. Wait on it only while an [announcement](UdpSocket::announce) is in effect.
impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket").field("local", &self.local_addr()).finish_non_exhaustive()
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.give_back();
        self.give_back_free();
        // From here on workers are refused; what they enqueued before is returned unread.
        self.reader.close();
        let mut burst = ArrayVec::<Received<Frame>, BURST>::new();
        while self.reader.try_receive_burst(&mut burst) > 0 {
            self.returns.extend(burst.drain(..).map(|received| received.item));
            self.return_frames();
        }
    }
}
