//! What each packet costs in functions that can be avoided: by the functions' names in the stacks of a profile.

use udpath_profile::Profile;
use udpath_profile::classes::Class;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Rule};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "slow-clock",
        severity: Severity::Limit,
        look: Look::Profile(|profile| {
            within(profile, &CLOCKS, 0.01, "reads a clock of the board, not of the CPU")
        }),
        cause: SLOW_CLOCK,
        fix: &[FAST_CLOCK],
    },
    Rule {
        id: "source-validation",
        severity: Severity::Limit,
        look: Look::Profile(|profile| {
            within(profile, &["fib_validate_source"], 0.02, "validates the source of each packet (rp_filter)")
        }),
        cause: "each packet's source is looked up in the routes once more",
        fix: &[
            "security: set net.ipv4.conf.all.rp_filter=0 and net.ipv4.conf.IFACE.rp_filter=0 only where a router in front drops forged sources",
        ],
    },
    Rule {
        id: "ip-identification",
        severity: Severity::Limit,
        look: Look::Profile(|profile| {
            within(
                profile,
                &["__ip_select_ident", "ip_idents_reserve"],
                0.02,
                "chooses identifiers of IP packets",
            )
        }),
        cause: "packets that may be fragmented take a number from a counter that all packets to one host share",
        fix: &[
            "set IP_MTU_DISCOVER to IP_PMTUDISC_PROBE or IP_PMTUDISC_DO on the socket, and keep answers below the MTU",
        ],
    },
    Rule {
        id: "software-checksums",
        severity: Severity::Limit,
        look: Look::Profile(|profile| {
            within(
                profile,
                &["csum_partial", "do_csum", "__skb_checksum", "skb_checksum", "__skb_checksum_complete"],
                0.03,
                "computes checksums",
            )
        }),
        cause: "the device does not verify or compute them: the offload is off, or the device has none",
        fix: &["turn the offload on (`ethtool -K IFACE rx on tx on`, or IFACE:feature/rx-checksum=on)"],
    },
    Rule {
        id: "socket-lookup",
        severity: Severity::Limit,
        look: Look::Profile(|profile| {
            within(
                profile,
                &["udp4_lib_lookup2", "udp6_lib_lookup2", "__udp4_lib_lookup", "__udp6_lib_lookup"],
                0.05,
                "looks for the socket of each datagram",
            )
        }),
        cause: "many sockets share a hash bucket, or one port has hundreds of them",
        fix: &[
            "use fewer sockets per port; for many connected sockets, a kernel of 6.13 or later, or a larger table (uhash_entries=)",
        ],
    },
    Rule {
        id: "early-demux",
        severity: Severity::Limit,
        look: Look::Profile(|profile| {
            within(
                profile,
                &["udp_v4_early_demux", "udp_v6_early_demux"],
                0.01,
                "looks for connected sockets before routing (early demux)",
            )
        }),
        cause: "it gains nothing for sockets that are not connected",
        fix: &["sysctl -w net.ipv4.udp_early_demux=0, if the machine serves unconnected UDP sockets only"],
    },
    Rule {
        id: "cgroup-filters",
        severity: Severity::Limit,
        look: Look::Profile(|profile| {
            within(
                profile,
                &["__cgroup_bpf_run_filter_skb", "__cgroup_bpf_run_filter_sock_addr"],
                0.02,
                "runs BPF programs of control groups",
            )
        }),
        cause: "systemd's IP accounting or address filters, or a container runtime's, run for each packet",
        fix: &[
            "set IPAccounting=no and remove IPAddressAllow= and IPAddressDeny= from the service's unit, if nothing needs them",
        ],
    },
    Rule {
        id: "time-stamps",
        severity: Severity::Limit,
        look: Look::Profile(|profile| {
            within(
                profile,
                &["__net_timestamp", "ktime_get_with_offset", "net_timestamp_check"],
                0.02,
                "takes a time stamp of each packet",
            )
        }),
        cause: "a single socket that asks for time stamps (SO_TIMESTAMP, a packet socket) makes the kernel stamp every packet",
        fix: &[
            "stop the program that asks for them; or stamp after RPS only (sysctl -w net.core.netdev_tstamp_prequeue=0)",
        ],
    },
    Rule {
        id: "iommu",
        severity: Severity::Limit,
        look: Look::Profile(|profile| {
            within(
                profile,
                &[
                    "qi_submit_sync",
                    "alloc_iova",
                    "alloc_iova_fast",
                    "iommu_dma_map_page",
                    "__iommu_dma_map",
                    "dma_pte_clear_level",
                ],
                0.03,
                "maps packets for the device (IOMMU)",
            )
        }),
        cause: "a strict IOMMU maps and flushes each buffer",
        fix: &["boot with iommu=pt, or iommu.strict=0; security: a device may then reach more memory"],
    },
    Rule {
        id: "page-recycling",
        severity: Severity::Limit,
        look: Look::Profile(|profile| {
            within(
                profile,
                &[
                    "get_page_from_freelist",
                    "__alloc_pages_slowpath",
                    "page_pool_alloc_pages_slow",
                    "__page_pool_alloc_pages_slow",
                ],
                0.05,
                "takes new pages instead of recycled ones",
            )
        }),
        cause: "pages are freed on other CPUs, or stay long in full receive queues",
        fix: &[
            "let the reader run on the CPU that receives (RFS, pinned threads), and keep receive queues short",
        ],
    },
    Rule {
        id: "logging",
        severity: Severity::Limit,
        look: Look::Profile(|profile| {
            within(profile, &WRITES, 0.05, "writes to files, pipes or the system log")
        }),
        cause: "a server that logs each query makes a system call for it, often more than it makes for the datagrams",
        fix: &[
            "turn the log of queries off (`log-queries: no` in unbound, `rndc querylog off` for BIND, `auth = no` in FreeRADIUS's \
             log section; undone by the old value), or sample them with dnstap",
        ],
    },
    Rule {
        id: "single-datagram-calls",
        severity: Severity::Limit,
        look: Look::Profile(single_calls),
        cause: "each datagram costs the way into the kernel and back, mitigations and audit included",
        fix: &["receive and send several datagrams per call (recvmmsg, sendmmsg)"],
    },
];

/// Entering and leaving the kernel: one call per datagram each way costs 10 to 20 %.
const CALLS: f64 = 0.1;
/// Nanoseconds per datagram that entering and leaving the kernel costs at most: 50 to 1,000, with all mitigations and
/// audit. Lower: a slow CPU's calls seem to move nothing; higher: a program that polls seems to receive one by one.
const ENTRY_NS: f64 = 5_000.0;
/// Where a log goes: a file of these file systems, a pipe or terminal, a socket of syslog or the journal. Not any
/// write: a tunnel writes packets.
const WRITES: [&str; 9] = [
    "ext4_file_write_iter",
    "xfs_file_write_iter",
    "btrfs_file_write_iter",
    "shmem_file_write_iter",
    "ovl_write_iter",
    "pipe_write",
    "tty_write",
    "unix_dgram_sendmsg",
    "unix_stream_sendmsg",
];
/// Calls that move one datagram each.
const SINGLE: [&str; 4] = ["__sys_recvfrom", "__sys_sendto", "__sys_recvmsg", "__sys_sendmsg"];
/// Calls that move several.
const BATCHED: [&str; 2] = ["__sys_recvmmsg", "__sys_sendmmsg"];

/// The time below any of these functions, if it is at least `least` of all.
/// Functions that read the clock sources which are devices.
const CLOCKS: [&str; 4] = ["read_hpet", "acpi_pm_read", "acpi_pm_read_slow", "i8253_read"];
/// Why they are slow.
pub(super) const SLOW_CLOCK: &str = "the kernel does not trust the CPU's counter (TSC): each reading of the clock is a system call that waits for a device, \
                                     a microsecond and more, and servers read the clock for every datagram";
/// What makes the CPU's counter the clock again.
pub(super) const FAST_CLOCK: &str = "find out why (`dmesg | grep -i -e tsc -e clocksource`): mend the firmware or the hypervisor's setting, or boot with \
                                     `tsc=reliable` if the counters of all CPUs agree; `/sys/devices/system/clocksource/clocksource0/current_clocksource` \
                                     takes `tsc` back at once if it is still among available_clocksource";

fn within(profile: &Profile, functions: &[&str], least: f64, does: &str) -> Vec<Found> {
    let share = below(profile, functions) as f64 / profile.busy().max(1) as f64;
    (share >= least).then(|| Found::cpu_time(share, does).at(Location::Machine)).into_iter().collect()
}

/// Nanoseconds in stacks of the work itself that pass one of these functions.
fn below(profile: &Profile, functions: &[&str]) -> u64 {
    let passes = |frames: &[String]| frames.iter().any(|frame| functions.contains(&frame.as_str()));
    profile.stacks.iter().filter(|stack| passes(stack.own_frames())).map(|stack| stack.ns).sum()
}

fn single_calls(profile: &Profile) -> Vec<Found> {
    let (single, batched) = (below(profile, &SINGLE), below(profile, &BATCHED));
    let share = profile.share(Class::Syscall);
    // Otherwise most calls find none: a program that polls.
    let moves = profile
        .datagrams
        .is_none_or(|counted| share * profile.busy() as f64 <= ENTRY_NS * counted.handled() as f64);
    (share >= CALLS && single > batched && moves)
        .then(|| {
            Found::cpu_time(share, "enters and leaves the kernel, mostly for one datagram at a time")
                .at(Location::Machine)
        })
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use udpath_profile::context::Context::{Softirq, Syscall};

    use super::*;
    use crate::rules::testing::{BASE, found_in, of};

    #[test]
    fn functions_fire_from_their_thresholds() {
        for (id, frame, evidence) in [
            ("source-validation", "fib_validate_source", "validates the source"),
            ("ip-identification", "__ip_select_ident", "chooses identifiers"),
            ("software-checksums", "csum_partial", "computes checksums"),
            ("socket-lookup", "udp4_lib_lookup2", "looks for the socket"),
            ("early-demux", "udp_v4_early_demux", "looks for connected sockets"),
            ("cgroup-filters", "__cgroup_bpf_run_filter_skb", "runs BPF programs of control groups"),
            ("time-stamps", "__net_timestamp", "takes a time stamp"),
            ("slow-clock", "acpi_pm_read", "reads a clock of the board"),
            ("iommu", "qi_submit_sync", "maps packets for the device"),
            ("page-recycling", "get_page_from_freelist", "takes new pages"),
            ("logging", "ext4_file_write_iter", "writes to files"),
        ] {
            let frames = format!("handle_softirqs ip_rcv {frame}");
            let with = |ms| of(&[BASE, (Softirq, Class::Ip, None, None, &frames, ms)]);
            let [finding] = &found_in(&with(100), id)[..] else { panic!("{id}") };
            assert!(
                finding.evidence.starts_with(&format!("9.1 % of CPU time {evidence}")),
                "{}",
                finding.evidence
            );
            assert_eq!(found_in(&with(9), id), [], "{id}");
        }
    }

    #[test]
    fn a_call_for_each_datagram() {
        let with = |call: &str| {
            let frames = format!("entry_SYSCALL_64 do_syscall_64 {call}");
            of(&[BASE, (Syscall, Class::Syscall, None, Some("x"), &frames, 200)])
        };
        let [finding] = &found_in(&with("__sys_recvfrom"), "single-datagram-calls")[..] else { panic!() };
        assert!(
            finding.evidence.starts_with("17 % of CPU time enters and leaves the kernel"),
            "{}",
            finding.evidence
        );
        assert_eq!(found_in(&with("__sys_recvmmsg"), "single-datagram-calls"), []);
    }
}
