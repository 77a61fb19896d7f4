//! Sysctls: files of /proc/sys, by their path below it.

use super::row::{Access, Cost, Extra, Keeps, OnReset, PartKind, Phase, Row, Scope, Shell, ValueKind};
use super::{Form, Setting, Value};

/// Sysctls below net/ipv4 that are machine-wide, not per namespace.
const MACHINE_WIDE: [&str; 3] = ["net/ipv4/udp_mem", "net/ipv4/tcp_mem", "net/ipv4/inet_peer_threshold"];

const WORDS: Row = Row {
    name: "sysctl",
    part: PartKind::Whole,
    value: ValueKind::Text,
    access: Access::File(path, Form::Words),
    phase: Phase::Kernel,
    cost: Cost::None,
    scope: Scope::Host,
    on_reset: OnReset::Kept,
    writers: &["tuned", "systemd-sysctl", "bpftune"],
    shell: Shell::Echo,
    page: "sysctl",
    extra: Extra { lowers_security, tuned: Some(("sysctl", "*")), errno, ..Extra::NONE },
};

/// A machine-wide sysctl.
static HOST: Row = WORDS;
/// A sysctl of a network namespace.
static NAMESPACED: Row = Row { scope: Scope::Namespace, ..WORDS };
/// A mask of CPUs.
static MASK: Row = Row { value: ValueKind::Cpus, access: Access::File(path, Form::Mask), ..WORDS };
/// The size of the global flow table of RFS, which the kernel rounds up.
static FLOW_ENTRIES: Row = Row { extra: Extra { keeps: Keeps::PowerOfTwo, ..WORDS.extra }, ..WORDS };

/// The row of a sysctl.
pub(super) fn row(path: &str) -> &'static Row {
    match path {
        "net/core/flow_limit_cpu_bitmap" | "net/core/rps_default_mask" => &MASK,
        "net/core/rps_sock_flow_entries" => &FLOW_ENTRIES,
        path if MACHINE_WIDE.contains(&path) => &HOST,
        path if path.starts_with("net/ipv4/") || path.starts_with("net/ipv6/") => &NAMESPACED,
        _ => &HOST,
    }
}

fn path(setting: &Setting) -> String {
    match setting {
        Setting::Sysctl(path) => format!("/proc/sys/{path}"),
        _ => String::new(),
    }
}

fn errno(setting: &Setting, _: &str, errno: i32) -> Option<&'static str> {
    match setting {
        _ if errno != libc::ENOENT => None,
        Setting::Sysctl(path) if path.starts_with("net/") => Some(
            "it does not exist here: sysctls of the whole machine exist only in the initial network namespace; \
             set it on the host",
        ),
        _ => Some("this kernel has no sysctl of that name"),
    }
}

fn lowers_security(setting: &Setting, from: Option<&Value>, to: &Value) -> Option<&'static str> {
    let Setting::Sysctl(path) = setting else { return None };
    let number = |value: Option<&Value>| match value {
        Some(Value::Words(text)) => text.parse::<i64>().ok(),
        _ => None,
    };
    let (from, to) = (number(from), number(Some(to))?);
    let lower = from.is_none_or(|from| to < from);
    let higher = from.is_none_or(|from| to > from);
    let last = path.rsplit('/').next().unwrap_or(path);
    match (path.as_str(), last) {
        (path, "rp_filter") if path.starts_with("net/ipv4/conf/") && to == 0 && from != Some(0) => {
            Some("packets with forged source addresses are accepted")
        }
        (path, "accept_local") if path.starts_with("net/ipv4/conf/") && higher => {
            Some("packets that claim to come from this machine itself are accepted")
        }
        (_, "accept_source_route" | "accept_redirects") if higher => {
            Some("senders can choose the route of packets")
        }
        (_, "route_localnet") if higher => Some("addresses of 127.0.0.0/8 become reachable from outside"),
        ("net/ipv4/tcp_syncookies", _) if lower => Some("SYN floods are no longer held off"),
        ("net/core/bpf_jit_harden" | "kernel/unprivileged_bpf_disabled" | "kernel/kptr_restrict", _)
        | ("kernel/perf_event_paranoid" | "kernel/yama/ptrace_scope" | "kernel/randomize_va_space", _)
            if lower =>
        {
            Some("a protection against local attacks is weakened")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lowers_security_is_known() {
        let words = |text: &str| Value::Words(text.into());
        let lowers = |name: &str, from: &str, to: &str| {
            name.parse::<Setting>().unwrap().lowers_security(Some(&words(from)), &words(to)).is_some()
        };
        assert!(lowers("sysctl:net.ipv4.conf.all.rp_filter", "1", "0"));
        assert!(!lowers("sysctl:net.ipv4.conf.all.rp_filter", "0", "1"));
        assert!(!lowers("sysctl:net.ipv4.conf.all.rp_filter", "0", "0"));
        assert!(lowers("sysctl:net/ipv4/conf/eth0.1/accept_local", "0", "1"));
        assert!(lowers("sysctl:kernel.kptr_restrict", "2", "1"));
        assert!(!lowers("sysctl:net.core.rmem_max", "1", "0"));
    }
}
