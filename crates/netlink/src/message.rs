//! Messages: a header, then the protocol's own structure and attributes. A datagram holds one or several.
//!
//! ```text
//!  0 length (4)  4 type (2)  6 flags (2)  8 sequence number (4)  12 port (4)  16 body ...   padded to four bytes
//! ```
//! A reply repeats the sequence number of its request, and the port of the socket that sent it.

use crate::attribute::Attributes;
use crate::error::Error;
use crate::numbers::NLMSGERR_ATTR_MSG;

/// Bytes of a header, and of the error number at the start of an error's body.
pub(crate) const HEADER: usize = 16;
const ERRNO: usize = 4;

/// Types of messages that end an exchange, of linux/netlink.h.
pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;

/// Flags of linux/netlink.h: `NLM_F_*`.
pub mod flag {
    /// `NLM_F_REQUEST`: the message is a request.
    pub const REQUEST: u16 = 1;
    /// `NLM_F_MULTI`: one of several messages, ended by `NLMSG_DONE`.
    pub const MULTI: u16 = 2;
    /// `NLM_F_ACK`: the request asks for an acknowledgement.
    pub const ACK: u16 = 4;
    /// `NLM_F_DUMP_INTR`: something changed during the dump; entries may be missing.
    pub const DUMP_INTR: u16 = 0x10;
    /// `NLM_F_DUMP`: the request asks for all objects.
    pub const DUMP: u16 = 0x300;
    /// `NLM_F_REPLACE`: the request replaces what exists, or a notification reports that.
    pub const REPLACE: u16 = 0x100;
    /// `NLM_F_EXCL`: the request fails if the object exists.
    pub const EXCL: u16 = 0x200;
    /// `NLM_F_CREATE`: the request creates what does not exist.
    pub const CREATE: u16 = 0x400;
    /// `NLM_F_CAPPED`: the error repeats only the header of the request.
    pub const CAPPED: u16 = 0x100;
    /// `NLM_F_ACK_TLVS`: attributes follow the error.
    pub const ACK_TLVS: u16 = 0x200;
}

/// One message of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The type: `RTM_NEWLINK`, a generic netlink family, ...
    pub kind: u16,
    /// See [`flag`].
    pub flags: u16,
    /// The request's number; 0 in notifications.
    pub sequence: u32,
    /// The port of the requesting socket; 0 in notifications.
    pub port: u32,
    /// What follows the header, without padding.
    pub body: &'a [u8],
    /// Header, body and padding.
    pub(crate) whole: &'a [u8],
}

impl Message<'_> {
    /// The result in an error or at the end of a dump: success, or the kernel's refusal with its message.
    pub(crate) fn result(&self) -> Result<(), Error> {
        // Old kernels end a dump without a number.
        let code = self.body.first_chunk::<ERRNO>().map_or(0, |code| i32::from_ne_bytes(*code));
        if code == 0 {
            return Ok(());
        }
        let mut error = Error::errno(code.wrapping_neg());
        if self.flags & flag::ACK_TLVS != 0 {
            // An error repeats the request's header, and the rest of the request unless it is capped.
            let skipped = match self.kind {
                NLMSG_DONE => ERRNO,
                _ if self.flags & flag::CAPPED != 0 => ERRNO + HEADER,
                _ => {
                    let request = Messages::new(&self.body[ERRNO..]).next();
                    ERRNO + request.map_or(HEADER, |request| request.whole.len())
                }
            };
            let attributes = Attributes::new(self.body.get(skipped..).unwrap_or_default());
            error.detail = attributes.text(NLMSGERR_ATTR_MSG);
        }
        Err(error)
    }
}

/// The messages of a datagram, up to the first that is not one.
#[derive(Debug, Clone)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// The messages in `datagram`.
    #[must_use]
    pub const fn new(datagram: &'a [u8]) -> Self {
        Self(datagram)
    }

    /// The bytes not read yet. Not empty after the last message: the rest is malformed.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let header = self.0.first_chunk::<HEADER>()?;
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let length = usize::try_from(word(0)).ok()?;
        let body = self.0.get(HEADER..length)?;
        let end = length.next_multiple_of(4).min(self.0.len());
        let (whole, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(Message { kind: half(4), flags: half(6), sequence: word(8), port: word(12), body, whole })
    }
}

/// The bytes of a message, padded. Port 0: the kernel fills in that of the sending socket.
///
/// # Errors
/// The body is longer than a message can be.
pub fn encode(kind: u16, flags: u16, sequence: u32, port: u32, body: &[u8]) -> Result<Vec<u8>, Error> {
    let length = u32::try_from(HEADER + body.len()).map_err(Error::other)?;
    let mut bytes = Vec::with_capacity((HEADER + body.len()).next_multiple_of(4));
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&flags.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&port.to_ne_bytes());
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Writer;

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        encode(kind, flags, 7, 0, body).unwrap()
    }

    fn only(bytes: &[u8]) -> Message<'_> {
        let mut messages = Messages::new(bytes);
        let message = messages.next().unwrap();
        assert_eq!((messages.next(), messages.rest()), (None, &[][..]));
        message
    }

    fn sentence(text: &str) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.text(NLMSGERR_ATTR_MSG, text);
        writer.finish()
    }

    #[test]
    fn an_error_in_a_done_is_an_error_with_its_message() {
        let mut body = (-libc::EINVAL).to_ne_bytes().to_vec();
        body.extend(sentence("no such queue"));
        let done = message(NLMSG_DONE, flag::ACK_TLVS, &body);
        let error = only(&done).result().unwrap_err().when("list the queues");
        assert_eq!(
            error.to_string(),
            "cannot list the queues: no such queue (Invalid argument (os error 22))"
        );
    }

    #[test]
    fn an_error_is_read_past_the_request_that_it_repeats() {
        let request = message(18, 0, &[1, 2, 3, 4, 5]);
        for (repeated, flags) in
            [(&request[..], flag::ACK_TLVS), (&request[..HEADER], flag::ACK_TLVS | flag::CAPPED)]
        {
            let mut body = (-libc::EPERM).to_ne_bytes().to_vec();
            body.extend_from_slice(repeated);
            body.extend(sentence("not yours"));
            let bytes = message(NLMSG_ERROR, flags, &body);
            let error = only(&bytes).result().unwrap_err();
            assert_eq!((error.errno, error.detail.as_deref()), (Some(libc::EPERM), Some("not yours")));
        }
    }

    #[test]
    fn a_malformed_rest_is_left_over() {
        let mut datagram = message(16, 0, &[1]);
        datagram.extend([3, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut messages = Messages::new(&datagram);
        assert_eq!(messages.next().map(|message| message.body), Some(&[1][..]));
        assert_eq!((messages.next(), messages.rest().len()), (None, 16));
    }

    proptest! {
        #[test]
        fn messages_are_read_as_written(
            list in prop::collection::vec((any::<[u16; 2]>(), any::<[u32; 2]>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6),
        ) {
            let mut datagram = Vec::new();
            for ([kind, flags], [sequence, port], body) in &list {
                datagram.extend(encode(*kind, *flags, *sequence, *port, body).unwrap());
            }
            let mut messages = Messages::new(&datagram);
            let read: Vec<_> = messages
                .by_ref()
                .map(|m| ([m.kind, m.flags], [m.sequence, m.port], m.body.to_vec()))
                .collect();
            prop_assert_eq!(read, list);
            prop_assert!(messages.rest().is_empty());
        }

        #[test]
        fn any_bytes_end_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u16..5, flags: u16) {
            // Each message takes its header at least.
            prop_assert!(Messages::new(&bytes).count() <= bytes.len() / HEADER);
            let _ = only(&message(kind, flags, &bytes)).result();
        }
    }
}
