//! The buffer a service writes its reply to: [`Reply`].

use crate::outcome::{DropReason, Outcome};

/// The bounded buffer a reply is written to, with a place for its own length.
///
/// The buffer keeps whatever an earlier reply left in it: write every byte that [`Reply::set_len`] sends.
#[derive(Debug)]
pub struct Reply<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Reply<'a> {
    /// A reply over any buffer: for calling a service in tests, or from another runtime.
    #[must_use]
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// The most bytes a reply can have: 65,507 over IPv4, 65,527 over IPv6.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes of the reply so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The whole buffer, to write in place; then [`Reply::set_len`].
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        self.buffer
    }

    /// Makes the first `len` bytes of the buffer the reply.
    pub fn set_len(&mut self, len: usize) -> Outcome {
        if len > self.buffer.len() {
            return Outcome::Drop(DropReason::ReplyTooLarge);
        }
        self.len = len;
        Outcome::Reply
    }

    /// Makes `bytes` the whole reply: the short way for services that have it ready.
    pub fn write(&mut self, bytes: &[u8]) -> Outcome {
        match self.buffer.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.len = bytes.len();
                Outcome::Reply
            }
            None => Outcome::Drop(DropReason::ReplyTooLarge),
        }
    }

    /// Adds `bytes` to the reply. `Outcome::Reply`, or the drop to return when they do not fit.
    pub fn append(&mut self, bytes: &[u8]) -> Outcome {
        let Some(place) = self.buffer.get_mut(self.len..).and_then(|rest| rest.get_mut(..bytes.len())) else {
            return Outcome::Drop(DropReason::ReplyTooLarge);
        };
        place.copy_from_slice(bytes);
        self.len += bytes.len();
        Outcome::Reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_takes_what_fits_and_nothing_more() {
        let mut room = [0; 4];
        let mut reply = Reply::new(&mut room);
        assert_eq!(reply.write(b"abcde"), Outcome::Drop(DropReason::ReplyTooLarge));
        assert!(reply.is_empty());
        assert_eq!(reply.append(b"abc"), Outcome::Reply);
        assert_eq!(reply.append(b"de"), Outcome::Drop(DropReason::ReplyTooLarge));
        assert_eq!(reply.len(), 3);
        assert_eq!(reply.append(b"d"), Outcome::Reply);
        assert_eq!(reply.buffer_mut(), b"abcd");
        assert_eq!(reply.set_len(5), Outcome::Drop(DropReason::ReplyTooLarge));
        assert_eq!((reply.set_len(2), reply.len()), (Outcome::Reply, 2));
    }
}
