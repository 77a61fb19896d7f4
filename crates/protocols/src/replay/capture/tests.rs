//! Captures as other tools write them, compared with what tcpdump reads of them.

use std::process::Command;

use tempfile::NamedTempFile;

use super::*;

const COUNT: u64 = 10;

/// A query's payload.
fn payload(number: u64) -> Vec<u8> {
    let mut query = vec![0, number as u8, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 5];
    query.extend(format!("host{number}").bytes());
    query.extend(b"\x07example\x03org\0\0\x01\0\x01");
    query
}

/// The packet of a query, from and to these last octets of 192.0.2.0/24, or of 127.0.0.0/24.
fn ipv4(net: [u8; 3], payload: &[u8]) -> Vec<u8> {
    let udp = 8 + payload.len() as u16;
    let mut packet = vec![0x45, 0];
    packet.extend((20 + udp).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
    let [a, b, c] = net;
    packet.extend([a, b, c, 1, a, b, c, 1]);
    [40_000, 53, udp, 0].iter().for_each(|field| packet.extend(field.to_be_bytes()));
    packet.extend(payload);
    packet
}

fn ipv6(payload: &[u8]) -> Vec<u8> {
    let udp = 8 + payload.len() as u16;
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(udp.to_be_bytes());
    packet.extend([17, 64]);
    for last in [1, 2] {
        packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    [40_000, 53, udp, 0xabcd].iter().for_each(|field| packet.extend(field.to_be_bytes()));
    packet.extend(payload);
    packet
}

/// What stands before the packets of a link type, and the packets' kind.
type Link = (u32, Vec<u8>, fn(&[u8]) -> Vec<u8>);

fn global(payload: &[u8]) -> Vec<u8> {
    ipv4([192, 0, 2], payload)
}

fn links() -> Vec<Link> {
    let ethernet = |rest: &[u8]| [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], rest].concat();
    let loopback: fn(&[u8]) -> Vec<u8> = |payload| ipv4([127, 0, 0], payload);
    let mut sll = vec![0; 16];
    (sll[5], sll[14]) = (6, 8);
    let mut sll2 = vec![0; 20];
    (sll2[0], sll2[11]) = (8, 6);
    let sll_of_ipv6 = [&sll[..14], &[0x86, 0xdd]].concat();
    vec![
        (1, ethernet(&[8, 0]), global),
        (1, ethernet(&[0x86, 0xdd]), ipv6),
        // tcpdump -i lo
        (1, [&[0; 12][..], &[8, 0]].concat(), loopback),
        (1, ethernet(&[0x81, 0, 0, 7, 8, 0]), global),
        (1, ethernet(&[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7, 8, 0]), global),
        (1, ethernet(&[0x91, 0, 0, 9, 0x81, 0, 0, 7, 8, 0]), global),
        (113, sll, global),
        (113, sll_of_ipv6, ipv6),
        (276, sll2, global),
        (101, vec![], global),
        (101, vec![], ipv6),
        (12, vec![], global),
        (228, vec![], global),
        (229, vec![], ipv6),
        // The families of IPv4, and of IPv6 on macOS and FreeBSD.
        (0, vec![2, 0, 0, 0], global),
        (0, vec![2, 0, 0, 0], loopback),
        (0, vec![30, 0, 0, 0], ipv6),
        (0, vec![28, 0, 0, 0], ipv6),
        (108, vec![0, 0, 0, 2], global),
        // PPP: with and without HDLC's framing, the protocol in two bytes or one; IPv6; PPPoE.
        (9, vec![0xff, 3, 0, 0x21], global),
        (9, vec![0, 0x21], global),
        (9, vec![0x21], global),
        (9, vec![0xff, 3, 0x21], global),
        (9, vec![0xff, 3, 0, 0x57], ipv6),
        (50, vec![0xff, 3, 0, 0x21], global),
        (50, vec![0x0f, 0, 8, 0], global),
        (51, vec![0x11, 0, 0, 7, 0, 65, 0, 0x21], global),
        (51, vec![0x11, 0, 0, 7, 0, 85, 0, 0x57], ipv6),
        (104, vec![0x0f, 0, 8, 0], global),
        (104, vec![0x8f, 0, 0x86, 0xdd], ipv6),
        // OpenBSD: family, association, flags; and a log's header with its length.
        (109, [&[2, 0, 0, 0, 0, 0, 16, 1], &[0; 4][..]].concat(), global),
        (109, [&[24, 0, 0, 0, 0, 0, 16, 1], &[0; 4][..]].concat(), ipv6),
        (117, [&[61, 2], &[0; 62][..]].concat(), global),
        (117, [&[48, 2], &[0; 46][..]].concat(), global),
        (117, [&[61, 24], &[0; 62][..]].concat(), ipv6),
        // PPPoE, behind a tag too; MPLS with one label and with two; SNAP.
        (1, ethernet(&[0x88, 0x64, 0x11, 0, 0, 7, 0, 65, 0, 0x21]), global),
        (1, ethernet(&[0x81, 0, 0, 7, 0x88, 0x64, 0x11, 0, 0, 7, 0, 85, 0, 0x57]), ipv6),
        (1, ethernet(&[0x88, 0x47, 0, 1, 0x01, 64]), global),
        (1, ethernet(&[0x88, 0x48, 0, 1, 0, 64, 0, 2, 0x11, 64]), ipv6),
        (1, ethernet(&[0, 71, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]), global),
        // nflog: family, version, group; a packet's header, a prefix, the packet.
        (
            239,
            [&[2, 0, 0, 5, 8, 0, 1, 0, 8, 0, 0, 0, 5, 0, 10, 0, 0, 0, 0, 0][..], &[67, 0, 9, 0]].concat(),
            global,
        ),
    ]
}

fn pcap(link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, link].map(u32::to_le_bytes).concat();
    for frame in frames {
        let len = frame.len() as u32;
        bytes.extend([1, 0, len, len].map(u32::to_le_bytes).concat());
        bytes.extend(frame);
    }
    bytes
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = [body, &[0; 3][..(4 - body.len() % 4) % 4]].concat();
    let len = (12 + padded.len() as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &len, &padded, &len].concat()
}

/// Interfaces of these link types, and frames of one each.
fn pcapng(links: &[u16], frames: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = block(0x0a0d_0d0a, b"\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
    for link in links {
        bytes.extend(block(1, &[&link.to_le_bytes()[..], &[0, 0, 0, 0, 4, 0]].concat()));
    }
    for (interface, frame) in frames {
        let len = frame.len() as u32;
        bytes.extend(block(
            6,
            &[&[*interface, 0, 0, len, len].map(u32::to_le_bytes).concat()[..], frame].concat(),
        ));
    }
    bytes
}

fn file(bytes: &[u8]) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(&file, bytes).unwrap();
    file
}

/// The identifiers of the payloads, and what was left out.
fn read(bytes: &[u8]) -> Result<(Vec<u8>, Option<String>), String> {
    let file = file(bytes);
    let name = file.path().display().to_string();
    let payloads =
        Payloads::read(file.path(), Some(53)).map_err(|error| error.to_string().replace(&name, "FILE"))?;
    let hint = payloads.left_out().hint().map(|hint| hint.replace(&name, "FILE"));
    Ok((payloads.iter().map(|payload| payload[1]).collect(), hint))
}

/// How many datagrams to port 53 tcpdump reads.
fn of_tcpdump(link: u32, bytes: &[u8]) -> usize {
    let file = file(bytes);
    // It drops its rights where it is told to by default, and then cannot read the file.
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-Z", "root", "-n", "-q", "-r"]).arg(file.path());
    match link {
        // It prints packets of these links, and its filters do not find all of them.
        1 | 9 | 50 | 51 | 104 | 109 | 117 | 239 => &mut tcpdump,
        _ => tcpdump.arg("udp dst port 53"),
    };
    let output = tcpdump.output().expect("tcpdump is installed by scripts/setup.sh test");
    String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains(".53: UDP, length ")).count()
}

fn frames(link: &Link) -> Vec<Vec<u8>> {
    let (link, header, packet) = link;
    // The attributes of nflog are padded.
    let padding = if *link == 239 { &[0][..] } else { &[] };
    (0..COUNT).map(|number| [&header[..], &packet(&payload(number)), padding].concat()).collect()
}

#[test]
fn payloads_are_read_from_every_link_that_tcpdump_writes() {
    for link in links() {
        let bytes = pcap(link.0, &frames(&link));
        let (ids, left_out) = read(&bytes).unwrap_or_else(|error| panic!("{link:?}: {error}"));
        assert_eq!(ids, (0..COUNT as u8).collect::<Vec<_>>(), "{link:?}");
        assert_eq!(left_out, None, "{link:?}");
        if link.0 != 12 {
            assert_eq!(of_tcpdump(link.0, &bytes), COUNT as usize, "{link:?}");
        }
    }
}

#[test]
fn frames_of_other_interfaces_are_counted() {
    let ethernet = frames(&links()[0]);
    let cooked = frames(&links()[6]);
    let mut mixed = Vec::new();
    for (number, frame) in ethernet.iter().enumerate() {
        mixed.push((0, vec![7; 20 + number]));
        mixed.push(if number % 2 == 0 { (1, frame.clone()) } else { (2, cooked[number].clone()) });
    }
    let (ids, left_out) = read(&pcapng(&[189, 1, 113], &mixed)).unwrap();
    assert_eq!(ids, (0..COUNT as u8).collect::<Vec<_>>());
    assert_eq!(left_out.unwrap(), "of the capture's 20 frames, not sent: 10 of link type 189");
    let error = read(&pcapng(&[189], &mixed[..1])).unwrap_err();
    assert!(error.starts_with("FILE has frames of link type 189 only: packets are found in"), "{error}");
    let error = read(&pcap(105, &[vec![8; 40]])).unwrap_err();
    assert!(error.starts_with("FILE has frames of link type 105 only"), "{error}");
}

#[test]
fn a_cut_or_damaged_end_costs_what_it_has() {
    let whole = pcap(1, &frames(&links()[0]));
    let record = 16 + frames(&links()[0])[0].len();
    // In the data of the last record, in its header; a record of the length 4 GiB - 1 behind it.
    for (bytes, count) in [
        (whole[..whole.len() - 5].to_vec(), 9),
        (whole[..whole.len() - record + 7].to_vec(), 9),
        ([&whole[..], &[0xff; 64]].concat(), 10),
    ] {
        let (ids, left_out) = read(&bytes).unwrap();
        assert_eq!(ids.len(), count);
        assert!(left_out.as_deref().unwrap_or_default().contains("what follows: FILE is "), "{left_out:?}");
        assert_eq!(of_tcpdump(1, &bytes), count);
    }
    // Nothing is whole.
    assert!(read(&whole[..24 + 20]).unwrap_err().contains("FILE is truncated"));
}

#[test]
fn frames_without_a_payload_are_counted_by_reason() {
    let mut frames = frames(&links()[0]);
    frames[0][23] = 6;
    frames[1][20] = 0x20;
    frames[2][12..14].copy_from_slice(&[8, 6]);
    frames[3][37] = 54;
    frames[4][39] = 8;
    frames[5].truncate(50);
    frames[6][30..34].copy_from_slice(&[224, 0, 0, 251]);
    let (ids, left_out) = read(&pcap(1, &frames)).unwrap();
    assert_eq!(ids, [7, 8, 9]);
    assert_eq!(
        left_out.unwrap(),
        "of the capture's 10 frames, not sent: 1 destination_multicast, 1 fragment, 1 ip_truncated, 1 not_ip, 1 not_udp, \
         1 without a payload, 1 to other ports"
    );
    let error = read(&pcap(1, &frames[..3])).unwrap_err();
    assert!(error.ends_with("to port 53: 1 fragment, 1 not_ip, 1 not_udp"), "{error}");
}

#[test]
fn a_compressed_capture_is_called_so() {
    let whole = file(&pcap(1, &frames(&links()[0])));
    for (tool, way) in [("gzip", "gunzip"), ("bzip2", "bunzip2"), ("xz", "unxz")] {
        let packed = Command::new(tool).arg("-c").arg(whole.path()).output().unwrap().stdout;
        let error = read(&packed).unwrap_err();
        assert_eq!(error, format!("FILE is compressed: decompress it first: {way} -c FILE > FILE"), "{tool}");
    }
    // zstd and lz4 may not be installed.
    for (magic, way) in [(&b"\x28\xb5\x2f\xfd"[..], "unzstd"), (b"\x04\x22\x4d\x18", "unlz4")] {
        let error = read(&[magic, &[0; 40]].concat()).unwrap_err();
        assert!(error.contains(way), "{error}");
    }
}

/// A packet block of each kind that tools have written: enhanced (6), simple (3), and the obsolete one (2), which is
/// the size of the enhanced one with 16 bits of drops in the number of the interface.
fn packet_block(kind: u32, big_endian: bool, interface: u16, frame: &[u8]) -> Vec<u8> {
    let len = frame.len() as u32;
    let number = |number: u32| if big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
    let body = match kind {
        3 => [&number(len)[..], frame].concat(),
        2 => {
            let half = |number: u16| if big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
            let rest = [0, 0, len, len].map(number).concat();
            [&half(interface)[..], &half(7), &rest, frame].concat()
        }
        _ => [&[u32::from(interface), 0, 0, len, len].map(number).concat()[..], frame].concat(),
    };
    let padded = [&body[..], &[0; 3][..(4 - body.len() % 4) % 4]].concat();
    let total = number(12 + padded.len() as u32);
    [&number(kind)[..], &total, &padded, &total].concat()
}

/// A section with an Ethernet interface of this snapshot length, and another one.
fn section(big_endian: bool, snaplen: u32) -> Vec<u8> {
    let number = |number: u32| if big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
    let half = |number: u16| if big_endian { number.to_be_bytes() } else { number.to_le_bytes() };
    let block = |kind: u32, body: &[u8]| {
        let total = number(12 + body.len() as u32);
        [&number(kind)[..], &total, body, &total].concat()
    };
    let header = [&number(0x1a2b_3c4d)[..], &half(1), &half(0), &[0xff; 8]].concat();
    let interface = [&half(1)[..], &half(0), &number(snaplen)].concat();
    [block(0x0a0d_0d0a, &header), block(1, &interface), block(1, &interface)].concat()
}

#[test]
fn every_packet_block_of_pcapng_is_read() {
    let frames = frames(&links()[0]);
    for big_endian in [false, true] {
        for kinds in [&[2][..], &[3], &[6], &[6, 2], &[2, 3, 6]] {
            let mut bytes = section(big_endian, 0);
            for (number, frame) in frames.iter().enumerate() {
                bytes.extend(packet_block(kinds[number % kinds.len()], big_endian, 1, frame));
            }
            let (ids, left_out) = read(&bytes).unwrap();
            assert_eq!((ids, left_out), ((0..COUNT as u8).collect(), None), "{kinds:?} {big_endian}");
            assert_eq!(of_tcpdump(1, &bytes), COUNT as usize, "{kinds:?} {big_endian}");
        }
        // The snapshot length cuts the simple ones, which do not say so.
        let mut bytes = section(big_endian, 60);
        bytes.extend(packet_block(6, big_endian, 0, &frames[0]));
        bytes.extend(packet_block(3, big_endian, 0, &frames[1][..60]));
        let (ids, left_out) = read(&bytes).unwrap();
        let left_out = left_out.unwrap();
        assert_eq!((ids, &*left_out), (vec![0], "of the capture's 2 frames, not sent: 1 ip_truncated"));
        // Interface 9 is nowhere; the captured length is more than the block has.
        let mut damaged = packet_block(2, big_endian, 1, &frames[1]);
        damaged[if big_endian { 23 } else { 20 }] = 200;
        for wrong in [packet_block(2, big_endian, 9, &frames[1]), damaged] {
            let bytes =
                [&section(big_endian, 0)[..], &packet_block(2, big_endian, 0, &frames[0]), &wrong].concat();
            let (ids, left_out) = read(&bytes).unwrap();
            assert_eq!(ids, [0]);
            assert!(left_out.unwrap().contains("what follows: FILE is damaged at byte "));
        }
    }
}

#[test]
fn lengths_that_contradict_each_other_are_counted_by_reason() {
    let mut frames = frames(&links()[0]);
    let ip = |frame: &mut Vec<u8>, len: u16| frame[16..18].copy_from_slice(&len.to_be_bytes());
    ip(&mut frames[0], 0);
    ip(&mut frames[1], 19);
    ip(&mut frames[2], 25);
    ip(&mut frames[3], 60);
    ip(&mut frames[4], 9000);
    frames[5][39] = 7;
    frames[6][39] = 0;
    frames[7][39] += 1;
    frames[8].extend([0; 9]);
    let (ids, left_out) = read(&pcap(1, &frames)).unwrap();
    // Bytes behind the packet are padding.
    assert_eq!(ids, [8, 9]);
    assert_eq!(
        left_out.unwrap(),
        "of the capture's 10 frames, not sent: 1 ip_truncated, 2 ipv4_length, 2 udp_length_long, 1 udp_length_short, \
         1 udp_length_zero, 1 udp_truncated"
    );
}

#[test]
fn a_capture_without_packets_and_a_cut_header_are_called_so() {
    assert_eq!(read(&pcap(1, &[])).unwrap_err(), "it has no packets");
    assert_eq!(read(&section(false, 0)).unwrap_err(), "it has no packets");
    assert_eq!(read(&section(false, 0)[..28]).unwrap_err(), "it has no packets");
    assert_eq!(read(&[]).unwrap_err(), "FILE is empty: not even the header of a capture");
    for (bytes, len) in
        [(pcap(1, &[]), 20), (pcap(1, &[]), 4), (section(true, 0), 12), (section(false, 0), 27)]
    {
        let error = read(&bytes[..len]).unwrap_err();
        let expected = format!(
            "FILE is truncated: a capture of which only the first {len} bytes are there, less than its header"
        );
        assert_eq!(error, expected);
    }
    let error = read(b"not at all a capture, but a text").unwrap_err();
    assert_eq!(error, "FILE is not a capture: neither a pcap nor a pcapng header");
}
