//! What differs between kernel sockets and frames: how a datagram arrives and how its reply leaves.

use crate::counters::WorkerCounters;
use crate::request::Peer;
use crate::sys::Control;

/// A received datagram, before it becomes a request.
pub(crate) struct Incoming<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) peer: Peer<'a>,
    /// Packet info and the time stamp, if the socket asks for either.
    pub(crate) control: Option<&'a Control>,
    /// Cut by the kernel because it was longer than the receive buffer.
    pub(crate) truncated: bool,
}

/// A burst of received datagrams and the replies to them.
pub(crate) trait Exchange {
    /// Datagram `i` of the burst, and the buffer for its reply.
    fn datagram(&mut self, i: usize) -> (Incoming<'_>, &mut [u8]);

    /// Makes the first `len` bytes of the buffer from [`Exchange::datagram`] the reply to datagram `i`.
    fn reply(&mut self, i: usize, len: usize);

    /// Replies to datagram `i`, a probe, with what `write` writes (it returns the length). The reply is not traffic and
    /// is not counted; replies queued before it are sent and counted in `counters` first where that is necessary.
    fn answer_probe(&mut self, i: usize, counters: &WorkerCounters, write: impl FnOnce(&mut [u8]) -> usize);
}
