//! Invariants of every frame: checked against naive sums, the views, and smoltcp's parser.

mod parsers;

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use udpath_stack::port::Checksums;
use udpath_stack::wire::checksum::{self, Sum};
use udpath_stack::wire::{
    Addresses, EtherType, Flow, Headers, LinkHeader, Mac, Packet, Refusal, Tags, Template, UdpChecksum,
    Unfit, build, ethernet, ipv4, ipv6, reply, udp, vlan,
};

use parsers::{by_smoltcp, by_views};

/// RFC 1071 word by word, without optimisation.
fn naive(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

prop_compose! {
    fn mac()(mut bytes: [u8; 6]) -> Mac {
        bytes[0] &= 0xfe;
        Mac(bytes)
    }
}

fn tags() -> impl Strategy<Value = Tags> {
    let control = || any::<u16>().prop_map(vlan::Control);
    prop_oneof![
        Just(Tags::NONE),
        control().prop_map(Tags::one),
        (control(), control()).prop_map(|(outer, inner)| Tags::two(outer, inner)),
    ]
}

prop_compose! {
    fn link()(source in mac(), destination in mac(), tags in tags()) -> LinkHeader {
        LinkHeader { source, destination, tags }
    }
}

/// Two different unicast addresses.
fn addresses() -> impl Strategy<Value = Addresses> {
    let v4 = || {
        (1_u32..0xe000_0000)
            .prop_map(Ipv4Addr::from_bits)
            .prop_filter("loopback, this network", |a| !a.is_loopback() && a.octets()[0] != 0)
    };
    let v6 = || (1_u128 << 64..0xff << 120).prop_map(Ipv6Addr::from_bits);
    prop_oneof![
        (v4(), v4()).prop_map(|(source, destination)| Addresses::V4 { source, destination }),
        (v6(), v6()).prop_map(|(source, destination)| Addresses::V6 { source, destination }),
    ]
    .prop_filter("the same", |addresses| addresses.source() != addresses.destination())
}

prop_compose! {
    fn flow()(
        link in link(),
        addresses in addresses(),
        source_port in 1..=u16::MAX,
        destination_port in 1..=u16::MAX,
        hops: u8,
        traffic_class: u8,
        flow_label in 0_u32..1 << 20,
    ) -> Flow {
        Flow { link, addresses, source_port, destination_port, hops, traffic_class, flow_label }
    }
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..1600)
}

/// A frame of `flow` followed by some padding.
fn frame(flow: &Flow, payload: &[u8], padding: usize) -> (Vec<u8>, Headers) {
    let mut frame = vec![0xa5; flow.payload_offset() + payload.len() + padding];
    let headers = build(&mut frame, flow, payload, UdpChecksum::Computed).unwrap();
    (frame, headers)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_are_the_naive_ones_at_any_length_and_alignment(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(0xff)], 0..400),
        from in 0_usize..16,
        cut in 0_usize..400,
    ) {
        let bytes = bytes.get(from..).unwrap_or(&[]);
        prop_assert_eq!(Sum::of(bytes).checksum(), naive(bytes));
        let cut = cut.min(bytes.len()) & !1;
        let parts = Sum::of(&bytes[cut..]).plus(Sum::of(&bytes[..cut]));
        prop_assert_eq!(parts.checksum(), naive(bytes));
        prop_assert_eq!(parts.minus(Sum::of(&bytes[cut..])).fold() % 0xffff, Sum::of(&bytes[..cut]).fold() % 0xffff);
    }

    #[test]
    fn an_update_is_the_sum_done_again(
        mut bytes in prop::collection::vec(any::<u8>(), 16..200).prop_filter("data", |b| b[14] != 0),
        new: [u8; 6],
        at in 0_usize..7,
    ) {
        let at = at & !1;
        let old: [u8; 6] = bytes[at..at + 6].try_into().unwrap();
        let before = naive(&bytes);
        bytes[at..at + 6].copy_from_slice(&new);
        prop_assert_eq!(checksum::update_bytes(before, &old, &new), naive(&bytes));
        let word = |bytes: &[u8; 6], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let by_words = [0, 2, 4].iter().fold(before, |sum, at| checksum::update(sum, word(&old, *at), word(&new, *at)));
        prop_assert_eq!(by_words, naive(&bytes));
    }

    #[test]
    fn built_frames_parse_back(flow in flow(), payload in payload(), padding in 0_usize..40) {
        let (frame, built) = frame(&flow, &payload, padding);
        let parsed = Packet::parse(&frame);
        prop_assert_eq!(parsed, Ok(built));
        prop_assert_eq!(built.verify(&frame), Ok(()));
        prop_assert_eq!(built.payload(&frame), &payload[..]);
        prop_assert_eq!(built.addresses(), flow.addresses);
        prop_assert_eq!(built.tags(), flow.link.tags.count());
        prop_assert_eq!(built.frame_end() + padding, frame.len());
        prop_assert!(frame[built.frame_end()..].iter().all(|byte| *byte == 0xa5));
        let expected = (built.tags(), flow.addresses, flow.source_port, flow.destination_port, payload.clone());
        prop_assert_eq!(by_views(&frame), Ok(expected));
        if flow.link.tags == Tags::NONE {
            let expected = (flow.source_port, flow.destination_port, payload);
            prop_assert_eq!(by_smoltcp(&frame), Some(expected));
        }
    }

    #[test]
    fn one_flipped_bit_is_always_found(flow in flow(), payload in payload(), at: prop::sample::Index, bit in 0..8) {
        let (mut frame, built) = frame(&flow, &payload, 0);
        // The bytes covered by the checksums: IPv4's header, or IPv6's addresses; UDP.
        let from = if built.is_ipv4() { built.l3() } else { built.l3() + 8 };
        let at = from + at.index(frame.len() - from);
        // UDP's length decides which bytes are covered: the rest may add up by chance.
        prop_assume!(!(built.l4() + 4..built.l4() + 6).contains(&at));
        frame[at] ^= 1_u8 << bit;
        let found = Packet::parse(&frame).and_then(|headers| headers.verify(&frame));
        // Only an IPv4 checksum field that becomes 0 means "no checksum".
        let udp_field = &frame[built.l4() + 6..built.l4() + 8];
        prop_assert!(found.is_err() || (built.is_ipv4() && udp_field == [0, 0]), "{:?}", found);
    }

    /// From a local sender it holds the sum of the pseudo header; from any other sender it must be valid.
    #[test]
    fn a_checksum_that_was_left_to_a_device_is_that_of_the_pseudo_header_and_no_other(
        flow in flow(), payload in payload(), change in 1..=u16::MAX
    ) {
        let mut left = vec![0; flow.payload_offset() + payload.len()];
        let headers = build(&mut left, &flow, &payload, UdpChecksum::Offloaded).unwrap();
        let (right, _) = frame(&flow, &payload, 0);
        let field = headers.l4() + 6..headers.l4() + 8;
        prop_assert_eq!(headers.verify_or_partial(&left), Ok(()));
        prop_assert_eq!(headers.verify_or_partial(&right), Ok(()));
        prop_assert_eq!(Checksums::Partial.check(&headers, &left), Ok(()));
        prop_assert_eq!(Checksums::Verified.check(&headers, &left), Ok(()));
        let mut other = right.clone();
        let value = u16::from_be_bytes([other[field.start], other[field.start + 1]]) ^ change;
        other[field.clone()].copy_from_slice(&value.to_be_bytes());
        // 0 and 0xffff are the same number, and 0 means "no checksum".
        prop_assume!(value != 0 && change != u16::MAX && left[field.clone()] != other[field]);
        prop_assert_eq!(headers.verify_or_partial(&other), Err(Refusal::UdpChecksum));
        prop_assert_eq!(Checksums::Unverified.check(&headers, &other), Err(Refusal::UdpChecksum));
    }

    #[test]
    fn a_reply_is_valid_and_its_reply_is_addressed_as_the_request(
        flow in flow(), request in payload(), answer in payload(), padding in 0_usize..40,
    ) {
        let (mut frame, headers) = frame(&flow, &request, padding);
        let original = frame.clone();
        frame.resize(headers.payload_offset() + answer.len().max(request.len()), 0);
        frame[headers.payload_offset()..][..answer.len()].copy_from_slice(&answer);
        let there = reply::in_place(&mut frame, &headers, answer.len(), UdpChecksum::Computed).unwrap();
        prop_assert_eq!(Packet::parse(&frame), Ok(there));
        prop_assert_eq!(there.verify(&frame), Ok(()));
        prop_assert_eq!(there.payload(&frame), &answer[..]);
        prop_assert_eq!((there.source(), there.destination()), (headers.destination(), headers.source()));
        prop_assert_eq!(&frame[..6], &original[6..12]);
        prop_assert_eq!(&frame[6..12], &original[..6]);
        prop_assert_eq!(&frame[12..there.l3()], &original[12..there.l3()]);
        if there.tags() == 0 {
            let expected = (there.source_port(), there.destination_port(), answer);
            prop_assert_eq!(by_smoltcp(&frame), Some(expected));
        }

        let once = frame.clone();
        let back = reply::echo_in_place(&mut frame, &there).unwrap();
        prop_assert_eq!(back.verify(&frame), Ok(()));
        prop_assert_eq!((back.source(), back.destination()), (headers.source(), headers.destination()));
        prop_assert_eq!(&frame[..back.l3()], &original[..back.l3()]);
        reply::echo_in_place(&mut frame, &back).unwrap();
        prop_assert_eq!(frame, once);
    }

    #[test]
    fn a_template_that_was_changed_is_the_new_flows(
        one in flow(), two in flow(), payload in payload(), number: [u8; 8],
    ) {
        let mut template = Template::new(&one);
        let changed = Flow {
            addresses: two.addresses,
            source_port: two.source_port,
            destination_port: two.destination_port,
            ..one
        };
        let fits = template.set_addresses(two.addresses);
        prop_assume!(fits.is_ok());
        template.set_source_port(two.source_port);
        template.set_destination_port(two.destination_port);
        let (expected, headers) = frame(&changed, &payload, 0);
        let mut emitted = vec![0; expected.len()];
        prop_assert_eq!(template.emit_payload(&mut emitted, &payload, UdpChecksum::Computed), Ok(headers));
        prop_assert_eq!(&emitted, &expected);

        // The payload's number changes; its sum is updated with it.
        prop_assume!(payload.len() >= 8);
        let sum = Sum::of(&payload).minus(Sum::of(&payload[..8])).plus(Sum::of(&number));
        emitted[headers.payload_offset()..][..8].copy_from_slice(&number);
        prop_assert_eq!(template.emit_summed(&mut emitted, payload.len(), sum), Ok(headers));
        prop_assert_eq!(headers.verify(&emitted), Ok(()));
        // Checksums computed independently are the same, and the datagram's sum completes an offloaded one.
        let mut filled = emitted.clone();
        filled[headers.l4() + 6] ^= 0xff;
        headers.fill_checksums(&mut filled, UdpChecksum::Computed).unwrap();
        prop_assert_eq!(&filled, &emitted);
        let l4 = headers.l4();
        template.emit(&mut filled, payload.len(), UdpChecksum::Offloaded).unwrap();
        let completed = Sum::of(&filled[l4..]).udp_checksum();
        prop_assert_eq!(completed.to_be_bytes(), [emitted[l4 + 6], emitted[l4 + 7]]);
    }

    #[test]
    fn representations_come_back(
        link in (mac(), mac(), any::<u16>()), tag: (u16, u16), addresses in addresses(),
        ip: (u8, u8, u8, u16, bool), flow_label in 0_u32..1 << 20, ports: (u16, u16), payload in payload(),
    ) {
        let mut bytes = [0; 60];
        let repr = ethernet::Repr { destination: link.0, source: link.1, ether_type: EtherType(link.2) };
        repr.emit(&mut ethernet::View::new_mut(&mut bytes).unwrap());
        prop_assert_eq!(ethernet::Repr::parse(&ethernet::View::new(&bytes).unwrap()), Ok(repr));

        let repr = vlan::Repr { control: vlan::Control(tag.0), ether_type: EtherType(tag.1) };
        repr.emit(&mut vlan::View::new_mut(&mut bytes).unwrap());
        prop_assert_eq!(vlan::Repr::parse(&vlan::View::new(&bytes).unwrap()), repr);

        let payload_len = payload.len() as u16;
        let mut packet = vec![0; 40 + payload.len()];
        let (protocol, hops, class, identification, dont_fragment) = ip;
        match addresses {
            Addresses::V4 { source, destination } => {
                let repr = ipv4::Repr {
                    source, destination, protocol, ttl: hops, tos: class, identification, dont_fragment, payload_len,
                };
                repr.emit(packet.first_chunk_mut().unwrap());
                prop_assert_eq!(ipv4::Repr::parse(&ipv4::View::new(&packet).unwrap()), Ok(repr));
            }
            Addresses::V6 { source, destination } => {
                let repr = ipv6::Repr {
                    source, destination, next_header: 17, hop_limit: hops, traffic_class: class, flow_label, payload_len,
                };
                repr.emit(packet.first_chunk_mut().unwrap());
                prop_assert_eq!(ipv6::Repr::parse(&ipv6::View::new(&packet).unwrap()), Ok(repr));
            }
        }

        let repr = udp::Repr { source_port: ports.0, destination_port: ports.1, payload_len };
        let mut datagram = vec![0; 8 + payload.len()];
        datagram[8..].copy_from_slice(&payload);
        repr.emit(datagram.first_chunk_mut().unwrap(), &addresses, Sum::of(&payload));
        prop_assert_eq!(udp::Repr::parse(&udp::View::new(&datagram).unwrap(), &addresses), Ok(repr));
    }

    #[test]
    fn damaged_frames_are_refused_or_lie_within_themselves(
        flow in flow(), payload in payload(), cut: prop::sample::Index,
        damage in prop::collection::vec((0_usize..70, any::<u8>()), 0..6),
    ) {
        let (mut frame, _) = frame(&flow, &payload, 0);
        for (at, byte) in damage {
            if let Some(damaged) = frame.get_mut(at) {
                *damaged = byte;
            }
        }
        frame.truncate(cut.index(frame.len() + 1));
        if let Ok(headers) = Packet::parse(&frame) {
            prop_assert!(headers.frame_end() <= frame.len());
            prop_assert_eq!(headers.payload(&frame).len(), headers.payload_len());
            let whole = headers.verify(&frame);
            match by_views(&frame) {
                Ok((tags, addresses, source_port, destination_port, payload)) => {
                    prop_assert_eq!(whole, Ok(()));
                    prop_assert_eq!((tags, addresses), (headers.tags(), headers.addresses()));
                    prop_assert_eq!((source_port, destination_port), (headers.source_port(), headers.destination_port()));
                    prop_assert_eq!(&payload, headers.payload(&frame));
                }
                Err(refusal) => prop_assert_eq!(whole, Err(refusal)),
            }
        }
    }
}

#[test]
fn payloads_are_bounded_by_the_length_fields_and_the_buffer() {
    let link = LinkHeader {
        source: Mac([2, 0, 0, 0, 0, 1]),
        destination: Mac([2, 0, 0, 0, 0, 2]),
        tags: Tags::NONE,
    };
    let v4 = Flow::new(link, "10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap()).unwrap();
    let v6 = Flow::new(link, "[fd00::1]:1".parse().unwrap(), "[fd00::2]:2".parse().unwrap()).unwrap();
    let mut buffer = vec![0; 70_000];
    for (flow, most) in [(v4, 65_507), (v6, 65_527)] {
        let payload = vec![1; most + 1];
        let headers = build(&mut buffer, &flow, &payload[1..], UdpChecksum::Computed).unwrap();
        assert_eq!(Packet::parse(&buffer), Ok(headers));
        assert_eq!(headers.verify(&buffer), Ok(()));
        let longer = build(&mut buffer, &flow, &payload, UdpChecksum::Computed);
        assert_eq!(longer, Err(Unfit::TooLong { payload_len: most + 1, most }));
        assert_eq!(reply::in_place(&mut buffer, &headers, most + 1, UdpChecksum::Computed), longer);

        let frame_len = flow.payload_offset() + 100;
        let small = &mut buffer[..frame_len - 1];
        let refused = build(small, &flow, &payload[..100], UdpChecksum::Computed);
        assert_eq!(refused, Err(Unfit::NoRoom { frame_len, room: frame_len - 1 }));
    }
    let mixed = Flow::new(link, "10.0.0.1:1".parse().unwrap(), "[fd00::2]:2".parse().unwrap());
    assert_eq!(mixed, Err(Unfit::Families));
    assert_eq!(Template::new(&v4).set_addresses(v6.addresses), Err(Unfit::Families));
}

#[test]
fn headers_used_with_another_frame_are_refused_not_followed() {
    let link = LinkHeader::default();
    let flow = Flow::new(link, "10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap()).unwrap();
    let mut frame = vec![0; 100];
    let headers = build(&mut frame, &flow, &[7; 58], UdpChecksum::Computed).unwrap();
    for len in 0..100 {
        let short = &mut frame.clone()[..len];
        assert_eq!(headers.verify_udp(short), Err(Refusal::FrameShort));
        assert_eq!(headers.payload(short), b"");
        assert!(headers.payload_mut(short).is_empty());
        assert!(headers.fill_checksums(short, UdpChecksum::Computed).is_err());
        assert!(reply::echo_in_place(short, &headers).is_err());
        assert_eq!(short, &frame[..len]);
    }
}
