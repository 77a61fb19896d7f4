//! Frames: pieces of packet memory with one owner at a time.
//!
//! ```text
//! Region    one mapping            [chunk 0][chunk 1][chunk 2][chunk 3] ...
//!   └ Pool  a port's share of it    free ▸ Frame, Frame, ...
//!                                   with the kernel ▸ addresses in its rings
//!                                   outstanding ▸ Frames held by workers, rings and sockets
//! ```
//! - At any moment a chunk is in one place: in its pool, with the kernel, or in one [`Frame`]. The frame is the only
//!   handle to its bytes, so it hands them out mutably without a lock, on any thread.
//! - Handing a frame over moves the value: 24 bytes, no reference count.
//! - A frame is returned with [`Pool::put`], on the thread that owns the pool. One that is dropped elsewhere is
//!   leaked, like a packet buffer that is never freed: it counts as outstanding for the rest of the pool's life.
//! - A region with outstanding frames when its last pool is dropped is never unmapped: a frame stays valid for as
//!   long as it exists, even after its port is gone.

mod sys;

use arrayvec::ArrayVec;

pub use sys::{Frame, Pool, Region};

/// Frames that move together. A burst is the most that one poll of a worker takes from one queue: more would delay
/// the first datagram of the burst and evict the last from the cache, fewer would spread the fixed cost of the poll
/// over less (the kernel's NAPI weight is 64 too).
pub const BURST: usize = 64;

/// A burst of frames.
pub type Burst = ArrayVec<Frame, BURST>;

/// Metadata that a port supplies with a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offloads {
    /// The NIC's RSS hash.
    pub hash: Option<u32>,
    /// The IP and UDP checksums were verified already.
    pub checksums: bool,
}

/// Why packet memory could not be allocated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Invalid frame size or count.
    #[error(
        "cannot allocate {chunks} frames of {size} bytes: a frame must be 2048 or 4096 bytes, and a region needs at least one"
    )]
    Shape {
        /// Bytes per frame.
        size: usize,
        /// Number of frames.
        chunks: usize,
    },
    /// Not enough frames are left in the region.
    #[error("cannot give {wanted} frames to a port: the region has {left} left")]
    Left {
        /// How many were requested.
        wanted: usize,
        /// How many were left.
        left: usize,
    },
    /// No memory.
    #[error("cannot map {bytes} bytes of packet memory")]
    Map {
        /// Bytes.
        bytes: usize,
        /// The kernel's error.
        #[source]
        cause: std::io::Error,
    },
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_in_one_place_at_a_time() {
        let mut region = Region::new(2048, 4).unwrap();
        let mut pool = region.pool(4).unwrap();
        assert!(matches!(region.pool(1), Err(Error::Left { wanted: 1, left: 0 })));
        let frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((frames.len(), pool.free(), pool.outstanding()), (4, 0, 4));
        let mut starts: Vec<_> = frames.iter().map(|frame| frame.bytes().as_ptr() as usize).collect();
        starts.sort_unstable();
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 2048));
        for frame in frames {
            pool.put(frame);
        }
        assert_eq!((pool.free(), pool.outstanding()), (4, 0));
    }

    #[test]
    fn bytes_stay_within_the_chunk() {
        let mut region = Region::new(2048, 2).unwrap();
        let mut pool = region.pool(2).unwrap();
        let (mut a, mut b) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(a.bytes().is_empty());
        assert!(!a.set_len(a.room() + 1), "longer than the chunk");
        assert!(a.set_len(a.room()) && b.set_len(b.room()));
        a.bytes_mut().fill(1);
        b.bytes_mut().fill(2);
        assert!(a.bytes().iter().all(|byte| *byte == 1) && b.bytes().iter().all(|byte| *byte == 2));
    }

    #[test]
    fn a_frame_outlives_its_region() {
        let mut region = Region::new(4096, 1).unwrap();
        let mut pool = region.pool(1).unwrap();
        let mut frame = pool.take().unwrap();
        drop((pool, region));
        assert!(frame.set_len(4));
        frame.bytes_mut().copy_from_slice(b"here");
        assert_eq!(frame.bytes(), b"here");
    }

    #[test]
    fn impossible_shapes_are_refused() {
        for (size, chunks) in [(0, 1), (1024, 4), (3000, 4), (2048, 0), (2048, usize::MAX)] {
            assert!(matches!(Region::new(size, chunks), Err(Error::Shape { .. } | Error::Map { .. })));
        }
    }

    #[test]
    fn a_pool_rejects_the_frame_of_another() {
        let mut region = Region::new(2048, 2).unwrap();
        let (mut a, mut b) = (region.pool(1).unwrap(), region.pool(1).unwrap());
        let frame = a.take().unwrap();
        assert!(a.owns(&frame) && !b.owns(&frame));
        let back = b.put(frame);
        assert!(back.is_some(), "rejected");
        assert!(a.put(back.unwrap()).is_none());
    }
}
