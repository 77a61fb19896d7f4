//! BIND's validator `delv` trusts the answers of `serve dns` for a signed zone, given the zone's key.

use super::signed::{CHAINS, sign};
use super::*;

/// Of all names every so many, for each type that is asked for.
const EVERY: usize = 97;
const ASKED: [&str; 3] = ["A", "TXT", "DS"];
/// What `delv` says of an answer that it does not trust.
const DISTRUST: [&str; 5] =
    ["no valid", "broken trust chain", "insecurity proof failed", "verify failed", "bogus"];

#[test]
fn a_validator_trusts_the_answers() {
    udpath_lab::needs_root!();
    let lab = LabBuilder::new("dns-delv").machine("client").machine("udpath");
    let lab = lab.link("client", "udpath", &LinkSpec::with_queues(1)).up().unwrap();
    let address = lab.address_of("udpath", "client").unwrap().ipv4.to_string();
    let zones = Generator::zones(7, 0);
    for (chain, options) in CHAINS {
        let signed = &sign(&zones, options)[0].1;
        let zone = file(signed);
        let keys = signed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let key = keys.clone().find(|words| words.get(3) == Some(&"DNSKEY")).unwrap();
        let numbers = key[4..7].join(" ");
        let anchor = file(&format!(
            "trust-anchors {{ \"{}\" static-key {numbers} \"{}\"; }};\n",
            zones[0].0,
            key[7..].concat()
        ));
        let (zone, anchor) = (zone.path().display().to_string(), anchor.path().display().to_string());
        let (bind, root) = (format!("{address}:53"), format!("+root={}", zones[0].0));
        let at = format!("@{address}");
        let mut server =
            udpath(&lab, "udpath", &["serve", "dns", "--strict", "--tcp", "--zone", &zone, "--bind", &bind]);
        server.says("ready io=");
        let [mut trusted, mut unsigned] = [0; 2];
        for (nth, name) in names().iter().step_by(EVERY).enumerate() {
            let rtype = ASKED[nth % ASKED.len()];
            let mut command = lab.machine("client").unwrap().command("delv");
            command.args([&at, "-a", &anchor, &root, name, rtype]);
            let output = command.output().unwrap_or_else(|why| panic!("delv: {why}"));
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            let distrusted = DISTRUST.iter().any(|words| said.contains(words));
            assert!(!distrusted, "{chain}: {name} {rtype}: {said}");
            // A referral, and what an alias leads to elsewhere, are others' to answer.
            trusted += u32::from(said.contains("fully validated"));
            unsigned += u32::from(said.contains("unsigned answer") || said.contains("response, unsigned"));
        }
        assert!(trusted > 30 && (unsigned == 0 || chain == "opt-out"), "{chain}: {trusted}, {unsigned}");
        record(&format!("answers that delv trusts, {chain}"), &format!("{trusted}, unsigned {unsigned}"));
        server.signal(Signal::TERM);
        let _ = server.finish();
    }
    lab.down().unwrap();
}
