//! Whether the next hop to a peer is resolved, asked of the kernel for one peer: for senders over kernel sockets, which
//! need it only when a send buffer is full, and no mirror of all tables before that.
//!
//! ```text
//! peer ── route (RTM_GETROUTE) ──▸ interface, gateway or the peer itself ── neighbour (RTM_GETNEIGH) ──▸ NextHop
//! ```
//! The kernel keeps packets for a neighbour that it is resolving, and charges them to the socket that sent them, for up
//! to 3 s (`mcast_solicit` times `retrans_time_ms`).

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use udpath_netlink::Rtnetlink;
use udpath_netlink::rtnetlink::{link, neighbour, route};

/// How long an answer is used. Shorter: more system calls, three per lookup, while a send buffer is full. Longer:
/// replies to a peer that was resolved in the meantime are dropped for that long.
const LIFETIME: Duration = Duration::from_millis(50);

/// Answers kept, each in the place that its address hashes to. Fewer: more lookups, when replies to more peers wait.
/// More: memory, 56 bytes each.
const ANSWERS: usize = 1024;

/// The next hop to a peer: its router, or the peer itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// The kernel has its link-layer address, or needs none.
    Resolved,
    /// The kernel waits for its answer, or got none.
    Unresolved,
    /// The kernel has no entry for it: a packet would begin to resolve it.
    Absent,
    /// The kernel does not say: no route, or a kernel before 5.0.
    Unknown,
}

/// Asks for next hops. The first question opens the socket, in the network namespace of the thread that asks.
#[derive(Debug, Default)]
pub struct NextHops {
    rtnetlink: Option<Rtnetlink>,
    /// Empty before the first question.
    answers: Box<[Option<Answer>]>,
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    peer: IpAddr,
    scope: u32,
    next_hop: NextHop,
    at: Instant,
}

impl NextHops {
    /// The next hop to `peer`, by its address alone: policy routing by source, mark or user is not considered.
    pub fn of(&mut self, peer: SocketAddr) -> NextHop {
        if self.answers.is_empty() {
            self.answers = vec![None; ANSWERS].into();
            // Without a socket, every next hop is unknown.
            self.rtnetlink = Rtnetlink::open().ok();
        }
        let Some(rtnetlink) = &mut self.rtnetlink else { return NextHop::Unknown };
        let scope = if let SocketAddr::V6(v6) = peer { v6.scope_id() } else { 0 };
        let (peer, now) = (peer.ip(), Instant::now());
        let place = &mut self.answers[place(peer)];
        if let Some(known) = *place
            && (known.peer, known.scope) == (peer, scope)
            && now.duration_since(known.at) < LIFETIME
        {
            return known.next_hop;
        }
        let next_hop = ask(rtnetlink, peer, scope).unwrap_or(NextHop::Unknown);
        *place = Some(Answer { peer, scope, next_hop, at: now });
        next_hop
    }
}

/// The place of an address among the answers.
fn place(peer: IpAddr) -> usize {
    let bits = match peer {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => {
            let [high, low] = [v6.to_bits() >> 64, v6.to_bits()].map(|half| half as u64);
            high.rotate_left(32) ^ low
        }
    };
    // Fibonacci hashing: the upper bits of the product depend on all bits of the address.
    (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % ANSWERS
}

fn ask(rtnetlink: &mut Rtnetlink, peer: IpAddr, scope: u32) -> Option<NextHop> {
    let (interface, address) = if scope > 0 {
        (scope, peer)
    } else {
        let route = rtnetlink.route_to(peer).ok()?;
        match route.kind {
            route::kind::LOCAL | route::kind::BROADCAST => return Some(NextHop::Resolved),
            route::kind::UNICAST => {}
            _ => return None,
        }
        let hop = route.hops.first()?;
        (hop.interface, hop.gateway.unwrap_or(peer))
    };
    Some(match rtnetlink.neighbour(interface, address).ok()? {
        Some(entry) if entry.state & (neighbour::state::INCOMPLETE | neighbour::state::FAILED) != 0 => {
            NextHop::Unresolved
        }
        // NUD_NONE: as good as no entry.
        Some(entry) if entry.state == 0 => NextHop::Absent,
        Some(_) => NextHop::Resolved,
        None => {
            let without = link::flags::NOARP | link::flags::POINT_TO_POINT | link::flags::LOOPBACK;
            let resolves = rtnetlink.link(interface).ok()?.flags & without == 0;
            if resolves { NextHop::Absent } else { NextHop::Resolved }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_needs_no_neighbour_and_an_answer_is_kept() {
        let mut hops = NextHops::default();
        for peer in ["127.0.0.1:7", "[::1]:7"] {
            let peer: SocketAddr = peer.parse().unwrap();
            assert_eq!(hops.of(peer), NextHop::Resolved, "{peer}");
            let kept = hops.answers[place(peer.ip())].unwrap();
            assert_eq!((kept.peer, kept.next_hop), (peer.ip(), NextHop::Resolved));
        }
    }

    #[test]
    fn without_a_socket_nothing_is_known() {
        let mut hops = NextHops { rtnetlink: None, answers: vec![None; ANSWERS].into() };
        assert_eq!(hops.of("127.0.0.1:7".parse().unwrap()), NextHop::Unknown);
    }

    #[test]
    fn neighbours_of_one_network_have_places_of_their_own() {
        let mut places: Vec<_> = (1..=200).map(|host| place([10, 9, 0, host].into())).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 150, "{}", places.len());
    }
}
