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
            faults
                .to_string()
                .contains("but the file is loaded as the zone example.org.: correct one of them"),
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
        ("a..b A 192.0.2.1", "`a..b.x.`: the name has an empty label: two dots in a row"),
        ("x..zzz A 192.0.2.1", "`x..zzz.x.`: the name has an empty label"),
        ("a.x.. A 192.0.2.1", "`a.x..`: the name has an empty label"),
        ("$ORIGIN sub..x.", "`sub..x.`: the name has an empty label"),
        ("a RRSIG A 8 1 60 20300101000000 20200101000000 1 x.. AQID", "`x..`: the name has an empty label"),
        (
            "a HIP 2 200100107B1A74DF365639CC39F1D578 AwEAAQ== rvs..x",
            "HIP: `rvs..x.x.`: the name has an empty label",
        ),
        (&format!("{} A 192.0.2.1", "abcdefg.".repeat(32)), "the name has more than 255 bytes"),
        (&format!("{} A 192.0.2.1", "a".repeat(64)), "a label has more than 63 bytes"),
    ] {
        let error = loaded(&format!("$ORIGIN x.\n{SOA}{line}\n")).map(|_| ()).unwrap_err();
        assert!(error.contains(said), "{line}: {error}");
    }
}

/// It costs its own records, those of the lines below it that have no owner of their own included.
#[test]
fn an_owner_that_is_no_name_costs_its_records_alone() {
    let (all, faults, left_out) =
        with_faults(&[&format!("{X}a..b A 192.0.2.1\n A 192.0.2.2\nc A 192.0.2.3\n")]);
    assert_eq!(
        (&all[1..], left_out.as_deref()),
        (&["c.x. 1 1 c0000203".to_owned()][..], Some("2 records")),
        "{faults:?}"
    );
}
