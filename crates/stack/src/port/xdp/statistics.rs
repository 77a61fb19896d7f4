//! What a port counted, by reason.

/// What [`Counts`] sums up, by reason, from the port's start on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Lost before they were received: the receive ring was full. The worker is too slow, or away too long.
    pub receive_ring_full: u64,
    /// Lost before they were received: no frame in the fill ring, or (copy mode) too long for one.
    pub no_frame: u64,
    /// How often the kernel found the fill ring empty; with zero-copy the device counts what it lost then.
    pub fill_ring_empty: u64,
    /// Entries of the fill ring that the kernel found unfit.
    pub fill_invalid: u64,
    /// Entries of the transmit ring that the kernel found unfit.
    pub transmit_invalid: u64,
    /// Packets sent as live frames, many at once.
    pub live: u64,
    /// Calls made for that.
    pub live_calls: u64,
    /// Packets that the port itself refused: empty, too long, or another port's frames.
    pub refused: u64,
    /// Calls made to have packets sent.
    pub kicks: u64,
    /// Calls that found the link down or the device gone. The packets stay in the ring.
    pub link_down: u64,
    /// Packets that the device's queue dropped (copy mode): its receiver or the wire is slower.
    pub dropped_sending: u64,
    /// Calls that failed for another reason.
    pub failed: u64,
}
