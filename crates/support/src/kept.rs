//! The parts of each file that a capture contains: an allowlist, so that an unlisted file is left out.
//!
//! The list applies to all captures. In a redacted one, [`super::redact`] rebuilds the text of each file from the keys
//! in the last column; `docs/support.md` has the same table, and a test compares the two.

/// A kind of file, by its path: `*` is any path component, `**` any number of components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Its path.
    pub path: &'static str,
    /// The parts kept in a redacted capture.
    pub what: &'static str,
}

const fn kept(path: &'static str, what: &'static str) -> Kept {
    Kept { path, what }
}

/// The kernel's own numbers, masks and keywords.
const WHOLE: &str = "whole: the kernel's numbers and words, names of interfaces";

/// Every kind of file that readers open.
pub const KEPT: &[Kept] = &[
    kept("/proc/cmdline", "boot parameters that bear on packets"),
    kept("/proc/cpuinfo", "processor, model, MHz; of the flags: hypervisor"),
    kept("/proc/interrupts", WHOLE),
    kept("/proc/irq/*/*", WHOLE),
    kept("/proc/modules", "names of packet filtering modules"),
    kept("/proc/net/*", WHOLE),
    kept("/proc/net/udp", "whole, other addresses"),
    kept("/proc/net/udp6", "whole, other addresses"),
    kept("/proc/net/stat/*", WHOLE),
    kept("/proc/softirqs", WHOLE),
    kept("/proc/stat", "CPU times, time of boot"),
    kept("/proc/sys/kernel/*", WHOLE),
    kept("/proc/sys/net/**", WHOLE),
    kept("/proc/self/mountinfo", "mounts of control groups: root, folder, controllers"),
    kept("/proc/*/cgroup", "controllers, and units of the groups' paths"),
    kept("/proc/*/cmdline", "the program's name; the script of a known daemon"),
    kept("/proc/*/comm", "the name of its program, or of a known daemon"),
    kept("/proc/*/status", "user's number, allowed CPUs and nodes"),
    kept("/proc/*/task/*/schedstat", WHOLE),
    kept("/proc/*/task/*/stat", "name as that of the process, or thread-N; state, last CPU"),
    kept("/proc/*/task/*/status", "user's number, allowed CPUs and nodes"),
    kept("/sys/class/dmi/id/sys_vendor", "the name of a known platform"),
    kept("/sys/class/dmi/id/product_name", "the name of a known platform"),
    kept("/sys/class/net/**", WHOLE),
    kept("/sys/devices/system/**", WHOLE),
    kept("/sys/fs/cgroup/**", WHOLE),
    kept("/sys/hypervisor/type", WHOLE),
    kept("/sys/kernel/security/lsm", WHOLE),
    kept(
        "/*/systemd/network/*.link",
        "keys that set queues, rings, coalescing, offloads, sizes and speeds; of [Match] driver, type, name, addresses",
    ),
    kept("/usr/lib/systemd/network/*.link", "as above"),
    kept(
        "/*/systemd/network/*.network",
        "MTU, sections of queueing disciplines; of [Match] driver, type, name, addresses",
    ),
    kept("/usr/lib/systemd/network/*.network", "as above"),
    kept("/*/systemd/network/*.network.d/*.conf", "as above"),
    kept("/usr/lib/systemd/network/*.network.d/*.conf", "as above"),
    kept(
        "/*/NetworkManager/system-connections/*.nmconnection",
        "type, interface, driver, link-layer address; MTU, speed, [ethtool], [link], queueing disciplines of [tc], hash policy of [bond]",
    ),
    kept("/usr/lib/NetworkManager/system-connections/*.nmconnection", "as above"),
    kept("/*/NetworkManager/system-connections/*.nmconnection.d/*.conf", "as above"),
    kept("/usr/lib/NetworkManager/system-connections/*.nmconnection.d/*.conf", "as above"),
    kept("/etc/default/instance_configs.cfg", "set_multiqueue, setup"),
    kept("/etc/default/instance_configs.cfg.d/*.conf", "as above"),
    kept(
        "/*/udev/rules.d/*.rules",
        "of rules that act on interfaces: subsystem, action, driver, interface; attributes of queues with numbers; names of common programs that are run, without arguments",
    ),
    kept("/usr/lib/udev/rules.d/*.rules", "as above"),
    kept(
        "/*/sysctl.d/*.conf",
        "lines of net.*, kernel.numa_balancing and kernel.timer_migration with numbers or names of algorithms",
    ),
    kept("/usr/lib/sysctl.d/*.conf", "as above"),
    kept("/etc/sysctl.conf", "as above"),
];

/// Is a file of that path in captures?
pub(super) fn is_kept(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    KEPT.iter().any(|kept| fits(&kept.path.split('/').collect::<Vec<_>>(), &parts))
}

fn fits(pattern: &[&str], parts: &[&str]) -> bool {
    match (pattern, parts) {
        ([], []) => true,
        (["**"], [_, ..]) => true,
        ([first, pattern @ ..], [part, parts @ ..]) => {
            let one = match first.split_once('*') {
                Some((start, end)) => {
                    part.len() >= start.len() + end.len() && part.starts_with(start) && part.ends_with(end)
                }
                None => first == part,
            };
            one && fits(pattern, parts)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_matched_part_by_part() {
        for path in [
            "/proc/812/cgroup",
            "/proc/812/task/815/stat",
            "/proc/sys/net/ipv4/conf/eth0/rp_filter",
            "/sys/fs/cgroup/cpu.max",
            "/sys/class/net/eth0/queues/rx-0/rps_cpus",
            "/etc/systemd/network/10-a.network.d/b.conf",
            "/usr/lib/udev/rules.d/a.rules",
        ] {
            assert!(is_kept(path), "{path}");
        }
        for path in [
            "/etc/shadow",
            "/proc/812/environ",
            "/proc/812/task/815/comm",
            "/etc/sysctl.d/a",
            "/sys",
            "/etc/udev/rules.d/x/a.rules",
        ] {
            assert!(!is_kept(path), "{path}");
        }
    }
}
