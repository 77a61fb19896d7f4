//! One datagram at a time with `recvfrom` and `sendto`: the two cheapest calls for batch 1 on a socket bound to a
//! specific address.
//!
//! They bypass the C library's wrappers, which are cancellation points: in a program with threads these cost two locked
//! instructions per call, and nothing here is ever cancelled.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::arena::Arena;
use super::{
    Control, Datagram, NotSent, RECEIVE_BUFFER_LEN, RawAddr, ReceiveResult, Sender, Wait, check,
    result_of_error,
};
use crate::counters::WorkerCounters;

/// Buffers for one datagram and its reply.
pub(crate) struct Single {
    rx: Arena,
    tx: Arena,
    name: RawAddr,
    len: usize,
    max_reply: usize,
    /// The length of the reply, if there is one.
    reply: Option<usize>,
}

impl Single {
    /// Buffers for one datagram and a reply of up to `max_reply` bytes.
    pub(crate) fn new(max_reply: usize) -> io::Result<Self> {
        assert!(max_reply <= RECEIVE_BUFFER_LEN, "no datagram is longer");
        Ok(Self {
            rx: Arena::new(RECEIVE_BUFFER_LEN)?,
            tx: Arena::new(RECEIVE_BUFFER_LEN)?,
            name: RawAddr::empty(),
            len: 0,
            reply: None,
            max_reply,
        })
    }

    /// Receives one datagram.
    #[inline(always)]
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, wait: Wait) -> io::Result<ReceiveResult> {
        let flags = match wait {
            Wait::Block => 0,
            Wait::Now => libc::MSG_DONTWAIT,
        };
        self.reply = None;
        loop {
            let (name, name_len) = self.name.reopen().as_mut_ptrs();
            // SAFETY: the buffer is RECEIVE_BUFFER_LEN writable bytes, and the name has the length its own `len` says;
            // both belong to `self`, held mutably.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_recvfrom,
                    socket.as_raw_fd(),
                    self.rx.pointer(0, RECEIVE_BUFFER_LEN),
                    RECEIVE_BUFFER_LEN,
                    flags,
                    name,
                    name_len,
                )
            };
            match check(result as isize) {
                Ok(len) => {
                    self.len = len;
                    // Without a sender it is not a datagram: the socket no longer receives, and is empty.
                    return Ok(if self.name.is_some() {
                        ReceiveResult::Datagrams(1)
                    } else {
                        ReceiveResult::Woken
                    });
                }
                Err(error) => {
                    if let Some(done) = result_of_error(error) {
                        return done;
                    }
                }
            }
        }
    }

    /// The datagram, and the buffer for its reply.
    #[inline(always)]
    pub(crate) fn datagram(&mut self) -> (Datagram<'_>, &mut [u8]) {
        // The buffer is longer than any datagram, so none is cut.
        let datagram = Datagram {
            payload: &self.rx.bytes()[..self.len],
            peer: &self.name,
            control: None,
            truncated: false,
        };
        (datagram, &mut self.tx.bytes_mut()[..self.max_reply])
    }

    /// Makes the first `len` bytes of the reply buffer the reply.
    #[inline(always)]
    pub(crate) fn queue(&mut self, len: usize) {
        self.reply = Some(len.min(self.max_reply));
    }

    /// Sends the reply, if there is one.
    #[inline(always)]
    pub(crate) fn send(&mut self, socket: &impl Sender, counts: &WorkerCounters) {
        let Some(len) = self.reply.take() else { return };
        let (reply, peer) = (&self.tx.bytes()[..len], &self.name);
        match send_to(socket, reply, peer, None) {
            Ok(len) => counts.sent(1, len as u64),
            Err(not_sent) => counts.failed(not_sent.cause, 1),
        }
    }
}

/// Sends one datagram: with `sendto`, or with `sendmsg` if the source address must be set.
#[inline(always)]
pub(crate) fn send_to(
    socket: &impl Sender,
    payload: &[u8],
    peer: &RawAddr,
    mut source: Option<&mut Control>,
) -> Result<usize, NotSent> {
    if !socket.is_crowded() {
        match send_now(socket.as_fd(), payload, peer, source.as_deref_mut()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return Ok(done?),
        }
    }
    socket.retry(peer, &mut || send_now(socket.as_fd(), payload, peer, source.as_deref_mut()))
}

/// Sends one datagram without waiting.
#[inline(always)]
fn send_now(
    socket: BorrowedFd<'_>,
    payload: &[u8],
    peer: &RawAddr,
    source: Option<&mut Control>,
) -> io::Result<usize> {
    let source = source.filter(|control| control.len() > 0);
    let mut part = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
    let mut header = source.map(|control| {
        // SAFETY: all of msghdr is integers and pointers, for which zero is a valid value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = peer.as_ptr().cast_mut().cast();
        header.msg_namelen = peer.len();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_controllen = control.len() as _;
        header.msg_control = control.as_mut_ptr();
        header
    });
    loop {
        let result = match &mut header {
            None => {
                // SAFETY: payload and peer are live slices with the lengths given; sending only reads them.
                unsafe {
                    libc::syscall(
                        libc::SYS_sendto,
                        socket.as_raw_fd(),
                        payload.as_ptr(),
                        payload.len(),
                        libc::MSG_DONTWAIT,
                        peer.as_ptr(),
                        peer.len(),
                    ) as isize
                }
            }
            // SAFETY: the header points to the payload, the peer and the control bytes, all live for this
            // function; sending only reads them.
            Some(header) => unsafe {
                libc::sendmsg(socket.as_raw_fd(), &raw const *header, libc::MSG_DONTWAIT)
            },
        };
        match check(result) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
