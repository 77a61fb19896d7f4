//! Facts of the machine that a reader needs to judge the figures.

use rustix::system::uname;
use udpath_files::kernel;
use udpath_load::template::Protocol;

use crate::result::Machine;

/// The facts of this machine; one that cannot be read is left empty.
#[must_use]
pub fn facts(queues: u32, link: String) -> Machine {
    let name = uname();
    let cpuinfo = kernel::text("/proc/cpuinfo").unwrap_or_default();
    let meminfo = kernel::text("/proc/meminfo").unwrap_or_default();
    Machine {
        hostname: name.nodename().to_string_lossy().into_owned(),
        kernel: name.release().to_string_lossy().into_owned(),
        cpu_model: value(&cpuinfo, "model name").unwrap_or_default().to_owned(),
        cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count() as u32,
        memory: memory(&meminfo),
        queues,
        link,
    }
}

/// The value of the first `key : value` line.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':')).map(str::trim)
}

/// `MemTotal`, bytes; 0 if unknown.
fn memory(meminfo: &str) -> u64 {
    value(meminfo, "MemTotal")
        .and_then(|v| v.split_ascii_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// Payload of a request on average, bytes: `size`, unless the protocol's options say how long its requests are.
pub(crate) fn mean_size(protocol: &dyn Protocol, size: usize) -> u32 {
    protocol.lengths().map_or(size, |lengths| lengths.mean) as u32
}

/// Bytes one UDP datagram of `size` payload bytes takes on an Ethernet wire: headers, FCS, preamble and gap, and the
/// padding of frames below the minimum: 100 bytes of payload over IPv4 are 166 on the wire.
#[must_use]
pub fn wire_bytes(size: u32, ipv6: bool) -> u32 {
    const ETHERNET: u32 = 14 + 4;
    const PREAMBLE_AND_GAP: u32 = 20;
    const SHORTEST_FRAME: u32 = 64;
    let headers = if ipv6 { 40 + 8 } else { 20 + 8 };
    (size + headers + ETHERNET).max(SHORTEST_FRAME) + PREAMBLE_AND_GAP
}

/// Transactions per second that 10 GbE carries of that size, each direction once.
#[must_use]
pub fn line_rate_10g(size: u32, ipv6: bool) -> f64 {
    10e9 / (f64::from(wire_bytes(size, ipv6)) * 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rates_of_10g_ethernet() {
        assert_eq!(line_rate_10g(100, false) as u64, 7_530_120);
        assert_eq!(line_rate_10g(18, false) as u64, 14_880_952);
        assert_eq!(line_rate_10g(1, false) as u64, 14_880_952);
        assert_eq!(wire_bytes(100, true), 186);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(memory("MemTotal:       24684084 kB\nMemFree: 1 kB\n"), 24_684_084 * 1024);
        assert_eq!(memory(""), 0);
    }
}
