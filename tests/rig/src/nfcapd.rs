//! nfcapd, a collector of NetFlow that answers nothing: what it is sent, and what it has written.

use std::path::Path;
use std::process::Command;

/// Unpacked by scripts/setup.sh.
const FOLDER: &str = "/var/cache/udpath/nfdump/usr/bin";
/// The header of NetFlow version 5, and one record.
const LEN: usize = 24 + 48;

/// The records of a collector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flows {
    /// How many.
    pub flows: u64,
    /// The sum of their bytes.
    pub bytes: u64,
}

/// The program.
///
/// # Panics
/// It is not there.
#[must_use]
pub fn nfcapd() -> String {
    let path = format!("{FOLDER}/nfcapd");
    assert!(Path::new(&path).exists(), "no {path}: scripts/setup.sh test unpacks it");
    path
}

/// A datagram of version 5 with one record, of `bytes` bytes in one packet. With other bytes in each, their sum shows a
/// record that is missing or there twice.
#[must_use]
pub fn netflow(bytes: u32) -> [u8; LEN] {
    let mut datagram = [0; LEN];
    let mut put = |at: usize, value: &[u8]| datagram[at..at + value.len()].copy_from_slice(value);
    // Version and count; up for 1 s at the start of 2026, from a router that does not count its flows.
    put(0, &[0, 5, 0, 1]);
    put(4, &1000_u32.to_be_bytes());
    put(8, &1_767_225_600_u32.to_be_bytes());
    // From 10.0.0.1 to 10.0.0.2; one packet; from 0.5 s to 0.9 s of uptime; ports 1234 and 80 of UDP.
    put(24, &[10, 0, 0, 1, 10, 0, 0, 2]);
    put(40, &1_u32.to_be_bytes());
    put(44, &bytes.to_be_bytes());
    put(48, &500_u32.to_be_bytes());
    put(52, &900_u32.to_be_bytes());
    put(56, &[0x04, 0xd2, 0, 80]);
    put(62, &[17]);
    datagram
}

/// What is in the files of a folder, by `nfdump -I`. Only after nfcapd has ended, which writes the last one.
///
/// # Panics
/// nfdump cannot read them.
#[must_use]
pub fn collected(folder: &Path) -> Flows {
    let files = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let mut sum = Flows::default();
    for file in files.filter(|path| path.is_file()) {
        let output =
            Command::new(format!("{FOLDER}/nfdump")).arg("-I").arg("-r").arg(&file).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let said = || format!("{}: {text}{}", file.display(), String::from_utf8_lossy(&output.stderr));
        let field = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("{}", said()))
        };
        sum.flows += field("Flows");
        sum.bytes += field("Bytes");
    }
    sum
}
