//! Sink: the server counts datagrams and does not answer them (RFC 863), except for one question: how many?
//!
//! ```text
//! question  "udpath.sink/2 ??" | 32 bytes 0                                            48 bytes, exactly
//! report    "udpath.sink/2 ==" | datagrams | bytes | stream bytes | CPU time in ns     48 bytes, u64 little endian
//! ```
//!
//! The totals cover all workers since the start and count payload bytes, without the questions: of datagrams, and of
//! TCP connections to the same address. They exclude what still waits in a socket: ask again until two reports
//! agree. The CPU time is user and system time of the sink's process. A question or its report may be lost like any
//! datagram. A question is as long as its report, so a forged source address gains no amplification.

mod service;
mod template;

pub use service::{Sink, Totals, start};
pub use template::{SinkLoad, SinkTemplate};

use udpath_load::Engine;
use udpath_load::plan::{Mode, Transport};

use udpath_serve::{Config, ReceiveCall};

use crate::registry::any_server;
use crate::{OptionSpec, ProtocolEntry};

/// `--receive`.
const RECEIVE: OptionSpec = OptionSpec {
    name: "receive",
    value: Some("CALL"),
    repeatable: false,
    secret: false,
    help: "receive by recvfrom, recvmsg (both with --batch 1) or recvmmsg, to compare them [default: the cheapest]",
};

/// The row of the registry.
pub static ENTRY: ProtocolEntry = ProtocolEntry {
    name: "sink",
    summary: "counts requests and does not answer",
    transports: &[Transport::Udp, Transport::Tcp],
    modes: &[Mode::Stream, Mode::Flood],
    engines: &[Engine::Socket],
    size: 100,
    serve_options: &[RECEIVE],
    load_options: &[],
    start: Some(|config, tcp, options| {
        let receive_call: Option<ReceiveCall> =
            options.parsed(&RECEIVE, "recvfrom, recvmsg or recvmmsg", |_| true)?;
        Ok(start(&Config { receive_call, ..config.clone() }, tcp)?)
    }),
    server_for: any_server,
    load: |_, _| Ok(Box::new(SinkLoad)),
};

/// The question: a whole datagram.
pub const QUESTION: [u8; Report::LEN] = {
    let (mut question, text) = ([0; Report::LEN], *b"udpath.sink/2 ??");
    let mut place = 0;
    while place < text.len() {
        question[place] = text[place];
        place += 1;
    }
    question
};

/// First bytes of a report.
const REPORT_MAGIC: [u8; 16] = *b"udpath.sink/2 ==";

/// What a sink has received so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Datagrams received.
    pub datagrams: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Bytes received over TCP connections.
    pub stream_bytes: u64,
    /// CPU time of the sink's process so far, user and system, nanoseconds.
    pub cpu_ns: u64,
}

impl Report {
    /// Bytes of a report on the wire.
    pub const LEN: usize = 48;

    /// The report's wire form.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut wire = [0; Self::LEN];
        wire[..16].copy_from_slice(&REPORT_MAGIC);
        let numbers = [self.datagrams, self.bytes, self.stream_bytes, self.cpu_ns];
        for (place, number) in wire[16..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        wire
    }

    /// Parses a report; `None` if the datagram is not a report.
    #[must_use]
    pub fn decode(wire: &[u8]) -> Option<Self> {
        let (magic, numbers) = wire.split_first_chunk::<16>()?;
        let numbers: &[u8; Self::LEN - 16] = numbers.try_into().ok()?;
        if *magic != REPORT_MAGIC {
            return None;
        }
        let number = |index: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&numbers[index * 8..][..8]);
            u64::from_le_bytes(bytes)
        };
        Some(Self { datagrams: number(0), bytes: number(1), stream_bytes: number(2), cpu_ns: number(3) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_wire() {
        let report = Report { datagrams: 0x0102_0304_0506_0708, bytes: u64::MAX, stream_bytes: 1, cpu_ns: 2 };
        let wire = report.encode();
        assert_eq!(Report::decode(&wire), Some(report));
        assert_eq!(wire[16], 8, "little endian");
    }

    #[test]
    fn other_datagrams_are_not_reports() {
        let wire = Report::default().encode();
        assert_eq!(Report::decode(&wire[..47]), None);
        assert_eq!(Report::decode(&[&wire[..], &[0]].concat()), None);
        assert_eq!(Report::decode(&QUESTION), None);
        assert_eq!(Report::decode(b""), None);
    }
}
