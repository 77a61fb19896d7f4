//! Directives: what they change, for how long, and what they make.

use super::*;

#[test]
fn a_default_ttl_of_an_included_file_holds_after_it() {
    let zone = "$TTL 300\n@ SOA ns host 1 60 60 60 60\n@ NS ns\nns A 192.0.2.53\n$INCLUDE a\nz A 192.0.2.1\n$INCLUDE b sub\ny A 192.0.2.2\n";
    let a = "i A 192.0.2.3\n$TTL 77\nj A 192.0.2.4\n$INCLUDE b\nk A 192.0.2.5\n";
    as_bind_reads(
        "example.org",
        &[("zone", zone), ("a", a), ("b", "l A 192.0.2.6\n$TTL 88\nm A 192.0.2.7\n")],
    );
}

/// BIND has 77 for `z`, and NSD 3600.
#[test]
fn the_ttls_of_an_included_files_records_end_with_it() {
    let inner = file("i 77 A 192.0.2.2\n");
    let text = format!("{X}$INCLUDE {}\nz A 192.0.2.1\n", inner.path().display());
    let (records, faults, _) = with_faults(&[&text]);
    assert_eq!(
        (&records[1..], faults.len()),
        (&["i.x. 77 1 c0000202", "z.x. 1 1 c0000201"].map(String::from)[..], 0)
    );
}

#[test]
fn generated_records_are_those_of_bind() {
    for text in [
        // The owner of the line that follows is that of the line before.
        "b A 192.0.2.53\n$GENERATE 1-2 h$ A 192.0.2.$\n A 192.0.2.77\n",
        // A TTL holds for what follows, as that of other records.
        "$GENERATE 1-2 h$ 77 A 192.0.2.$\nz A 192.0.2.1\n",
        // No directive.
        "$GENERATE 1-2 \\$x A 192.0.2.$\n$GENERATE 1-2 \\$TTL A 192.0.2.$\n$GENERATE 1-2 a\\$ TXT \\$-$\n",
        // Negative numbers.
        "$GENERATE 1-6 h${-4} A 192.0.2.$\n",
        "$GENERATE 1-6 a${-4,3,x} A 192.0.2.$\n$GENERATE 1-6 b${-4,3,o} A 192.0.2.$\n$GENERATE 1-6 c${-4,3,d} A 192.0.2.$\n",
        "$GENERATE 1-6 d${-4,0,X} A 192.0.2.$\n$GENERATE 0-20/5 ${-10,5,n} TXT ${0,5,N}\n",
    ] {
        as_bind_reads("example.org", &[("zone", &format!("{SOA}{text}"))]);
    }
}

#[test]
fn all_records_that_a_template_does_not_make_are_counted() {
    for (template, records, count) in [
        ("1-6 h$ A 192.0.2.300", 0, "6 records"),
        ("250-260 h$ A 192.0.2.$", 6, "5 records"),
        ("250-260 h$ L32 10 192.0.2.$", 6, "5 records"),
        ("1-6 h$ FROB x", 0, "6 records"),
        ("1-7/3 h$ MX \"\" a", 0, "3 records"),
        ("1-x h$ A 192.0.2.1", 0, "1 zone"),
    ] {
        let (all, faults, left_out) = with_faults(&[&format!("{X}$GENERATE {template}\n")]);
        assert_eq!(left_out.as_deref(), Some(count), "{template}: {faults:?}");
        assert_eq!(all.len() - 1, records, "{template}: {all:?}");
    }
}

#[test]
fn nothing_may_be_included_and_so_may_fifty_files_inside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let write = |at: usize, text: &str| std::fs::write(folder.path().join(at.to_string()), text).unwrap();
    write(0, &format!("$ORIGIN x.\n{SOA}$INCLUDE /dev/null\n$INCLUDE 1\n"));
    for at in 1..50 {
        write(at, &format!("h{at} A 192.0.2.1\n$INCLUDE {}\n", at + 1));
    }
    write(50, "last A 192.0.2.1\n");
    let zone = folder.path().join("0");
    assert_eq!(whole(std::slice::from_ref(&zone)).unwrap().list.len(), 53);
    write(50, "$INCLUDE 51\n");
    write(51, "last A 192.0.2.1\n");
    let error = whole(std::slice::from_ref(&zone)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("51: more than 50 files inside each other"), "{error}");
    // Around a corner.
    write(3, "$INCLUDE ./4\n");
    write(4, "$INCLUDE ./3\n");
    let error = whole(&[zone]).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("4:1: $INCLUDE of ") && error.contains("would include itself"), "{error}");
}

#[test]
fn a_zone_may_have_a_slash_in_its_name_and_keeps_its_letters() {
    let file = file("@ 60 SOA ns host 1 60 60 60 60\n1 60 PTR a\n");
    let path = file.path().display();
    for (name, wire) in [
        ("128/25.2.0.192.in-addr.arpa", &b"\x06128/25\x012\x010\x03192\x07in-addr\x04arpa\0"[..]),
        ("0-127.x", b"\x050-127\x01x\0"),
        ("a=b.x", b"\x03a=b\x01x\0"),
    ] {
        let records = whole(&[format!("{name}={path}").into()]).unwrap();
        assert!(has_zone(&records, wire), "{name}");
    }
    let records = whole(&[format!("EX.AmPle={path}").into()]).unwrap();
    assert_eq!(records.data(&records.list[1]), b"\x01a\x02EX\x05AmPle\0");
    assert_eq!(&records.data(&records.list[0])[..13], b"\x02ns\x02EX\x05AmPle\0");
    // What is no zone's name remains a file's.
    for option in ["/no/where=x", "./no/where=x", "../no=x"] {
        let error = whole(&[option.into()]).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot read {option}: ")), "{error}");
    }
}

#[test]
fn records_below_a_dname_are_left_out_with_a_word() {
    let text = format!("{X}x DNAME y.\na.x A 192.0.2.1\nb.a.x A 192.0.2.2\nxx A 192.0.2.3\nx A 192.0.2.4\n");
    let (records, faults, left_out) = with_faults(&[&text]);
    assert_eq!(records.len(), 4, "{records:?}");
    assert_eq!(left_out.as_deref(), Some("2 records"));
    let word =
        "FILE0:4: a.x.x. is below x.x., which has a DNAME record, which answers for all names below it";
    assert!(faults[0].starts_with(word), "{faults:?}");
    // A zone of its own there has its names.
    let (records, faults, _) =
        with_faults(&[&format!("{X}x DNAME y.\n"), "x.x. 1 IN SOA . . 1 1 1 1 1\na.x.x. 1 IN TXT t\n"]);
    assert_eq!((records.len(), faults.len()), (4, 0), "{faults:?}");
}

/// As long as it may be: what is left beside the header, the question and EDNS.
#[test]
fn a_set_as_long_as_a_message_is_served() {
    let most = "\"".to_owned() + &"a".repeat(255) + "\"";
    let text = |count: usize| format!("{X}t TXT {}\n", vec![most.as_str(); count].join(" "));
    let built = |text: &str| {
        let file = file(text);
        super::super::super::index::build::whole(&[file.path().into()])
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    assert_eq!(built(&text(255)), Ok(()));
    // One record too long, and two that are together.
    let error = built(&text(256)).unwrap_err();
    assert!(error.contains(":3: TXT: TXT record is too long"), "{error}");
    let error = built(&(text(255) + "t TXT \"" + &"b".repeat(250) + "\"\n")).unwrap_err();
    let words = "does not fit a message of 64 KiB: its records have 65555 bytes, and 65475 are left";
    assert!(error.contains(words), "{error}");
}

/// BIND and NSD refuse such a zone; its records would be others without what the line says.
#[test]
fn a_directive_after_space_is_a_fault_of_its_zone() {
    for (directive, said) in [
        (" $TTL 60", "$TTL is indented"),
        ("\t$ORIGIN sub", "$ORIGIN is indented"),
        (" $INCLUDE hosts.inc", "$INCLUDE is indented"),
        (" $GENERATE 1-2 h$ A 192.0.2.$", "$GENERATE is indented"),
        (" $frob", "$frob is indented"),
    ] {
        let (records, faults, left_out) = with_faults(&[&format!("{X}{directive}\nz A 192.0.2.1\n")]);
        // That of the zone that is not served.
        assert_eq!((records.len(), left_out.as_deref()), (1, Some("1 zone")), "{directive}: {records:?}");
        assert!(faults[0].contains(said) && faults[0].contains("remove the space"), "{faults:?}");
    }
}

/// What a file begins with that was written by some editors.
#[test]
fn a_byte_order_mark_is_named() {
    for (mark, said) in [("\u{feff}", "byte order mark"), ("", "UTF-16")] {
        let mut text = mark.as_bytes().to_vec();
        if mark.is_empty() {
            text.extend([0xff, 0xfe]);
            text.extend(X.encode_utf16().flat_map(u16::to_le_bytes));
        } else {
            text.extend(X.as_bytes());
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, &text).unwrap();
        let error = whole(&[file.path().into()]).map(|_| ()).unwrap_err().to_string();
        assert!(
            error.contains(":1: ") && error.contains(said) && error.matches(":1: ").count() == 1,
            "{error}"
        );
    }
}
