//! The same zones signed by BIND's `dnssec-signzone`: with NSEC records, with NSEC3 records, and with those that leave
//! out delegations that are not signed (opt-out). Signatures differ from run to run, as those of ECDSA do; all three
//! servers have the same file.

use std::path::Path;
use std::process::Command;

use super::*;

/// How names are chained.
pub(super) const CHAINS: [(&str, &[&str]); 3] =
    [("nsec", &[]), ("nsec3", &["-3", "aabb", "-H", "5"]), ("opt-out", &["-3", "-", "-H", "0", "-A"])];
/// What is asked for besides.
const MORE_TYPES: [(&str, u16); 4] = [("RRSIG", 46), ("NSEC", 47), ("DNSKEY", 48), ("NSEC3PARAM", 51)];
/// Of all names every so many for each chain.
const EVERY: usize = 2;
/// Names that are hashes, which are not names of the zone.
const HASHES: usize = 40;

#[test]
fn signed_answers_are_those_of_nsd_or_knot() {
    udpath_lab::needs_root!();
    let first = std::env::var("UDPATH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(33);
    let types = [&TYPES[..], &MORE_TYPES].concat();
    let mut lines = Vec::new();
    for seed in (first..).take(rounds(1, 5) as usize) {
        let zones = Generator::zones(seed, NESTED);
        for (at, (chain, options)) in CHAINS.into_iter().enumerate() {
            let signed = sign(&zones, options);
            let mut names: Vec<String> = names().into_iter().skip(at % EVERY).step_by(EVERY).collect();
            names.extend(hashes(&signed[0].1).take(HASHES));
            let lab = format!("dns-{chain}");
            let Compared { count, split, wrong, alone, .. } = compare(&lab, &signed, &names, &types, true);
            assert!(
                wrong.is_empty(),
                "seed {seed}, {chain}, {} of {count}:\n{}",
                wrong.len(),
                wrong[..wrong.len().min(3)].join("\n")
            );
            assert!(count > 40_000 && alone < count / 25, "{count}, {alone}");
            lines.push(format!(
                "{chain}: {count}, NSD and Knot differ: {split}, udpath alone proves: {alone}"
            ));
        }
    }
    record("questions to udpath, NSD and Knot with the same signed zones", &lines.join("; "));
}

/// The zones with keys, chains and signatures.
pub(super) fn sign(zones: &[(String, String)], options: &[&str]) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let sign = |(apex, text): &(String, String)| {
        std::fs::write(folder.path().join(apex), text).unwrap();
        run(folder.path(), "dnssec-keygen", &["-q", "-a", "ECDSAP256SHA256", "-f", "KSK", apex]);
        // One key signs all. What is signed is not verified here, and holds for years.
        let times = ["-s", "20200101000000", "-e", "20370101000000"];
        let fixed = ["-q", "-P", "-S", "-z", "-x", "-O", "full", "-o", apex, "-f", "signed", apex];
        run(folder.path(), "dnssec-signzone", &[&times[..], options, &fixed].concat());
        (apex.clone(), std::fs::read_to_string(folder.path().join("signed")).unwrap())
    };
    zones.iter().map(sign).collect()
}

fn run(folder: &Path, program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|why| panic!("{program}: {why}; scripts/setup.sh installs it"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Owners of NSEC3 records.
fn hashes(zone: &str) -> impl Iterator<Item = String> {
    let lines = zone.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| words.get(3) == Some(&"NSEC3")).map(|words| words[0].to_lowercase())
}
