use tempfile::NamedTempFile;

use super::*;

/// A pcap file of UDP datagrams, each with its destination port and payload.
fn capture(datagrams: &[(u16, &[u8])]) -> NamedTempFile {
    let mut bytes = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    for (port, payload) in datagrams {
        let frame = frame(*port, payload);
        bytes.extend([0, 0, frame.len() as u32, frame.len() as u32].map(u32::to_le_bytes).concat());
        bytes.extend(frame);
    }
    let file = NamedTempFile::new().unwrap();
    std::fs::write(&file, bytes).unwrap();
    file
}

/// A datagram from 192.0.2.1:40000 to 192.0.2.2, without checksums.
fn frame(port: u16, payload: &[u8]) -> Vec<u8> {
    let udp = 8 + payload.len() as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let ip = [0x4500, 20 + udp, 0, 0x4000, 0x4011, 0, 0xc000, 0x0201, 0xc000, 0x0202];
    for field in ip.into_iter().chain([40_000, port, udp, 0]) {
        frame.extend(field.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

fn load(file: &NamedTempFile, more: &[(&crate::OptionSpec, &str)]) -> Result<ReplayLoad, String> {
    let mut options = Options::default();
    options.push(&PCAP, file.path());
    for (spec, value) in more {
        options.push(spec, value);
    }
    ReplayLoad::from_options(7, &options).map_err(|error| error.to_string())
}

fn request(load: &ReplayLoad, flow: u32, seq: u64) -> Vec<u8> {
    let mut bytes = vec![0xff; 100];
    let len = load.template().write(flow, seq, &mut bytes);
    bytes.truncate(len);
    bytes
}

#[test]
fn payloads_are_sent_in_order_and_again() {
    let file = capture(&[(53, b"one"), (53, b"three"), (53, b""), (53, b"2")]);
    let load = load(&file, &[]).unwrap();
    assert_eq!(load.lengths(), Some(Lengths { longest: 5, mean: 3 }));
    assert_eq!((load.min_size(), load.ids(), load.template().seq_bits()), (5, 1, 0));
    let sent: Vec<_> = (0..6).map(|seq| request(&load, 0, seq)).collect();
    assert_eq!(sent, [&b"one"[..], b"three", b"2", b"one", b"three", b"2"]);
    assert_eq!(request(&load, 1, 0), b"three", "the next flow begins elsewhere");
    assert_eq!(load.template().check(0, b"whatever"), Judgement::Valid { seq: 0 });
}

#[test]
fn the_identifier_is_that_of_the_transaction() {
    let file = capture(&[(53, b"ab....yz"), (53, b"ef....uvwx")]);
    for (id, width) in [("2:1", 1), ("2:2", 2), ("2:4", 4)] {
        let load = load(&file, &[(&ID, id)]).unwrap();
        let bits = 8 * width;
        assert_eq!((load.ids(), load.template().seq_bits()), (1 << bits, bits));
        for (flow, seq) in [(0, 0), (0, 1), (9, 255), (9, 256), (131_071, u64::MAX)] {
            let sent = request(&load, flow, seq);
            assert!(sent.starts_with(b"ab") || sent.starts_with(b"ef"), "{sent:?}");
            assert!(sent[2 + width as usize..].ends_with(b"yz") || sent.ends_with(b"uvwx"), "{sent:?}");
            let carried = seq & ((1 << bits) - 1);
            assert_eq!(load.template().check(flow, &sent), Judgement::Valid { seq: carried });
            assert_eq!(load.template().check(flow, &sent[..2 + width as usize - 1]), Judgement::Corrupt);
            let mut other = sent.clone();
            other[2] ^= 1;
            assert_ne!(load.template().check(flow, &other), Judgement::Valid { seq: carried });
        }
        let all: std::collections::HashSet<_> =
            (0..256).map(|seq| request(&load, 3, seq)[2..6].to_vec()).collect();
        assert_eq!(all.len(), 256);
    }
    assert_eq!(load(&file, &[(&ID, "0:8")]).unwrap().ids(), u64::MAX);
}

#[test]
fn the_port_is_chosen_or_the_only_one() {
    let file = capture(&[(53, b"a"), (123, b"b"), (53, b"c")]);
    let error = load(&file, &[]).unwrap_err();
    assert!(
        error.ends_with("it has datagrams to several ports (53: 2, 123: 1): choose one with --port"),
        "{error}"
    );
    let of = |port| request(&load(&file, &[(&PORT, port)]).unwrap(), 0, 0);
    assert_eq!((of("53"), of("123")), (b"a".to_vec(), b"b".to_vec()));
    let error = load(&file, &[(&PORT, "7")]).unwrap_err();
    assert!(
        error.contains("none of its 3 frames is a whole unicast UDP datagram with a payload to port 7"),
        "{error}"
    );
}

#[test]
fn each_fault_is_named() {
    let file = capture(&[(53, b"long enough"), (53, b"short")]);
    for (more, expected) in [
        (&[(&ID, "4:2")][..], "invalid --id 4:2: payload 2 of the capture has 5 bytes, fewer than 6"),
        (&[(&ID, "4")], "invalid --id 4: expected OFFSET:WIDTH"),
        (&[(&ID, "0:9")], "invalid --id 0:9: expected OFFSET:WIDTH"),
        (&[(&ID, "2047:2")], "invalid --id 2047:2: expected OFFSET:WIDTH"),
        (&[(&PORT, "0")], "invalid --port 0: expected 1 to 65535"),
    ] {
        let error = load(&file, more).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    let empty = capture(&[]);
    assert!(load(&empty, &[]).unwrap_err().contains("it has no packets"));
    std::fs::write(&empty, b"no capture").unwrap();
    assert!(load(&empty, &[]).unwrap_err().contains("is not a capture"));
    let none = ReplayLoad::from_options(7, &Options::default()).unwrap_err();
    assert_eq!(none.to_string(), "--pcap FILE is required: name the capture to replay");
}
