//! Data cut short, in the generic form and as text: none is served.

use super::*;

/// The lines that are refused, of lines with an owner each.
fn refused(lines: &[&str]) -> Vec<String> {
    let text: String = lines.iter().enumerate().map(|(at, line)| format!("n{at} 60 IN {line}\n")).collect();
    let (_, faults, _) = with_faults(&[&format!("$ORIGIN x.\n{SOA}{text}")]);
    let lines = lines.iter().enumerate().filter(|(at, _)| {
        let begin = format!("FILE0:{}: ", at + 5);
        faults.iter().any(|fault| fault.starts_with(&begin))
    });
    lines.map(|(_, line)| (*line).to_owned()).collect()
}

/// All are; not more than the status has room for.
fn all_are_refused(lines: &[&str]) {
    for some in lines.chunks(10) {
        assert_eq!(refused(some), some);
    }
}

#[test]
fn a_compression_pointer_is_refused_in_every_type_with_names() {
    all_are_refused(&[
        "TYPE23 \\# 2 c00c",
        "TYPE30 \\# 2 c00c",
        "TYPE30 \\# 3 c00c02",
        "TYPE24 \\# 21 000108020000003c70dbd8805e0be1000001c00cff",
        "TYPE26 \\# 4 0001c00c",
        "TYPE26 \\# 7 0001016100c00c",
        "TYPE36 \\# 4 0001c00c",
        "TYPE21 \\# 4 0001c00c",
        "TYPE18 \\# 4 0001c00c",
        "TYPE17 \\# 3 00c00c",
        "TYPE33 \\# 8 000000000000c00c",
        "TYPE35 \\# 9 00000000000000c00c",
        "TYPE38 \\# 3 80c00c",
        "TYPE39 \\# 2 c00c",
        "TYPE45 \\# 5 010302c00c",
        "TYPE47 \\# 5 c00c000140",
        "TYPE55 \\# 8 010200010101c00c",
        "TYPE58 \\# 3 00c00c",
        "TYPE64 \\# 4 0001c00c",
        "TYPE65 \\# 4 0001c00c",
        "TYPE66 \\# 7 000001003500c00c",
        "TYPE107 \\# 4 0001c00c",
        "TYPE260 \\# 4 0103c00c",
    ]);
}

#[test]
fn generic_data_that_their_type_does_not_allow_are_refused() {
    all_are_refused(&[
        "TYPE42 \\# 1 00",
        "TYPE11 \\# 1 c0",
        "TYPE24 \\# 1 00",
        "TYPE62 \\# 7 00000042000300",
        "TYPE55 \\# 1 10",
        "TYPE38 \\# 3 002001",
        "TYPE260 \\# 1 0a",
        "TYPE61 \\# 0",
        "TYPE29 \\# 16 00000000ffffffff8000000080000000",
        "TYPE29 \\# 16 000a000080000000 8000000080000000",
        "TYPE257 \\# 4 00096973",
        "TYPE257 \\# 3 000061",
        "TYPE257 \\# 4 00022d61",
        "TYPE44 \\# 4 04020001",
        "TYPE63 \\# 8 0000000101010001",
        "TYPE20 \\# 6 016101610161",
        "TYPE25 \\# 4 01000308",
        "TYPE65 \\# 8 0001000000000001",
    ]);
}

#[test]
fn text_that_is_cut_short_is_refused() {
    all_are_refused(&[
        "TLSA 3 1 1",
        "SSHFP 4 2",
        "SSHFP 4 2 00ff",
        "DNSKEY 256 3 8",
        "CDNSKEY 256 3 8",
        "SMIMEA 3 1 1",
        "DS 1 8 9",
        "ISDN a b c",
        "X25 12",
        "OPENPGPKEY",
        "ZONEMD 1 1 1 00ff",
        "KEY 256 3 8",
        "HIP 2 2001",
        "NSEC3PARAM 1 0 1",
        "CAA 0 issue",
        "NAPTR 1 2 u s",
    ]);
}

#[test]
fn an_empty_text_is_no_number_name_or_data() {
    all_are_refused(&[
        "MX \"\" y",
        "MX 1 \"\"",
        "SRV \"\" \"\" \"\" z",
        "SRV 1 2 \"\" z",
        "IPSECKEY \"\" 0 2 . AQID",
        "IPSECKEY 1 0 2 . \"\"",
        "NAPTR \"\" 2 u s \"\" a",
        "NAPTR 1 2 u s \"\" \"\"",
        "ZONEMD \"\" 1 241 0102030405060708090a0b0c",
        "CAA \"\" issue x",
        "CAA 0 \"\" x",
        "DNSKEY \"\" 3 8 AQID",
        "DNSKEY 256 3 8 \"\"",
        "OPENPGPKEY \"\"",
        "TLSA 3 1 1 \"\"",
        "DS \"\" 8 9 00ff",
        "AFSDB \"\" a",
        "LOC \"\" N 1 E 0",
        "A \"\"",
        "SSHFP \"\" 9 00ff",
    ]);
    // Where a text may be empty it is.
    assert_eq!(
        refused(&[
            "TXT \"\"",
            "HINFO \"\" \"\"",
            "NAPTR 1 2 \"\" \"\" \"\" a",
            "CAA 0 issue \"\"",
            "SPF \"\""
        ]),
        Vec::<String>::new()
    );
}

#[test]
fn a_type_is_called_as_in_the_file() {
    let (_, faults, _) = with_faults(&[&format!("{X}a 1 NSAP-PTR\nb 1 NSAP-PTR \\# 2 c00c\nc 1 A6 0 ::1\n")]);
    assert!(faults[0].starts_with("FILE0:3: NSAP-PTR: expected a name"), "{faults:?}");
    assert_eq!(faults[1], "FILE0:4: 2 bytes that are no data of type NSAP-PTR");
    assert!(faults[2].contains("type A6 is read in the generic form only: write `TYPE38 "), "{faults:?}");
}
