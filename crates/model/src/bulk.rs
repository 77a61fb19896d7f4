//! Streams of data, one to a core: what each byte costs, and so how much a fully used core receives.
//!
//! ```text
//!   ns per byte = copy (cached or from memory) + frame / MTU + skb / bytes joined by GRO + poll, wake-up, call / bytes per poll
//! ```
//! A closed form, since cores share nothing but the cache and the link:
//! - While cores are the limit, a core never sleeps: GRO joins as much as an skb holds, and nobody is woken. Once the
//!   link is, each flow's frames arrive spaced out: a poll finds those of one interrupt's delay, wakes a thread, and
//!   joins only them.
//! - A card with direct cache access (DCA) writes into a part of the third-level cache of its own node. Data that is
//!   copied before later data evicts it is found there; what waits in full buffers is not, nor is anything on other
//!   nodes.

use crate::costs::Terms;

/// Flows from as many senders to a core each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bulk {
    /// Flows.
    pub flows: usize,
    /// Cores of a node; the first node has the card.
    pub cores_per_node: usize,
    /// Speed of a core, of that of the calibrated machine.
    pub speed: f64,
    /// Bits per second, 10^9.
    pub link_gbps: f64,
    /// Bytes of a frame.
    pub mtu: f64,
    /// Bytes that GRO joins at most.
    pub joined: f64,
    /// Cache that the card may write to, bytes.
    pub dca: f64,
    /// Receive buffer of a flow, bytes.
    pub buffer: f64,
    /// From a frame's arrival to its interrupt, microseconds.
    pub moderation_us: f64,
}

impl Bulk {
    /// Four nodes with six cores, Xeon Gold 6128; ConnectX-5 at 100 Gbit/s; jumbo frames, TSO, GRO and aRFS.
    pub const SIGCOMM: Self = Self {
        flows: 1,
        cores_per_node: 6,
        // 3.4 GHz Skylake against 3 GHz Golden Cove: instructions per cycle 1 to 1.4.
        speed: 0.8,
        link_gbps: 100.0,
        mtu: 9000.0,
        joined: 65_536.0,
        // 18 % of the third-level cache, said in the paper's description of the machine.
        dca: 3e6,
        // net.ipv4.tcp_rmem, its default maximum.
        buffer: 6_291_456.0,
        // mlx5's default for received packets.
        moderation_us: 16.0,
    };
}

/// Gbit/s for each fully used core.
#[must_use]
pub fn per_core(bulk: &Bulk, terms: &Terms) -> f64 {
    let gbps = |ns_per_byte: f64| 8.0 * bulk.speed / ns_per_byte;
    let saturated = gbps(byte(bulk, terms, None));
    let fair = bulk.link_gbps / bulk.flows.max(1) as f64;
    if saturated <= fair { saturated } else { gbps(byte(bulk, terms, Some(fair))) }
}

/// Nanoseconds per byte of a calibrated core: at the core's limit, or at a rate in Gbit/s that the link allows.
fn byte(bulk: &Bulk, terms: &Terms, limited: Option<f64>) -> f64 {
    // Bytes of a flow that arrive within an interrupt's delay, after those that started it.
    let burst = |gbps: f64| bulk.mtu + gbps / 8.0 * bulk.moderation_us * 1e3;
    let poll = limited.map(burst);
    let joined = poll.unwrap_or(bulk.joined).clamp(bulk.mtu, bulk.joined);
    let frame = terms.device_receive;
    // IP, TCP, the socket's queue, and an acknowledgement for each skb.
    let skb = terms.protocol_receive
        + terms.tcp_receive
        + terms.enqueue
        + terms.read
        + terms.send
        + terms.device_send;
    let woken = terms.interrupt + terms.poll + terms.wake + terms.switch + terms.call;
    // A core at its limit reads as much as there is: a call for each skb.
    let per_poll = poll.map_or(terms.call / joined, |bytes| woken / bytes);
    copy(bulk, terms, limited) + frame / bulk.mtu + skb / joined + per_poll
}

/// Nanoseconds per byte copied.
fn copy(bulk: &Bulk, terms: &Terms, limited: Option<f64>) -> f64 {
    let near = bulk.flows.min(bulk.cores_per_node).max(1) as f64;
    let share_near = near / bulk.flows.max(1) as f64;
    // Data that waits between the card and the copy: a full buffer at the core's limit, an interrupt's delay otherwise.
    let waits = limited.map_or(bulk.buffer, |gbps| bulk.mtu + gbps / 8.0 * bulk.moderation_us * 1e3);
    let cached = share_near * (bulk.dca / (near * waits)).min(1.0);
    (cached * terms.copy_cached + (1.0 - cached) * terms.copy_memory) / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Costs;

    #[test]
    fn flows_lose_what_lets_one_flow_be_fast() {
        let terms = Costs::default().terms;
        let of = |flows| per_core(&Bulk { flows, ..Bulk::SIGCOMM }, &terms);
        let rates = [1, 8, 16, 24].map(of);
        assert!(rates.windows(2).all(|pair| pair[1] < pair[0]), "{rates:?}");
        // With the link out of the way, only the cache is shared.
        let wide = Bulk { flows: 24, link_gbps: 1e5, ..Bulk::SIGCOMM };
        assert!(per_core(&wide, &terms) > of(24) && per_core(&wide, &terms) < of(1));
    }

    #[test]
    fn buffers_beyond_the_cache_cost_memory() {
        let terms = Costs::default().terms;
        let of = |buffer| per_core(&Bulk { buffer, ..Bulk::SIGCOMM }, &terms);
        assert!(of(3e6) > of(6e6) && of(6e6) > of(60e6));
        assert_eq!(of(1e6), of(3e6));
    }
}
