//! Configuration files that set up interfaces, rebuilt from the keys listed here: anything else in a file, under any
//! key, is left out of the capture.
//!
//! Lines keep their numbers if the snapshot shows them. A value that is neither a number nor a known word becomes
//! `redacted`: that a key is set remains visible, its value does not.

use super::words::{is_mask, is_name, is_plain};
use super::{Kind, Redactor};
use udpath_host::actors::config::{self, Format};

/// Replacement for a value that may be anything.
const REDACTED: &str = "redacted";

/// Keys of `[Match]` and of `[connection]`, `[match]`, `[ethernet]` that match devices by type or name.
const MATCH_NAMES: [&str; 12] = [
    "Name",
    "OriginalName",
    "Driver",
    "Type",
    "Kind",
    "Architecture",
    "Virtualization",
    "connection.interface-name",
    "connection.type",
    "connection.autoconnect",
    "match.interface-name",
    "match.driver",
];
/// Keys that match by link-layer address.
const MATCH_ADDRESSES: [&str; 3] = ["MACAddress", "PermanentMACAddress", "ethernet.mac-address"];

/// Keys of `.link` files that configure a device, by exact name (systemd.link(5), 257).
const LINK_KEYS: [&str; 18] = [
    "MTUBytes",
    "BitsPerSecond",
    "Duplex",
    "AutoNegotiation",
    "WakeOnLan",
    "Port",
    "MDI",
    "RxFlowControl",
    "TxFlowControl",
    "AutoNegotiationFlowControl",
    "TransmitQueues",
    "ReceiveQueues",
    "TransmitQueueLength",
    "NTupleFilter",
    "ReceivePacketSteeringCPUMask",
    "GenericSegmentOffloadMaxBytes",
    "GenericSegmentOffloadMaxSegments",
    "VirtualFunctions",
];
/// Keys by suffix or prefix: `RxChannels`, `TxBufferSize`, `RxCoalesceSec`, `UseAdaptiveRxCoalesce`.
const LINK_ENDS: [&str; 4] = ["Channels", "BufferSize", "Offload", "ChecksumOffload"];

/// Match keys of udev rules.
const RULE_MATCHES: [&str; 11] = [
    "SUBSYSTEM",
    "SUBSYSTEMS",
    "ACTION",
    "KERNEL",
    "DRIVER",
    "DRIVERS",
    "ATTR{type}",
    "ATTR{dev_id}",
    "ATTR{dev_port}",
    "ENV{ID_NET_DRIVER}",
    "ENV{DEVTYPE}",
];
/// Device attributes that rules set, by prefix; the values are numbers or masks.
const RULE_ATTRIBUTES: [&str; 8] = [
    "ATTR{queues/",
    "ATTR{mtu}",
    "ATTR{tx_queue_len}",
    "ATTR{gro_flush_timeout}",
    "ATTR{napi_defer_hard_irqs}",
    "ATTR{threaded}",
    "ATTR{device/sriov_numvfs}",
    "SYSCTL{net",
];
/// Programs of distributions that set up interfaces. Their arguments are not kept.
const PROGRAMS: [&str; 12] = [
    "ethtool",
    "ip",
    "tc",
    "sysctl",
    "systemctl",
    "ifup",
    "ifdown",
    "nmcli",
    "networkctl",
    "tuned-adm",
    "devlink",
    "udpath",
];

/// The text of a configuration file, redacted; `None` for any other path.
pub(super) fn text(redactor: &mut Redactor, path: &str, text: &str) -> Option<String> {
    Some(match config::format(path)? {
        Format::Rules => rules(redactor, path, text),
        Format::Sysctl => sysctl(redactor, path, text),
        Format::Link => {
            let file = config::link(path, text);
            let file = file.map(|file| (file.matches, file.sets)).unwrap_or_default();
            let matches = pairs(redactor, &file.0, match_value);
            let sets = pairs(redactor, &file.1, link_value);
            section("Match", &matches) + &section("Link", &sets)
        }
        Format::Network => {
            let (matches, sets) = config::network(path, text);
            let mut found = String::new();
            let kept = pairs(redactor, &matches, |redactor, key, value| {
                match_value(redactor, key.strip_prefix("Match.").unwrap_or(key), value)
            });
            let sets = pairs(redactor, &sets, network_value);
            for (key, value) in kept.into_iter().chain(sets) {
                if let Some((of, key)) = key.split_once('.') {
                    found += &section(of, &[(key.to_owned(), value)]);
                }
            }
            found
        }
    })
}

fn section(name: &str, pairs: &[(String, String)]) -> String {
    let lines: String = pairs.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
    if lines.is_empty() { lines } else { format!("[{name}]\n{lines}") }
}

/// The pairs that are kept; `value` selects how.
fn pairs(
    redactor: &mut Redactor,
    pairs: &[(String, String)],
    value: impl Fn(&mut Redactor, &str, &str) -> Option<String>,
) -> Vec<(String, String)> {
    let kept = |(key, old): &(String, String)| {
        let new = value(redactor, key, old);
        if new.as_ref() != Some(old) {
            redactor.count(Kind::Configuration);
        }
        Some((key.clone(), new?))
    };
    pairs.iter().filter_map(kept).collect()
}

fn checked(redactor: &mut Redactor, value: &str, fine: bool) -> Option<String> {
    Some(if fine { redactor.text(value) } else { REDACTED.to_owned() })
}

fn match_value(redactor: &mut Redactor, key: &str, value: &str) -> Option<String> {
    if MATCH_ADDRESSES.contains(&key) {
        let shape = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '-' | '.' | ' ');
        return checked(redactor, value, value.chars().all(shape));
    }
    MATCH_NAMES.contains(&key).then(|| checked(redactor, value, is_name(value)))?
}

fn link_value(redactor: &mut Redactor, key: &str, value: &str) -> Option<String> {
    let ends = LINK_ENDS.iter().any(|end| key.ends_with(end));
    let fine = LINK_KEYS.contains(&key) || ends || key.contains("Coalesce");
    let value_fine = is_plain(value) || key == "ReceivePacketSteeringCPUMask" && is_mask(value);
    fine.then(|| checked(redactor, value, value_fine))?
}

fn network_value(redactor: &mut Redactor, key: &str, value: &str) -> Option<String> {
    let (section, name) = key.split_once('.')?;
    // The keys below [ethtool], [link], [tc] and of qdiscs are open lists: accept words of these characters.
    let shape = |c: char| c.is_ascii_alphabetic() || matches!(c, '-' | '_' | '.');
    let open = !matches!(section, "tc") || name.starts_with("qdisc.");
    let known = name.len() <= 40 && name.chars().all(shape) && open;
    known.then(|| checked(redactor, value, is_plain(value)))?
}

/// Each rule that acts on interfaces as a single line, at its line number, without jumps.
fn rules(redactor: &mut Redactor, path: &str, text: &str) -> String {
    let mut lines = Vec::new();
    for rule in config::rules(path, text) {
        let mut tokens = vec!["SUBSYSTEM==\"net\"".to_owned()];
        for token in rule.matches.iter().chain(&rule.acts) {
            match rule_token(redactor, token) {
                Some(kept) if tokens.contains(&kept) => {}
                Some(kept) => {
                    if kept != *token {
                        redactor.count(Kind::Configuration);
                    }
                    tokens.push(kept);
                }
                None => redactor.count(Kind::Configuration),
            }
        }
        lines.resize(rule.line.max(lines.len() + 1) - 1, String::new());
        lines.push(tokens.join(", "));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn rule_token(redactor: &mut Redactor, token: &str) -> Option<String> {
    let (key, operator, value) = config::token(token)?;
    if matches!(operator, "==" | "!=") {
        if matches!(key, "ATTR{address}" | "ATTRS{address}") {
            let shape = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '*' | '?' | '|');
            let value = checked(redactor, value, value.chars().all(shape))?;
            return Some(format!("{key}{operator}\"{value}\""));
        }
        let known = RULE_MATCHES.contains(&key);
        let value = known.then(|| checked(redactor, value, is_name(value)))??;
        return Some(format!("{key}{operator}\"{value}\""));
    }
    if key == "RUN" || key.starts_with("RUN{") {
        let program = value.split_ascii_whitespace().next().unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default();
        let name = if PROGRAMS.contains(&name) { name } else { "program" };
        return Some(format!("RUN{operator}\"{name}\""));
    }
    if key == "ENV{SYSTEMD_WANTS}" {
        return Some(format!("{key}{operator}\"unit\""));
    }
    // Below queues and net all names are the kernel's.
    let shape = |c: char| c.is_ascii_alphanumeric() || matches!(c, '{' | '}' | '/' | '.' | '-' | '_' | '*');
    let known = RULE_ATTRIBUTES.iter().any(|start| key.starts_with(start))
        && key.len() <= 60
        && key.chars().all(shape);
    let fine = is_plain(value) || key.starts_with("ATTR{queues/") && is_mask(value);
    let key = redactor.names_of_interfaces(key);
    known.then(|| checked(redactor, value, fine).map(|value| format!("{key}{operator}\"{value}\"")))?
}

/// Lines of sysctl.d files, at their line numbers.
fn sysctl(redactor: &mut Redactor, path: &str, text: &str) -> String {
    let mut lines = Vec::new();
    for line in config::sysctl(path, text) {
        let secret = ["key", "secret"].iter().any(|word| line.name.contains(word));
        let mask =
            ["mask", "bitmap", "cpus"].iter().any(|word| line.name.contains(word)) && is_mask(&line.value);
        let shape = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '@' | '*');
        let name =
            if line.name.chars().all(shape) { redactor.text(&line.name) } else { "net.redacted".to_owned() };
        let value = match !secret && (is_plain(&line.value) || mask) {
            true => line.value,
            false => {
                redactor.count(Kind::Configuration);
                REDACTED.to_owned()
            }
        };
        lines.resize(line.line.max(lines.len() + 1) - 1, String::new());
        lines.push(format!("{name}={value}"));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}
