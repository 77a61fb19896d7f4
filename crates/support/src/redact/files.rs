//! The files of a capture, by content: see [`crate::KEPT`] for the parts that are kept.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Redactor, config};
use udpath_host::{kernel, netfilter};

/// Keys of `/proc/cpuinfo` that are used.
const PROCESSOR: [&str; 6] = ["processor", "model name", "Model Name", "machine", "cpu", "cpu MHz"];
/// Longest name of a processor model; the longest known have some 50 characters.
const MODEL: usize = 64;

/// A file's text, redacted.
pub(super) fn text(redactor: &mut Redactor, path: &str, text: &str) -> String {
    if let Some(text) = config::text(redactor, path, text) {
        return text;
    }
    let of_process = path.strip_prefix("/proc/").and_then(|path| path.split_once('/'));
    match (path, of_process) {
        ("/proc/net/udp" | "/proc/net/udp6", _) => sockets(redactor, text),
        ("/proc/cpuinfo", _) => cpuinfo(text),
        ("/proc/cmdline", _) => redactor.text(text),
        ("/proc/modules", _) => {
            netfilter::modules(text).into_iter().map(|name| format!("{name} 0 0 - Live 0x0\n")).collect()
        }
        ("/proc/stat", _) => {
            lines(text, |line| ["cpu", "btime "].iter().any(|start| line.starts_with(start)))
        }
        ("/proc/self/mountinfo", _) => redactor.mounts(text),
        ("/sys/class/dmi/id/sys_vendor" | "/sys/class/dmi/id/product_name", _) => {
            format!("{}\n", kernel::known_platform(text).unwrap_or("other"))
        }
        (_, Some((_, "cgroup"))) => redactor.groups(text),
        (_, Some((pid, "cmdline"))) => redactor.command(pid, text),
        (_, Some((pid, "comm"))) => format!("{}\n", redactor.process_name(pid, text.trim_end())),
        (_, Some((pid, file))) if file.starts_with("task/") && file.ends_with("/stat") => {
            redactor.thread(pid, text)
        }
        (_, Some((_, file))) if file == "status" || file.ends_with("/status") => {
            lines(text, |line| line.starts_with("Uid:") || line.contains("_allowed_list:"))
        }
        // The kernel's numbers and keywords; the only names in them are those of interfaces.
        _ => redactor.names_of_interfaces(text),
    }
}

fn lines(text: &str, wanted: impl Fn(&str) -> bool) -> String {
    text.split_inclusive('\n').filter(|line| wanted(line)).collect()
}

/// Some machines also report a serial number here.
fn cpuinfo(text: &str) -> String {
    let line = |line: &str| {
        let Some((key, value)) = line.split_once(':') else {
            return if line.is_empty() { "\n".to_owned() } else { String::new() };
        };
        let key = key.trim_end();
        if key == "flags" {
            let hypervisor = value.split_ascii_whitespace().any(|flag| flag == "hypervisor");
            return format!("{key}\t:{}\n", if hypervisor { " hypervisor" } else { "" });
        }
        let value: String = value.trim().chars().take(MODEL).collect();
        if PROCESSOR.contains(&key) { format!("{key}\t: {value}\n") } else { String::new() }
    };
    text.lines().map(line).collect()
}

/// `/proc/net/udp`, `/proc/net/udp6`: addresses are columns of hexadecimal words in native byte order.
fn sockets(redactor: &mut Redactor, text: &str) -> String {
    let mut line = |line: &str| {
        let mut columns: Vec<String> = line.split_inclusive(' ').map(str::to_owned).collect();
        let words = columns.iter_mut().filter(|column| !column.trim().is_empty());
        // After the slot: local and remote address.
        for column in words.skip(1).take(2) {
            let Some((words, port)) = column.split_once(':') else { continue };
            if let Some(other) = hexadecimal(redactor, words) {
                *column = format!("{other}:{port}");
            }
        }
        columns.concat()
    };
    text.split_inclusive('\n')
        .enumerate()
        .map(|(at, one)| if at == 0 { one.to_owned() } else { line(one) })
        .collect()
}

fn hexadecimal(redactor: &mut Redactor, words: &str) -> Option<String> {
    let word = |at: usize| Some(u32::from_str_radix(words.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let text = |bytes: &[u8]| -> String {
        let words = bytes.as_chunks::<4>().0.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word)));
        words.collect()
    };
    match words.len() {
        8 => match redactor.address(Ipv4Addr::from(word(0)?).into()) {
            IpAddr::V4(other) => Some(text(&other.octets())),
            IpAddr::V6(_) => None,
        },
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(8 * at)?);
            }
            match redactor.address(Ipv6Addr::from(bytes).into()) {
                IpAddr::V6(other) => Some(text(&other.octets())),
                IpAddr::V4(_) => None,
            }
        }
        _ => None,
    }
}
