//! Datagrams of one port's sockets: loader and results of `bpf/served.bpf.c`.

use std::net::IpAddr;

use aya::EbpfLoader;

use super::{Run, Tracepoints, Tracer};
use crate::Error;
use crate::attach::{self, object};

const NAME: &str = "served";
/// Words of `struct served`.
const SERVED: usize = 7;
/// Words of `struct way` and `struct asked`.
const WAY: usize = 3;
const ASKED: usize = 2;

/// Counts what the UDP sockets of one port of one network namespace receive and send, until dropped.
#[derive(Debug)]
pub struct PortServed(Tracepoints);

/// The counts of datagrams. The kernel's own counters of UDP are calls that took or gave some: fewer, where one is of
/// several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedCounts {
    /// Received.
    pub received: u64,
    /// Sent.
    pub sent: u64,
    /// Of the first of them, by the address of this machine.
    pub addresses: Vec<Asked>,
}

/// Packets to and from one address of this machine and the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// The address.
    pub address: IpAddr,
    /// Packets to it.
    pub asked: u64,
    /// Packets from it.
    pub answered: u64,
}

impl PortServed {
    /// Starts counting. `netns`: the inode of the namespace, as in `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// Permission denied, or a kernel without the tracepoints (before 6.3) or without BTF.
    pub fn attach(port: u16, netns: u32) -> Result<Self, Error> {
        let mut loader = EbpfLoader::new();
        loader.override_global("port", &port, true).override_global("netns", &netns, true);
        let object = attach::load_tracing(NAME, &mut loader, object!("served"))?;
        let mut points = Tracepoints { name: NAME, object, links: Vec::new(), programs: Vec::new() };
        for point in ["net_dev_queue", "netif_receive_skb", "sock_recv_length", "sock_send_length"] {
            points.attach(point)?;
        }
        Ok(Self(points))
    }

    /// Goes on counting after [`Tracer::detach`].
    ///
    /// # Errors
    /// Permission denied.
    pub fn resume(&mut self) -> Result<(), Error> {
        self.0.resume()
    }
}

impl Tracer for PortServed {
    type Counts = ServedCounts;

    fn detach(&mut self) {
        self.0.detach();
    }

    fn runs(&self) -> Vec<Run> {
        self.0.runs()
    }

    fn read(&self) -> Result<ServedCounts, Error> {
        let mut sum = [0; SERVED];
        for counts in self.0.element_by_cpu::<SERVED>("served", 0)?.iter() {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let ways = self.0.entries::<WAY, ASKED>("ways")?;
        Ok(ServedCounts::parse(sum, &ways))
    }
}

impl ServedCounts {
    fn parse(
        [received, sent, joined, came, came_segments, went, went_segments]: [u64; SERVED],
        ways: &[([u64; WAY], [u64; ASKED])],
    ) -> Self {
        let alone = received.saturating_sub(joined);
        let mut addresses: Vec<_> = ways.iter().map(|(way, counts)| Asked::parse(way, *counts)).collect();
        addresses.sort_unstable();
        Self {
            received: alone.saturating_add(datagrams(joined, came_segments, came)),
            sent: datagrams(sent, went_segments, went),
            addresses,
        }
    }
}

/// Datagrams of so many calls, each of one packet, by the mean of the packets that were looked at.
fn datagrams(calls: u64, segments: u64, packets: u64) -> u64 {
    if packets == 0 { calls } else { (calls as f64 * (segments as f64 / packets as f64)).round() as u64 }
}

impl Asked {
    fn parse([low, high, family]: &[u64; WAY], [asked, answered]: [u64; ASKED]) -> Self {
        Self { address: super::address([*low, *high], *family as u16), asked, answered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_as_many_datagrams_as_its_packet() {
        let of = |sum| {
            let counts = ServedCounts::parse(sum, &[]);
            (counts.received, counts.sent)
        };
        assert_eq!(of([1000, 1000, 0, 0, 0, 0, 0]), (1000, 1000));
        // 400 of the calls took packets of 4 datagrams each; those sent were of 2.5.
        assert_eq!(of([1000, 800, 400, 100, 400, 40, 100]), (600 + 1600, 2000));
        // No socket takes several at once: the kernel cut the packets before.
        assert_eq!(of([1000, 0, 0, 100, 400, 0, 0]), (1000, 0));
    }

    #[test]
    fn an_address_is_read_from_its_words() {
        let v4 = [u64::from_ne_bytes([10, 9, 0, 2, 0, 0, 0, 0]), 0, 2];
        let found = Asked::parse(&v4, [7, 5]);
        assert_eq!(found, Asked { address: [10, 9, 0, 2].into(), asked: 7, answered: 5 });
        let v6 = [0, u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 1]), 10];
        assert_eq!(Asked::parse(&v6, [0, 1]).address.to_string(), "::1");
    }
}
