//! Why a frame could not be written.

/// Why a frame cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The frame would be longer than its buffer.
    #[error("a frame of {frame_len} bytes does not fit a buffer of {room}")]
    NoRoom {
        /// Bytes of the frame.
        frame_len: usize,
        /// Bytes of the buffer.
        room: usize,
    },
    /// The payload is longer than a UDP datagram's can be.
    #[error("a payload of {payload_len} bytes does not fit a datagram, which takes {most}")]
    TooLong {
        /// Bytes of the payload.
        payload_len: usize,
        /// Most that fit.
        most: usize,
    },
    /// One address is IPv4, the other IPv6.
    #[error("source and destination are of different IP versions")]
    Families,
}
