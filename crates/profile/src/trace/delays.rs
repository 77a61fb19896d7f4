//! How long datagrams took inside this host: into their socket's queue, and from there to the reader.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use udpath_bpf::Error;
use udpath_bpf::trace::{
    Bound, Delay, DelayCounts, Loader, SkbDelays, SocketDelays, Tracer, delay_bucket_end,
};

use super::socket::Socket;
use super::times::Times;

/// Delays of a sample of the incoming datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
pub struct Delays {
    /// By socket, the most datagrams first.
    pub sockets: Vec<SocketDelay>,
    /// Packets of all kinds that entered the stack.
    pub seen: u64,
    /// UDP datagrams among them that were tracked.
    pub sampled: u64,
    /// Not tracked, because the slot was in use.
    pub no_slot: u64,
    /// Tracked, then dropped by the kernel.
    pub dropped: u64,
    /// Tracked, but no room for their socket, or too many in flight.
    pub no_room: u64,
    /// Tracked and read, but the time of the read was missed.
    pub missed: u64,
}

/// Delays of one socket's datagrams.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct SocketDelay {
    /// The socket.
    #[serde(flatten)]
    pub socket: Socket,
    /// From entering the stack, after driver and GRO, to the socket's queue.
    pub to_socket: Times,
    /// In the queue and while being read: to the end of the receiving call, copy included.
    pub to_reader: Times,
}

/// Follows a sample of the datagrams until dropped, and says at any time how long those of a server took so far.
#[derive(Debug)]
pub struct DelayMeter(SkbDelays);

impl DelayMeter {
    /// Starts to follow. It costs what [`Source::cost`](super::Source::cost) says.
    ///
    /// # Errors
    /// Permission denied, or a kernel without the tracepoints (before 6.3) or without BTF.
    pub fn start() -> Result<Self, Error> {
        SkbDelays::attach(&mut Loader::default()).map(Self)
    }

    /// From entering the stack to the reader, of all datagrams that sockets bound to these addresses, in the network
    /// namespace with this inode, received since the start. Another program may have the same port at another address.
    ///
    /// # Errors
    /// The counts cannot be read.
    pub fn read(&self, addresses: &BTreeSet<SocketAddr>, netns: u32) -> Result<Times, Error> {
        Ok(sum(&self.0.read()?, addresses, netns))
    }
}

/// The times of the sockets bound to these addresses.
fn sum(counts: &DelayCounts, addresses: &BTreeSet<SocketAddr>, netns: u32) -> Times {
    // Without the scope of a link-local address, which the tracer does not see.
    let has = |bound: &Bound| {
        addresses.iter().any(|of| (of.ip(), of.port()) == (bound.address, bound.port)) && bound.netns == netns
    };
    let mut sum = Times::default();
    counts.sockets.iter().filter(|of| has(&of.bound)).for_each(|of| sum.add(&times(&of.whole)));
    sum
}

fn times(delay: &Delay) -> Times {
    Times::new(delay.count, delay.ns, delay.longest, &delay.buckets, delay_bucket_end)
}

impl Delays {
    pub(super) fn new(counts: &DelayCounts) -> Self {
        let mut sockets: Vec<SocketDelay> = counts.sockets.iter().map(SocketDelay::new).collect();
        sockets.sort_by_key(|delay| (std::cmp::Reverse(delay.to_reader.count), delay.socket));
        let DelayCounts { seen, sampled, no_slot, dropped, no_room, missed, .. } = *counts;
        Self { sockets, seen, sampled, no_slot, dropped, no_room, missed }
    }

    /// Packets per tracked packet; `None` if none was tracked.
    #[must_use]
    pub fn every(&self) -> Option<f64> {
        (self.sampled > 0).then(|| self.seen as f64 / self.sampled as f64)
    }
}

impl SocketDelay {
    fn new(delays: &SocketDelays) -> Self {
        Self {
            socket: Socket::new(delays.bound.port, Some(delays.bound)),
            to_socket: times(&delays.to_socket),
            to_reader: times(&delays.to_reader),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_reported_by_socket() {
        let delay = |count, ns| Delay { count, ns, longest: ns, buckets: vec![0, count] };
        let socket = |port, count| SocketDelays {
            bound: Bound { address: [10, 0, 0, 2].into(), port, netns: 7 },
            to_socket: delay(count, 50),
            to_reader: delay(count, 70),
            whole: delay(count, 120),
        };
        let sockets = vec![socket(7, 1), socket(53, 9)];
        let found = Delays::new(&DelayCounts { sockets, seen: 100, sampled: 10, ..DelayCounts::default() });
        let shown: Vec<_> = found.sockets.iter().map(|delay| delay.socket.to_string()).collect();
        assert_eq!(shown, ["10.0.0.2:53", "10.0.0.2:7"]);
        assert_eq!((found.sockets[0].to_socket.ns, found.sockets[0].to_reader.ns), (50, 70));
        assert_eq!(found.sockets[0].to_reader.lengths[0].below_ns, 2);
        assert_eq!((found.every(), Delays::default().every()), (Some(10.0), None));
    }

    #[test]
    fn a_server_is_known_by_its_addresses_and_namespace() {
        let socket = |address: &str, port, netns, count| {
            let delay = Delay { count, ns: count, longest: 1, buckets: vec![0, count] };
            let bound = Bound { address: address.parse().unwrap(), port, netns };
            SocketDelays { bound, to_socket: delay.clone(), to_reader: delay.clone(), whole: delay }
        };
        let sockets = vec![
            socket("10.0.0.2", 53, 7, 1),
            socket("127.0.0.53", 53, 7, 10),
            socket("fe80::1", 53, 7, 100),
            socket("10.0.0.2", 53, 8, 1_000),
            socket("10.0.0.2", 54, 7, 10_000),
        ];
        let counts = DelayCounts { sockets, ..DelayCounts::default() };
        for (addresses, count) in [
            (&["10.0.0.2:53"][..], 1),
            (&["127.0.0.53:53"], 10),
            (&["10.0.0.2:53", "[fe80::1%2]:53"], 101),
            (&["10.0.0.3:53"], 0),
        ] {
            let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(sum(&counts, &addresses, 7).count, count, "{addresses:?}");
        }
    }
}
