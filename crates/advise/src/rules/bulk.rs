//! Bulk transfers, such as QUIC, RTP and tunnels: large datagrams that cross the kernel one by one.
//!
//! UDP counts a call that sends or reads several segments once (`udp_send_skb()`, `skb_consume_udp()` of
//! net/ipv4/udp.c); the device counts them all. As many calls as packets: neither GSO nor GRO is used.

use udpath_host::map::InterfaceMap;
use udpath_host::udp::UdpCounters;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, number};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "bulk-received-singly",
        severity: Severity::Note,
        look: Look::Map(received),
        cause: "each datagram costs its own way through the stack, and a read or an entry of recvmmsg",
        fix: &[
            "where one peer sends many in a row, let the server set UDP_GRO: the kernel then hands them over together (udp(7)); \
             on a machine that forwards them, `IFACE:feature/rx-udp-gro-forwarding=on`",
        ],
    },
    Rule {
        id: "bulk-sent-singly",
        severity: Severity::Note,
        look: Look::Map(sent),
        cause: "each datagram costs its own way through the stack, down to the device",
        fix: &[
            "where many in a row go to one peer, let the server send them as one message with UDP_SEGMENT (udp(7)); the device \
             cuts it with `IFACE:feature/tx-udp-segmentation=on`, else the kernel does, late and cheaply",
        ],
    },
];

/// Mean bytes of a packet from which on they are bulk, and packets per second that are worth it: 80 Mbit/s. Lower:
/// queries and answers count as bulk. Higher: a tunnel of a busy office does not.
const BULK: (f64, f64) = (1000.0, 10_000.0);
/// Calls of UDP for each packet of the device between which they are the same datagrams. Wider: other protocols'
/// packets, or a few messages of several segments, pass.
const SINGLY: (f64, f64) = (0.9, 1.1);

/// The interface with most packets, how many bulk packets per second it had, if `udp` counts as many.
fn singly(
    on: Observed<'_>,
    counts: impl Fn(&InterfaceMap) -> Option<(u64, u64)>,
    udp: impl Fn(&UdpCounters) -> u64,
) -> Option<(&InterfaceMap, f64, f64)> {
    let counted = on.map.interfaces.iter().filter_map(|interface| Some((interface, counts(interface)?)));
    let (interface, (packets, bytes)) = counted.max_by_key(|(_, (packets, _))| *packets)?;
    let rate = on.rate(packets)?;
    let mean = bytes as f64 / packets.max(1) as f64;
    let calls: u64 = [&on.map.udp.v4, &on.map.udp.v6].into_iter().flatten().map(udp).sum();
    let each = calls as f64 / packets.max(1) as f64;
    let bulk = mean >= BULK.0 && rate >= BULK.1 && (SINGLY.0..=SINGLY.1).contains(&each);
    bulk.then_some((interface, rate, mean))
}

fn received(on: Observed<'_>) -> Vec<Found> {
    let found = singly(on, |interface| interface.packets.zip(interface.bytes), |udp| udp.in_datagrams);
    found.map(|(interface, rate, mean)| told(interface, rate, mean, "received", "read")).into_iter().collect()
}

fn sent(on: Observed<'_>) -> Vec<Found> {
    let found =
        singly(on, |interface| interface.out.packets.zip(interface.out.bytes), |udp| udp.out_datagrams);
    found.map(|(interface, rate, mean)| told(interface, rate, mean, "sent", "sent")).into_iter().collect()
}

fn told(interface: &InterfaceMap, rate: f64, mean: f64, did: &str, singly: &str) -> Found {
    let name = &interface.name;
    let evidence = format!(
        "{name} {did} {} packets/s of {} bytes, and sockets {singly} as many datagrams, each on its own",
        number(rate as u64),
        number(mean as u64)
    );
    Found::new(evidence).at(Location::Interface(name.clone())).rate(Some(rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::testing::{Host, only};

    const PACKETS: u64 = 30_000;

    /// Two seconds of 1,300-byte datagrams that come in and go out, over IPv4 and IPv6.
    fn tunnel() -> Host {
        let mut host = Host::with_queues(2);
        host.map.seconds = Some(2.0);
        let eth0 = &mut host.map.interfaces[0];
        (eth0.packets, eth0.bytes) = (Some(PACKETS), Some(PACKETS * 1342));
        (eth0.out.packets, eth0.out.bytes) = (Some(PACKETS), Some(PACKETS * 1342));
        let half = UdpCounters { in_datagrams: 14_900, out_datagrams: 15_000, ..UdpCounters::default() };
        (host.map.udp.v4, host.map.udp.v6) = (Some(half), Some(half));
        host
    }

    #[test]
    fn large_datagrams_one_by_one() {
        let host = tunnel();
        assert_eq!(
            only(&host, "bulk-received-singly").evidence,
            "eth0 received 15,000 packets/s of 1,342 bytes, and sockets read as many datagrams, each on its own"
        );
        assert_eq!(
            only(&host, "bulk-sent-singly").evidence,
            "eth0 sent 15,000 packets/s of 1,342 bytes, and sockets sent as many datagrams, each on its own"
        );
    }

    #[test]
    fn small_few_or_together_they_are_fine() {
        for spoil in [
            // Small, few, several segments a call, mostly another protocol.
            |host: &mut Host| {
                let eth0 = &mut host.map.interfaces[0];
                (eth0.bytes, eth0.out.bytes) = (Some(PACKETS * 90), Some(PACKETS * 90));
            },
            |host: &mut Host| host.map.seconds = Some(60.0),
            |host: &mut Host| host.map.udp.v6 = None,
            |host: &mut Host| {
                let eth0 = &mut host.map.interfaces[0];
                (eth0.packets, eth0.bytes) = (Some(PACKETS * 2), Some(PACKETS * 3000));
                (eth0.out.packets, eth0.out.bytes) = (Some(PACKETS * 2), Some(PACKETS * 3000));
            },
        ] {
            let mut host = tunnel();
            spoil(&mut host);
            assert_eq!(
                (host.found("bulk-received-singly"), host.found("bulk-sent-singly")),
                (vec![], vec![])
            );
        }
    }
}
