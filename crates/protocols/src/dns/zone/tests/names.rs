//! Names that are not what a file seems to say: none is served.

use super::*;

/// BIND and NSD refuse such a file, whose names would all be others.
#[test]
fn a_file_given_as_a_zone_has_the_soa_of_that_zone() {
    for text in [
        "example.org 60 IN SOA ns host 1 60 60 60 60\nwww 60 A 192.0.2.1\n",
        "$ORIGIN example.net.\n@ 60 SOA ns host 1 60 60 60 60\nwww 60 A 192.0.2.1\n",
        "sub 60 SOA ns host 1 60 60 60 60\nwww.sub 60 A 192.0.2.1\n",
    ] {
        let file = file(text);
        let (records, faults) = load(&[format!("example.org={}", file.path().display()).into()]).unwrap();
        let [zone] = &records.zones[..] else { panic!("{text}: {faults}") };
        assert!(zone.left_out && zone.apex == key_of(b"\x07example\x03org\0"), "{text}: {faults}");
        assert!(
            faults.to_string().contains("but the file was given as the zone example.org.: the names differ"),
            "{text}: {faults}"
        );
    }
    // In any case of its letters.
    let file = file("eXample.ORG. 60 SOA ns host 1 60 60 60 60\n");
    whole(&[format!("example.org={}", file.path().display()).into()]).unwrap();
}

/// `domain` would end a name at an empty label.
#[test]
fn an_empty_label_is_a_fault_wherever_a_name_is() {
    for (line, said) in [
        ("a..b A 192.0.2.1", "the name a..b has two dots in a row"),
        ("x..zzz A 192.0.2.1", "the name x..zzz has two dots in a row"),
        ("a.x.. A 192.0.2.1", "the name a.x.. has two dots in a row"),
        ("$ORIGIN sub..x.", "the name sub..x. has two dots in a row"),
        ("a RRSIG A 8 1 60 20300101000000 20200101000000 1 x.. AQID", "the name x.. has two dots in a row"),
        (
            "a HIP 2 200100107B1A74DF365639CC39F1D578 AwEAAQ== rvs..x",
            "HIP: the name rvs..x has two dots in a row",
        ),
        (&format!("{} A 192.0.2.1", "a".repeat(64)), "has a label of 64 bytes: at most 63"),
    ] {
        let error = loaded(&format!("$ORIGIN x.\n{SOA}{line}\n")).map(|_| ()).unwrap_err();
        assert!(error.contains(said), "{line}: {error}");
    }
}
