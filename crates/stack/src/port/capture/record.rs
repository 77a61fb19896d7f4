//! A frame as a capture has it, and what parsing it may find.

/// Link type of Ethernet frames.
pub(super) const ETHERNET: u32 = 1;

const NANOSECONDS: u128 = 1_000_000_000;

/// Which link types are read: what a reader does with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// Ethernet only: an interface of another type ends the capture with an error.
    Ethernet,
    /// All: the frames say of which they are.
    All,
}

/// One frame of a capture.
pub(super) struct Record<'a> {
    pub(super) bytes: &'a [u8],
    /// As listed at tcpdump.org/linktypes.html.
    pub(super) link: u32,
    /// How long it was on the wire.
    pub(super) original: u32,
    /// Nanoseconds since 1970.
    pub(super) time: u64,
}

impl Record<'_> {
    /// Whether the capture truncated it.
    pub(super) fn is_snapped(&self) -> bool {
        (self.bytes.len() as u64) < u64::from(self.original)
    }
}

/// The result of parsing at the start of the buffer.
pub(super) enum Look<T> {
    /// Parsed this from this many bytes.
    Found(usize, T),
    /// More bytes are needed.
    Short,
    /// Malformed.
    Damaged(&'static str),
    /// A link type other than Ethernet.
    OtherLink(u32),
}

/// Converts seconds and `rest` units to nanoseconds, clamped to what fits.
pub(super) fn nanoseconds(seconds: i128, rest: u128, units: u128) -> u64 {
    let time = seconds * NANOSECONDS as i128 + (rest * NANOSECONDS / units) as i128;
    time.clamp(0, u64::MAX.into()) as u64
}
