use std::io::Write as _;

use super::super::records::Record;
use super::super::wire::rtype;

use super::*;

mod algorithms;
mod directives;
mod malformed;
mod names;
mod peers;
mod types;

fn loaded(text: &str) -> Result<Records, String> {
    let file = file(text);
    let path = file.path().display().to_string();
    whole(&[file.path().into()]).map_err(|error| error.to_string().replace(&path, "FILE"))
}

#[test]
fn records_have_owner_type_ttl_data_and_line() {
    let records = loaded(
        "$ORIGIN Example.org.\n$TTL 300\n@ SOA ns admin (\n 1 2 3 4 ; serial and times\n 5 )\n\
         \n  NS ns\nNs 60 A 192.0.2.1\n",
    )
    .unwrap();
    assert!(has_zone(&records, b"\x07example\x03org\0"));
    let of = |rtype| records.list.iter().find(|record| record.rtype == rtype).unwrap();
    let (soa, ns, a) = (of(rtype::SOA), of(rtype::NS), of(rtype::A));
    assert_eq!((records.name(soa), soa.ttl, soa.line), ("example.org.".into(), 300, 3));
    assert_eq!((records.name(ns), ns.ttl, ns.line), ("example.org.".into(), 300, 7));
    assert_eq!((records.name(a), a.ttl, a.line), ("ns.example.org.".into(), 60, 8));
    assert_eq!(records.data(a), [192, 0, 2, 1]);
    assert_eq!(records.data(ns), b"\x02ns\x07Example\x03org\0", "with the case of its letters");
}

/// Every type that `domain` knows is kept as it composes it; others in the form of RFC 3597.
#[test]
fn all_types_are_taken() {
    let text = "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\na MX 5 b\na TXT \"two\" strings\na SRV 1 2 3 b\n\
                a CAA 0 issue \"ca\"\na TLSA 3 1 1 00ff\na SSHFP 1 9 00ff\na NAPTR 1 2 \"u\" \"s\" \"\" .\n\
                a DS 1 8 9 00ff\na DNSKEY 256 3 8 AAAA\na HTTPS 1 . alpn=h2\na TYPE4711 \\# 2 abcd\n";
    let records = loaded(text).unwrap();
    let types: Vec<u16> = records.list.iter().map(|record| record.rtype).collect();
    assert_eq!(types, [6, 15, 16, 33, 35, 43, 44, 48, 52, 65, 257, 4711]);
    assert_eq!(records.data(records.list.last().unwrap()), [0xab, 0xcd]);
}

#[test]
fn errors_name_file_line_and_reason() {
    let soa = "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\n";
    for (text, expected) in [
        ("", "FILE: no SOA record"),
        ("@ 1 SOA . . 1 1 1 1 1\n", "FILE:1: missing origin"),
        (&format!("{soa}a A (\n 192.0.2.300 )\n"), "FILE:3: A: expected IPv4 address"),
        (&format!("{soa}a A 192.0.2.300\n"), "FILE:3: A: expected IPv4 address"),
        (&format!("{soa}a A 192.0.2.1\na FROB x\n"), "FILE:4:"),
        (&format!("{soa}a CH A 192.0.2.1\n"), "FILE:3:"),
        (&format!("{soa}$FROB\n"), "FILE:3:"),
        (&format!("{soa}a TYPE0 \\# 0\n"), "FILE:3:"),
        (&format!("{soa}a TYPE250 \\# 0\n"), "FILE:3:"),
        (&format!("{soa}a A 192.0.2.1\nb.y. A 192.0.2.1\n"), "FILE:4: b.y. does not belong to the zone x."),
        (
            &format!("{soa}\n@ 1 SOA . . 1 1 1 1 2\n"),
            "FILE:4: a second SOA record; the first is of x. on line 2",
        ),
        (&format!("{soa}$INCLUDE nothing.there\n"), "FILE:3: $INCLUDE: cannot read "),
    ] {
        let error = loaded(text).map(|_| ()).unwrap_err();
        assert!(error.starts_with(expected), "{text}\n{error}");
    }
    let missing = whole(&["/nothing/there".into()]).map(|_| ()).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read /nothing/there: No such file"), "{missing}");
}

#[test]
fn a_zone_may_be_loaded_once() {
    let one = file("x. 1 IN SOA . . 1 1 1 1 1\n");
    let error = whole(&[one.path().into(), one.path().into()]).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains(":1: this zone is loaded from"), "{error}");
}

#[test]
fn includes_keep_or_change_the_origin_and_end_somewhere() {
    let inner = file("a A 192.0.2.1\n");
    let name = inner.path().display();
    let text =
        format!("$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\n$INCLUDE {name}\n$INCLUDE {name} y.x.\nb A 192.0.2.2\n");
    let records = loaded(&text).unwrap();
    let names: Vec<String> = records.list.iter().map(|record| records.name(record)).collect();
    assert_eq!(names, ["x.", "a.x.", "b.x.", "a.y.x."]);
    let mut endless = file("$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\n");
    let path = endless.path().to_owned();
    writeln!(endless, "$INCLUDE {}", path.display()).unwrap();
    let error = whole(&[path]).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(":3: $INCLUDE of ") && error.contains("would include itself"), "{error}");
}

/// `NAME TTL TYPE DATA`, the data in hexadecimal digits and lower case, sorted.
fn shown(records: &Records) -> Vec<String> {
    let line = |record: &Record| {
        let data: String =
            records.data(record).iter().map(|byte| format!("{:02x}", byte.to_ascii_lowercase())).collect();
        format!("{} {} {} {data}", records.name(record), record.ttl, record.rtype)
    };
    records.list.iter().map(line).collect()
}

/// The zone as BIND reads it.
fn of_bind(folder: &Path, file: &str, origin: &str) -> Vec<String> {
    let mut command = std::process::Command::new("named-compilezone");
    command.args(["-q", "-i", "none", "-F", "text", "-s", "full", "-o", "-"]);
    for check in ["-k", "-m", "-M", "-n", "-r", "-S", "-T", "-W"] {
        command.args([check, "ignore"]);
    }
    let output =
        command.args([origin, file]).current_dir(folder).output().expect("scripts/setup.sh installs bind9");
    assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    shown(&loaded(&String::from_utf8(output.stdout).unwrap()).unwrap())
}

/// Whether BIND is installed; where everything is required it has to be.
pub(super) fn bind_is_here() -> bool {
    let here = std::process::Command::new("named-compilezone").arg("-v").output().is_ok();
    assert!(
        here || std::env::var_os("UDPATH_REQUIRE_ALL").is_none(),
        "no named-compilezone: `scripts/setup.sh test` installs bind9"
    );
    here
}

/// Files in a folder, of which the first is loaded, with the origin that a server's configuration gives.
fn as_bind_reads(origin: &str, files: &[(&str, &str)]) {
    if !bind_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let path = folder.path().join(files[0].0);
    let option = PathBuf::from(format!("{origin}={}", path.display()));
    let records = whole(&[option]).unwrap_or_else(|error| panic!("{error}\n{}", files[0].1));
    assert_eq!(shown(&records), of_bind(folder.path(), files[0].0, origin), "{}", files[0].1);
}

const SOA: &str = "@ 60 SOA ns host 1 7200 3600 1209600 300\n@ 60 NS ns\nns 60 A 192.0.2.53\n";

#[test]
fn an_at_sign_in_data_is_the_origin_in_every_type_with_names() {
    let data = [
        "NS @",
        "PTR @",
        "MX 10 @",
        "SRV 0 5 5060 @",
        "HTTPS 0 @",
        "SVCB 1 @ alpn=h2",
        "RP @ @",
        "MINFO @ @",
        "MB @",
        "MG @",
        "MR @",
        "NAPTR 1 2 \"u\" \"s\" \"\" @",
        "NSEC @ A NS",
        "IPSECKEY 10 3 2 @ AQID",
        "IPSECKEY 10 3 2 gw AQID",
        "IPSECKEY 10 1 2 192.0.2.1 AQID",
        "AFSDB 1 @",
        "DNAME @",
        "CNAME @",
        "TXT @ \"@\"",
        "HINFO @ @",
        "CAA 0 issue \"@\"",
    ];
    let lines = data.iter().enumerate().map(|(at, data)| format!("n{at} 60 IN {data}\n"));
    as_bind_reads("example.org", &[("zone", &format!("{SOA}{}", lines.collect::<String>()))]);
}

#[test]
fn what_bind_reads_is_read_the_same_way() {
    let texts = [
        // TTLs: units, defaults, classes and TTLs in either order.
        "$TTL 1d12h\n@ 1W IN SOA ns1 host ( 1 3H 1h30m 4W 5M )\n  NS ns1\nns1 1h A 192.0.2.53\nwww IN 10m A 192.0.2.80\na 60 IN A 192.0.2.1\n \
         A 192.0.2.2\n$TTL 5\nb A 192.0.2.3\n",
        "@ SOA ns host 1 60 60 60 77\n@ NS ns\nns A 192.0.2.53\na 5 A 192.0.2.1\nb A 192.0.2.2\n",
        // One set, one TTL; one record in two spellings.
        "@ 60 SOA ns host 1 60 60 60 60\n@ 60 NS ns\n@ 50 NS NS\nns 60 A 192.0.2.53\nm 300 A 192.0.2.9\nm 60 A 192.0.2.2\nd 300 A 192.0.2.4\n\
         d 60 A 192.0.2.4\nx 60 MX 5 A.example.org.\nX 60 MX 5 a\n@ 60 SOA NS host 1 60 60 60 60\n@ 90 SOA ns HOST 1 60 60 60 60\n",
        // Parentheses, comments, quotes, escapes, odd bytes, Windows' ends of lines.
        "@ 60 SOA ns host (1\n 60 ; a ) comment\n 60 60 60)\r\n@ 60 NS ns\nns 60 A 192.0.2.53\r\nt 60 TXT ( \"a;b\"\n  c\\;d \"e\\\"f\" ) ; x\n\
         u 60 TXT \"tab\there\" \"caf\u{e9}\" \"\\200\"\nw\\.x 60 A 192.0.2.1\n\\@ 60 A 192.0.2.2\n\\065b 60 A 192.0.2.3\n*.w 60 A 192.0.2.4\n",
        // Mnemonics of algorithms and digests.
        "@ 60 SOA ns host 1 60 60 60 60\n@ 60 NS ns\nns 60 A 192.0.2.53\nk 60 DNSKEY 256 3 RSASHA256 AwEAAQ==\n\
         d 60 DS 1 ECDSAP256SHA256 SHA-256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n",
        // $GENERATE
        "@ 60 SOA ns host 1 60 60 60 60\n@ 60 NS ns\nns 60 A 192.0.2.53\n$GENERATE 1-5/2 h-$ 60 A 192.0.2.${10,0,d}\n\
         $GENERATE 7-9 h${0,3} CNAME ns\n",
        // Data in the generic form.
        "@ 60 SOA ns host 1 60 60 60 60\n@ 60 NS ns\nns 60 TYPE1 \\# 4 c0000235\ng 60 A \\# 4 ( c0 00\n 02 01 )\nh 60 CLASS1 TYPE65280 \\# 2 abcd\n",
    ];
    for text in texts {
        as_bind_reads("example.org", &[("zone", text)]);
    }
}

#[test]
fn includes_are_read_as_bind_reads_them() {
    let hosts = "h1 A 192.0.2.1\nh2 A 192.0.2.2\n  AAAA 2001:db8::2\n";
    as_bind_reads(
        "example.org",
        &[
            (
                "zone",
                "$TTL 300\n@ SOA ns1 host 1 7200 3600 1209600 60\n@ NS ns1\nns1 A 192.0.2.53\n$INCLUDE hosts\nafter A 192.0.2.9\n\
             $INCLUDE \"with space\" sub\n$INCLUDE hosts q.example.org.\nb A 192.0.2.2\n",
            ),
            ("hosts", hosts),
            ("with space", "x A 192.0.2.3\n"),
        ],
    );
}

#[test]
fn data_that_its_type_does_not_allow_are_refused_with_all_their_lines() {
    let lines = [
        "A \\# 0",
        "TYPE1 \\# 3 c00002",
        "MX 10",
        "MX \\# 4 000ac000",
        "NS \\# 2 c00c",
        "AAAA \\# 4 c0000201",
        "TXT \\# 0",
        "TXT \\# 2 0361",
        "SOA \\# 1 00",
        "SRV 0 0 1",
        "CNAME",
        "A",
        "A 192.0.2.1 192.0.2.2",
        "DS 1 8 2",
        "TYPE33 \\# 3 000000",
        "LOC \\# 3 000000",
    ];
    let text: String = lines.iter().map(|line| format!("n 60 IN {line}\n")).collect();
    let error = loaded(&format!("$ORIGIN x.\n{SOA}{text}")).map(|_| ()).unwrap_err();
    let said: Vec<&str> = error.split("; ").collect();
    assert_eq!(said.len(), lines.len(), "{error}");
    for (at, (said, line)) in said.iter().zip(lines).enumerate() {
        assert!(said.starts_with(&format!("FILE:{}: ", at + 5)), "{line}: {said}");
    }
}

/// The data of one record by BIND, in hexadecimal digits; `None` if BIND refuses it.
pub(super) fn data_of_bind(record: &str) -> Option<String> {
    let mut command = std::process::Command::new("named-rrchecker");
    command.args(["-u", "-o", "x."]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut checker = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    checker.stdin.take().unwrap().write_all(format!("IN {record}\n").as_bytes()).unwrap();
    let output = checker.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let data = text.split_once("\\# ").map(|(_, data)| data.split_whitespace().skip(1).collect::<String>());
    data.filter(|_| output.status.success()).map(|data| data.to_ascii_lowercase())
}

#[test]
fn a_zone_may_be_named_beside_its_file() {
    let file = file("@ 60 SOA ns host 1 60 60 60 60\nwww 60 A 192.0.2.1\n");
    let path = file.path().display();
    for name in ["example.org", "example.org."] {
        let records = whole(&[format!("{name}={path}").into()]).unwrap();
        assert!(has_zone(&records, b"\x07example\x03org\0"), "{name}");
    }
    let error = whole(&[file.path().into()]).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(":1: missing origin for the relative name @"), "{error}");
    assert!(error.contains("--zone"), "{error}");
}

#[test]
fn a_zone_that_hashes_names_too_often_or_unknown_is_left_out() {
    let signature = "@ 60 RRSIG SOA 8 1 60 20260101000000 20250101000000 1 x. AQID\n";
    let hash = "2t7b4g4vsa5smi47k61mv5bv1a22bojr";
    let chain = format!("{hash} 60 NSEC3 1 0 151 - {hash} A\n");
    let zone = |params: &str| loaded(&format!("$ORIGIN x.\n{SOA}{signature}{params}{chain}")).map(|_| ());
    for (params, reason) in [
        (
            "@ 0 NSEC3PARAM 1 0 151 -\n",
            "FILE:6: NSEC3PARAM with 151 iterations, more than the 150 that are served",
        ),
        ("@ 0 NSEC3PARAM 2 0 0 -\n", "FILE:6: NSEC3PARAM with hash algorithm 2, which is not known"),
    ] {
        let error = zone(params).unwrap_err();
        assert!(error.starts_with(reason), "{error}");
        // One of several is enough.
        zone(&format!("{params}@ 0 NSEC3PARAM 1 0 150 abcd\n")).unwrap();
        // It names no chain.
        zone(&params.replace(" 0 ", " 1 ")).unwrap();
        // Nothing is proven in a zone without signatures, and nothing by hashes in one without NSEC3 records.
        loaded(&format!("$ORIGIN x.\n{SOA}{params}{chain}")).unwrap();
        loaded(&format!("$ORIGIN x.\n{SOA}{signature}{params}")).unwrap();
    }
}

#[test]
fn of_many_faults_the_first_are_listed_and_all_are_counted() {
    let bad = "b A nonsense\nc FROB\n".repeat(7_000);
    let error = loaded(&format!("$ORIGIN x.\n{SOA}{bad}")).map(|_| ()).unwrap_err();
    assert!(error.starts_with("FILE:5: A: ") && error.contains("; FILE:6: unknown type FROB"), "{error}");
    assert!(error.ends_with("; and 13980 more"), "{error}");
}

/// What is loaded of files, and the faults.
fn with_faults(texts: &[&str]) -> (Vec<String>, Vec<String>, Option<String>) {
    let files: Vec<_> = texts.iter().map(|text| file(text)).collect();
    let paths: Vec<PathBuf> = files.iter().map(|file| file.path().into()).collect();
    let (records, faults) = load(&paths).unwrap();
    let rename = |line: String| {
        paths
            .iter()
            .enumerate()
            .fold(line, |line, (at, path)| line.replace(&path.display().to_string(), &format!("FILE{at}")))
    };
    (shown(&records), faults.lines().into_iter().map(rename).collect(), faults.left_out())
}

const X: &str = "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\n";

#[test]
fn a_record_with_a_fault_leaves_the_others_as_they_are() {
    for (bad, reason) in [
        ("b 7 A 192.0.2.300", "FILE0:3: A: expected IPv4 address"),
        ("b 7 A \\# 0", "FILE0:3: 0 bytes"),
        ("b 7 FROB x", "FILE0:3: unknown type FROB"),
        ("b 7 CH A 192.0.2.1", "FILE0:3: class CH"),
        ("b 7 LOC 91 N 0 E 0m", "FILE0:3: "),
        ("b 7 MX 5", "FILE0:3: "),
        ("b 7 TYPE250 \\# 0", "FILE0:3: "),
        ("b 7 SOA . . 1 1 1 1 1", "FILE0:3: a second SOA record"),
        ("b.y. 7 A 192.0.2.1", "FILE0:3: b.y. does not belong to the zone x."),
    ] {
        // The owner of the line that follows is that of the bad one, and so is its TTL.
        let owner = bad.split(' ').next().unwrap();
        let (records, faults, left_out) = with_faults(&[&format!("{X}{bad}\n TXT t\na 9 A 192.0.2.1\n")]);
        let follower = if owner == "b" { vec!["b.x. 7 16 0174".to_owned()] } else { vec![] };
        let expected = [vec!["a.x. 9 1 c0000201".to_owned()], follower].concat();
        assert_eq!(records[1..], expected, "{bad}");
        assert!(faults[0].starts_with(reason), "{bad}: {faults:?}");
        let strays = 2 - expected.len();
        let count = if strays == 0 { "1 record" } else { "2 records" };
        assert_eq!((faults.len(), left_out.as_deref()), (1 + strays, Some(count)), "{bad}: {faults:?}");
    }
}

/// What follows such a fault may mean something else than was meant.
#[test]
fn a_fault_that_others_depend_on_leaves_the_zone_out() {
    let good = "good. 1 IN SOA . . 1 1 1 1 1\n";
    for bad in [
        "a TXT \"no end\nb A 192.0.2.1",
        "a TXT ( no end\nb A 192.0.2.1",
        "$ORIGIN\nb A 192.0.2.1",
        "$TTL soon\nb A 192.0.2.1",
        "$FROB\nb A 192.0.2.1",
        "$INCLUDE nothing.there\nb A 192.0.2.1",
        "\"\" A 192.0.2.1\n TXT whose",
        "a 1z A 192.0.2.1\nb A 192.0.2.1",
        "a 1\nb A 192.0.2.1",
    ] {
        let (records, faults, left_out) = with_faults(&[&format!("{X}{bad}\n"), good]);
        assert_eq!(records.len(), 2, "{bad}: {records:?}");
        assert_eq!(records[0], "x. 0 0 ", "{bad}: the apex of a zone that is left out");
        assert!(records[1].starts_with("good. 1 6 "), "{bad}: {records:?}");
        assert!(faults[0].starts_with("FILE0:3"), "{bad}: {faults:?}");
        assert_eq!(left_out.as_deref(), Some("1 zone"), "{bad}: {faults:?}");
    }
    let (records, faults, left_out) = with_faults(&["a.x. 1 IN A 192.0.2.1\n", good, good]);
    assert_eq!((records.len(), left_out.as_deref()), (1, Some("2 zones")), "{faults:?}");
    assert_eq!(faults[0], "FILE0: no SOA record: a zone has one, and its owner is the zone's name");
    assert_eq!(faults[1], "FILE2:1: this zone is loaded from FILE1:1 already");
}
