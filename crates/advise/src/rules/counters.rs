//! Losses that only some counters show.

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, number};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "flow-limit",
        severity: Severity::Loss,
        look: Look::Map(flow_limit),
        cause: "one flow had more than half of the packets of a backlog that was half full: the limit protects the others",
        fix: &[
            "spread that flow's sender over more source ports; the limit itself is net.core.flow_limit_cpu_bitmap",
        ],
    },
    Rule {
        id: "counters-disagree",
        severity: Severity::Note,
        look: Look::Map(disagree),
        cause: "some 6.18 kernels count drops for lack of socket memory at the socket only, not in /proc/net/snmp",
        fix: &["trust the sockets' own counts, and update the kernel"],
    },
];

/// Sockets may count some more than UDP as a whole, such as what their filters drop.
const MORE: u64 = 2;

fn flow_limit(on: Observed<'_>) -> Vec<Found> {
    let limited =
        on.map.cpus.iter().filter_map(|cpu| Some((cpu.cpu, cpu.softnet?.flow_limit.filter(|n| *n > 0)?)));
    let limited: Vec<(u32, u32)> = limited.filter(|_| on.map.seconds.is_some()).collect();
    let lost: u64 = limited.iter().map(|(_, n)| u64::from(*n)).sum();
    let evidence =
        format!("{} packets of a single large flow dropped by the flow limit {}", number(lost), on.when());
    let found =
        Found::new(evidence).at_all(limited.iter().map(|(cpu, _)| Location::Cpu(*cpu))).rate(on.rate(lost));
    (lost > 0).then_some(found).into_iter().collect()
}

fn disagree(on: Observed<'_>) -> Vec<Found> {
    // One namespace's sockets and counters, if all sockets are selected.
    let sockets: u64 = on.map.sockets.iter().map(|socket| socket.drops).sum();
    let udp: u64 = [on.map.udp.v4, on.map.udp.v6].into_iter().flatten().map(|udp| udp.in_errors).sum();
    let evidence = format!(
        "sockets dropped {} datagrams {}, UDP as a whole counted {}",
        number(sockets),
        on.when(),
        number(udp)
    );
    let fires = on.map.seconds.is_some() && sockets > 100 && sockets > MORE * udp;
    fires.then(|| Found::new(evidence).at(Location::Udp)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use udpath_host::softnet::SoftnetCpu;
    use udpath_host::udp::UdpCounters;

    use super::*;
    use crate::rules::testing::{Host, only};

    #[test]
    fn a_flow_that_is_limited() {
        let mut host = Host::with_queues(1);
        host.map.seconds = Some(10.0);
        host.map.cpus[1].softnet = Some(SoftnetCpu { flow_limit: Some(0), ..SoftnetCpu::default() });
        assert_eq!(host.found("flow-limit"), []);
        host.map.cpus[1].softnet = Some(SoftnetCpu { flow_limit: Some(500), ..SoftnetCpu::default() });
        let finding = only(&host, "flow-limit");
        assert_eq!(
            finding.evidence,
            "500 packets of a single large flow dropped by the flow limit in 10.0 s"
        );
        assert_eq!(finding.locations, [Location::Cpu(1)]);
    }

    #[test]
    fn sockets_that_dropped_more_than_udp_counted() {
        let mut host = Host::with_queues(1);
        host.map.seconds = Some(10.0);
        host.serve(1, 0);
        host.map.sockets[0].drops = 500;
        host.map.udp.v4 = Some(UdpCounters { in_errors: 500, ..UdpCounters::default() });
        assert_eq!(host.found("counters-disagree"), []);
        host.map.udp.v4 = Some(UdpCounters::default());
        let finding = only(&host, "counters-disagree");
        assert_eq!(finding.evidence, "sockets dropped 500 datagrams in 10.0 s, UDP as a whole counted 0");
    }
}
