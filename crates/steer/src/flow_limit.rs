//! Flow limit: while a backlog is more than half full, a flow that has more than half of the recent packets loses.
//!
//! ```text
//! history, a ring of 128 places:   b3 b7 b3 b3 b1 b3 ...      each the bucket of one packet
//! buckets, one counter each:       how often the history has it; over 64: that packet is dropped
//! ```
//! So one loud flow cannot fill the backlog of a CPU that many share (`skb_flow_limit` of `net/core/dev.c`, 3.11;
//! CONFIG_NET_FLOW_LIMIT). `Documentation/networking/scaling.rst` speaks of the last 256 packets; the code has had 128
//! (`FLOW_LIMIT_HISTORY`) ever since, and so has this one.

use crate::hash::fold;

/// The state of one backlog. Belongs to the thread that puts packets there.
#[derive(Debug)]
pub struct FlowLimit {
    history: [u16; Self::HISTORY],
    head: usize,
    buckets: Box<[u8]>,
    bits: u32,
    dropped: u64,
}

impl FlowLimit {
    /// Packets that count. Must be a power of two, and its half below 256 for the counters to be bytes. Fewer: a burst
    /// of an honest flow is dropped; more: a flood is noticed later.
    pub const HISTORY: usize = 128;
    /// A flow with more than this of the history is dropped.
    pub const MAX_SHARE: u8 = (Self::HISTORY / 2) as u8;
    /// Buckets when nothing is said: `net.core.flow_limit_table_len`.
    pub const DEFAULT_BUCKETS: u32 = 4096;
    /// The most buckets, so that a bucket's number fits the history.
    pub const MAX_BUCKETS: u32 = 1 << 16;

    /// A limit with so many `buckets`, rounded up to a power of two of 1 to [`Self::MAX_BUCKETS`]. With too few of
    /// them flows share a bucket, and one is dropped for the other.
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

    /// Is a packet to be dropped that finds `backlog` packets where at most `bound` may be? Counts it if so. Below
    /// half of the bound nothing is counted at all, so that a quiet machine pays one comparison.
    #[inline]
    pub fn drops(&mut self, hash: u32, backlog: usize, bound: usize) -> bool {
        if backlog < bound >> 1 {
            return false;
        }
        // At most 16 bits.
        let new = fold(hash, self.bits) as u16;
        let old = std::mem::replace(&mut self.history[self.head], new);
        self.head = (self.head + 1) & (Self::HISTORY - 1);
        // Before the ring was full once, old is a place that was never counted.
        let leaving = &mut self.buckets[usize::from(old)];
        *leaving = leaving.saturating_sub(1);
        let joining = &mut self.buckets[usize::from(new)];
        // Cannot overflow: no more than HISTORY packets are counted.
        *joining = joining.saturating_add(1);
        let drop = *joining > Self::MAX_SHARE;
        self.dropped += u64::from(drop);
        drop
    }

    /// How many it has dropped: the flow limit column of `/proc/net/softnet_stat`.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flow_alone_is_cut_once_it_has_more_than_half() {
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
    fn quiet_flows_pass_beside_a_loud_one() {
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
