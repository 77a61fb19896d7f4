//! A socket that replies are sent through, and what it does with a reply for which its send buffer has no room.

use std::io;
use std::os::fd::AsFd;

use super::RawAddr;
use crate::outcome::SendError;

/// See the module. Sends never wait: a full send buffer is the business of [`Sender::retry`].
pub(crate) trait Sender: AsFd {
    /// Whether the send buffer is larger than usual at this moment, for replies that another thread sends with
    /// [`Sender::retry`]: replies must not be sent otherwise.
    fn is_crowded(&self) -> bool;

    /// Sends a reply to `peer` for which there was no room. `send` sends it without waiting, and returns its length.
    fn retry(&self, peer: &RawAddr, send: &mut dyn FnMut() -> io::Result<usize>) -> Result<usize, NotSent>;
}

/// A reply was not sent.
#[derive(Debug)]
pub(crate) struct NotSent {
    /// The cause, as it is counted.
    pub(crate) cause: SendError,
    /// The kernel's error.
    pub(crate) error: io::Error,
}

impl From<io::Error> for NotSent {
    fn from(error: io::Error) -> Self {
        Self { cause: SendError::of(&error), error }
    }
}
