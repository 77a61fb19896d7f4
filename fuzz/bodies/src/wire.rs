use std::net::{Ipv4Addr, Ipv6Addr};

use udpath_stack::wire::{
    Addresses, EtherType, Flow, Headers, LinkHeader, Mac, Packet, Refusal, Tags, Template, UdpChecksum,
    Unfit, build, ethernet, flow_of as flow_of_frame, ipv4, ipv6, reply, udp, vlan,
};

/// Longest frame tried: longer than any real one, and short enough for many tries.
const MAX_PAYLOAD: usize = 9018;

/// Frames: an accepted one lies within the input, and the views read the same from it; a rejected one has a reason.
pub fn wire_parse(data: &[u8]) {
    let flow = flow_of_frame(data);
    match Packet::parse(data) {
        Err(refusal) => assert_eq!(Refusal::ALL[refusal.index()], refusal),
        Ok(headers) => {
            assert!(headers.frame_end() <= data.len(), "{headers:?}");
            let flow = flow.expect("a whole datagram has a flow");
            assert_eq!((flow.source(), flow.destination()), (headers.source(), headers.destination()));
            assert!(headers.tags() <= vlan::MAX);
            assert_eq!(headers.payload(data).len(), headers.payload_len());
            assert_eq!(by_views(data), headers.verify(data).map(|()| headers), "{headers:?}");
            // Truncated before its end, it is not valid.
            let short = &data[..headers.frame_end() - 1];
            assert!(Packet::parse(short).is_err() && headers.verify_udp(short) == Err(Refusal::FrameShort));
            answered(data, &headers);
        }
    }
}

/// For an accepted request, the reply is accepted too, and the reply's reply is addressed like the request.
fn answered(request: &[u8], headers: &Headers) {
    let mut frame = request.to_vec();
    if headers.verify(request).is_err() {
        return;
    }
    let there = reply::echo_in_place(&mut frame, headers).expect("it is as long as the request");
    assert_eq!(Packet::parse(&frame), Ok(there));
    assert_eq!(there.verify(&frame), Ok(()));
    assert_eq!((there.source(), there.destination()), (headers.destination(), headers.source()));
    assert_eq!(there.payload(&frame), headers.payload(request));
    let mut summed = request.to_vec();
    let again = reply::in_place(&mut summed, headers, headers.payload_len(), UdpChecksum::Computed);
    assert_eq!((again, &summed), (Ok(there), &frame), "the sum that was kept is not the sum computed");
    let back = reply::echo_in_place(&mut frame, &there).expect("it is as long as the request");
    assert_eq!(back, *headers);
    assert_eq!(back.verify(&frame), Ok(()));
    assert_eq!(frame[..back.l3()], request[..back.l3()]);
}

/// The first two bytes are the length of a reply's payload, the rest is its request with room after it.
pub fn wire_reply(data: &[u8]) {
    let Some((len, request)) = data.split_first_chunk() else { return };
    let len = usize::from(u16::from_be_bytes(*len));
    let Ok(headers) = Packet::parse(request) else { return };
    let mut frame = request.to_vec();
    match reply::in_place(&mut frame, &headers, len, UdpChecksum::Computed) {
        Ok(there) => {
            assert_eq!(Packet::parse(&frame), Ok(there));
            assert_eq!(there.verify(&frame), Ok(()));
            assert_eq!(there.payload_len(), len);
            let end = there.frame_end();
            assert_eq!(frame[headers.payload_offset()..], request[headers.payload_offset()..]);
            frame.truncate(end);
            assert_eq!(Packet::parse(&frame), Ok(there), "what is behind the reply counted");
        }
        Err(Unfit::NoRoom { frame_len, room }) => {
            assert!(frame_len > room && room == request.len());
            assert_eq!(frame, request, "refused, and yet written to");
        }
        Err(Unfit::TooLong { payload_len, most }) => {
            assert!(payload_len > most && most == headers.max_payload());
            assert_eq!(frame, request, "refused, and yet written to");
        }
        Err(Unfit::Families) => panic!("a reply has the addresses of its request"),
    }
}

/// A flow in 60 bytes, then a payload: the frame built is accepted if its addresses may be answered, and has the flow's
/// fields; a template used before for another flow builds the same frame.
pub fn wire_build(data: &[u8]) {
    let Some((flow, payload)) = data.split_first_chunk::<60>() else { return };
    let payload = &payload[..payload.len().min(MAX_PAYLOAD)];
    let flow = flow_of(flow);
    let mut frame = vec![0xee; flow.payload_offset() + payload.len() + 3];
    let built = build(&mut frame, &flow, payload, UdpChecksum::Computed).expect("it has room");
    assert_eq!(built.verify(&frame), Ok(()));
    assert_eq!(built.payload(&frame), payload);
    assert_eq!(frame[built.frame_end()..], [0xee; 3]);
    match Packet::parse(&frame) {
        Ok(headers) => {
            assert_eq!(headers, built);
            assert_eq!(by_views(&frame), Ok(built));
            answered(&frame, &headers);
        }
        Err(refusal) => {
            let by_address = [
                Refusal::LinkBroadcast,
                Refusal::LinkMulticast,
                Refusal::LinkSource,
                Refusal::SourceNotUnicast,
                Refusal::DestinationBroadcast,
                Refusal::DestinationMulticast,
                Refusal::DestinationNotUnicast,
                Refusal::SameAddress,
                Refusal::PortZero,
            ];
            assert!(by_address.contains(&refusal), "{refusal}");
        }
    }

    let mut other = flow;
    (other.source_port, other.destination_port) = (!flow.destination_port, 7);
    other.addresses = match flow.addresses {
        Addresses::V4 { source, .. } => Addresses::V4 { source: Ipv4Addr::BROADCAST, destination: source },
        Addresses::V6 { source, .. } => Addresses::V6 { source: Ipv6Addr::LOCALHOST, destination: source },
    };
    let mut template = Template::new(&other);
    template.set_addresses(flow.addresses).expect("the same IP version");
    template.set_source_port(flow.source_port);
    template.set_destination_port(flow.destination_port);
    let mut emitted = vec![0xee; frame.len()];
    assert_eq!(template.emit_payload(&mut emitted, payload, UdpChecksum::Computed), Ok(built));
    assert_eq!(emitted, frame);
}

fn flow_of(bytes: &[u8; 60]) -> Flow {
    let [shape, traffic_class, hops, bytes @ ..] = bytes;
    let array = |at: usize| -> [u8; 16] { bytes[at..at + 16].try_into().expect("16 bytes") };
    let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let mac = |at: usize| Mac(bytes[at..at + 6].try_into().expect("six bytes"));
    let (outer, inner) = (vlan::Control(number(48)), vlan::Control(number(50)));
    let tags = match shape % 3 {
        0 => Tags::NONE,
        1 => Tags::one(outer),
        _ => Tags::two(outer, inner),
    };
    let addresses = if shape & 0x80 == 0 {
        let v4 = |at: usize| Ipv4Addr::from([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Addresses::V4 { source: v4(0), destination: v4(16) }
    } else {
        Addresses::V6 { source: array(0).into(), destination: array(16).into() }
    };
    Flow {
        link: LinkHeader { source: mac(32), destination: mac(38), tags },
        addresses,
        source_port: number(44),
        destination_port: number(46),
        hops: *hops,
        traffic_class: *traffic_class,
        flow_label: u32::from(number(52)) << 4 | u32::from(shape & 0xf),
    }
}

/// The same with the views, one header after the other, checksums included. Only for frames that [`Packet::parse`]
/// accepted.
fn by_views(frame: &[u8]) -> Result<Headers, Refusal> {
    let link = ethernet::View::new(frame)?;
    let (mut ether_type, mut rest) = (ethernet::Repr::parse(&link)?.ether_type, link.payload());
    while ether_type.is_tag() {
        let tag = vlan::View::new(rest)?;
        (ether_type, rest) = (vlan::Repr::parse(&tag).ether_type, tag.payload());
    }
    let (addresses, datagram) = if ether_type == EtherType::IPV4 {
        let view = ipv4::View::new(rest)?;
        let repr = ipv4::Repr::parse(&view)?;
        (Addresses::V4 { source: repr.source, destination: repr.destination }, view.payload())
    } else {
        let view = ipv6::View::new(rest)?;
        let repr = ipv6::Repr::parse(&view)?;
        (Addresses::V6 { source: repr.source, destination: repr.destination }, view.payload())
    };
    let datagram = udp::View::new(datagram)?;
    let repr = udp::Repr::parse(&datagram, &addresses)?;
    let headers = Packet::parse(frame)?;
    assert_eq!(addresses, headers.addresses());
    assert_eq!(
        (repr.source_port, repr.destination_port),
        (headers.source_port(), headers.destination_port())
    );
    assert_eq!(datagram.payload(), headers.payload(frame));
    Ok(headers)
}
