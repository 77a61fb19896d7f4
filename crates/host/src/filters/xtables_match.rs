//! Matches and targets of x_tables by name, whether a rule of ip_tables has them or, as a compatibility expression, one
//! of nftables.

use super::Datagram;
use super::bits::not;
use super::chain::{Action, Applies};

/// Whether an x_tables match applies, and its text.
pub(super) fn match_of(name: &str, data: &[u8], datagram: &Datagram) -> (Applies, String) {
    let port = datagram.address.port();
    match name {
        // struct xt_udp: source port range, destination port range, inversion flags.
        "udp" => {
            let Some([from, to]) = half(data, 4).zip(half(data, 6)).map(<[u16; 2]>::from) else {
                return (Applies::Maybe, "-m udp".into());
            };
            let sources = half(data, 0).zip(half(data, 2));
            let inverted = data.get(8).copied().unwrap_or(0);
            let inside = if (from..=to).contains(&port) { Applies::Yes } else { Applies::No };
            let met = if inverted & 2 != 0 { not(inside) } else { inside };
            let mut words = Vec::new();
            let mut says = |option: &str, (from, to): (u16, u16), inverted: bool| {
                if (from, to) != (0, u16::MAX) || inverted {
                    let not = if inverted { "! " } else { "" };
                    let to = if from == to { String::new() } else { format!(":{to}") };
                    words.push(format!("{not}{option} {from}{to}"));
                }
            };
            let any_source = sources == Some((0, u16::MAX)) && inverted & 1 == 0;
            if let Some(sources) = sources {
                says("--sport", sources, inverted & 1 != 0);
            }
            says("--dport", (from, to), inverted & 2 != 0);
            (if any_source { met } else { met.min(Applies::Maybe) }, words.join(" "))
        }
        // Another protocol's header.
        "tcp" | "sctp" | "dccp" | "icmp" | "icmp6" => (Applies::No, format!("-m {name}")),
        "multiport" => multiport(data, port),
        "comment" => (Applies::Yes, String::new()),
        other => (Applies::Maybe, format!("-m {other}")),
    }
}

/// struct xt_multiport_v1: which ports are tested, their count, the ports, which of them start a range, inverted.
fn multiport(data: &[u8], port: u16) -> (Applies, String) {
    let maybe = (Applies::Maybe, "-m multiport".to_owned());
    let (Some([kind, count]), Some(inverted)) = (data.first_chunk(), data.get(47)) else { return maybe };
    let ports: Vec<u16> = (0..usize::from(*count).min(15)).filter_map(|at| half(data, 2 + 2 * at)).collect();
    let begins = |at: usize| data.get(32 + at).is_some_and(|begins| *begins != 0);
    let (mut words, mut inside, mut at) = (Vec::new(), false, 0);
    while let Some(from) = ports.get(at) {
        let to = if begins(at) { ports.get(at + 1).unwrap_or(from) } else { from };
        inside |= (from..=to).contains(&&port);
        words.push(if from == to { from.to_string() } else { format!("{from}:{to}") });
        at += 1 + usize::from(begins(at));
    }
    let (option, met) = match kind {
        0 => ("--sports", Applies::Maybe),
        1 => ("--dports", if inside { Applies::Yes } else { Applies::No }),
        _ => ("--ports", if inside { Applies::Yes } else { Applies::Maybe }),
    };
    let (not_said, met) = if *inverted != 0 { ("! ", not(met)) } else { ("", met) };
    (met, format!("{not_said}-m multiport {option} {}", words.join(",")))
}

/// The action of an x_tables target, by name.
pub(super) fn target_of(name: &str) -> Action {
    match name {
        // Each of these is final.
        "REJECT" | "DNAT" | "SNAT" | "REDIRECT" | "NETMAP" | "MASQUERADE" | "NFQUEUE" | "QUEUE"
        | "TPROXY" | "SYNPROXY" | "MIRROR" | "TARPIT" => Action::End,
        _ => Action::Effect,
    }
}

/// Two bytes at an offset, in the machine's order.
pub(super) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram() -> Datagram {
        let address = "10.0.0.2:7000".parse().unwrap();
        Datagram { interface: "eth0".into(), index: Some(2), address, bridged: false }
    }

    #[test]
    fn ports_are_read_of_udp_and_multiport() {
        let udp = |ports: [u16; 4], inverted: u8| {
            let mut data: Vec<u8> = ports.iter().flat_map(|port| port.to_ne_bytes()).collect();
            data.extend([inverted, 0]);
            match_of("udp", &data, &datagram())
        };
        let all = u16::MAX;
        assert_eq!(udp([0, all, 7000, 7000], 0), (Applies::Yes, "--dport 7000".into()));
        assert_eq!(udp([0, all, 1, 1024], 0).0, Applies::No);
        assert_eq!(udp([0, all, 1, 1024], 2), (Applies::Yes, "! --dport 1:1024".into()));
        assert_eq!(udp([53, 53, 0, all], 0), (Applies::Maybe, "--sport 53".into()));
        assert_eq!(udp([53, 53, 1, 9], 0).0, Applies::No);
        let many = |kind: u8, ports: &[u16], ranges: &[usize], inverted: u8| {
            let mut data = vec![0; 48];
            (data[0], data[1], data[47]) = (kind, ports.len() as u8, inverted);
            for (at, port) in ports.iter().enumerate() {
                data[2 + 2 * at..][..2].copy_from_slice(&port.to_ne_bytes());
            }
            ranges.iter().for_each(|at| data[32 + at] = 1);
            match_of("multiport", &data, &datagram())
        };
        assert_eq!(many(1, &[53, 7000], &[], 0), (Applies::Yes, "-m multiport --dports 53,7000".into()));
        assert_eq!(
            many(1, &[53, 6000, 8000], &[1], 0),
            (Applies::Yes, "-m multiport --dports 53,6000:8000".into())
        );
        assert_eq!(many(1, &[53], &[], 1).0, Applies::Yes);
        assert_eq!(many(0, &[53], &[], 0).0, Applies::Maybe);
    }
}
