//! The [`Port`] of a kernel socket, in the three forms that cost least where they apply:
//!
//! | batch | bound to | calls |
//! |---|---|---|
//! | 1 | one address | `recvfrom`, `sendto` |
//! | 1 | a wildcard | `recvmsg`, `sendmsg` with packet info |
//! | more | either | `recvmmsg` (waits for the first only), `sendmmsg` |

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::socket::Socket;
use crate::counters::Published;
use crate::dispatch::{Exchange, Incoming};
use crate::request::Peer;
use crate::sys::{
    Burst, Datagram, Held, MAX_PAYLOAD_V4, MAX_PAYLOAD_V6, Receipt, Single, Wait, segmentation,
};

/// One burst in, one burst out: what a worker needs of a kernel socket. Workers are compiled for each implementation, so
/// all calls are direct.
pub(crate) trait Port: Exchange {
    /// Receives the next burst. Replies that were queued and not sent are discarded.
    fn receive(&mut self, wait: Wait) -> io::Result<Receipt>;

    /// Sends the queued replies and counts each: sent, or why not. May be called several times in a burst.
    fn send(&mut self, counts: &Published);
}

/// A kernel socket with the buffers of one worker's bursts.
pub(crate) enum KernelPort {
    Single(SinglePort),
    Info(InfoPort),
    Many(ManyPort),
}

pub(crate) struct SinglePort {
    socket: Held<Socket>,
    single: Single,
}

pub(crate) struct InfoPort {
    socket: Held<Socket>,
    burst: Burst,
}

pub(crate) struct ManyPort {
    socket: Held<Socket>,
    burst: Burst,
}

impl KernelPort {
    /// The form that fits; allocates, but touches nearly nothing of it.
    pub(crate) fn new(socket: Arc<Socket>, batch: usize, gso: bool) -> io::Result<Self> {
        let reply_room = if socket.bind.is_ipv6() { MAX_PAYLOAD_V6 } else { MAX_PAYLOAD_V4 };
        let wildcard = socket.bind.ip().is_unspecified();
        let gso = gso && segmentation(socket.fd());
        let socket = Held::new(socket);
        Ok(match (batch, wildcard) {
            (1, false) => Self::Single(SinglePort { single: Single::new(reply_room)?, socket }),
            (1, true) => Self::Info(InfoPort { burst: Burst::new(1, reply_room, true, false)?, socket }),
            _ => Self::Many(ManyPort { burst: Burst::new(batch, reply_room, wildcard, gso)?, socket }),
        })
    }
}

// Inlined into the worker's loop: the kernel's mitigations leave the return predictor empty, so that every return after a
// system call is mispredicted. With one datagram per call that is measurable.
impl Exchange for SinglePort {
    #[inline(always)]
    fn datagram(&mut self, _only: usize) -> (Incoming<'_>, &mut [u8]) {
        incoming(self.single.datagram())
    }

    #[inline(always)]
    fn reply(&mut self, _only: usize, len: usize) {
        self.single.queue(len);
    }

    fn answer_probe(&mut self, i: usize, counters: &Published, write: impl FnOnce(&mut [u8]) -> usize) {
        answer_probe(self, i, counters, write);
    }
}

impl Port for SinglePort {
    #[inline(always)]
    fn receive(&mut self, wait: Wait) -> io::Result<Receipt> {
        self.single.receive(self.socket.as_fd(), wait)
    }

    #[inline(always)]
    fn send(&mut self, counts: &Published) {
        self.single.send(self.socket.as_fd(), counts);
    }
}

impl Exchange for InfoPort {
    #[inline]
    fn datagram(&mut self, i: usize) -> (Incoming<'_>, &mut [u8]) {
        incoming(self.burst.datagram(i))
    }

    #[inline]
    fn reply(&mut self, i: usize, len: usize) {
        self.burst.queue(i, len);
    }

    fn answer_probe(&mut self, i: usize, counters: &Published, write: impl FnOnce(&mut [u8]) -> usize) {
        answer_probe(self, i, counters, write);
    }
}

impl Port for InfoPort {
    fn receive(&mut self, wait: Wait) -> io::Result<Receipt> {
        self.burst.receive_one(self.socket.as_fd(), wait)
    }

    fn send(&mut self, counts: &Published) {
        self.burst.send_one(self.socket.as_fd(), counts);
    }
}

impl Exchange for ManyPort {
    #[inline]
    fn datagram(&mut self, i: usize) -> (Incoming<'_>, &mut [u8]) {
        incoming(self.burst.datagram(i))
    }

    #[inline]
    fn reply(&mut self, i: usize, len: usize) {
        self.burst.queue(i, len);
    }

    fn answer_probe(&mut self, i: usize, counters: &Published, write: impl FnOnce(&mut [u8]) -> usize) {
        answer_probe(self, i, counters, write);
    }
}

impl Port for ManyPort {
    fn receive(&mut self, wait: Wait) -> io::Result<Receipt> {
        self.burst.receive(self.socket.as_fd(), wait)
    }

    fn send(&mut self, counts: &Published) {
        self.burst.send(self.socket.as_fd(), counts);
    }
}

/// What the kernel wrote, as the dispatch takes it.
#[inline(always)]
fn incoming<'a>((datagram, buffer): (Datagram<'a>, &'a mut [u8])) -> (Incoming<'a>, &'a mut [u8]) {
    let Datagram { payload, peer, control, truncated } = datagram;
    (Incoming { payload, peer: Peer::Raw(peer), control, truncated }, buffer)
}

/// Sends the answer to a probe by itself, after the replies queued before it, so that it is not counted. If the kernel does
/// not send it, the prober misses it and reports that.
#[cold]
fn answer_probe<P: Port>(
    port: &mut P,
    i: usize,
    counters: &Published,
    write: impl FnOnce(&mut [u8]) -> usize,
) {
    port.send(counters);
    let (_, buffer) = port.datagram(i);
    let len = write(buffer);
    port.reply(i, len);
    port.send(&Published::default());
}
