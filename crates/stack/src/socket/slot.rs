//! A datagram that its reader has taken, and the reply that is written into its frame.

use super::returns::ReturnHandle;
use crate::frame::{Frame, Offloads};
use crate::wire::{Headers, UdpChecksum, reply};

/// A datagram that was read, in its frame.
pub(super) struct Slot {
    /// `None` once the frame has been returned.
    pub(super) frame: Option<Frame>,
    pub(super) headers: Headers,
    pub(super) refused_before: u32,
    pub(super) answered: bool,
}

/// Why a reply could not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The request was answered already.
    #[error("cannot reply twice: the first reply occupies the request's frame; send more with send_to")]
    Answered,
    /// There is no request to answer.
    #[error(
        "cannot reply: nothing has been read with recv_from yet, or the last datagram was already returned"
    )]
    NoRequest,
    /// It does not fit a frame of the port that received the request.
    #[error("cannot reply with {len} bytes: a frame of this link has room for {most}; use a kernel socket")]
    TooLong {
        /// Length of the reply, bytes.
        len: usize,
        /// The most that fit, bytes.
        most: usize,
    },
    /// The worker whose port received the request has ended.
    #[error("cannot reply: worker {0}, whose port received the request, has ended")]
    WorkerEnded(u16),
}

impl Slot {
    pub(super) fn payload(&self) -> &[u8] {
        self.frame.as_ref().map_or(&[], |frame| self.headers.payload(frame.bytes()))
    }

    /// Lets `write` write the reply into the buffer that starts with the request's payload; it returns the reply's
    /// length.
    pub(super) fn answer(
        &mut self,
        return_handles: &[ReturnHandle<Frame>],
        write: impl FnOnce(&mut [u8]) -> Result<usize, ReplyError>,
    ) -> Result<(), ReplyError> {
        let Some(frame) = &mut self.frame else { return Err(ReplyError::NoRequest) };
        if self.answered {
            return Err(ReplyError::Answered);
        }
        let max_frame_len =
            return_handles.get(usize::from(frame.owner())).map_or(0, ReturnHandle::max_frame_len);
        let (start, before) = (self.headers.payload_offset(), frame.bytes().len());
        let end = self.headers.end_within(max_frame_len).min(frame.room()).max(start);
        frame.set_len(end);
        let written = write(&mut frame.bytes_mut()[start..]).and_then(|len| {
            let too_long = ReplyError::TooLong { len, most: end - start };
            if len > end - start {
                return Err(too_long);
            }
            frame.set_len(start + len);
            reply::in_place(frame.bytes_mut(), &self.headers, len, UdpChecksum::Computed)
                .map_err(|_| too_long)
        });
        match written {
            Ok(_) => {
                // The port's metadata describes the request, not the reply.
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
    pub(super) fn reply(
        &mut self,
        return_handles: &[ReturnHandle<Frame>],
        payload: &[u8],
    ) -> Result<(), ReplyError> {
        self.answer(return_handles, |room| {
            let (len, most) = (payload.len(), room.len());
            room.get_mut(..len).ok_or(ReplyError::TooLong { len, most })?.copy_from_slice(payload);
            Ok(len)
        })
    }
}
