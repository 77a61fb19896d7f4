//! System calls and memory the kernel writes to, behind safe types. The only unsafe code of the crate.
//!
//! Invariant kept here: every pointer handed to the kernel points into memory that its owner (a [`Burst`], a
//! [`Single`]) keeps mapped and unmoved for as long as the pointer exists. Rust reaches that memory through the same
//! pointers ([`Slots`](udpath_stack::slots::Slots), [`arena`]), so that no reference of one side ends the other's.
#![allow(unsafe_code, reason = "recvmmsg, sendmmsg and a few socket options have no safe wrapper")]

mod addr;
mod arena;
mod barrier;
mod burst;
mod control;
mod outbox;
mod sender;
mod single;
mod socket;

pub(crate) use addr::RawAddr;
pub(crate) use barrier::wait_for_softirqs;
pub(crate) use burst::{Ancillary, Burst};
pub(crate) use control::Control;
pub(crate) use sender::{NotSent, Sender};
pub(crate) use single::{Single, send_to};
pub(crate) use socket::{
    SocketHandle, is_broadcast, kernel_drops, packet_info, receive_buffer, receive_timestamps, segmentation,
    send_buffer, send_buffer_limit, set_incoming_cpu, set_receive_buffer, set_send_buffer, stop_receiving,
    wake_receivers,
};

use std::io;

/// Longest UDP payload over IPv4: 65,535 less an IP header of 20 and a UDP header of 8 bytes.
pub(crate) const MAX_PAYLOAD_V4: usize = 65_507;
/// Longest UDP payload over IPv6 without jumbograms: 65,535 less a UDP header of 8 bytes.
pub(crate) const MAX_PAYLOAD_V6: usize = 65_527;
/// Size of the buffer for one received datagram, in bytes: more than any payload, so that no datagram is cut.
pub(crate) const RECEIVE_BUFFER_LEN: usize = 65_536;

/// Converts a result of libc, with `errno` as the error.
#[inline]
fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_negative| io::Error::last_os_error())
}

/// One received datagram.
pub(crate) struct Datagram<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) peer: &'a RawAddr,
    /// Packet info and the time stamp, if the socket asks for either.
    pub(crate) control: Option<&'a Control>,
    /// Cut by the kernel because it was longer than the receive buffer.
    pub(crate) truncated: bool,
}

/// The result of a receive call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveResult {
    /// This many datagrams; 0 if none was queued and the call did not wait.
    Datagrams(usize),
    /// Nothing is queued, and the socket no longer receives: stop.
    Woken,
}

/// Whether a receive call may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Until a datagram arrives or the socket is woken.
    Block,
    /// Not at all.
    Now,
}

/// Handles the errors of receive calls. `None`: call again.
#[cold]
fn result_of_error(error: io::Error) -> Option<io::Result<ReceiveResult>> {
    match error.kind() {
        io::ErrorKind::Interrupted => None,
        io::ErrorKind::WouldBlock => Some(Ok(ReceiveResult::Datagrams(0))),
        _ => Some(Err(error)),
    }
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: all of mmsghdr is integers and pointers, for which zero is a valid value.
    unsafe { std::mem::zeroed() }
}
