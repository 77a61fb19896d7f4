//! Counters of a port, by reason.

/// The counters of a port since it was opened, by reason. [`Counts`](crate::port::Counts) sums them up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Lost before they were received: the receive ring was full. The worker is too slow, or not running for too
    /// long.
    pub receive_ring_full: u64,
    /// Lost before they were received: no frame in the fill ring, or (copy mode) longer than a frame.
    pub no_frame: u64,
    /// How often the kernel found the fill ring empty; with zero-copy the device counts the packets lost by that.
    pub fill_ring_empty: u64,
    /// Fill ring entries that the kernel rejected.
    pub fill_invalid: u64,
    /// Transmit ring entries that the kernel rejected.
    pub transmit_invalid: u64,
    /// Packets sent as live frames.
    pub live: u64,
    /// System calls made to send live frames.
    pub live_calls: u64,
    /// Packets that the port itself rejected: empty, too long, or another port's frames.
    pub refused: u64,
    /// System calls made to start transmission.
    pub kicks: u64,
    /// Calls that found the link down or the device gone. The packets stay in the ring.
    pub link_down: u64,
    /// Packets that the device's queue dropped (copy mode): its receiver or the wire is slower.
    pub dropped_sending: u64,
    /// Calls that failed for another reason.
    pub failed: u64,
}
