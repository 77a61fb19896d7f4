//! Flow limit: while a backlog is more than half full, packets of a flow that has more than half of the recent
//! packets are dropped.
//!
//! ```text
//! history, a ring of 128 entries:  b3 b7 b3 b3 b1 b3 ...      the bucket of each packet
//! buckets, one counter each:       how often it is in the history; over 64: the packet is dropped
//! ```
//! So one heavy flow cannot fill the backlog of a CPU that many flows share (`skb_flow_limit` of `net/core/dev.c`,
//! 3.11; CONFIG_NET_FLOW_LIMIT). `Documentation/networking/scaling.rst` mentions the last 256 packets; the code has
//! always used 128 (`FLOW_LIMIT_HISTORY`), and so does this.

use crate::hash::fold;

/// The state of one backlog. Owned by the thread that enqueues packets there.
#[derive(Debug)]
pub struct FlowLimit {
    history: [u16; Self::HISTORY],
    head: usize,
    buckets: Box<[u8]>,
    bits: u32,
    dropped: u64,
}

impl FlowLimit {
    /// Number of recent packets considered. A power of two, with half of it below 256 so that counters fit a byte.
    /// Fewer: bursts of legitimate flows are dropped. More: a flood is detected later.
    pub const HISTORY: usize = 128;
    /// A flow with more than this many packets in the history is dropped.
    pub const MAX_SHARE: u8 = (Self::HISTORY / 2) as u8;
    /// The default number of buckets: `net.core.flow_limit_table_len`.
    pub const DEFAULT_BUCKETS: u32 = 4096;
    /// The maximum number of buckets, so that a bucket's number fits a history entry.
    pub const MAX_BUCKETS: u32 = 1 << 16;

    /// A limit with `buckets` buckets, rounded up to a power of two from 1 to [`Self::MAX_BUCKETS`]. With too few,
    /// flows share a bucket, and one is dropped because of another.
    #[must_use]
    pub fn new(buckets: u32) -> Self {
        let len = buckets.clamp(1, Self::MAX_BUCKETS).next_power_of_two();
        Self {
            history: [0; Self::HISTORY],
            head: 0,
            buckets: vec![0; len as usize].into(),
            bits: len.trailing_zeros(),
            dropped: 0,
        }
    }

    /// Whether to drop a packet that arrives at a backlog of `backlog` packets with a limit of `bound`. Counts it if
    /// so. Below half of the limit nothing is recorded, so an idle machine pays one comparison.
    #[inline]
    pub fn drops(&mut self, hash: u32, backlog: usize, bound: usize) -> bool {
        if backlog < bound >> 1 {
            return false;
        }
        // At most 16 bits.
        let new = fold(hash, self.bits) as u16;
        let old = std::mem::replace(&mut self.history[self.head], new);
        self.head = (self.head + 1) & (Self::HISTORY - 1);
        // Until the ring has been full once, the old entry was never counted.
        let leaving = &mut self.buckets[usize::from(old)];
        *leaving = leaving.saturating_sub(1);
        let joining = &mut self.buckets[usize::from(new)];
        // Cannot overflow: no more than HISTORY packets are counted.
        *joining = joining.saturating_add(1);
        let drop = *joining > Self::MAX_SHARE;
        self.dropped += u64::from(drop);
        drop
    }

    /// Packets dropped so far: the flow limit column of `/proc/net/softnet_stat`.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_flow_is_limited_to_half_of_the_history() {
        let mut limit = FlowLimit::new(FlowLimit::DEFAULT_BUCKETS);
        let drops: Vec<bool> = (0..200).map(|_| limit.drops(7, 500, 1000)).collect();
        let kept = drops.iter().take_while(|drop| !**drop).count();
        assert_eq!(kept, usize::from(FlowLimit::MAX_SHARE));
        assert!(drops[kept..].iter().all(|drop| *drop));
        assert_eq!(limit.dropped(), 200 - kept as u64);
    }

    #[test]
    fn a_backlog_below_half_its_bound_drops_nothing() {
        let mut limit = FlowLimit::new(1);
        assert!((0..1000).all(|_| !limit.drops(7, 499, 1000)));
        assert_eq!(limit.dropped(), 0);
    }

    #[test]
    fn light_flows_pass_beside_a_heavy_one() {
        let mut limit = FlowLimit::new(FlowLimit::DEFAULT_BUCKETS);
        let (mut loud, mut quiet) = (0, 0);
        for packet in 0..10_000_u32 {
            if packet % 4 == 0 {
                quiet += u32::from(limit.drops(100 + packet % 64, 900, 1000));
            } else {
                loud += u32::from(limit.drops(1, 900, 1000));
            }
        }
        assert_eq!(quiet, 0);
        assert!(loud > 7000, "{loud} of 7500");
    }
}
