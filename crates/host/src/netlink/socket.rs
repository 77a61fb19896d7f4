//! A netlink socket: one request at a time, and all of its answers.
//!
//! ```text
//!  request --> kernel --> answer, answer, ... --> acknowledgement (0 or an error)   a plain request
//!                    \--> answer, answer, ... --> done           (0 or an error)   a dump
//! ```
//! The socket speaks for the network namespace that its thread was in when it was opened, from whatever thread it is
//! used later. A dump that the kernel marks as interrupted is a torn picture, and is asked for again.

use std::fmt;
use std::io;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST,
};
use netlink_sys::{Socket, SocketAddr};
use rustix::net::{RecvFlags, recv, sockopt};

use super::attribute::Attributes;
use super::numbers::NLMSGERR_ATTR_MSG;

/// How long the kernel may take for an answer. It answers within the send call, unless another process holds the lock
/// of all interfaces (rtnl) while hardware resets. Shorter: machines with slow hardware fail for nothing. Longer: a
/// hang is told late.
const ANSWER: Duration = Duration::from_secs(10);
/// Bytes of the largest datagram taken. The kernel fills dumps up to 32 KiB and sends a single answer whole; the
/// longest of those is an RSS table, 4 bytes for each of up to some thousand entries. Smaller: such a table is cut, and
/// refused here. Larger: memory for nothing.
const DATAGRAM: usize = 64 << 10;
/// How often a dump is asked for before its interruptions are an error. Interfaces come and go in bursts; fewer tries
/// would fail in one, and more would only follow it for longer.
const DUMPS: u32 = 5;

/// Bytes of a message's header, and of the error number in front of what an error repeats.
const HEADER: usize = 16;
const ERRNO: usize = 4;
/// Types of messages that end an exchange, of linux/netlink.h.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// The kernel said no, or nothing that makes sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {what}: {}", self.why())]
pub struct Refused {
    /// Operation and object: `set the channels of eth0`.
    pub what: String,
    /// The kernel's error number; none when the failure was not the kernel's.
    pub errno: Option<i32>,
    /// The kernel's or the driver's own sentence, where it gave one; or what else went wrong.
    pub detail: Option<String>,
}

impl Refused {
    /// A refusal by number.
    pub(crate) fn errno(errno: i32) -> Self {
        Self { what: String::new(), errno: Some(errno), detail: None }
    }

    /// A failure that is not the kernel's word.
    pub(crate) fn other(detail: impl fmt::Display) -> Self {
        Self { what: String::new(), errno: None, detail: Some(detail.to_string()) }
    }

    /// `what`: operation and object.
    pub(crate) fn when(mut self, what: impl Into<String>) -> Self {
        self.what = what.into();
        self
    }

    /// The cause alone: the kernel's sentence before its number.
    #[must_use]
    pub fn why(&self) -> String {
        let number = self.errno.map(|errno| io::Error::from_raw_os_error(errno).to_string());
        match (&self.detail, number) {
            (Some(detail), Some(number)) => format!("{detail} ({number})"),
            (Some(detail), None) => detail.clone(),
            (None, Some(number)) => number,
            (None, None) => "no reason was given".into(),
        }
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Self::other(format_args!("no answer within {} s", ANSWER.as_secs())),
            Some(errno) => Self::errno(errno),
            None => Self::other(error),
        }
    }
}

/// The answers to one request.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    bytes: Vec<u8>,
}

impl Answers {
    /// The answers' bodies, without netlink's header.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        Messages(&self.bytes).map(|message| message.body)
    }
}

/// One message of a datagram.
struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    whole: &'a [u8],
    body: &'a [u8],
}

/// The messages of a datagram, up to the first that is none.
struct Messages<'a>(&'a [u8]);

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
        Some(Message { kind: half(4), flags: half(6), sequence: word(8), whole, body })
    }
}

/// What one datagram meant for the exchange.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    More,
    End,
}

/// A socket of one netlink protocol.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl fmt::Debug for Netlink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Netlink(sequence {})", self.sequence)
    }
}

impl Netlink {
    /// Opens one in the calling thread's network namespace. `protocol`: of `netlink_sys::protocols`.
    pub(crate) fn open(protocol: isize) -> Result<Self, Refused> {
        let opened = || -> io::Result<Self> {
            let mut socket = Socket::new(protocol)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // Kernels before 4.12 and 4.20 lack these; they say less, and check less.
            let _ = socket.set_ext_ack(true);
            let _ = socket.set_cap_ack(true);
            let _ = socket.set_netlink_get_strict_chk(true);
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER))?;
            Ok(Self { socket, sequence: 0, buffer: vec![0; DATAGRAM] })
        };
        opened().map_err(Refused::from)
    }

    /// A plain request.
    pub(crate) fn request(&mut self, kind: u16, body: &[u8]) -> Result<Answers, Refused> {
        self.exchange(kind, NLM_F_ACK, body).map(|(answers, _)| answers)
    }

    /// A plain request that another thread of the kernel answers, after it was acknowledged: audit does so.
    pub(crate) fn request_answered_later(&mut self, kind: u16, body: &[u8]) -> Result<Answers, Refused> {
        let mut answers = self.request(kind, body)?;
        while answers.bytes.is_empty() {
            self.receive(&mut answers, &mut false)?;
        }
        Ok(answers)
    }

    /// A request that makes, replaces or deletes something; `flags`: `NLM_F_CREATE` and the like.
    pub(crate) fn change(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(), Refused> {
        self.exchange(kind, NLM_F_ACK | flags, body).map(|_| ())
    }

    /// A dump, asked for again while the kernel says that something changed under it.
    pub(crate) fn dump(&mut self, kind: u16, body: &[u8]) -> Result<Answers, Refused> {
        for _ in 0..DUMPS {
            let (answers, torn) = self.exchange(kind, NLM_F_DUMP, body)?;
            if !torn {
                return Ok(answers);
            }
        }
        Err(Refused::other(format_args!("interfaces changed during each of {DUMPS} attempts to list them")))
    }

    fn exchange(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(Answers, bool), Refused> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(HEADER + body.len()).map_err(Refused::other)?;
        let mut request = Vec::with_capacity(HEADER + body.len());
        request.extend_from_slice(&length.to_ne_bytes());
        request.extend_from_slice(&kind.to_ne_bytes());
        request.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        request.extend_from_slice(&self.sequence.to_ne_bytes());
        // The port: the socket's own is filled in by the kernel.
        request.extend_from_slice(&0_u32.to_ne_bytes());
        request.extend_from_slice(body);
        self.socket.send(&request, 0)?;
        let (mut answers, mut torn) = (Answers::default(), false);
        while self.receive(&mut answers, &mut torn)? == Step::More {}
        Ok((answers, torn))
    }

    /// Takes one datagram of the answers to the last request.
    fn receive(&mut self, answers: &mut Answers, torn: &mut bool) -> Result<Step, Refused> {
        let (_, length) =
            recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC).map_err(io::Error::from)?;
        let Some(datagram) = self.buffer.get(..length) else {
            return Err(Refused::other(format_args!("an answer of {length} bytes, over {DATAGRAM}")));
        };
        take(datagram, self.sequence, answers, torn)
    }
}

/// Takes one datagram of answers to the request of that number.
fn take(datagram: &[u8], sequence: u32, answers: &mut Answers, torn: &mut bool) -> Result<Step, Refused> {
    // What answers an earlier request, whose wait ran out, is passed over.
    for message in Messages(datagram).filter(|message| message.sequence == sequence) {
        *torn |= message.flags & NLM_F_DUMP_INTR != 0;
        match message.kind {
            NLMSG_ERROR | NLMSG_DONE => return end(&message),
            _ => answers.bytes.extend_from_slice(message.whole),
        }
    }
    Ok(Step::More)
}

/// The end of an exchange: fine, or an error with the kernel's sentence beside it.
fn end(message: &Message<'_>) -> Result<Step, Refused> {
    // Old kernels end a dump without a number.
    let code = message.body.first_chunk::<ERRNO>().map_or(0, |code| i32::from_ne_bytes(*code));
    if code == 0 {
        return Ok(Step::End);
    }
    let mut refused = Refused::errno(code.wrapping_neg());
    if message.flags & NLM_F_ACK_TLVS != 0 {
        // An error repeats the request's header, and the rest of it unless that is cut off.
        let skipped = match message.kind {
            NLMSG_DONE => ERRNO,
            _ if message.flags & NLM_F_CAPPED != 0 => ERRNO + HEADER,
            _ => {
                ERRNO + Messages(&message.body[ERRNO..]).next().map_or(HEADER, |request| request.whole.len())
            }
        };
        let attributes = Attributes::new(message.body.get(skipped..).unwrap_or_default());
        refused.detail = attributes.text(NLMSGERR_ATTR_MSG);
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
    use proptest::prelude::*;

    use super::super::Writer;
    use super::super::numbers::{CTRL_ATTR_FAMILY_NAME, CTRL_CMD_GETFAMILY, IFLA_IFNAME, RTM_GETLINK};
    use super::*;

    fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(HEADER + body.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn sentence(text: &str) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.text(NLMSGERR_ATTR_MSG, text);
        writer.finish()
    }

    #[test]
    fn an_error_in_a_done_is_an_error_with_its_sentence() {
        let mut body = (-libc::EINVAL).to_ne_bytes().to_vec();
        body.extend(sentence("no such queue"));
        let done = message(NLMSG_DONE, NLM_F_ACK_TLVS, 7, &body);
        let mut torn = false;
        let refused = take(&done, 7, &mut Answers::default(), &mut torn).unwrap_err().when("list the queues");
        assert_eq!(
            refused.to_string(),
            "cannot list the queues: no such queue (Invalid argument (os error 22))"
        );
    }

    #[test]
    fn an_error_is_read_past_the_request_that_it_repeats() {
        let request = message(18, 0, 7, &[1, 2, 3, 4, 5]);
        for (repeated, flags) in
            [(&request[..], NLM_F_ACK_TLVS), (&request[..HEADER], NLM_F_ACK_TLVS | NLM_F_CAPPED)]
        {
            let mut body = (-libc::EPERM).to_ne_bytes().to_vec();
            body.extend_from_slice(repeated);
            body.extend(sentence("not yours"));
            let error = message(NLMSG_ERROR, flags, 7, &body);
            let refused = take(&error, 7, &mut Answers::default(), &mut false).unwrap_err();
            assert_eq!((refused.errno, refused.detail.as_deref()), (Some(libc::EPERM), Some("not yours")));
        }
    }

    #[test]
    fn a_datagram_of_another_request_is_passed_over_and_an_interrupted_one_is_seen() {
        let mut datagram = message(16, 0, 6, b"old!");
        datagram.extend(message(16, NLM_F_DUMP_INTR, 7, b"ours"));
        let (mut answers, mut torn) = (Answers::default(), false);
        assert_eq!(take(&datagram, 7, &mut answers, &mut torn), Ok(Step::More));
        assert_eq!(answers.bodies().collect::<Vec<_>>(), [b"ours"]);
        assert!(torn);
    }

    #[test]
    fn the_kernel_answers_dumps_and_refuses_in_words() {
        let mut route = Netlink::open(NETLINK_ROUTE).unwrap();
        let answers = route.dump(RTM_GETLINK, &[0; 16]).unwrap();
        let names: Vec<_> =
            answers.bodies().filter_map(|body| Attributes::new(&body[16..]).text(IFLA_IFNAME)).collect();
        assert!(names.contains(&"lo".into()), "{names:?}");
        // Strict checking: a header that asks for something a dump cannot do.
        let refused = route.dump(RTM_GETLINK, &[1; 16]).unwrap_err();
        assert_eq!(refused.errno, Some(libc::EINVAL));
        assert!(refused.detail.is_some(), "{refused:?}");
        let mut generic = Netlink::open(NETLINK_GENERIC).unwrap();
        let mut body = Writer::after(&[u8::try_from(CTRL_CMD_GETFAMILY).unwrap(), 1, 0, 0]);
        body.text(CTRL_ATTR_FAMILY_NAME, "no-such-family");
        assert_eq!(generic.request(16, &body.finish()).unwrap_err().errno, Some(libc::ENOENT));
    }

    proptest! {
        #[test]
        fn no_datagram_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0_u16..5, flags: u16) {
            let _ = take(&bytes, 7, &mut Answers::default(), &mut false);
            let _ = take(&message(kind, flags, 7, &bytes), 7, &mut Answers::default(), &mut false);
        }
    }
}
