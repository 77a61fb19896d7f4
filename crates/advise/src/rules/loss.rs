//! Packets that are lost: before the kernel, in a CPU's backlog, at sockets.

use udpath_host::map::SocketMap;
use udpath_host::softnet::SoftnetCpu;
use udpath_profile::Profile;
use udpath_steer::CpuSet;

use crate::finding::{Location, Severity};
use crate::rule::{self, Found, Look, Observed, Rule, number, percent};
use crate::rules::{SOCKETS, readers};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "device-loses-packets",
        severity: Severity::Loss,
        look: Look::Map(device),
        cause: "a receive ring was full because its CPU was too late",
        fix: &["spread the packets over more queues and CPUs, or take other work off the CPU of a full ring"],
    },
    Rule {
        id: "backlog-full",
        severity: Severity::Loss,
        look: Look::Map(backlog),
        cause: "more packets are handed to these CPUs than they can process",
        fix: &[],
    },
    Rule {
        id: "socket-drops",
        severity: Severity::Loss,
        look: Look::Map(sockets),
        cause: "its buffer is too small for the bursts, or its readers are too slow",
        fix: &[
            "if the readers are always busy, read in batches (recvmmsg) or add threads, each with its own socket \
             (SO_REUSEPORT): a larger buffer only delays the loss",
        ],
    },
    Rule { id: "udp-errors", severity: Severity::Loss, look: Look::Map(udp), cause: "", fix: &[] },
    Rule {
        id: "udp-memory",
        severity: Severity::Loss,
        look: Look::Map(memory),
        cause: "at the limit datagrams are dropped even where a socket's own buffer has room",
        fix: &["find the sockets with full queues and make their programs read faster"],
    },
    Rule {
        id: "drops",
        severity: Severity::Loss,
        look: Look::Profile(drops),
        cause: "the readers did not keep up, or a receive buffer was too small for the bursts",
        fix: &["enlarge the receive buffer for bursts, or add readers for a sustained load"],
    },
];

/// Share of a limit from which on it is nearly reached.
const NEARLY: f64 = 0.9;
/// A backlog that holds ten times the kernel's default, for bursts. Longer: packets wait where they could be dropped.
const BACKLOG: u64 = 10_000;
/// How much more than its buffer a socket is to get: one burst of four times the length.
const BUFFER_FACTOR: u64 = 4;
/// Datagrams dropped, of those that came.
const DROPS: f64 = 0.01;

fn device(on: Observed<'_>) -> Vec<Found> {
    let lossy = on.map.interfaces.iter().filter(|i| on.matters(i.missed, i.packets.unwrap_or(0)));
    lossy
        .map(|interface| {
            let name = &interface.name;
            let full = interface.queues.iter().filter(|q| q.drops.unwrap_or(0) > 0);
            let rings = on.interface(name).and_then(|now| now.rings.as_ref()).map(|fact| fact.value);
            let longer = rings.and_then(|rings| {
                let (now, most) = (rings.rx?, rings.rx_max?);
                (now < most).then(|| format!("{name}:ring/rx={}", now.saturating_mul(2).min(most)))
            });
            let (lost, when) = (number(interface.missed), on.when());
            Found::new(format!("{name} lost {lost} packets {when} before the kernel saw them"))
                .at(Location::Interface(name.clone()))
                .at_all(full.map(|queue| Location::Queue(name.clone(), queue.queue)))
                .rate(on.rate(interface.missed))
                .changes("enlarge the receive rings", longer.into_iter().collect())
        })
        .collect()
}

fn backlog(on: Observed<'_>) -> Vec<Found> {
    let softnet = on.map.cpus.iter().filter_map(|cpu| Some((cpu.cpu, cpu.softnet?)));
    let full: Vec<_> =
        softnet.filter(|(_, softnet)| on.matters(softnet.dropped.into(), softnet.processed.into())).collect();
    let sum =
        |of: fn(&SoftnetCpu) -> u32| full.iter().map(|(_, softnet)| u64::from(of(softnet))).sum::<u64>();
    let lost = sum(|softnet| softnet.dropped).saturating_sub(on.map.flow_limited());
    if full.is_empty() || !on.matters(lost, sum(|softnet| softnet.processed)) {
        return Vec::new();
    }
    let cpus: CpuSet = full.iter().map(|(cpu, _)| *cpu).collect();
    let sysctl = on.snapshot.sysctls.iter().find(|sysctl| sysctl.name == "net.core.netdev_max_backlog");
    let now = sysctl.and_then(|sysctl| sysctl.value.trim().parse::<u64>().ok());
    let longer =
        now.filter(|now| *now < BACKLOG).map(|_| format!("sysctl:net.core.netdev_max_backlog={BACKLOG}"));
    let evidence = format!(
        "{} packets dropped {} because the backlog of {} was full (net.core.netdev_max_backlog)",
        number(lost),
        on.when(),
        rule::cpus(&cpus)
    );
    vec![
        Found::new(evidence)
            .at_all(full.iter().map(|(cpu, _)| Location::Cpu(*cpu)))
            .rate(on.rate(lost))
            .advice("steer packets to more CPUs (RSS, RPS)")
            .changes("lengthen the backlog, for bursts", longer.into_iter().collect()),
    ]
}

fn sockets(on: Observed<'_>) -> Vec<Found> {
    let delivered = [on.map.udp.v4, on.map.udp.v6].into_iter().flatten().map(|udp| udp.in_datagrams).sum();
    // Sorted by drops already.
    let lossy = on.map.sockets.iter().filter(|socket| on.matters(socket.drops, delivered));
    // What the readers did says more, where it was seen.
    let lossy = lossy.filter(|socket| readers::cause(on, socket) == readers::Cause::Unknown);
    lossy.take(SOCKETS).map(|socket| at_socket(on, socket)).collect()
}

fn at_socket(on: Observed<'_>, socket: &SocketMap) -> Found {
    let owner =
        socket.pids.first().and_then(|pid| on.map.processes.iter().find(|process| process.pid == *pid));
    let who = owner.map_or_else(String::new, |process| format!(" ({}, pid {})", process.name, process.pid));
    let fill = socket
        .fill()
        .map_or_else(String::new, |fill| format!("; its buffer is {:.0} % full now", fill * 100.0));
    let found = Found::new(format!(
        "{} datagrams dropped {} at {}{who}{fill}",
        number(socket.drops),
        on.when(),
        socket.local
    ))
    .at_all(owner.map(|process| Location::Process(process.pid)))
    .at(Location::Socket(socket.inode))
    .rate(on.rate(socket.drops));
    super::memory::enlarged(on, socket, BUFFER_FACTOR, "enlarge the receive buffer, for bursts", found)
}

fn udp(on: Observed<'_>) -> Vec<Found> {
    let families = [("IPv4", on.map.udp.v4), ("IPv6", on.map.udp.v6)];
    let present = families.into_iter().filter_map(|(family, udp)| Some((family, udp?)));
    present
        .filter_map(|(family, udp)| {
            let reasons = [
                (
                    udp.rcvbuf_errors,
                    "at full receive buffers",
                    "readers are too slow, or receive buffers too small for the bursts",
                    "enlarge the receive buffers (net.core.rmem_default for new sockets), or read faster: batches, \
                     more sockets and threads",
                ),
                (
                    udp.mem_errors.unwrap_or(0),
                    "for lack of UDP memory (net.ipv4.udp_mem)",
                    "UDP sockets together used up their memory",
                    "raise net.ipv4.udp_mem, or make the programs with full sockets read faster",
                ),
            ];
            let fired: Vec<_> = reasons.into_iter().filter(|(n, ..)| on.matters(*n, udp.in_datagrams)).collect();
            let lost: u64 = fired.iter().map(|(lost, ..)| lost).sum();
            let whys: Vec<String> = fired.iter().map(|(n, why, ..)| format!("{} {why}", number(*n))).collect();
            let causes: Vec<&str> = fired.iter().map(|(_, _, cause, _)| *cause).collect();
            let evidence = format!("UDP over {family} dropped datagrams {}: {}", on.when(), whys.join(", "));
            let found =
                Found::new(evidence).at(Location::Udp).rate(on.rate(lost)).cause(causes.join("; "));
            (!fired.is_empty()).then(|| fired.iter().fold(found, |found, (.., fix)| found.advice(*fix)))
        })
        .collect()
}

fn memory(on: Observed<'_>) -> Vec<Found> {
    let Some((memory, limits)) = on.map.udp.memory.and_then(|memory| Some((memory, memory.limits?))) else {
        return Vec::new();
    };
    if memory.used as f64 <= NEARLY * limits.max as f64 {
        return Vec::new();
    }
    let twice = [limits.min, limits.pressure, limits.max].map(|pages| pages.saturating_mul(2).to_string());
    let evidence = format!(
        "UDP sockets hold {} of at most {} pages (net.ipv4.udp_mem)",
        number(memory.used),
        number(limits.max)
    );
    vec![
        Found::new(evidence)
            .at(Location::Udp)
            .share(memory.used as f64 / limits.max.max(1) as f64)
            .changes("double the limit", vec![format!("sysctl:net.ipv4.udp_mem={}", twice.join(" "))]),
    ]
}

fn drops(profile: &Profile) -> Vec<Found> {
    let share = profile.datagrams.map_or(0.0, |counted| counted.loss());
    if share < DROPS {
        return Vec::new();
    }
    vec![
        Found::new(format!("{} of the datagrams that arrived were dropped", percent(share)))
            .share(share)
            .at(Location::Udp),
    ]
}

#[cfg(test)]
mod tests {
    use udpath_host::interfaces::Rings;
    use udpath_host::sysctls::{Sysctl, SysctlScope};
    use udpath_host::udp::{UdpCounters, UdpMemory, UdpMemoryLimits};
    use udpath_profile::classes::Class;
    use udpath_profile::context::Context;
    use udpath_profile::profile::Datagrams;

    use super::*;
    use crate::rules::testing::{Host, fact, found_in, of, only, settings};

    #[test]
    fn packets_the_device_lost() {
        let mut host = Host::with_queues(2);
        host.snapshot.interfaces[0].rings =
            Some(fact(Rings { rx: Some(512), rx_max: Some(4096), ..Rings::default() }));
        (host.map.interfaces[0].packets, host.map.interfaces[0].missed) = (Some(1_000_000), 200);
        host.map.interfaces[0].queues[1].drops = Some(200);
        let finding = only(&host, "device-loses-packets");
        assert_eq!(finding.evidence, "eth0 lost 200 packets since boot before the kernel saw them");
        assert_eq!(
            finding.locations,
            [Location::Interface("eth0".into()), Location::Queue("eth0".into(), 1)]
        );
        assert_eq!((settings(&finding), finding.rate), (vec!["eth0:ring/rx=1024".to_owned()], None));
        // History since boot; in an interval any loss counts.
        host.map.interfaces[0].missed = 100;
        assert_eq!(host.found("device-loses-packets"), []);
        host.map.seconds = Some(2.0);
        assert_eq!(only(&host, "device-loses-packets").rate, Some(50.0));
    }

    #[test]
    fn a_full_backlog() {
        let mut host = Host::with_queues(2);
        let sysctl = |value: &str| Sysctl {
            name: "net.core.netdev_max_backlog".into(),
            value: value.into(),
            scope: SysctlScope::Host,
        };
        host.snapshot.sysctls = vec![sysctl("1000")];
        host.map.cpus[1].softnet = Some(SoftnetCpu { processed: 1000, dropped: 10, ..SoftnetCpu::default() });
        let finding = only(&host, "backlog-full");
        assert!(
            finding.evidence.starts_with("10 packets dropped since boot because the backlog of CPU 1 was")
        );
        assert_eq!(finding.locations, [Location::Cpu(1)]);
        assert_eq!(settings(&finding), ["sysctl:net.core.netdev_max_backlog=10000"]);
        host.snapshot.sysctls = vec![sysctl("20000")];
        assert_eq!(settings(&only(&host, "backlog-full")), Vec::<String>::new());
        // The CPU that steers counts what its flow limit drops, and the one that it steers to counts it as well.
        for (dropped, limited) in [(0, None), (0, Some(0)), (500, Some(500))] {
            let of = |dropped, flow_limit| {
                Some(SoftnetCpu { processed: 1000, dropped, flow_limit, ..SoftnetCpu::default() })
            };
            (host.map.cpus[0].softnet, host.map.cpus[1].softnet) = (of(0, limited), of(dropped, None));
            assert_eq!(host.found("backlog-full"), [], "{dropped} {limited:?}");
        }
    }

    #[test]
    fn a_socket_that_drops() {
        let mut host = Host::with_queues(1);
        host.serve(4, 0);
        host.map.sockets[0].drops = 7;
        let finding = only(&host, "socket-drops");
        assert_eq!(
            finding.evidence,
            "7 datagrams dropped since boot at 0.0.0.0:53 (knotd, pid 812); its buffer is 50 % full now"
        );
        assert_eq!(finding.locations, [Location::Process(812), Location::Socket(9)]);
        assert_eq!(settings(&finding), ["socket:812/9:receive-buffer=800000"]);
        host.map.sockets[0].drops = 0;
        assert_eq!(host.found("socket-drops"), []);
    }

    #[test]
    fn errors_by_their_reasons() {
        let mut host = Host::with_queues(1);
        let counters = UdpCounters {
            in_datagrams: 1000,
            rcvbuf_errors: 5,
            mem_errors: Some(2),
            ..UdpCounters::default()
        };
        host.map.udp.v6 = Some(counters);
        let finding = only(&host, "udp-errors");
        assert_eq!(
            finding.evidence,
            "UDP over IPv6 dropped datagrams since boot: 5 at full receive buffers, 2 for lack of UDP memory \
             (net.ipv4.udp_mem)"
        );
        assert_eq!(finding.remedies.len(), 2);
        host.map.udp.v6 = Some(UdpCounters { in_datagrams: 1000, ..UdpCounters::default() });
        assert_eq!(host.found("udp-errors"), []);
    }

    #[test]
    fn memory_that_is_nearly_used_up() {
        let mut host = Host::with_queues(1);
        let limits = Some(UdpMemoryLimits { min: 10, pressure: 50, max: 100 });
        host.map.udp.memory = Some(UdpMemory { used: 95, limits });
        let finding = only(&host, "udp-memory");
        assert_eq!(finding.evidence, "UDP sockets hold 95 of at most 100 pages (net.ipv4.udp_mem)");
        assert_eq!(settings(&finding), ["sysctl:net.ipv4.udp_mem=20 100 200"]);
        host.map.udp.memory = Some(UdpMemory { used: 90, limits });
        assert_eq!(host.found("udp-memory"), []);
    }

    #[test]
    fn datagrams_dropped_during_a_profile() {
        let mut profile = of(&[(Context::Softirq, Class::Ip, None, None, "ip_rcv", 5_000)]);
        profile.datagrams = Some(Datagrams { received: 70, sent: 0, dropped: 30 });
        let [finding] = &found_in(&profile, "drops")[..] else { panic!() };
        assert_eq!(finding.evidence, "30 % of the datagrams that arrived were dropped");
        profile.datagrams = Some(Datagrams { received: 1000, sent: 0, dropped: 9 });
        assert_eq!(found_in(&profile, "drops"), []);
    }
}
