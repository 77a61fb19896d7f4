//! Datagrams that were read together, each in its frame, and the replies that are written there.

use std::net::SocketAddr;

use super::exchange::Station;
use super::send::SendError;
use super::udp::UdpSocket;
use crate::frame::{Frame, Offloads};
use crate::wire::{Headers, UdpChecksum, reply};

/// A datagram that was read, in its frame.
pub(super) struct Slot {
    /// `None` once it is on its way home.
    pub(super) frame: Option<Frame>,
    pub(super) headers: Headers,
    pub(super) refused_before: u32,
    pub(super) answered: bool,
}

/// Why no reply was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// There is one already.
    #[error("cannot reply twice: the first reply is in the request's frame; send further ones with send_to")]
    Answered,
    /// Nothing was read that could be answered.
    #[error("cannot reply: nothing was read with recv_from yet, or the datagram read last was given back")]
    NoRequest,
    /// It does not fit a frame of the port by which the request came.
    #[error(
        "cannot reply with {len} bytes: a frame of this link has room for {most}; send it by a kernel socket"
    )]
    TooLong {
        /// Bytes of the reply.
        len: usize,
        /// Most that fit.
        most: usize,
    },
    /// The worker whose port the request came by has ended.
    #[error("cannot reply: worker {0}, whose port the request came by, has ended")]
    WorkerEnded(u16),
}

impl Slot {
    pub(super) fn payload(&self) -> &[u8] {
        self.frame.as_ref().map_or(&[], |frame| self.headers.payload(frame.bytes()))
    }

    /// Lets `write` make the reply out of the room that begins with the request's payload; it returns the reply's length.
    pub(super) fn answer(
        &mut self,
        stations: &[Station<Frame>],
        write: impl FnOnce(&mut [u8]) -> Result<usize, ReplyError>,
    ) -> Result<(), ReplyError> {
        let Some(frame) = &mut self.frame else { return Err(ReplyError::NoRequest) };
        if self.answered {
            return Err(ReplyError::Answered);
        }
        let longest = stations.get(usize::from(frame.owner())).map_or(0, Station::longest);
        let (start, before) = (self.headers.payload_offset(), frame.bytes().len());
        let end = self.headers.end_within(longest).min(frame.room()).max(start);
        frame.set_len(end);
        let turned = write(&mut frame.bytes_mut()[start..]).and_then(|len| {
            let too_long = ReplyError::TooLong { len, most: end - start };
            if len > end - start {
                return Err(too_long);
            }
            frame.set_len(start + len);
            reply::turn(frame.bytes_mut(), &self.headers, len, UdpChecksum::Computed).map_err(|_| too_long)
        });
        match turned {
            Ok(_) => {
                // What the port knew of the request is not so of the reply.
                frame.set_offloads(Offloads::default());
                frame.set_to_send(true);
                self.answered = true;
                Ok(())
            }
            Err(error) => {
                frame.set_len(before);
                Err(error)
            }
        }
    }

    /// As [`Slot::answer`], with a copy of `payload`.
    pub(super) fn reply(&mut self, stations: &[Station<Frame>], payload: &[u8]) -> Result<(), ReplyError> {
        self.answer(stations, |room| {
            let (len, most) = (payload.len(), room.len());
            room.get_mut(..len).ok_or(ReplyError::TooLong { len, most })?.copy_from_slice(payload);
            Ok(len)
        })
    }
}

/// Datagrams read together: up to [`BURST`](crate::frame::BURST). Their frames go home in one burst when this is dropped,
/// those with a reply to be sent.
#[must_use = "the datagrams are given back when this is dropped"]
pub struct Batch<'s> {
    pub(super) socket: &'s mut UdpSocket,
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
        let (slots, stations) = self.socket.unread_mut();
        slots.iter_mut().map(move |slot| Datagram { slot, stations })
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
    stations: &'b [Station<Frame>],
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
        self.slot.reply(self.stations, payload)
    }

    /// Answers with what `write` makes of the frame's room, which begins with the request's payload and goes on with
    /// undefined bytes: nothing is copied. `write` returns how many bytes from the begin on are the reply.
    ///
    /// # Errors
    /// There is a reply already, or `write` returned more than the room has; then the payload is as `write` left it.
    pub fn reply_with(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> Result<(), ReplyError> {
        self.slot.answer(self.stations, |room| Ok(write(room)))
    }
}
