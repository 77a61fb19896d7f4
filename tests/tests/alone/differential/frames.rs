//! The frames: valid, unusual and malformed, from a seed. Frame `n` comes from source port `FIRST_PORT + n`, so its
//! reply is identified by its destination port.

mod fields;
pub(crate) mod kinds;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fields::{Checksum, Request, UDP, fragments};
pub(crate) use fields::{folded, sum};

/// Source port of the first frame.
pub(crate) const FIRST_PORT: u16 = 2000;

/// Addresses of the two ends of the link.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) client_mac: [u8; 6],
    pub(crate) server_mac: [u8; 6],
    pub(crate) client: (Ipv4Addr, Ipv6Addr),
    pub(crate) server: (Ipv4Addr, Ipv6Addr),
    pub(crate) port: u16,
}

/// Numbers from a seed: SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Every kind of frame; the test refers to these names.
pub(crate) const KINDS: [&str; 33] = [
    "good",
    "length",
    "empty",
    "hops",
    "traffic class",
    "no checksum",
    "wrong UDP checksum",
    "wrong IP checksum",
    "other port",
    "port 0",
    "options",
    "options cut",
    "header length",
    "version",
    "IP length",
    "UDP length",
    "UDP length 0",
    "cut",
    "padded",
    "fragment",
    "fragment flags",
    "extension headers",
    "jumbogram",
    "other transport",
    "UDP-Lite",
    "other MAC",
    "group MAC",
    "group sender",
    "special source",
    "special destination",
    "other ether type",
    "priority tag",
    "bytes changed",
];

/// Kind and frames of request `number`: one frame, or the fragments of one datagram.
pub(crate) fn request(ends: &Ends, random: &mut Random, number: usize) -> (String, Vec<Vec<u8>>) {
    let kind = KINDS[number % KINDS.len()];
    let ipv6 = number / KINDS.len() % 2 == 1;
    let mut request = good(ends, random, ipv6, FIRST_PORT + number as u16);
    let signed = |random: &mut Random| random.of(&[-9, -8, -3, -1, 1, 2, 7, 8, 20, 100]);
    match kind {
        "length" => request.payload = payload(random, if ipv6 { 1453 } else { 1473 }),
        "empty" => request.payload.clear(),
        "hops" => request.hops = random.of(&[0, 1, 2, 254, 255]),
        "traffic class" => request.traffic_class = random.below(256) as u8,
        "no checksum" => request.udp_checksum = Checksum::Missing,
        "wrong UDP checksum" => request.udp_checksum = Checksum::Changed(1 << random.below(16)),
        "wrong IP checksum" => request.ip_checksum_change = 0x0100,
        "other port" => request.ports.1 = random.of(&[1, ends.port + 1, ends.port - 1, 65_535]),
        "port 0" if random.below(2) == 0 => request.ports.1 = 0,
        "port 0" => request.ports.0 = 0,
        "options" if !ipv6 => {
            // None; no operation; record route; timestamp; router alert; source routes; garbage.
            request.options = random
                .of::<&[u8]>(&[
                    &[0; 4],
                    &[1; 4],
                    &[1; 40],
                    &[7, 7, 4, 0, 0, 0, 0, 0],
                    &[148, 4, 0, 0],
                    &[131, 7, 4, 10, 0, 0, 1, 0],
                    &[7, 200, 4, 0],
                    &[68, 8, 5, 0, 0, 0, 0, 0],
                ])
                .to_vec();
        }
        "options cut" if !ipv6 => {
            request.options = vec![1; 40];
            request.behind = -(request.payload.len() as i32) - 8 - random.below(45) as i32;
        }
        "header length" if !ipv6 => request.version_and_length = Some(0x40 | random.below(16) as u8),
        "version" => request.version_and_length = Some((random.below(16) as u8) << 4 | 5),
        "IP length" => request.ip_length = signed(random),
        "UDP length" => request.udp_length = signed(random),
        "UDP length 0" => request.udp_length_is = Some(random.below(9) as u16),
        "cut" => request.behind = -(1 + random.below(request.payload.len() + 40) as i32),
        "padded" => request.behind = 1 + random.below(60) as i32,
        "fragment" => return (kind.into(), fragments(&request, random)),
        "fragment flags" if !ipv6 => {
            request.fragment = random.of(&[0x8000, 0xc000, 0x2000, 0x2001, 1, 0x1fff, 0]);
        }
        "extension headers" if ipv6 => {
            // Hop by hop, destination options, routing with nothing left, none of these; also two of them, and in a
            // wrong order. Each: next header, length, and padding of four bytes.
            let pad = [1, 4, 0, 0, 0, 0];
            let header = |next: u8| [&[next, 0], &pad[..]].concat();
            (request.next_header, request.options) = match random.below(6) {
                0 => (0, header(UDP)),
                1 => (60, header(UDP)),
                2 => (43, vec![UDP, 0, 0, 0, 0, 0, 0, 0]),
                3 => (0, [header(60), header(UDP)].concat()),
                4 => (60, [header(0), header(UDP)].concat()),
                _ => (44, vec![UDP, 0, 0, 0, 0, 0, 0, number as u8]),
            };
        }
        "jumbogram" if ipv6 => {
            (request.next_header, request.options) = (0, vec![UDP, 0, 194, 4, 0, 1, 0, 0]);
            request.ip_length = -i32::MAX;
        }
        "other transport" => request.next_header = random.of(&[1, 6, 58, 59, 132, 255, 253]),
        "UDP-Lite" => request.next_header = 136,
        "other MAC" => request.link.0[random.below(5) + 1] ^= 1 << random.below(8),
        "group MAC" => {
            request.link.0 = random.of(&[[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]]);
        }
        "group sender" => request.link.1 = random.of(&[[0xff; 6], [1, 0, 0x5e, 0, 0, 1]]),
        "special source" => request.source = special(ends, random, ipv6, true),
        "special destination" => request.destination = special(ends, random, ipv6, false),
        "other ether type" => {
            request.ether_type = Some(random.of(&[0, 46, 1500, 0x0806, 0x88cc, 0x86de, 0x0801]));
        }
        // VLAN 0: priority only.
        "priority tag" => request.tags = vec![0x81, 0, (random.below(8) as u8) << 5, 0],
        "bytes changed" => {
            let mut frame = request.frame();
            // Most checksums no longer match: other errors are seen only where checksums are not verified.
            for _ in 0..=random.below(3) {
                let at = 12 + random.below((frame.len() - 12).min(30));
                frame[at] = random.below(256) as u8;
            }
            return (kind.into(), vec![frame]);
        }
        _ => {}
    }
    (kind.into(), vec![request.frame()])
}

fn payload(random: &mut Random, below: usize) -> Vec<u8> {
    let len = random.below(below);
    (0..len).map(|_| random.below(256) as u8).collect()
}

fn good(ends: &Ends, random: &mut Random, ipv6: bool, port: u16) -> Request {
    let (source, destination) = if ipv6 {
        (ends.client.1.into(), ends.server.1.into())
    } else {
        (ends.client.0.into(), ends.server.0.into())
    };
    Request {
        link: (ends.server_mac, ends.client_mac),
        tags: Vec::new(),
        ether_type: None,
        source,
        destination,
        ports: (port, ends.port),
        payload: payload(random, 64),
        hops: 64,
        traffic_class: 0,
        fragment: 0,
        options: Vec::new(),
        next_header: UDP,
        version_and_length: None,
        ip_length: 0,
        udp_length: 0,
        udp_length_is: None,
        udp_checksum: Checksum::Right,
        ip_checksum_change: 0,
        flow_label: 0,
        behind: 0,
    }
}

/// A valid request from the client, to check that everything before it was received.
pub(crate) fn plain(ends: &Ends, port: u16) -> Vec<u8> {
    good(ends, &mut Random(u64::from(port)), false, port).frame()
}

/// A valid request with these addresses and this tag.
pub(crate) fn tagged(ends: &Ends, (source, destination): (IpAddr, IpAddr), tag: &[u8], port: u16) -> Vec<u8> {
    let request = good(ends, &mut Random(u64::from(port)), source.is_ipv6(), port);
    Request { source, destination, tags: tag.to_vec(), ..request }.frame()
}

/// A valid request, but from this address.
pub(crate) fn from_address(ends: &Ends, source: IpAddr, port: u16) -> Vec<u8> {
    let request = good(ends, &mut Random(u64::from(port)), source.is_ipv6(), port);
    Request { source, ..request }.frame()
}

/// Addresses that must not appear on a link, or not in this field.
fn special(ends: &Ends, random: &mut Random, ipv6: bool, source: bool) -> IpAddr {
    if ipv6 {
        let mapped = ends.client.0.to_ipv6_mapped();
        let own = if source { ends.server.1 } else { ends.client.1 };
        let group = |last| Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, last);
        return random
            .of(&[Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST, mapped, own, group(1), group(0x99)])
            .into();
    }
    let [a, b, c, _] = ends.server.0.octets();
    let own = if source { ends.server.0 } else { ends.client.0 };
    let choices = [
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::new(0, 1, 2, 3),
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::new(127, 9, 9, 9),
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::new(239, 1, 2, 3),
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(a, b, c, 255),
        Ipv4Addr::new(a, b, c, 0),
        own,
    ];
    random.of(&choices).into()
}
