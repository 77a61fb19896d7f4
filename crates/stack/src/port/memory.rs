//! An in-memory link: each end receives the frames that the other transmits.
//!
//! ```text
//!   End a  ── ring of frames ──▸  End b        pair(): two ends, each with a pool of its own
//!          ◂── ring of frames ──
//!
//!   End    ──┐                                 looped(): one end that receives what it transmits
//!          ◂─┘
//! ```
//! Frames are moved, not copied; an end that recycles a frame returns it to its original pool, through the return
//! ring of the other direction, so each pool is touched by one thread only.

use std::os::fd::BorrowedFd;

use crate::frame::{self, Burst, Frame, Pool, Region};
use crate::port::{Checksums, Completions, Counts, Mode, Port, Properties};
use crate::ring::{self, Consumer, Producer};

/// Frame size: a standard Ethernet frame fits, and two frames fit a page.
const FRAME_SIZE: usize = 2048;
/// Longest frame: Ethernet header, two VLAN tags and an MTU of 1500.
const MAX_FRAME_LEN: usize = 14 + 8 + 1500;

/// One end of a link.
pub struct End {
    properties: Properties,
    pool: Pool,
    out: Producer<Frame>,
    inbound: Consumer<Frame>,
    /// Frames of the other end's pool, being returned; and this end's own.
    returns: Producer<Frame>,
    returned: Consumer<Frame>,
    counts: Counts,
    completions: Completions,
}

/// Why a link could not be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Out of memory for its frames.
    #[error(transparent)]
    Frame(#[from] frame::Error),
    /// Invalid ring size.
    #[error(transparent)]
    Ring(#[from] ring::CapacityError),
}

/// Two ends, each with `frames` frames and a queue of the same length.
///
/// # Errors
/// Out of memory, or an invalid number of frames.
pub fn pair(frames: usize) -> Result<(End, End), Error> {
    let ring = || ring::ring(2 * frames.next_power_of_two());
    let mut region = Region::new(FRAME_SIZE, 2 * frames)?;
    let ((out_a, in_b), (out_b, in_a)) = (ring()?, ring()?);
    let ((returns_a, at_b), (returns_b, at_a)) = (ring()?, ring()?);
    let a = End::new("memory a", region.pool(frames)?, (out_a, in_a), (returns_a, at_a));
    let b = End::new("memory b", region.pool(frames)?, (out_b, in_b), (returns_b, at_b));
    Ok((a, b))
}

/// One end that receives what it transmits, with `frames` frames.
///
/// # Errors
/// As [`pair`].
pub fn looped(frames: usize) -> Result<End, Error> {
    let mut region = Region::new(FRAME_SIZE, frames)?;
    let ring = || ring::ring(frames.next_power_of_two());
    Ok(End::new("memory loop", region.pool(frames)?, ring()?, ring()?))
}

impl End {
    fn new(
        name: &str,
        pool: Pool,
        (out, inbound): (Producer<Frame>, Consumer<Frame>),
        (returns, returned): (Producer<Frame>, Consumer<Frame>),
    ) -> Self {
        let properties = Properties {
            name: name.to_owned(),
            mode: Mode::Direct,
            max_frame_len: MAX_FRAME_LEN,
            checksums: Checksums::Unverified,
            hashed: false,
        };
        let (counts, completions) = (Counts::default(), Completions::default());
        Self { properties, pool, out, inbound, returns, returned, counts, completions }
    }

    /// Frames of this end's pool that are neither free nor in the return ring.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.pool.outstanding() - self.returned.len()
    }

    /// Collects returned frames.
    fn collect(&mut self) {
        while let Some(frame) = self.returned.pop() {
            let foreign = self.pool.put(frame);
            debug_assert!(foreign.is_none(), "only our own frames are returned");
        }
    }

    /// Returns a frame to its original pool.
    fn put_back(&mut self, frame: Frame) {
        if let Some(foreign) = self.pool.put(frame) {
            // Never full: it has room for every frame of the other end.
            let lost = self.returns.push(foreign);
            debug_assert!(lost.is_ok(), "the return ring has room for every frame");
        }
    }
}

impl Port for End {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    #[inline]
    fn receive(&mut self, into: &mut Burst) -> usize {
        let count = self.inbound.pop_burst(into);
        self.counts.received += count as u64;
        count
    }

    #[inline]
    fn transmit(&mut self, frames: &mut Burst) {
        let sent = self.out.push_burst(frames);
        self.counts.transmitted += sent as u64;
        self.completions.sent(sent);
    }

    #[inline]
    fn recycle(&mut self, frames: &mut Burst) {
        for frame in frames.drain(..) {
            self.put_back(frame);
        }
    }

    fn supply(&mut self, into: &mut Burst, wanted: usize) {
        if self.pool.free() < wanted {
            self.collect();
        }
        let room = into.remaining_capacity().min(wanted);
        into.extend(std::iter::from_fn(|| self.pool.take()).take(room));
    }

    fn flush(&mut self) {}

    #[inline]
    fn completions(&mut self, into: &mut Completions) {
        self.completions.move_to(into);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn filled(end: &mut End, bytes: &[u8]) -> Burst {
        let mut burst = Burst::new();
        end.supply(&mut burst, 1);
        assert!(burst[0].set_len(bytes.len()));
        burst[0].bytes_mut().copy_from_slice(bytes);
        burst
    }

    #[test]
    fn frames_cross_the_link_and_return_to_their_pool() {
        let (mut a, mut b) = pair(8).unwrap();
        for round in 0..100_u8 {
            let mut burst = filled(&mut a, &[round; 60]);
            a.transmit(&mut burst);
            assert!(burst.is_empty());
            let mut got = Burst::new();
            assert_eq!(b.receive(&mut got), 1);
            assert_eq!(got[0].bytes(), [round; 60]);
            // Odd frames are sent back; others are recycled where they are.
            if round % 2 == 1 {
                b.transmit(&mut got);
                assert_eq!(a.receive(&mut got), 1);
                a.recycle(&mut got);
            } else {
                b.recycle(&mut got);
            }
        }
        assert_eq!((a.outstanding(), b.outstanding()), (0, 0));
        assert_eq!((a.counts().transmitted, b.counts().received, a.counts().received), (100, 100, 50));
    }

    #[test]
    fn memory_is_bounded() {
        let mut end = looped(4).unwrap();
        let mut burst = Burst::new();
        end.supply(&mut burst, 10);
        assert_eq!(burst.len(), 4);
        end.transmit(&mut burst);
        end.supply(&mut burst, 10);
        assert!(burst.is_empty(), "all are in the link");
        assert_eq!(end.receive(&mut burst), 4);
        end.recycle(&mut burst);
        end.supply(&mut burst, 2);
        assert_eq!(burst.len(), 2);
        end.recycle(&mut burst);
    }
}
