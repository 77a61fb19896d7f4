//! Answers from another address than the one asked: a server on a wildcard address answers from the address of its route, unless
//! it takes care, and the connected socket of a client drops that. Without this every such request is just lost.
//!
//! ```text
//!   kernel engine   sees each frame: counts those that the server did not send, and keeps who sent the first
//!   xdp engines     the same
//!   socket engine   its sockets are connected, as those of clients: asks once more with one that is not (probe)
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::plan::Plan;
use crate::template::Protocol;

/// Longest wait for the answer to one more request. Shorter: a slow server is not seen; longer: a run that lost everything takes as
/// long again for each target.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most targets that are asked once more: one that is wrong says enough.
const MAX_PROBES: usize = 8;
/// Requests to each: of a server that answers some from elsewhere, one of them is likely among those. Fewer: a part of a half is missed.
/// More: a burst that a slow server does not answer in time.
const REQUESTS: u64 = 16;
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

/// Asks each target of `plan` a few times more, and returns those that are answered from elsewhere. One that does not answer, or as it
/// should, is not among them.
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
