//! Datagrams that were read together, each in its frame, and the replies that are written there.

use std::io;
use std::net::SocketAddr;

use super::returns::ReturnHandle;
use super::send::SendError;
use super::slot::{ReplyError, Slot};
use super::udp::{UdpSocket, Wait};
use crate::frame::Frame;

/// Datagrams read together: up to [`BURST`](crate::frame::BURST). Their frames go home in one burst when this is dropped,
/// those with a reply to be sent.
#[must_use = "the datagrams are given back when this is dropped"]
pub struct Batch<'s> {
    pub(super) socket: &'s mut UdpSocket,
}

impl UdpSocket {
    /// Reads all that is there, up to a burst, without copying: what is unread of the last burst, or a new one. Empty if
    /// nothing came in time. Allocates nothing.
    ///
    /// # Errors
    /// The kernel refuses to wait.
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

    /// Is there none: was there nothing to read in time?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The datagrams, in the order in which they were taken in.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = Datagram<'_>> {
        let (slots, return_handles) = self.socket.unread_mut();
        slots.iter_mut().map(move |slot| Datagram { slot, return_handles })
    }

    /// As [`UdpSocket::send_to`], and goes when the batch does, with the replies.
    ///
    /// # Errors
    /// As there.
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
    /// What was sent; what [`reply`](Self::reply) wrote, once there is a reply.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.slot.payload()
    }

    /// Who sent it.
    #[must_use]
    pub fn from(&self) -> SocketAddr {
        self.slot.headers.source()
    }

    /// To which of this host's addresses.
    #[must_use]
    pub fn to(&self) -> SocketAddr {
        self.slot.headers.destination()
    }

    /// How many the socket had refused when it took this one, modulo 2^32 (`SO_RXQ_OVFL`): the difference to the datagram
    /// before is what was lost between them.
    #[must_use]
    pub fn refused_before(&self) -> u32 {
        self.slot.refused_before
    }

    /// Answers with a copy of `payload`, in the request's frame and the way it came.
    ///
    /// # Errors
    /// There is a reply already, or it is too long for a frame; then nothing was changed.
    pub fn reply(&mut self, payload: &[u8]) -> Result<(), ReplyError> {
        self.slot.reply(self.return_handles, payload)
    }

    /// Answers with what `write` makes of the frame's room, which begins with the request's payload and goes on with
    /// undefined bytes: nothing is copied. `write` returns how many bytes from the begin on are the reply.
    ///
    /// # Errors
    /// There is a reply already, or `write` returned more than the room has; then the payload is as `write` left it.
    pub fn reply_with(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> Result<(), ReplyError> {
        self.slot.answer(self.return_handles, |room| Ok(write(room)))
    }
}
