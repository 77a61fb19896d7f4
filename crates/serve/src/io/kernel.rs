//! A kernel socket with the buffers of a worker ([`KernelSocket`]), in three forms; each is the cheapest where it
//! applies, unless the configuration names a [`ReceiveCall`]:
//!
//! | batch | bound to | calls |
//! |---|---|---|
//! | 1 | one address | `recvfrom`, `sendto` |
//! | 1 | a wildcard, or with time stamps | `recvmsg`, `sendmsg` with control messages |
//! | more | either | `recvmmsg` (waits for the first only), `sendmmsg` |
//!
//! There is none that uses `read`: it does not return the sender, to whom the start-up probe's answer goes, and it
//! returns the same for an empty datagram as for a socket that no longer receives.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::kind::ReceiveCall;
use super::socket::Socket;
use crate::counters::WorkerCounters;
use crate::dispatch::{Exchange, Incoming};
use crate::request::Peer;
use crate::sys::{
    Ancillary, Burst, Datagram, MAX_PAYLOAD_V4, MAX_PAYLOAD_V6, ReceiveResult, Single, SocketHandle, Wait,
    segmentation,
};

/// A kernel socket as a worker uses it: receive a burst, send its replies. Workers are compiled for each
/// implementation, so all calls are direct.
pub(crate) trait BurstSocket: Exchange {
    /// Receives the next burst. Replies that were queued and not sent are discarded.
    fn receive(&mut self, wait: Wait) -> io::Result<ReceiveResult>;

    /// Sends the queued replies and counts each: sent, or why not. May be called several times in a burst.
    fn send(&mut self, counts: &WorkerCounters);
}

/// A kernel socket with the buffers of one worker's bursts.
pub(crate) enum KernelSocket {
    Single(SingleSocket),
    Control(ArraySocket<false>),
    Many(ArraySocket<true>),
}

pub(crate) struct SingleSocket {
    socket: SocketHandle<Socket>,
    single: Single,
}

/// A socket with a burst's arrays; `MANY`: several datagrams per call.
pub(crate) struct ArraySocket<const MANY: bool> {
    socket: SocketHandle<Socket>,
    burst: Burst,
}

impl KernelSocket {
    /// The form for this socket and batch, or the one with `call`, which the configuration allows. Allocates the
    /// buffers, but touches almost none of their pages.
    pub(crate) fn new(
        socket: Arc<Socket>,
        batch: usize,
        gso: bool,
        call: Option<ReceiveCall>,
    ) -> io::Result<Self> {
        let max_reply = if socket.bind.is_ipv6() { MAX_PAYLOAD_V6 } else { MAX_PAYLOAD_V4 };
        let ancillary = socket.ancillary;
        let gso = gso && segmentation(socket.fd());
        let socket = SocketHandle::new(socket);
        let cheapest = match batch {
            1 if ancillary == Ancillary::default() => ReceiveCall::Recvfrom,
            1 => ReceiveCall::Recvmsg,
            _ => ReceiveCall::Recvmmsg,
        };
        Ok(match call.unwrap_or(cheapest) {
            ReceiveCall::Recvfrom => Self::Single(SingleSocket { single: Single::new(max_reply)?, socket }),
            ReceiveCall::Recvmsg => {
                Self::Control(ArraySocket { burst: Burst::new(1, max_reply, ancillary, false)?, socket })
            }
            ReceiveCall::Recvmmsg => {
                Self::Many(ArraySocket { burst: Burst::new(batch, max_reply, ancillary, gso)?, socket })
            }
        })
    }
}

// Inlined into the worker's loop: the kernel's mitigations leave the return predictor empty, so that every return after
// a system call is mispredicted. With one datagram per call that is measurable.
impl Exchange for SingleSocket {
    #[inline(always)]
    fn datagram(&mut self, _only: usize) -> (Incoming<'_>, &mut [u8]) {
        incoming(self.single.datagram())
    }

    #[inline(always)]
    fn reply(&mut self, _only: usize, len: usize) {
        self.single.queue(len);
    }

    fn answer_probe(&mut self, i: usize, counters: &WorkerCounters, write: impl FnOnce(&mut [u8]) -> usize) {
        answer_probe(self, i, counters, write);
    }
}

impl BurstSocket for SingleSocket {
    #[inline(always)]
    fn receive(&mut self, wait: Wait) -> io::Result<ReceiveResult> {
        self.single.receive(self.socket.as_fd(), wait)
    }

    #[inline(always)]
    fn send(&mut self, counts: &WorkerCounters) {
        self.single.send(&self.socket, counts);
    }
}

impl<const MANY: bool> Exchange for ArraySocket<MANY> {
    #[inline]
    fn datagram(&mut self, i: usize) -> (Incoming<'_>, &mut [u8]) {
        incoming(self.burst.datagram(i))
    }

    #[inline]
    fn reply(&mut self, i: usize, len: usize) {
        self.burst.queue(i, len);
    }

    fn answer_probe(&mut self, i: usize, counters: &WorkerCounters, write: impl FnOnce(&mut [u8]) -> usize) {
        answer_probe(self, i, counters, write);
    }
}

impl<const MANY: bool> BurstSocket for ArraySocket<MANY> {
    fn receive(&mut self, wait: Wait) -> io::Result<ReceiveResult> {
        let socket = self.socket.as_fd();
        if MANY { self.burst.receive(socket, wait) } else { self.burst.receive_one(socket, wait) }
    }

    fn send(&mut self, counts: &WorkerCounters) {
        if MANY {
            self.burst.send(&self.socket, counts);
        } else {
            self.burst.send_one(&self.socket, counts);
        }
    }
}

/// A datagram as the dispatch takes it.
#[inline(always)]
fn incoming<'a>((datagram, buffer): (Datagram<'a>, &'a mut [u8])) -> (Incoming<'a>, &'a mut [u8]) {
    let Datagram { payload, peer, control, truncated } = datagram;
    (Incoming { payload, peer: Peer::Raw(peer), control, truncated }, buffer)
}

/// Sends the answer to a probe separately, after the replies queued before it, so that it is not counted. If the kernel
/// does not send it, the probe fails and reports that.
#[cold]
fn answer_probe<P: BurstSocket>(
    socket: &mut P,
    i: usize,
    counters: &WorkerCounters,
    write: impl FnOnce(&mut [u8]) -> usize,
) {
    socket.send(counters);
    let (_, buffer) = socket.datagram(i);
    let len = write(buffer);
    socket.reply(i, len);
    socket.send(&WorkerCounters::default());
}
