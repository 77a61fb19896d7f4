//! Sink: datagrams are counted and not answered (RFC 863), except one: the question how many there were.
//!
//! ```text
//! question  "udpath.sink/1 ??"                                                    16 bytes, exactly
//! report    "udpath.sink/1 ==" | datagrams u64 little endian | bytes u64 little endian    32 bytes
//! ```
//!
//! The totals are those of all workers since the start, of payload bytes, without the questions. Datagrams that
//! still wait in a socket are not in them: ask again until two reports agree. A question or its report may be lost
//! like any datagram.

mod service;
mod template;

pub use service::{Sink, Totals};
pub use template::{SinkLoad, SinkTemplate};

/// The question, as a whole datagram.
pub const QUESTION: [u8; 16] = *b"udpath.sink/1 ??";

/// How a report begins.
const REPORT_MAGIC: [u8; 16] = *b"udpath.sink/1 ==";

/// What a sink took so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Datagrams consumed.
    pub datagrams: u64,
    /// Their payload bytes.
    pub bytes: u64,
}

impl Report {
    /// Bytes of a report on the wire.
    pub const LEN: usize = 32;

    /// The report as it goes over the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut wire = [0; Self::LEN];
        wire[..16].copy_from_slice(&REPORT_MAGIC);
        wire[16..24].copy_from_slice(&self.datagrams.to_le_bytes());
        wire[24..].copy_from_slice(&self.bytes.to_le_bytes());
        wire
    }

    /// Reads a report; `None` if the datagram is not one.
    #[must_use]
    pub fn decode(wire: &[u8]) -> Option<Self> {
        let numbers = wire.strip_prefix(&REPORT_MAGIC)?;
        let (datagrams, bytes) = numbers.split_first_chunk()?;
        Some(Self {
            datagrams: u64::from_le_bytes(*datagrams),
            bytes: u64::from_le_bytes(bytes.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_wire() {
        let report = Report { datagrams: 0x0102_0304_0506_0708, bytes: u64::MAX };
        let wire = report.encode();
        assert_eq!(Report::decode(&wire), Some(report));
        assert_eq!(wire[16], 8, "little endian");
    }

    #[test]
    fn other_datagrams_are_no_reports() {
        let wire = Report::default().encode();
        assert_eq!(Report::decode(&wire[..31]), None);
        assert_eq!(Report::decode(&[&wire[..], &[0]].concat()), None);
        assert_eq!(Report::decode(&QUESTION), None);
        assert_eq!(Report::decode(b""), None);
    }
}
