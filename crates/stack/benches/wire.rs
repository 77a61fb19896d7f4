//! What the wire module costs per frame of 64 bytes, beside smoltcp's wire module doing the same work on the same bytes
//! in the same run.
//!
//! ```text
//! parse    which datagram is this: addresses, ports, where the payload lies
//! verify   the checksums of IP and UDP
//! reply    the frame becomes a reply with a payload of the same length, both checksums computed
//! all      the three in a row: what an echo costs beside its I/O
//! sum      the checksum's loop alone, by length, beside two bytes at a time
//! ```
//! Each round works on a burst of 64 frames, as the datapath does, so that no frame's result is ready before the next
//! one's work begins. Throughput is in frames.

use std::hint::black_box;

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use smoltcp::wire as other;
use udpath_stack::wire::checksum::Sum;
use udpath_stack::wire::{
    Flow, Headers, LinkHeader, Mac, Packet, Refusal, Tags, Template, UdpChecksum, build, reply, vlan,
};

/// Frames in a burst.
const BURST: usize = 64;
/// Bytes of a frame.
const FRAME: usize = 64;

type Frame = [u8; FRAME];

fn burst(source: &str, destination: &str, tags: Tags) -> Vec<Frame> {
    let link = LinkHeader { source: Mac([2, 0, 0, 0, 0, 1]), destination: Mac([2, 0, 0, 0, 0, 2]), tags };
    let mut flow = Flow::new(link, source.parse().unwrap(), destination.parse().unwrap()).unwrap();
    (0..BURST)
        .map(|number| {
            flow.source_port = 1024 + number as u16;
            let mut frame = [0; FRAME];
            let payload = vec![number as u8; FRAME.saturating_sub(flow.payload_offset())];
            build(&mut frame, &flow, &payload, UdpChecksum::Computed).unwrap();
            frame
        })
        .collect()
}

fn over<R>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    frames: &[Frame],
    mut work: impl FnMut(&mut Frame) -> R,
) {
    let mut frames = frames.to_vec();
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            for frame in &mut frames {
                black_box(&work(black_box(frame)));
            }
        });
    });
}

/// Addresses, ports and payload, as smoltcp reads them: each header's lengths checked, none of the sums.
fn smoltcp_parse(frame: &[u8]) -> Option<(other::IpAddress, other::IpAddress, u16, u16, &[u8])> {
    let link = other::EthernetFrame::new_checked(frame).ok()?;
    let (source, destination, datagram): (other::IpAddress, other::IpAddress, &[u8]) = match link.ethertype()
    {
        other::EthernetProtocol::Ipv4 => {
            let ip = other::Ipv4Packet::new_checked(link.payload()).ok()?;
            if ip.more_frags() || ip.frag_offset() != 0 || ip.header_len() != 20 {
                return None;
            }
            if ip.next_header() != other::IpProtocol::Udp {
                return None;
            }
            (ip.src_addr().into(), ip.dst_addr().into(), ip.payload())
        }
        other::EthernetProtocol::Ipv6 => {
            let ip = other::Ipv6Packet::new_checked(link.payload()).ok()?;
            if ip.next_header() != other::IpProtocol::Udp {
                return None;
            }
            (ip.src_addr().into(), ip.dst_addr().into(), ip.payload())
        }
        _ => return None,
    };
    if !source.is_unicast() || !destination.is_unicast() {
        return None;
    }
    let datagram = other::UdpPacket::new_checked(datagram).ok()?;
    Some((source, destination, datagram.src_port(), datagram.dst_port(), datagram.payload()))
}

/// Both checksums; which headers there are is known.
fn smoltcp_verify(frame: &[u8], ipv4: bool) -> bool {
    let link = other::EthernetFrame::new_unchecked(frame);
    if ipv4 {
        let ip = other::Ipv4Packet::new_unchecked(link.payload());
        let datagram = other::UdpPacket::new_unchecked(ip.payload());
        ip.verify_checksum() && datagram.verify_checksum(&ip.src_addr().into(), &ip.dst_addr().into())
    } else {
        let ip = other::Ipv6Packet::new_unchecked(link.payload());
        let datagram = other::UdpPacket::new_unchecked(ip.payload());
        datagram.verify_checksum(&ip.src_addr().into(), &ip.dst_addr().into())
    }
}

/// The reply, field by field, with both checksums; which headers there are is known.
fn smoltcp_turn(frame: &mut [u8], ipv4: bool) {
    let mut link = other::EthernetFrame::new_unchecked(frame);
    let (source, destination) = (link.src_addr(), link.dst_addr());
    link.set_src_addr(destination);
    link.set_dst_addr(source);
    if ipv4 {
        let mut ip = other::Ipv4Packet::new_unchecked(link.payload_mut());
        let (source, destination) = (ip.src_addr(), ip.dst_addr());
        ip.set_src_addr(destination);
        ip.set_dst_addr(source);
        ip.set_dscp(0);
        ip.set_ecn(0);
        ip.set_ident(0);
        ip.clear_flags();
        ip.set_dont_frag(true);
        ip.set_hop_limit(64);
        ip.fill_checksum();
        smoltcp_turn_udp(ip.payload_mut(), destination.into(), source.into());
    } else {
        let mut ip = other::Ipv6Packet::new_unchecked(link.payload_mut());
        let (source, destination) = (ip.src_addr(), ip.dst_addr());
        ip.set_src_addr(destination);
        ip.set_dst_addr(source);
        ip.set_traffic_class(0);
        ip.set_hop_limit(64);
        smoltcp_turn_udp(ip.payload_mut(), destination.into(), source.into());
    }
}

fn smoltcp_turn_udp(datagram: &mut [u8], source: other::IpAddress, destination: other::IpAddress) {
    let mut udp = other::UdpPacket::new_unchecked(datagram);
    let (source_port, destination_port) = (udp.src_port(), udp.dst_port());
    udp.set_src_port(destination_port);
    udp.set_dst_port(source_port);
    udp.fill_checksum(&source, &destination);
}

fn whole(frame: &mut Frame) -> Result<Headers, Refusal> {
    let headers = Packet::parse(frame)?;
    headers.verify(frame)?;
    let len = headers.payload_len();
    reply::in_place(frame, &headers, len, UdpChecksum::Computed).map_err(|_| Refusal::FrameShort)
}

fn frames(c: &mut Criterion) {
    let v4 = burst("10.0.0.1:1", "10.0.0.2:53", Tags::NONE);
    // Headers of IPv6 take 62 bytes: 2 are left.
    let v6 = burst("[fd00::1]:1", "[fd00::2]:53", Tags::NONE);
    let tagged = burst("10.0.0.1:1", "10.0.0.2:53", Tags::two(vlan::Control(1), vlan::Control(2)));

    let mut group = c.benchmark_group("parse");
    group.throughput(Throughput::Elements(BURST as u64));
    over(&mut group, "ipv4", &v4, |frame| Packet::parse(frame));
    over(&mut group, "ipv4/smoltcp", &v4, |frame| {
        smoltcp_parse(frame)
            .map(|(source, destination, from, to, payload)| (source, destination, from, to, payload.len()))
    });
    over(&mut group, "ipv6", &v6, |frame| Packet::parse(frame));
    over(&mut group, "ipv6/smoltcp", &v6, |frame| {
        smoltcp_parse(frame)
            .map(|(source, destination, from, to, payload)| (source, destination, from, to, payload.len()))
    });
    over(&mut group, "ipv4 two tags", &tagged, |frame| Packet::parse(frame));
    group.finish();

    for (name, frames, ipv4) in [("ipv4", &v4, true), ("ipv6", &v6, false)] {
        let headers = Packet::parse(&frames[0]).unwrap();
        let mut group = c.benchmark_group("verify");
        group.throughput(Throughput::Elements(BURST as u64));
        over(&mut group, name, frames, |frame| headers.verify(frame));
        over(&mut group, &format!("{name}/smoltcp"), frames, |frame| smoltcp_verify(frame, ipv4));
    }

    for (name, frames, ipv4) in [("ipv4", &v4, true), ("ipv6", &v6, false)] {
        let headers = Packet::parse(&frames[0]).unwrap();
        let len = headers.payload_len();
        let mut group = c.benchmark_group("reply");
        group.throughput(Throughput::Elements(BURST as u64));
        over(&mut group, name, frames, |frame| reply::in_place(frame, &headers, len, UdpChecksum::Computed));
        over(&mut group, &format!("{name} unchanged"), frames, |frame| reply::echo_in_place(frame, &headers));
        over(&mut group, &format!("{name}/smoltcp"), frames, |frame| smoltcp_turn(frame, ipv4));
    }

    for (name, frames, ipv4) in [("ipv4", &v4, true), ("ipv6", &v6, false)] {
        let mut group = c.benchmark_group("all");
        group.throughput(Throughput::Elements(BURST as u64));
        over(&mut group, name, frames, whole);
        over(&mut group, &format!("{name}/smoltcp"), frames, |frame| {
            let good = smoltcp_parse(frame).is_some() && smoltcp_verify(frame, ipv4);
            if good {
                smoltcp_turn(frame, ipv4);
            }
            good
        });
    }
}

fn templates(c: &mut Criterion) {
    let link = LinkHeader { source: Mac([2; 6]), destination: Mac([4; 6]), tags: Tags::NONE };
    let flow = Flow::new(link, "10.0.0.1:1".parse().unwrap(), "10.0.0.2:53".parse().unwrap()).unwrap();
    let frames = vec![[0; FRAME]; BURST];
    let sum = Sum::of(&[0; 22]);
    let mut group = c.benchmark_group("emit");
    group.throughput(Throughput::Elements(BURST as u64));
    let mut template = Template::new(&flow);
    over(&mut group, "template", &frames, |frame| template.emit(frame, 22, UdpChecksum::Computed));
    let mut port = 1;
    over(&mut group, "template, new port, known sum", &frames, |frame| {
        port = port % 60_000 + 1;
        template.set_source_port(port);
        template.emit_summed(frame, 22, sum)
    });
    over(&mut group, "from nothing", &frames, |frame| build(frame, &flow, &[0; 22], UdpChecksum::Computed));
}

fn sums(c: &mut Criterion) {
    /// RFC 1071's own loop.
    fn by_two_bytes(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for word in bytes.chunks_exact(2) {
            sum += u32::from(u16::from_be_bytes([word[0], word[1]]));
        }
        if let [last] = bytes.chunks_exact(2).remainder() {
            sum += u32::from(*last) << 8;
        }
        sum = (sum & 0xffff) + (sum >> 16);
        !((sum & 0xffff) + (sum >> 16)) as u16
    }

    let mut group = c.benchmark_group("sum");
    let bytes: Vec<u8> = (0..9000_u32).map(|i| (i * 7) as u8).collect();
    for len in [20, 38, 64, 128, 512, 1472, 9000] {
        assert_eq!(Sum::of(&bytes[..len]).checksum(), by_two_bytes(&bytes[..len]));
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("{len}"), |bencher| {
            bencher.iter(|| Sum::of(black_box(&bytes[..len])).checksum());
        });
        group.bench_function(format!("{len}/two bytes"), |bencher| {
            bencher.iter(|| by_two_bytes(black_box(&bytes[..len])));
        });
    }
    group.finish();
}

criterion_group!(benches, frames, templates, sums);
criterion_main!(benches);
