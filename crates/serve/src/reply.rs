//! The buffer a service writes its reply to: [`Reply`].

use crate::outcome::{DropReason, Outcome};

/// A bounded buffer for a reply, and the length of the reply.
///
/// The buffer still has the bytes of earlier replies: write every byte that [`Reply::set_len`] sends.
#[derive(Debug)]
pub struct Reply<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Reply<'a> {
    /// A reply in any buffer: to call a service in tests, or from another runtime.
    #[must_use]
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// Maximum length of a reply in bytes: 65,507 over IPv4, 65,527 over IPv6.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Length of the reply so far, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the reply is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The whole buffer, to write in place; set the length with [`Reply::set_len`].
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        self.buffer
    }

    /// Makes the first `len` bytes of the buffer the reply. Returns `Outcome::Reply`, or a drop if `len` is too large.
    pub fn set_len(&mut self, len: usize) -> Outcome {
        if len > self.buffer.len() {
            return Outcome::Drop(DropReason::ReplyTooLarge);
        }
        self.len = len;
        Outcome::Reply
    }

    /// Makes `bytes` the whole reply. Returns `Outcome::Reply`, or a drop if they do not fit.
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

    /// Appends `bytes` to the reply. Returns `Outcome::Reply`, or a drop if they do not fit.
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
        let mut buffer = [0; 4];
        let mut reply = Reply::new(&mut buffer);
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
