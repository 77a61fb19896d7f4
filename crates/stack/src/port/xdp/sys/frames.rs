//! Frames made of the addresses that the kernel returns through the rings.
#![allow(unsafe_code, reason = "the kernel decides who owns a chunk, and its rings are trusted for that")]

use rustix::net::xdp::XdpDesc;

use super::super::ring::Consumer;
use crate::frame::{Burst, Offloads, Pool};

/// Appends the packets in `rx` to `into`, as far as there is room. Returns how many entries were taken, and how many
/// of those had an invalid address or length.
#[inline]
pub(in super::super) fn receive(rx: &mut Consumer<XdpDesc>, pool: &mut Pool, into: &mut Burst) -> (u32, u32) {
    let room = into.remaining_capacity() as u32;
    let (mut taken, mut unfit) = (0, 0);
    if rx.available(room) == 0 {
        return (0, 0);
    }
    while taken < room
        && let Some(entry) = rx.take()
    {
        taken += 1;
        // SAFETY: only the kernel writes this ring, and each entry is read once: the kernel has given the chunk up.
        match unsafe { pool.receive(entry.addr, entry.len, Offloads::default()) } {
            Some(frame) => into.push(frame),
            None => unfit += 1,
        }
    }
    rx.release();
    (taken, unfit)
}

/// Reclaims the chunks of packets that were sent. Returns how many entries there were, and how many of them were
/// invalid.
#[inline]
pub(in super::super) fn reclaim(completion: &mut Consumer<u64>, pool: &mut Pool) -> (u32, u32) {
    let (mut taken, mut unfit) = (0, 0);
    if completion.available(1) == 0 {
        return (0, 0);
    }
    while let Some(address) = completion.take() {
        taken += 1;
        // SAFETY: only the kernel writes this ring, and each entry is read once: the kernel has given the chunk up.
        if !unsafe { pool.reclaim(address) } {
            unfit += 1;
        }
    }
    completion.release();
    (taken, unfit)
}

/// The bytes of a packet that was pushed into the transmit ring, in copy mode, before its chunk is reclaimed.
pub(in super::super) fn pushed(pool: &Pool, entry: XdpDesc) -> Option<&[u8]> {
    // SAFETY: the pool lent this packet to the ring; only the completion ring brings it back, which the caller, who
    // has exclusive access to the port, reads later; and the kernel only reads packets that it sends.
    unsafe { pool.lent_packet(entry.addr, entry.len) }
}
