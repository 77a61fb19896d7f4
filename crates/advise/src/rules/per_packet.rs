//! Work on every packet that can be avoided.

use udpath_profile::Profile;
use udpath_profile::classes::Class;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "every-packet-stamped",
        severity: Severity::Limit,
        look: Look::Map(stamped),
        cause: "its driver converts each time stamp",
        fix: &[
            "configure the time daemon to request stamps for PTP or NTP only (chrony: hwtimestamp IFACE rxfilter ptp)",
        ],
    },
    Rule {
        id: "packet-sockets",
        severity: Severity::Limit,
        look: Look::Map(packet_sockets),
        cause: "the kernel clones each packet for it",
        fix: &[NARROW],
    },
    Rule {
        id: "packet-sockets",
        severity: Severity::Limit,
        look: Look::Profile(copies),
        cause: "the kernel clones each packet for them",
        fix: &[NARROW],
    },
    Rule {
        id: "gro",
        severity: Severity::Limit,
        look: Look::Profile(gro),
        cause: "datagrams of different flows cannot be merged, nor any for a socket without UDP_GRO",
        fix: &[
            "set UDP_GRO on the socket if it receives runs of datagrams, else turn GRO off (IFACE:feature/rx-gro=off; \
             TCP on that interface becomes slower)",
        ],
    },
    Rule {
        id: "mitigations",
        severity: Severity::Limit,
        look: Look::Profile(mitigations),
        cause: "each way into the kernel and back pays for the processor's vulnerabilities",
        fix: &["make fewer system calls: read and send in batches (recvmmsg, sendmmsg)"],
    },
    Rule {
        id: "security",
        severity: Severity::Limit,
        look: Look::Profile(security),
        cause: "security modules and audit check each system call",
        fix: &[
            "exclude the service's system calls from audit rules, and make fewer of them (recvmmsg, sendmmsg)",
        ],
    },
    Rule {
        id: TRACING_ID,
        severity: Severity::Limit,
        look: Look::Profile(tracing),
        cause: "probes run at each event",
        fix: &[
            "find who attached probes (bpftool prog, /sys/kernel/tracing); use a lower --rate if it is this profiler",
        ],
    },
];

/// The id of probes that cost time.
pub(crate) const TRACING_ID: &str = "tracing";
const NARROW: &str = "stop it, or give it a narrow capture filter";
/// What a packet socket that takes every packet asks for (`ETH_P_ALL`, linux/if_ether.h).
const ALL: u16 = 3;
/// Packet sockets: each clones every packet.
const PACKET_SOCKETS: f64 = 0.02;
/// Looking for packets to merge: 60 to 80 ns for each, 2 % of the time of an echo server. It helps nothing where none
/// are merged, and goes away by one command; 1 % of five seconds of two CPUs is known to half a point.
const GRO: f64 = 0.01;
/// Of the time spent looking: merging, where it happens, takes more than this.
const GRO_MERGES: f64 = 0.02;
/// Of the same: the protocols' part, 40 to 50 % where packets are inspected. With GRO off they only pass through its
/// entry, which takes up to 1 % of the time as well. Lower: a second interface with a little traffic and GRO on is
/// enough. Higher: short profiles miss it.
const GRO_INSPECTS: f64 = 0.1;
/// Mitigations: thunks and barriers that show as functions of their own.
const MITIGATIONS: f64 = 0.05;
/// Security modules and audit: hooks that answer at once cost 1 %.
const SECURITY: f64 = 0.04;
/// Tracing by others; this program's own sampling takes less.
const TRACING: f64 = 0.03;

/// A driver turns each stamp into the kernel's time: igb and its like under a lock that all queues share
/// (`igb_ptp_systim_to_hwtstamp`), and mlx5 gives up compressed completions for it (`mlx5e_hwstamp_set`).
fn stamped(on: Observed<'_>) -> Vec<Found> {
    let every = on.map.interfaces.iter().filter_map(|interface| {
        let set = interface.time_stamping.as_ref().filter(|set| set.of_every_packet())?;
        let clock = set.clock.map_or_else(String::new, |clock| format!(" (clock /dev/ptp{clock})"));
        let evidence = format!("{} puts a time stamp on every packet it receives{clock}", interface.name);
        Some(Found::new(evidence).at(Location::Interface(interface.name.clone())))
    });
    every.collect()
}

fn packet_sockets(on: Observed<'_>) -> Vec<Found> {
    let sockets = on.snapshot.packet_sockets.sockets.iter();
    let of_all = sockets.filter(|socket| socket.running && socket.protocol == ALL);
    of_all
        .filter_map(|socket| {
            let interface = on.snapshot.interfaces.iter().find(|now| now.index == socket.interface);
            let name = interface.map(|interface| interface.name.clone());
            if socket.interface != 0
                && !on.map.interfaces.iter().any(|shown| Some(&shown.name) == name.as_ref())
            {
                return None;
            }
            let place = name.clone().unwrap_or_else(|| "every interface".into());
            let evidence = format!("a packet socket (inode {}) copies every packet of {place}", socket.inode);
            Some(Found::new(evidence).at(name.map_or(Location::Machine, Location::Interface)))
        })
        .collect()
}

/// A class from its threshold on.
fn class(profile: &Profile, class: Class, least: f64, does: &str) -> Vec<Found> {
    let share = profile.share(class);
    (share >= least).then(|| Found::cpu_time(share, does).at(Location::Machine)).into_iter().collect()
}

fn copies(profile: &Profile) -> Vec<Found> {
    let known = profile.facts.packet_sockets.iter().filter_map(|socket| Some((socket.pid?, &socket.name)));
    let mut whose: Vec<String> = known.clone().map(|(pid, name)| format!("{name}, pid {pid}")).collect();
    whose.dedup();
    let whose = if whose.is_empty() { String::new() } else { format!(" ({})", whose.join("; ")) };
    let mut pids: Vec<u32> = known.map(|(pid, _)| pid).collect();
    pids.dedup();
    let found = class(
        profile,
        Class::PacketSockets,
        PACKET_SOCKETS,
        &format!("copies packets to packet sockets{whose}"),
    );
    found.into_iter().map(|found| found.at_all(pids.iter().copied().map(Location::Process))).collect()
}

fn gro(profile: &Profile) -> Vec<Found> {
    let passes = |names: &[&str]| {
        let stacks = profile.stacks.iter();
        let through = stacks.filter(|stack| stack.frames.iter().any(|frame| names.contains(&frame.as_str())));
        through.map(|stack| stack.ns).sum::<u64>() as f64
    };
    // Packets that were held back go up from here as well: that is not the cost of looking.
    let up = [
        "netif_receive_skb_list_internal",
        "gro_normal_list",
        "napi_gro_complete",
        "gro_complete",
        "gro_normal_one",
    ];
    let looking = profile.stacks.iter().filter(|stack| {
        let enters =
            stack.frames.iter().rposition(|frame| frame == "dev_gro_receive" || frame == "gro_receive_skb");
        enters.is_some_and(|at| !stack.frames[at..].iter().any(|frame| up.contains(&frame.as_str())))
    });
    let looking = looking.map(|stack| stack.ns).sum::<u64>() as f64;
    let share = looking / profile.busy() as f64;
    let merges = passes(&["skb_gro_receive", "skb_gro_receive_list"]) > looking * GRO_MERGES;
    let inspects = passes(&["inet_gro_receive", "ipv6_gro_receive"]) > looking * GRO_INSPECTS;
    let does = "looks for packets to merge (GRO), and hardly any are merged";
    (share >= GRO && inspects && !merges)
        .then(|| Found::cpu_time(share, does).at(Location::Machine))
        .into_iter()
        .collect()
}

fn mitigations(profile: &Profile) -> Vec<Found> {
    class(profile, Class::Mitigations, MITIGATIONS, "goes to mitigations of CPU vulnerabilities")
}

fn security(profile: &Profile) -> Vec<Found> {
    class(profile, Class::Security, SECURITY, "goes to security modules and audit")
}

fn tracing(profile: &Profile) -> Vec<Found> {
    class(profile, Class::Tracing, TRACING, "goes to tracing")
}

#[cfg(test)]
mod tests {
    use udpath_host::interfaces::TimeStamping;
    use udpath_host::packet_sockets::PacketSocket;
    use udpath_profile::context::Context::{Softirq, Syscall};
    use udpath_profile::facts::PacketSocketOwner;

    use super::*;
    use crate::rules::testing::{BASE, Host, fires_above, found_in, of, only};

    #[test]
    fn stamps_on_every_packet() {
        let mut host = Host::with_queues(1);
        let set = |rx: &str| Some(TimeStamping { tx: "on".into(), rx: rx.into(), clock: Some(0) });
        host.map.interfaces[0].time_stamping = set("all");
        let finding = only(&host, "every-packet-stamped");
        assert_eq!(finding.evidence, "eth0 puts a time stamp on every packet it receives (clock /dev/ptp0)");
        host.map.interfaces[0].time_stamping = set("ptpv2-event");
        assert_eq!(host.found("every-packet-stamped"), []);
    }

    #[test]
    fn a_packet_socket_of_everything() {
        let mut host = Host::with_queues(1);
        let socket = |protocol, interface| PacketSocket {
            kind: 3,
            protocol,
            interface,
            running: true,
            queued: 0,
            user: 0,
            inode: 34981,
        };
        host.snapshot.packet_sockets.sockets = vec![socket(ALL, host.snapshot.interfaces[0].index)];
        let finding = only(&host, "packet-sockets");
        assert_eq!(finding.evidence, "a packet socket (inode 34981) copies every packet of eth0");
        assert_eq!(finding.locations, [Location::Interface("eth0".into())]);
        host.snapshot.packet_sockets.sockets = vec![socket(ALL, 0)];
        assert_eq!(only(&host, "packet-sockets").locations, [Location::Machine]);
        // Of one protocol, as lldpd's; or of an interface that is not shown.
        for other in [socket(0x88cc, 0), socket(ALL, 99)] {
            host.snapshot.packet_sockets.sockets = vec![other];
            assert_eq!(host.found("packet-sockets"), []);
        }
    }

    #[test]
    fn classes_fire_from_their_thresholds() {
        for (id, class, frame, less, evidence) in [
            ("packet-sockets", Class::PacketSockets, "packet_rcv", 15, "copies packets to packet sockets"),
            ("mitigations", Class::Mitigations, "srso_return_thunk", 40, "goes to mitigations of CPU vuln"),
            ("security", Class::Security, "audit_filter", 30, "goes to security modules and audit"),
            ("tracing", Class::Tracing, "ftrace_x", 20, "goes to tracing"),
        ] {
            let finding = fires_above(id, (Syscall, class, None, None, frame, 60), less);
            assert!(
                finding.evidence.starts_with(&format!("5.7 % of CPU time {evidence}")),
                "{}",
                finding.evidence
            );
        }
    }

    #[test]
    fn a_packet_socket_is_named_by_its_process() {
        let mut profile = of(&[
            (Softirq, Class::Ip, None, None, "ip_rcv", 900),
            (Softirq, Class::PacketSockets, None, None, "packet_rcv", 100),
        ]);
        profile.facts.packet_sockets =
            vec![PacketSocketOwner { inode: 7, pid: Some(99), name: "tcpdump".into() }];
        let [finding] = &found_in(&profile, "packet-sockets")[..] else { panic!() };
        assert_eq!(finding.evidence, "10 % of CPU time copies packets to packet sockets (tcpdump, pid 99)");
        assert_eq!(finding.locations, [Location::Machine, Location::Process(99)]);
    }

    #[test]
    fn gro_that_merges_nothing() {
        let gro = "handle_softirqs napi_gro_receive dev_gro_receive inet_gro_receive";
        let merged = "handle_softirqs napi_gro_receive dev_gro_receive skb_gro_receive_list";
        let looking = (Softirq, Class::NapiGro, None, None, gro, 60);
        let finding = fires_above("gro", looking, 10);
        assert!(finding.evidence.starts_with("5.7 % of CPU time looks for packets to merge (GRO)"));
        let merging = of(&[BASE, looking, (Softirq, Class::NapiGro, None, None, merged, 20)]);
        assert_eq!(found_in(&merging, "gro"), []);
        // With GRO off, in 6.1 and in 6.18.
        for entry in ["napi_gro_receive dev_gro_receive", "veth_poll gro_receive_skb"] {
            assert_eq!(found_in(&of(&[BASE, (Softirq, Class::NapiGro, None, None, entry, 60)]), "gro"), []);
        }
        let complete = format!("{gro} gro_complete");
        assert_eq!(found_in(&of(&[BASE, (Softirq, Class::NapiGro, None, None, &complete, 60)]), "gro"), []);
    }
}
