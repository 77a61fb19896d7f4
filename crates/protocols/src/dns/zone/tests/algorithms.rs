//! Mnemonics of DNSSEC algorithms: what BIND or NSD reads is read, and is the number of IANA's registry.

use std::process::Command;

use super::super::fields::ALGORITHMS;
use super::*;

/// What is no mnemonic here, and must not be one of BIND or NSD either: numbers 0, 17 and 23 of the registry, and what
/// looks like one.
const OTHERS: [(&str, u8); 5] =
    [("DELETE", 0), ("SM2SM3", 17), ("ECC-GOST12", 23), ("RSASHA255", 0), ("GOST", 0)];

/// Records with an algorithm, as `ALG`.
const RECORDS: [&str; 6] = [
    "DNSKEY 256 3 ALG AwEAAQ==",
    "CDNSKEY 256 3 ALG AwEAAQ==",
    "KEY 256 3 ALG AwEAAQ==",
    "DS 1 ALG 2 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "CDS 1 ALG 2 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "CERT PKIX 1 ALG AwEAAQ==",
];

fn zone(record: &str) -> String {
    format!("$ORIGIN x.\n{SOA}d 60 NS ns\nd 60 {record}\n")
}

/// The data of all records, in hexadecimal digits.
fn data(zone: &str) -> Result<Vec<String>, String> {
    let records = loaded(zone)?;
    let hex = |record| records.data(record).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(records.list.iter().map(hex).collect())
}

fn is_read_by_nsd(zone: &str) -> bool {
    let zone = file(zone);
    let checked = Command::new("nsd-checkzone").arg("x").arg(zone.path()).output();
    checked.expect("scripts/setup.sh test installs nsd").status.success()
}

#[test]
fn every_mnemonic_that_bind_or_nsd_reads_is_the_number_of_the_registry() {
    if !bind_is_here() {
        return;
    }
    let (mut of_bind, mut of_nsd) = (0, 0);
    for (mnemonic, number) in ALGORITHMS.iter().chain(&OTHERS) {
        for record in RECORDS {
            let [named, plain] =
                [(*mnemonic).to_owned(), number.to_string()].map(|alg| record.replace("ALG", &alg));
            let ours = data(&zone(&named));
            if let Some(theirs) = data_of_bind(&named) {
                of_bind += 1;
                let read = ours.as_ref().unwrap_or_else(|error| panic!("BIND reads {named}: {error}"));
                assert!(read.contains(&theirs), "{named}: {theirs} {read:?}");
            }
            if is_read_by_nsd(&zone(&named)) {
                of_nsd += 1;
                assert!(ours.is_ok(), "NSD reads {named}: {ours:?}");
            }
            match &ours {
                Ok(_) => assert_eq!(ours, data(&zone(&plain)), "{named}"),
                Err(error) => assert!(error.starts_with("FILE:6: "), "{named}: {error}"),
            }
        }
    }
    // A BIND and an NSD that read none would agree with everything.
    assert!(of_bind >= 90 && of_nsd >= 90, "{of_bind} {of_nsd}");
}
