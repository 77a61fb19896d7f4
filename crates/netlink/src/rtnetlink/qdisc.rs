//! Queueing disciplines.
//!
//! ```text
//! tcmsg   0 family  4 interface (4)  8 handle (4)  12 parent (4)  16 references (4)   then attributes
//! ```

use super::word;
use crate::attribute::{Attributes, Writer};
use crate::numbers::{TCA_KIND, TCA_STATS_BASIC, TCA_STATS_PKT64, TCA_STATS_QUEUE, TCA_STATS2};

/// Bytes of `struct tcmsg` of linux/rtnetlink.h.
pub(super) const FIXED: usize = 20;
/// Parents that are not a class: `TC_H_ROOT`, `TC_H_INGRESS` of linux/pkt_sched.h.
pub const ROOT: u32 = 0xffff_ffff;
/// `TC_H_INGRESS`.
pub const INGRESS: u32 = 0xffff_fff1;

/// A queueing discipline and its counters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Qdisc {
    /// The interface's index.
    pub interface: u32,
    /// Its kind: `fq`, `mq`.
    pub kind: String,
    /// Its handle: major number in the upper 16 bits.
    pub handle: u32,
    /// The class it is attached to, or [`ROOT`] or [`INGRESS`].
    pub parent: u32,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets queued now.
    pub queued: u32,
    /// Bytes queued now.
    pub backlog: u32,
    /// Packets dropped.
    pub drops: u32,
    /// Packets the driver gave back.
    pub requeues: u32,
    /// Times a limit was exceeded.
    pub overlimits: u32,
}

impl Qdisc {
    /// Reads the body of a message; `None` if it is malformed.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (fixed, rest) = body.split_at_checked(FIXED)?;
        let is = Attributes::new(rest);
        let statistics = is.nested(TCA_STATS2);
        // struct gnet_stats_basic: bytes (8), packets (4); struct gnet_stats_queue: five numbers of four bytes.
        let basic = statistics.bytes(TCA_STATS_BASIC).unwrap_or_default();
        let queue = statistics.bytes(TCA_STATS_QUEUE).unwrap_or_default();
        let number = |at: usize| word(queue, at).unwrap_or(0);
        Some(Self {
            interface: word(fixed, 4)?,
            kind: is.text(TCA_KIND)?,
            handle: word(fixed, 8)?,
            parent: word(fixed, 12)?,
            bytes: basic.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)),
            packets: statistics.number(TCA_STATS_PKT64).or(word(basic, 8).map(u64::from)).unwrap_or(0),
            queued: number(0),
            backlog: number(4),
            drops: number(8),
            requeues: number(12),
            overlimits: number(16),
        })
    }
}

/// The body of a request about the qdisc at an interface's root.
pub(super) fn at_root(interface: u32) -> Writer {
    let mut fixed = [0; FIXED];
    fixed[4..8].copy_from_slice(&interface.to_ne_bytes());
    fixed[12..16].copy_from_slice(&ROOT.to_ne_bytes());
    Writer::after(&fixed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_qdisc_has_its_counters_in_their_places() {
        let mut fixed = [0; FIXED];
        fixed[4..8].copy_from_slice(&2_u32.to_ne_bytes());
        fixed[8..12].copy_from_slice(&0x8001_0000_u32.to_ne_bytes());
        fixed[12..16].copy_from_slice(&ROOT.to_ne_bytes());
        let mut writer = Writer::after(&fixed);
        writer.text(TCA_KIND, "mq").nest(TCA_STATS2, |statistics| {
            let mut basic = (6_u64 << 32).to_ne_bytes().to_vec();
            basic.extend(9_u32.to_ne_bytes());
            statistics.bytes(TCA_STATS_BASIC, &basic);
            statistics.bytes(TCA_STATS_QUEUE, &[1_u32, 2, 3, 4, 5].map(u32::to_ne_bytes).concat());
        });
        let wanted = Qdisc {
            interface: 2,
            kind: "mq".into(),
            handle: 0x8001_0000,
            parent: ROOT,
            bytes: 6 << 32,
            packets: 9,
            queued: 1,
            backlog: 2,
            drops: 3,
            requeues: 4,
            overlimits: 5,
        };
        assert_eq!(Qdisc::parse(&writer.finish()), Some(wanted));
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Qdisc::parse(&bytes);
        }
    }
}
