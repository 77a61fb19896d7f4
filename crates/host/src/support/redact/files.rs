//! The files of a capture, by what is in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Kind, Redactor};

/// The kernel's own numbers and words; of the machine's they hold names of interfaces at most.
const KERNELS: [&str; 10] = [
    "/proc/interrupts",
    "/proc/irq/",
    "/proc/modules",
    "/proc/net/",
    "/proc/softirqs",
    "/proc/stat",
    "/proc/sys/net/",
    "/proc/sys/kernel/osrelease",
    "/proc/cpuinfo",
    "/sys/",
];
/// Files of a network device that hold addresses or what its owner wrote.
const OF_DEVICES: [&str; 6] =
    ["address", "broadcast", "ifalias", "phys_port_id", "phys_switch_id", "bonding_slave/perm_hwaddr"];

/// A file's text, redacted.
pub(super) fn text(redactor: &mut Redactor, path: &str, text: &str) -> String {
    if matches!(path, "/proc/net/udp" | "/proc/net/udp6") {
        return sockets(redactor, text);
    }
    if path == "/proc/cpuinfo" {
        return cpuinfo(redactor, text);
    }
    if path.starts_with("/proc/") && path.ends_with("/cmdline") && path != "/proc/cmdline" {
        return command(redactor, text);
    }
    let device = path.starts_with("/sys/class/net/") && OF_DEVICES.iter().any(|file| path.ends_with(file));
    if KERNELS.iter().any(|start| path.starts_with(start)) && !device {
        return redactor.names_of_interfaces(text);
    }
    redactor.text(text)
}

/// Processors of some machines have a serial number.
fn cpuinfo(redactor: &mut Redactor, text: &str) -> String {
    let line = |line: &str| match line.split_once(':') {
        Some((key, serial)) if key.trim().eq_ignore_ascii_case("serial") => {
            redactor.note(Kind::Identifier, serial.trim(), "serial");
            format!("{key}: serial\n")
        }
        _ => line.to_owned(),
    };
    text.split_inclusive('\n').map(line).collect()
}

/// `/proc/PID/cmdline`: the program's name stays. Programs that write what they do over their arguments have all of it in
/// the first. Of an interpreter the script stays where it is a known daemon's, which is known by nothing else.
fn command(redactor: &mut Redactor, text: &str) -> String {
    let arguments: Vec<&str> = text.split('\0').collect();
    let first = arguments.first().copied().unwrap_or_default();
    let program = first.split_ascii_whitespace().next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    let mut kept = redactor.text(name);
    let script = arguments.iter().skip(1).find(|argument| !argument.starts_with('-'));
    if let Some(script) = script.filter(|script| crate::read::actors::is_script(script)) {
        kept = format!("{kept}\0{}", redactor.text(script));
    }
    if !text.is_empty() {
        kept.push('\0');
    }
    if kept != text {
        redactor.note(Kind::CommandLine, text, &kept);
    }
    kept
}

/// `/proc/net/udp`, `/proc/net/udp6`: addresses are columns of hexadecimal words in the processor's order.
fn sockets(redactor: &mut Redactor, text: &str) -> String {
    let mut line = |line: &str| {
        let mut columns: Vec<String> = line.split_inclusive(' ').map(str::to_owned).collect();
        let words = columns.iter_mut().filter(|column| !column.trim().is_empty());
        // Behind the slot: where it is bound, and its peer.
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
