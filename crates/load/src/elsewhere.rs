//! Answers from another address than the one asked: a server on a wildcard address answers from the address of its
//! route, unless it takes care, and the connected socket of a client drops that. Without this every such request is
//! just lost.
//!
//! ```text
//!   kernel engine   sees each frame: counts those that the server did not send, and keeps who sent the first
//!   xdp engines     the same
//!   socket engine   its sockets are connected, as those of clients: where the kernel had no socket for about as many datagrams as
//!                   were lost (unclaimed), it asks once more with one that is not (probe)
//! ```
//! Without the kernel's word nothing is asked: a run sends what its plan says, and a server that just loses sees no
//! request more.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::plan::Plan;
use crate::template::Protocol;

/// Longest wait for the answer to one more request. Shorter: a slow server is not seen; longer: a run that lost
/// everything takes as long again for each target.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most targets that are asked once more: one that is wrong says enough.
const MAX_PROBES: usize = 8;
/// Requests to each: of a server that answers some from elsewhere, one of them is likely among those. Fewer: a part of
/// a half is missed. More: a burst that a slow server does not answer in time.
const REQUESTS: u64 = 16;
/// Of the requests, the part that must be lost, and come back to no socket, for somebody else to be looked for who
/// answered: one in so many. Fewer: strangers' datagrams to closed ports of this machine are taken for answers. More: a
/// server with a second address that few flows reach is not named.
const NAMED: u64 = 100;
/// Longest answer: any datagram.
const MAX_DATAGRAM: usize = 65_536;

/// Who answered instead of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// Where the requests went.
    pub(crate) asked: SocketAddr,
    /// Where the first such datagram came from.
    pub(crate) from: SocketAddr,
    /// Datagrams, if they were counted.
    pub(crate) count: Option<u64>,
}

impl std::fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { asked, from, count } = self;
        match count {
            Some(1) => write!(f, "1 datagram came from {from} instead of {asked}")?,
            Some(count) => write!(f, "{count} datagrams came from {from} instead of {asked}")?,
            None => write!(f, "{from} answered instead of {asked}")?,
        }
        let what = if asked.ip() == from.ip() { "port" } else { "address" };
        write!(
            f,
            ": clients drop that; answers have to come from the {what} that was asked ({})",
            if what == "port" {
                "with the socket it received on"
            } else {
                "IP_PKTINFO, a socket for each address, or its own setting for it"
            }
        )
    }
}

/// Datagrams that came to this thread's network namespace and to none of its sockets, of both families (`NoPorts` of
/// `/proc/net/snmp`, RFC 4113, and of `snmp6`). 0 where the kernel does not say: nobody is looked for then. udpath-host
/// reads these files, too, with all else of a machine, which a load does not need.
pub(crate) fn unclaimed() -> u64 {
    let text =
        |file: &str| udpath_files::kernel::text(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
    no_ports(&text("snmp")) + no_ports6(&text("snmp6"))
}

/// A line of names and a line of values.
fn no_ports(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut named = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    named.find(|(name, _)| *name == "NoPorts").and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// A name and a value on each line.
fn no_ports6(snmp6: &str) -> u64 {
    let value = snmp6.lines().find_map(|line| line.strip_prefix("Udp6NoPorts"));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// Whether so many of the requests were lost, and so many datagrams came to no socket meanwhile, that somebody else may
/// have answered.
pub(crate) fn likely(sent: u64, lost: u64, unclaimed: u64) -> bool {
    lost.min(unclaimed) > sent / NAMED
}

/// Asks each target of `plan` a few times more, and returns those that are answered from elsewhere. One that does not
/// answer, or as it should, is not among them.
pub(crate) fn probe(plan: &Plan, protocol: &dyn Protocol) -> Vec<Elsewhere> {
    let mut asked = Vec::new();
    let mut found = Vec::new();
    for flow in 0..plan.own_flows() {
        let target = plan.target(plan.flow(flow));
        if asked.contains(&target) {
            continue;
        }
        asked.push(target);
        // What cannot be asked is not answered from elsewhere; the run has said why.
        found.extend(probe_one(plan, protocol, flow, target).ok().flatten());
        if asked.len() == MAX_PROBES {
            break;
        }
    }
    found
}

fn probe_one(
    plan: &Plan,
    protocol: &dyn Protocol,
    own: u32,
    target: SocketAddr,
) -> io::Result<Option<Elsewhere>> {
    let any = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let flow = plan.flow(own);
    let source: IpAddr = plan.source(flow).unwrap_or(any);
    let socket = UdpSocket::bind(plan.bound(source, 0, target))?;
    let mut request = vec![0; plan.size];
    for sequence in 0..REQUESTS {
        let len = protocol.template().write(flow, sequence, &mut request);
        socket.send_to(&request[..len], target)?;
    }
    let mut answered = 0;
    let deadline = Instant::now() + plan.timeout.min(PROBE_TIMEOUT);
    let mut answer = vec![0; MAX_DATAGRAM];
    while answered < REQUESTS {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv_from(&mut answer) {
            Ok((_, from)) if (from.ip(), from.port()) == (target.ip(), target.port()) => answered += 1,
            Ok((_, from)) => return Ok(Some(Elsewhere { asked: target, from, count: None })),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                break;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_back_to_no_socket_is_looked_for() {
        assert!(likely(1000, 500, 480) && likely(8, 8, 8) && likely(1000, 11, 11));
        assert!(!likely(1000, 500, 0) && !likely(1000, 0, 500) && !likely(1000, 10, 10) && !likely(0, 0, 7));
    }

    #[test]
    fn the_kernels_counts_are_read() {
        let snmp = "Tcp: NoPorts\nTcp: 9\nUdp: InDatagrams NoPorts InErrors\nUdp: 5 42 7\nUdpLite: NoPorts\nUdpLite: 3\n";
        assert_eq!(no_ports(snmp), 42);
        assert_eq!(no_ports6("Udp6InDatagrams  1\nUdp6NoPorts      \t17\nUdpLite6NoPorts 4\n"), 17);
        assert_eq!((no_ports(""), no_ports6("")), (0, 0));
        // A datagram to a port that was just given back.
        let before = unclaimed();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        sender.send_to(b"?", closed).unwrap();
        assert!(unclaimed() > before);
    }

    #[test]
    fn it_names_who_answered_and_what_to_do() {
        let [asked, address, port]: [SocketAddr; 3] =
            ["10.9.0.2:7000", "10.9.0.1:7000", "10.9.0.2:7001"].map(|text| text.parse().unwrap());
        let text = |from, count| Elsewhere { asked, from, count }.to_string();
        assert!(
            text(address, Some(12))
                .starts_with("12 datagrams came from 10.9.0.1:7000 instead of 10.9.0.2:7000: ")
        );
        assert!(text(address, None).contains("10.9.0.1:7000 answered instead of 10.9.0.2:7000"));
        assert!(text(address, None).contains("IP_PKTINFO"));
        assert!(
            text(port, Some(1)).starts_with("1 datagram came from 10.9.0.2:7001")
                && text(port, None).contains("port")
        );
    }
}
