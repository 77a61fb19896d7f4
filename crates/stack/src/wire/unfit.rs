//! Why a frame could not be written.

/// Why a frame cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The frame would be longer than its buffer.
    #[error("a frame of {frame_len} bytes does not fit a buffer of {room}")]
    NoRoom {
        /// Length of the frame, bytes.
        frame_len: usize,
        /// Length of the buffer, bytes.
        room: usize,
    },
    /// The payload is longer than a UDP datagram's can be.
    #[error("a payload of {payload_len} bytes does not fit a datagram, which carries at most {most}")]
    TooLong {
        /// Length of the payload, bytes.
        payload_len: usize,
        /// The maximum, bytes.
        most: usize,
    },
    /// One address is IPv4, the other IPv6.
    #[error("source and destination are of different IP versions")]
    Families,
}
