//! Finds a reply's flow by the datagram's addresses. Built once, read by all threads.

use std::net::{IpAddr, SocketAddr};

use udpath_stack::wire::Headers;

use crate::plan::{Plan, Segment};

/// An empty place of the hash table.
const EMPTY: u32 = u32::MAX;

/// One flow, as all threads know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// The thread it belongs to, and its index in that thread's list.
    pub(super) thread: u32,
    pub(super) index: u32,
}

/// All flows, found by their local address and port, which are unique.
#[derive(Debug)]
pub(super) struct Table {
    entries: Box<[Entry]>,
    /// Own flows, hashed by local address and port, with linear probing; at most half full.
    places: Box<[u32]>,
    segment: Segment,
}

impl Table {
    /// This machine's flows, from `locals`, spread over `queues` queues: its own flow `i` sends by queue
    /// `i mod queues`, queue `q` belongs to thread `q mod threads`.
    pub(super) fn new(plan: &Plan, locals: &[SocketAddr], queues: usize) -> Self {
        let mut next = vec![0; plan.threads];
        let entries: Box<[Entry]> = (0..plan.own_flows())
            .zip(locals)
            .map(|(flow, local)| {
                let thread = flow as usize % queues % plan.threads;
                let index = next[thread];
                next[thread] += 1;
                // The scope of a link-local address is that of the interface; frames do not carry it.
                let (local, remote) = (plain(*local), plain(plan.target(plan.flow(flow))));
                Entry { local, remote, thread: thread as u32, index }
            })
            .collect();
        let places = vec![EMPTY; (entries.len() * 2).next_power_of_two().max(2)].into();
        let mut table = Self { places, entries, segment: plan.segment };
        for flow in 0..table.entries.len() {
            let mut place = table.place(&table.entries[flow].local);
            while table.places[place] != EMPTY {
                place = (place + 1) & (table.places.len() - 1);
            }
            table.places[place] = flow as u32;
        }
        table
    }

    /// The entry of own flow `own`.
    pub(super) fn entry(&self, own: u32) -> &Entry {
        &self.entries[own as usize]
    }

    /// The flow whose target sent this datagram, with its number in the plan; none if another host sent it.
    #[inline]
    pub(super) fn find(&self, headers: &Headers) -> Option<(u32, &Entry)> {
        self.receiver(headers.destination()).filter(|(_, entry)| entry.remote == headers.source())
    }

    /// The flow with this address and port, with its number in the plan.
    #[inline]
    pub(super) fn receiver(&self, local: SocketAddr) -> Option<(u32, &Entry)> {
        let mut place = self.place(&local);
        loop {
            let flow = *self.places.get(place)?;
            // An empty place ends the search; the table is never full.
            let entry = self.entries.get(flow as usize)?;
            if entry.local == local {
                return Some((self.segment.flow(flow), entry));
            }
            place = (place + 1) & (self.places.len() - 1);
        }
    }

    #[inline]
    fn place(&self, local: &SocketAddr) -> usize {
        let low = match local.ip() {
            IpAddr::V4(v4) => v4.to_bits(),
            IpAddr::V6(v6) => v6.to_bits() as u32 ^ (v6.to_bits() >> 32) as u32,
        };
        let key = u64::from(low) << 16 | u64::from(local.port());
        // Fibonacci hashing: the upper bits of the product depend on all of the key.
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.places.len() - 1)
    }
}

fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

#[cfg(test)]
mod tests {
    use udpath_stack::wire::{Flow, LinkHeader, Template, UdpChecksum};

    use super::*;

    fn headers(from: SocketAddr, to: SocketAddr) -> Headers {
        let flow = Flow::new(LinkHeader::default(), from, to).unwrap();
        Template::new(&flow).emit_payload(&mut [0; 100], b"x", UdpChecksum::Computed).unwrap()
    }

    /// Three addresses with the same ports, two targets, five queues, two threads.
    #[test]
    fn every_flow_is_found_by_its_own_addresses_and_by_no_others() {
        for (net, far) in [("10.0.0.", "10.0.1."), ("fd00::", "fd01::")] {
            let at = |net: &str, host: u32, port: u16| -> SocketAddr {
                SocketAddr::new(format!("{net}{host}").parse().unwrap(), port)
            };
            let mut plan = Plan::new(at(far, 1, 7));
            plan.targets.push(at(far, 2, 7));
            (plan.flows, plan.threads) = (300, 2);
            let locals: Vec<_> = (0..300).map(|i| at(net, 1 + i % 3, 5000 + (i / 3) as u16)).collect();
            let table = Table::new(&plan, &locals, 5);
            let mut indices = [0, 0];
            for flow in 0..300 {
                let (local, remote) = (locals[flow as usize], plan.target(flow));
                let (found, entry) = table.find(&headers(remote, local)).expect("its own");
                assert_eq!(found, flow);
                assert_eq!(entry.thread, flow % 5 % 2);
                assert_eq!(entry.index, indices[entry.thread as usize], "counted in the plan's order");
                indices[entry.thread as usize] += 1;
                assert!(
                    table.find(&headers(at(far, 1 + (flow + 1) % 2, 7), local)).is_none(),
                    "another target"
                );
                assert!(table.find(&headers(at(far, 1, 9), local)).is_none(), "another port of the target");
                assert!(table.find(&headers(remote, at(net, 9, local.port()))).is_none(), "another address");
            }
        }
    }
}
