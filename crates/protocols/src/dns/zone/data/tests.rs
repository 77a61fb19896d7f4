use super::*;

#[test]
fn data_are_whole_and_nothing_else() {
    let name = b"\x01a\x01x\0";
    let with = |before: &[u8], after: &[u8]| [before, &name[..], after].concat();
    for (rtype, data, right) in [
        (Rtype::A, vec![192, 0, 2, 1], true),
        (Rtype::A, vec![], false),
        (Rtype::A, vec![192, 0, 2], false),
        (Rtype::A, vec![192, 0, 2, 1, 0], false),
        (Rtype::AAAA, vec![0; 16], true),
        (Rtype::AAAA, vec![0; 4], false),
        (Rtype::MX, with(&[0, 5], &[]), true),
        (Rtype::MX, vec![0, 5], false),
        (Rtype::MX, vec![0, 5, 0xc0, 0], false),
        (Rtype::MX, with(&[0, 5], &[1]), false),
        (Rtype::NS, name.to_vec(), true),
        (Rtype::NS, vec![1, b'a', 0xc0, 0], false),
        (Rtype::NS, vec![], false),
        (Rtype::TXT, vec![], false),
        (Rtype::TXT, vec![0], true),
        (Rtype::TXT, vec![3, b'a'], false),
        (Rtype::SOA, [name, &name[..], &[0; 20]].concat(), true),
        (Rtype::SOA, [name, &name[..], &[0; 19]].concat(), false),
        (Rtype::SRV, with(&[0; 6], &[]), true),
        (Rtype::SRV, with(&[0; 5], &[]), false),
        (Rtype::AFSDB, with(&[0, 1], &[]), true),
        (Rtype::AFSDB, vec![0, 1, 0xc0, 12], false),
        (Rtype::LOC, [&[0, 0, 0, 0][..], &[0x80, 0, 0, 0].repeat(3)].concat(), true),
        (Rtype::LOC, vec![0; 15], false),
        (Rtype::URI, vec![0, 1, 0], false),
        (Rtype::SPF, vec![1, b'v'], true),
        (Rtype::EUI48, vec![0; 8], false),
        (Rtype::from_int(65_280), vec![], true),
    ] {
        assert_eq!(check(rtype, &data).is_ok(), right, "{rtype} {data:?}");
    }
}

/// Records in text form, of every type whose data are checked. BIND makes their bytes.
const RECORDS: [&str; 72] = [
    "A 192.0.2.1",
    "NS a",
    "CNAME a",
    "PTR a",
    "MB a",
    "MD a",
    "MF a",
    "MG a",
    "MR a",
    "MINFO a b",
    "MX 10 a",
    "TXT ab c",
    "HINFO a b",
    "WKS 192.0.2.1 tcp 25",
    "AAAA 2001:db8::1",
    "SRV 1 2 3 a",
    "DNAME a",
    "AFSDB 1 a",
    "RT 1 a",
    "KX 1 a",
    "LP 1 a",
    "RP a b",
    "X25 12345",
    "ISDN ab c",
    "ISDN ab",
    "PX 1 a b",
    "TALINK a b",
    "SPF a",
    "NINFO a b",
    "AVC a",
    "RESINFO a",
    "WALLET a",
    "NSAP 0x4700",
    "NSAP-PTR a",
    "EID 0102",
    "NIMLOC 0102",
    "ATMA +123",
    "SINK 1 2 3 AQID",
    "DOA 1 2 3 ab AQID",
    "GPOS 1 2 3",
    "LOC 1 1 1.05 N 1 W 5m",
    "SIG A 8 2 60 20300101000000 20200101000000 1 x. AQID",
    "RRSIG A 8 2 60 20300101000000 20200101000000 1 x. AQID",
    "NXT a A NS",
    "KEY 256 3 8 AQID",
    "RKEY 0 3 8 AQID",
    "NAPTR 1 2 u s \"\" a",
    "CERT 1 2 8 AQID",
    "A6 0 2001::1",
    "A6 60 ::1 a",
    "A6 128 a",
    "APL 1:192.0.2.0/24 !2:2001:db8::/32",
    "DS 1 8 2 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "DNSKEY 256 3 8 AQID",
    "NSEC a A NS TYPE1234",
    "NSEC3 1 0 1 ab 2vptu5timamqttgl4luu9kg21e0aor3s A",
    "NSEC3PARAM 1 0 1 ab",
    "SSHFP 4 1 0102030405060708090a0b0c0d0e0f1011121314",
    "TLSA 3 1 1 0102",
    "IPSECKEY 1 0 2 . AQID",
    "IPSECKEY 1 1 2 192.0.2.1 AQID",
    "IPSECKEY 1 2 2 2001:db8::1 AQID",
    "IPSECKEY 1 3 2 a AQID",
    "AMTRELAY 1 1 3 a",
    "AMTRELAY 1 0 1 192.0.2.1",
    "HIP 2 2001 AQID a b",
    "OPENPGPKEY AQID",
    "CSYNC 1 3 A NS",
    "ZONEMD 1 1 241 0102030405060708090a0b0c",
    "HTTPS 1 a mandatory=port alpn=h2,h3 port=443 ipv4hint=192.0.2.1 ipv6hint=2001:db8::1 key999=a",
    "CAA 0 issue a",
    "URI 1 2 \"a\"",
];

/// Bytes of a record and what befalls them: cut at each, one more at the end, each another value, a pointer in place of
/// the first name.
fn damaged(data: &[u8]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..=data.len()).map(|len| data[..len].to_vec()).collect();
    all.push([data, &[0]].concat());
    for at in 0..data.len() {
        for byte in [0, 1, 2, 9, 0x10, 0x40, 0x80, 0xc0, 0xff, data[at] ^ 1] {
            let mut other = data.to_vec();
            other[at] = byte;
            all.push(other);
        }
        all.push([&data[..at], &[0xc0, 12]].concat());
        all.push([&data[..at], &[0xc0, 12], data.get(at + 3..).unwrap_or_default()].concat());
    }
    all.sort();
    all.dedup();
    all
}

/// Where this reader is stricter or less strict, and why.
fn may_differ(rtype: Rtype, data: &[u8], here: bool) -> bool {
    match rtype {
        // BIND refuses them whatever their data are, as obsolete.
        Rtype::MD | Rtype::MF => here,
        // A time that is over is no fault of its form, nor is a regular expression that matches nothing.
        Rtype::RRSIG | Rtype::NAPTR => here,
        // No fingerprint, of a type that is not assigned.
        Rtype::SSHFP => !here && data.len() == 2,
        _ => false,
    }
}

/// Every way of cutting data short or changing a byte is judged as BIND does.
#[test]
fn damaged_data_of_every_type_are_refused_as_bind_refuses_them() {
    if !super::super::tests::bind_is_here() {
        return;
    }
    let cases: Vec<(Rtype, Vec<u8>)> = RECORDS
        .iter()
        .flat_map(|record| {
            let rtype = types::named(record.split(' ').next().unwrap()).unwrap();
            let hex = super::super::tests::data_of_bind(record).unwrap_or_else(|| panic!("BIND: {record}"));
            let data = domain::utils::base16::decode_vec(&hex).unwrap();
            assert!(check(rtype, &data).is_ok(), "{record}");
            damaged(&data).into_iter().map(move |data| (rtype, data))
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let mut text = "@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.1\n".to_owned();
    for (at, (rtype, data)) in cases.iter().enumerate() {
        let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("n{at} 60 TYPE{} \\# {} {hex}\n", rtype.to_int(), data.len());
    }
    std::fs::write(folder.path().join("zone"), text).unwrap();
    let mut command = std::process::Command::new("named-checkzone");
    command.args(["-i", "none", "-k", "ignore", "-m", "ignore", "-n", "ignore", "-r", "ignore", "x", "zone"]);
    let output = command.current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let lines = said.split("zone:").skip(1).filter_map(|rest| rest.split(':').next()?.parse::<usize>().ok());
    let refused: std::collections::BTreeSet<usize> = lines.collect();
    assert!(refused.len() > 1_000, "{} of {}: {said}", refused.len(), cases.len());
    let mut differ = Vec::new();
    for (at, (rtype, data)) in cases.iter().enumerate() {
        let (here, there) = (check(*rtype, data).is_ok(), !refused.contains(&(at + 4)));
        if here != there && !may_differ(*rtype, data, here) {
            differ.push(format!("{rtype} {data:02x?}: {here} here, {there} in BIND"));
        }
    }
    assert!(differ.is_empty(), "{} of {}\n{}", differ.len(), cases.len(), differ.join("\n"));
}
