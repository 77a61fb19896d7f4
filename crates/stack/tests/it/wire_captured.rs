//! Frames sent by a kernel (`fixtures/capture.py` describes how they were captured): how the fast path parses them,
//! and whether its replies match the kernel's.

use std::path::Path;

use udpath_stack::wire::{Headers, Packet, Refusal, UdpChecksum, ipv4, reply, vlan};

fn frames(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some((record, behind)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes(record[8..12].try_into().unwrap()) as usize;
        let (frame, behind) = behind.split_at(len);
        frames.push(frame.to_vec());
        rest = behind;
    }
    frames
}

/// Turns a request into a reply with the same payload, in both ways, whose results must be equal.
fn reply_to(request: &[u8]) -> (Vec<u8>, Headers) {
    let headers = Packet::parse(request).unwrap();
    let (mut one, mut other) = (request.to_vec(), request.to_vec());
    let reply = reply::in_place(&mut one, &headers, headers.payload_len(), UdpChecksum::Computed)
        .expect("it has room");
    assert_eq!(reply::echo_in_place(&mut other, &headers), Ok(reply));
    assert_eq!(one, other);
    one.truncate(reply.frame_end());
    (one, reply)
}

#[test]
fn replies_over_ipv4_are_the_kernels_but_for_the_identification() {
    let frames = frames("ipv4.pcap");
    assert_eq!(frames.len(), 18);
    for pair in frames.chunks_exact(2) {
        let (reply, headers) = reply_to(&pair[0]);
        assert_eq!(headers.verify(&reply), Ok(()));
        let mut kernels = pair[1].clone();
        assert_eq!(Packet::parse(&kernels), Ok(headers));
        assert_eq!(headers.verify(&kernels), Ok(()));
        kernels[18..20].fill(0);
        ipv4::View::new_mut(&mut kernels[14..]).unwrap().fill_checksum();
        assert_eq!(reply, kernels);
    }
}

#[test]
fn replies_over_ipv6_are_the_kernels_but_for_the_flow_label() {
    let frames = frames("ipv6.pcap");
    assert_eq!(frames.len(), 16);
    for pair in frames.chunks_exact(2) {
        let (reply, headers) = reply_to(&pair[0]);
        assert_eq!(headers.verify(&reply), Ok(()));
        let mut kernels = pair[1].clone();
        assert_eq!(Packet::parse(&kernels), Ok(headers));
        assert_eq!(headers.verify(&kernels), Ok(()));
        kernels[14..18].copy_from_slice(&pair[0][14..18]);
        assert_eq!(reply, kernels);
    }
}

#[test]
fn payloads_are_those_that_were_sent() {
    for name in ["ipv4.pcap", "ipv6.pcap"] {
        let frames = frames(name);
        for (pair, len) in frames.chunks_exact(2).zip([0, 1, 18, 22, 63, 64, 1000, 1452]) {
            let sent: Vec<u8> = (0..len).map(|i| ((7 * i + len) % 256) as u8).collect();
            for frame in pair {
                let headers = Packet::parse(frame).unwrap();
                assert_eq!(headers.payload(frame), sent, "{name}");
            }
            let headers = Packet::parse(&pair[0]).unwrap();
            assert_eq!((headers.source_port(), headers.destination_port()), (40001, 7007));
        }
    }
}

#[test]
fn one_datagram_went_without_checksum_and_is_answered_with_one() {
    let request = frames("ipv4.pcap").into_iter().nth(16).unwrap();
    let headers = Packet::parse(&request).unwrap();
    assert_eq!(headers.payload(&request), b"no checksum");
    assert_eq!(request[40..42], [0, 0]);
    assert_eq!(headers.verify(&request), Ok(()));
    assert_ne!(reply_to(&request).0[40..42], [0, 0]);
}

#[test]
fn tags_are_kept_and_padding_is_not() {
    let frames = frames("vlan.pcap");
    assert_eq!(frames.len(), 16);
    for (index, frame) in frames.iter().enumerate() {
        let headers = Packet::parse(frame).unwrap();
        let tags = 1 + index % 2;
        assert_eq!(headers.tags(), tags);
        assert_eq!(headers.payload_len(), [0, 1, 18, 22][index / 2 % 4]);
        assert_eq!(headers.verify(frame), Ok(()));
        let control = vlan::View::new(&frame[14..]).unwrap().control();
        assert_eq!((control.vlan(), control.priority()), if tags == 1 { (100, 5) } else { (101, 1) });

        let (reply, answer) = reply_to(frame);
        assert_eq!(reply[12..12 + 4 * tags], frame[12..12 + 4 * tags]);
        assert_eq!(answer.payload(&reply), headers.payload(frame));
        // Except for the tags, it is the reply to the request without them.
        let without = |frame: &[u8]| [&frame[..12], &frame[12 + 4 * tags..]].concat();
        assert_eq!(reply_to(&without(frame)).0, without(&reply));
    }
}

#[test]
fn frames_left_to_the_kernel_are_counted_by_reason() {
    let outcomes: Vec<&str> = frames("other.pcap")
        .iter()
        .map(|frame| match Packet::parse(frame) {
            Ok(headers) => {
                assert_eq!(headers.verify(frame), Ok(()));
                "taken"
            }
            Err(refusal) => {
                assert!(refusal.for_kernel(), "{refusal}");
                refusal.name()
            }
        })
        .collect();
    let count = |name: &str| outcomes.iter().filter(|outcome| **outcome == name).count();
    // A datagram and its echo over each IP version, three fragments each.
    assert_eq!(count(Refusal::Fragment.name()), 12);
    assert_eq!(outcomes[..12], ["fragment"; 12]);
    // A broadcast datagram, and an ARP request.
    assert_eq!(count("link_broadcast"), 2);
    // Two datagrams, and neighbour solicitations.
    assert_eq!(count("link_multicast"), 4);
    assert_eq!(count("ipv4_options"), 1);
    assert_eq!(count("ipv6_extension"), 1);
    assert_eq!(count("udp_lite"), 2);
    // TCP: SYN and RST; ICMP: errors for UDP-Lite, pings, pongs; neighbour advertisements.
    assert_eq!(count("not_udp"), 4 + 2 + 4 + 2);
    // The ARP reply.
    assert_eq!(count("not_ip"), 1);
    // Echoes of datagrams that were broadcast, multicast, or had options or an extension header.
    assert_eq!(count("taken"), 4);
    assert_eq!(outcomes.len(), 39);
}
