//! Sysctls: files of /proc/sys, by their path below it.

mod known;

use super::row::{
    Access, Cost, Extra, Keeps, OnReset, PartKind, Phase, Row, Scope, Security, Shell, ValueKind,
};
use super::{Form, Setting, Value};

/// Sysctls below net/ipv4 that are machine-wide, not per namespace.
const MACHINE_WIDE: [&str; 3] = ["net/ipv4/udp_mem", "net/ipv4/tcp_mem", "net/ipv4/inet_peer_threshold"];

/// Why a change needs consent that no rule knows.
pub(super) const UNKNOWN: &str = "it is not among the settings that are known to be harmless";

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
    security: Security::Judged(lowers_security),
    extra: Extra { tuned: Some(("sysctl", "*")), errno, ..Extra::NONE },
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
    if known::known(path).is_none() {
        return judged(path, from, to);
    }
    let words = |value: &Value| if let Value::Words(text) = value { Some(text.clone()) } else { None };
    known::takes_away(path, from.and_then(words).as_deref(), &words(to).unwrap_or_default())
}

/// Of a sysctl that is not known to be harmless: one of these protections may be raised without consent.
fn judged(path: &str, from: Option<&Value>, to: &Value) -> Option<&'static str> {
    let number = |value: Option<&Value>| match value {
        Some(Value::Words(text)) => text.parse::<i64>().ok(),
        _ => None,
    };
    let (Some(from), Some(to)) = (number(from), number(Some(to))) else { return Some(UNKNOWN) };
    let (lower, higher) = (to < from, to > from);
    let last = path.rsplit('/').next().unwrap_or(path);
    let of_interface = path.starts_with("net/ipv4/conf/") || path.starts_with("net/ipv6/conf/");
    let (weaker, why) = match (path, last) {
        (_, "rp_filter") if of_interface => {
            // 1 asks for the way the packet came, 2 for any way: 2 is the weaker one (ip-sysctl.rst).
            let strength = |value: i64| match value {
                0 => 0,
                2 => 1,
                _ => 2,
            };
            (strength(to) < strength(from), "packets with forged source addresses are accepted")
        }
        (_, "accept_local") if of_interface => {
            (higher, "packets that claim to come from this machine itself are accepted")
        }
        (_, "accept_source_route" | "accept_redirects") if of_interface => {
            (higher, "senders can choose the route of packets")
        }
        (_, "route_localnet") if of_interface => {
            (higher, "addresses of 127.0.0.0/8 become reachable from outside")
        }
        ("net/ipv4/icmp_echo_ignore_broadcasts", _) => {
            (lower, "this machine answers requests to broadcast addresses, and so amplifies attacks")
        }
        ("net/ipv4/tcp_syncookies", _) => (lower, "SYN floods are no longer held off"),
        ("net/core/bpf_jit_harden" | "kernel/unprivileged_bpf_disabled" | "kernel/kptr_restrict", _)
        | ("kernel/perf_event_paranoid" | "kernel/yama/ptrace_scope" | "kernel/randomize_va_space", _) => {
            (lower, "a protection against local attacks is weakened")
        }
        // Either way: 0 cuts off what is routed through this machine.
        (_, "ip_forward" | "forwarding") => {
            (lower || higher, "it decides whether this machine forwards packets")
        }
        _ => (true, UNKNOWN),
    };
    weaker.then_some(why)
}

/// The text as it is written.
///
/// # Errors
/// This sysctl does not accept it; what it accepts.
pub(super) fn fitting(path: &str, text: &str) -> Result<String, String> {
    known::known(path).map_or_else(|| Ok(text.to_owned()), |accepts| accepts.fitting(text))
}

/// Why a sysctl that now has numbers cannot have this text: the kernel would refuse it half way through an apply.
pub(crate) fn mismatch(setting: &Setting, from: &Value, to: &Value) -> Option<String> {
    let (Setting::Sysctl(_), Value::Words(from), Value::Words(to)) = (setting, from, to) else { return None };
    let is_number = |word: &str| {
        let digits = word.strip_prefix('-').unwrap_or(word);
        match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).is_ok(),
            None => digits.parse::<u64>().is_ok(),
        }
    };
    let is_list = |text: &str| text.split([' ', ',', '-']).all(|word| word.is_empty() || is_number(word));
    let numbers = !from.is_empty() && from.split(' ').all(is_number);
    (numbers && !is_list(to)).then(|| format!("it is a number, now {from}"))
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
        assert!(lowers("sysctl:net.ipv4.conf.all.rp_filter", "1", "2"));
        assert!(lowers("sysctl:net.ipv4.conf.all.rp_filter", "2", "0"));
        assert!(!lowers("sysctl:net.ipv4.conf.all.rp_filter", "2", "1"));
        assert!(!lowers("sysctl:net.ipv4.conf.all.rp_filter", "0", "1"));
        assert!(lowers("sysctl:net.ipv4.ip_local_port_range", "32768 60999", "40000 40000"));
        assert!(!lowers("sysctl:net.ipv4.ip_local_port_range", "32768 60999", "1024 65535"));
        assert!(!lowers("sysctl:net.ipv4.conf.all.rp_filter", "0", "0"));
        assert!(lowers("sysctl:net/ipv4/conf/eth0.1/accept_local", "0", "1"));
        assert!(lowers("sysctl:kernel.kptr_restrict", "2", "1"));
        assert!(!lowers("sysctl:net.core.rmem_max", "1", "0"));
    }

    #[test]
    fn what_is_not_known_to_be_harmless_needs_consent() {
        let why = |name: &str, from: &str, to: &str| {
            let [from, to] = [from, to].map(|text| Value::Words(text.into()));
            name.parse::<Setting>().unwrap().lowers_security(Some(&from), &to)
        };
        for (name, from, to) in [
            ("sysctl:kernel.core_pattern", "core", "|/tmp/x"),
            ("sysctl:kernel.modprobe", "/sbin/modprobe", "/tmp/x"),
            ("sysctl:net.ipv4.ip_forward", "0", "1"),
            ("sysctl:net.ipv4.conf.all.forwarding", "0", "1"),
            ("sysctl:net.ipv4.icmp_echo_ignore_broadcasts", "1", "0"),
            ("sysctl:kernel.sysrq", "0", "1"),
            ("sysctl:fs.suid_dumpable", "0", "2"),
            ("sysctl:vm.overcommit_memory", "0", "1"),
            ("sysctl:some.new_one", "1", "2"),
            ("sysctl:net.core.rmem_max_of_another", "1", "2"),
        ] {
            assert!(why(name, from, to).is_some(), "{name}");
        }
        for (name, from, to) in [
            ("sysctl:net.ipv4.icmp_echo_ignore_broadcasts", "0", "1"),
            ("sysctl:net.ipv4.udp_mem", "1 2 3", "2 4 6"),
            ("sysctl:net.ipv4.neigh.default.gc_thresh3", "1024", "4096"),
        ] {
            assert_eq!(why(name, from, to), None, "{name}");
        }
        for (from, to, wrong) in [
            ("212992", "8M", true),
            ("-1", "0x10", false),
            ("8080", "8080,9148-9150", false),
            ("1 2 3", "4 5 6", false),
            ("core", "|/tmp/x", false),
        ] {
            let [from, to] = [from, to].map(|text| Value::Words(text.into()));
            let setting = "sysctl:kernel.x".parse().unwrap();
            assert_eq!(mismatch(&setting, &from, &to).is_some(), wrong, "{from} {to}");
        }
    }
}
