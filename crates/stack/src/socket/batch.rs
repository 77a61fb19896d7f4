//! Datagrams that were read together, each in its frame, and the replies that are written there.

use std::io;
use std::net::SocketAddr;

use super::returns::ReturnHandle;
use super::send::SendError;
use super::slot::{ReplyError, Slot};
use super::udp::{UdpSocket, Wait};
use crate::frame::Frame;

/// Datagrams read together: up to [`BURST`](crate::frame::BURST). Dropping the batch returns their frames in one
/// burst, and sends those with a reply.
#[must_use = "dropping the batch returns its datagrams"]
pub struct Batch<'s> {
    pub(super) socket: &'s mut UdpSocket,
}

impl UdpSocket {
    /// Reads everything that is available, up to a burst, without copying: what is unread of the last burst, or a new
    /// one. Empty if nothing arrived in time. Does not allocate.
    ///
    /// # Errors
    /// The kernel fails to wait.
    pub fn recv_batch(&mut self, wait: Wait) -> io::Result<Batch<'_>> {
        if self.unread().is_empty() {
            self.fill(wait)?;
        }
        Ok(Batch { socket: self })
    }
}

impl Batch<'_> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.socket.unread().len()
    }

    /// Whether it is empty: nothing arrived in time.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The datagrams, in the order in which they were enqueued.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = Datagram<'_>> {
        let (slots, return_handles) = self.socket.unread_mut();
        slots.iter_mut().map(move |slot| Datagram { slot, return_handles })
    }

    /// As [`UdpSocket::send_to`], but sent together with the replies when the batch is dropped.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    pub fn send_to(&mut self, payload: &[u8], to: SocketAddr) -> Result<(), SendError> {
        self.socket.prepare(payload, to)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.socket.give_back();
    }
}

/// One datagram of a [`Batch`].
pub struct Datagram<'b> {
    slot: &'b mut Slot,
    return_handles: &'b [ReturnHandle<Frame>],
}

impl Datagram<'_> {
    /// The payload; after [`reply`](Self::reply), the reply's payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.slot.payload()
    }

    /// The sender.
    #[must_use]
    pub fn from(&self) -> SocketAddr {
        self.slot.headers.source()
    }

    /// The destination: one of this host's addresses.
    #[must_use]
    pub fn to(&self) -> SocketAddr {
        self.slot.headers.destination()
    }

    /// How many datagrams the socket had refused when it enqueued this one, modulo 2^32 (`SO_RXQ_OVFL`): the
    /// difference from the previous datagram is what was lost between them.
    #[must_use]
    pub fn refused_before(&self) -> u32 {
        self.slot.refused_before
    }

    /// Answers with a copy of `payload`, in the request's frame and over the reverse path.
    ///
    /// # Errors
    /// The request was answered already, or the reply does not fit a frame; then nothing changes.
    pub fn reply(&mut self, payload: &[u8]) -> Result<(), ReplyError> {
        self.slot.reply(self.return_handles, payload)
    }

    /// Answers with what `write` leaves in the frame's buffer, which starts with the request's payload and continues
    /// with undefined bytes: nothing is copied. `write` returns the length of the reply, from the start of the
    /// buffer.
    ///
    /// # Errors
    /// The request was answered already, or `write` returned more than the buffer holds; then the payload is as
    /// `write` left it.
    pub fn reply_with(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> Result<(), ReplyError> {
        self.slot.answer(self.return_handles, |room| Ok(write(room)))
    }
}
