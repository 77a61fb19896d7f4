//! Every kind of frame once, by name: each field of each header with usual, unusual and impossible values, for both
//! IP versions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::fields::{Checksum, Request, UDP, two_fragments};
use super::{Ends, FIRST_PORT, Random, good};
use crate::differential::SECOND;

/// Transport protocols, and numbers that are not one.
const PROTOCOLS: [u8; 20] =
    [0, 1, 2, 4, 6, 33, 41, 46, 47, 50, 51, 58, 59, 103, 132, 135, 136, 137, 253, 255];

/// Collects kinds: each gets the next source port.
struct Kinds<'a> {
    ends: &'a Ends,
    ipv6: bool,
    made: Vec<(String, Vec<Vec<u8>>)>,
}

/// All kinds. Number `n` comes from port `FIRST_PORT + n`.
pub(crate) fn all(ends: &Ends) -> Vec<(String, Vec<Vec<u8>>)> {
    let mut kinds = Kinds { ends, ipv6: false, made: Vec::new() };
    for ipv6 in [false, true] {
        kinds.ipv6 = ipv6;
        kinds.lengths();
        kinds.links();
        kinds.tags();
        kinds.checksums_and_ports();
        kinds.cut_and_padded();
        kinds.fragments();
        kinds.addresses();
        if ipv6 { kinds.ipv6_headers() } else { kinds.ipv4_headers() }
    }
    kinds.made
}

impl Kinds<'_> {
    fn good(&self) -> Request {
        let port = FIRST_PORT + self.made.len() as u16;
        let mut request = good(self.ends, &mut Random(u64::from(port)), self.ipv6, port);
        request.payload.resize(24, 0x5a);
        request
    }

    fn add(&mut self, name: &str, change: impl FnOnce(&mut Request)) {
        let mut request = self.good();
        change(&mut request);
        self.add_frames(name, vec![request.frame()]);
    }

    fn add_frames(&mut self, name: &str, frames: Vec<Vec<u8>>) {
        let version = if self.ipv6 { "IPv6" } else { "IPv4" };
        self.made.push((format!("{version}, {name}"), frames));
    }

    fn lengths(&mut self) {
        let most = if self.ipv6 { 1452 } else { 1472 };
        for len in [0, 1, 2, 3, 7, 8, 9, 17, 18, 19, 63, 64, 65, 511, 1024, most - 1, most] {
            self.add(&format!("{len} bytes"), |request| request.payload.resize(len, 0xa5));
        }
        for hops in [0, 1, 2, 63, 64, 128, 255] {
            self.add(&format!("{hops} hops"), |request| request.hops = hops);
        }
        for class in [1, 2, 3, 4, 16, 0xb8, 0xff] {
            self.add(&format!("traffic class {class:#x}"), |request| request.traffic_class = class);
        }
    }

    fn links(&mut self) {
        let Ends { client_mac, server_mac, .. } = *self.ends;
        let mut other = server_mac;
        other[5] ^= 1;
        let stations = [
            ("another station", other),
            ("everyone", [0xff; 6]),
            ("an IPv4 group", [1, 0, 0x5e, 0, 0, 1]),
            ("an IPv6 group", [0x33, 0x33, 0, 0, 0, 1]),
            ("a bridge's group", [1, 0x80, 0xc2, 0, 0, 0]),
            ("no station", [0; 6]),
            ("its sender", client_mac),
        ];
        for (name, station) in stations {
            self.add(&format!("to {name}"), |request| request.link.0 = station);
        }
        for (name, station) in [("everyone", [0xff; 6]), ("a group", [1, 0, 0x5e, 0, 0, 1])] {
            self.add(&format!("from the station of {name}"), |request| request.link.1 = station);
        }
        let other_version: u16 = if self.ipv6 { 0x0800 } else { 0x86dd };
        for kind in
            [0, 46, 1500, 0x0600, 0x0806, 0x8035, 0x8847, 0x8863, 0x88cc, 0x9000, 0xffff, other_version]
        {
            self.add(&format!("EtherType {kind:#06x}"), |request| request.ether_type = Some(kind));
        }
    }

    /// The machine has no VLAN device: only priority tags are for it.
    fn tags(&mut self) {
        let tag = |kind: u16, control: u16| [kind.to_be_bytes(), control.to_be_bytes()].concat();
        for priority in 0..8 {
            self.add(&format!("priority {priority}"), |request| request.tags = tag(0x8100, priority << 13));
        }
        self.add("drop eligible", |request| request.tags = tag(0x8100, 0x1000));
        for vlan in [1, 2, 100, 4094, 4095] {
            self.add(&format!("VLAN {vlan}"), |request| request.tags = tag(0x8100, vlan));
        }
        self.add("VLAN 100 with a priority", |request| request.tags = tag(0x8100, 0xe064));
        let stacks: [(&str, &[(u16, u16)]); 12] = [
            ("a provider's VLAN 0", &[(0x88a8, 0)]),
            ("a provider's VLAN 100", &[(0x88a8, 100)]),
            ("an old provider's tag", &[(0x9100, 100)]),
            ("QinQ", &[(0x88a8, 100), (0x8100, 7)]),
            ("QinQ of customers", &[(0x8100, 100), (0x8100, 7)]),
            ("QinQ, the outer one a priority", &[(0x8100, 0), (0x8100, 7)]),
            ("QinQ, the inner one a priority", &[(0x8100, 100), (0x8100, 0)]),
            ("two priorities", &[(0x8100, 0x2000), (0x8100, 0x4000)]),
            ("two priorities, a provider's", &[(0x88a8, 0), (0x8100, 0)]),
            ("QinQ the wrong way round", &[(0x8100, 100), (0x88a8, 7)]),
            ("three tags", &[(0x88a8, 100), (0x88a8, 7), (0x8100, 7)]),
            ("three priorities", &[(0x8100, 0), (0x8100, 0), (0x8100, 0)]),
        ];
        for (name, stack) in stacks {
            let tags = stack.iter().flat_map(|(kind, control)| tag(*kind, *control)).collect();
            self.add(name, |request| request.tags = tags);
        }
        self.add("cut in a tag", |request| {
            request.tags = tag(0x8100, 0);
            request.behind = -1400;
        });
    }

    fn checksums_and_ports(&mut self) {
        self.add("no UDP checksum", |request| request.udp_checksum = Checksum::Missing);
        self.add("UDP checksum of the pseudo header", |request| request.udp_checksum = Checksum::Partial);
        for bits in [1, 2, 0x0080, 0x0100, 0x8000, 0x00ff, 0xff00, 0x5555] {
            let name = format!("UDP checksum with {bits:#06x} turned over");
            self.add(&name, |request| request.udp_checksum = Checksum::Changed(bits));
        }
        // Received as none, if the field must be written as 0xffff.
        self.add("UDP checksum 0xffff", |request| {
            request.payload = vec![0, 0];
            let frame = request.frame();
            let at = frame.len() - 4;
            // The payload makes up for the difference.
            request.payload = frame[at..at + 2].to_vec();
        });
        let port = self.ends.port;
        for to in [0, 1, port - 1, port + 1, port.swap_bytes(), port ^ 0x100, 65_535] {
            self.add(&format!("to port {to}"), |request| request.ports.1 = to);
        }
        self.add("from port 0", |request| request.ports.0 = 0);
    }

    fn cut_and_padded(&mut self) {
        for behind in [-1, -8, -23, -24, -25, -31, -32, -33, -40, -51, -52, -53, -60, -71, -72] {
            self.add(&format!("{} bytes cut off", -behind), |request| request.behind = behind);
        }
        for behind in [1, 2, 18, 60, 400] {
            self.add(&format!("{behind} bytes of padding"), |request| request.behind = behind);
        }
        for change in [-32, -24, -20, -9, -8, -1, 1, 2, 8, 20, 100, 40_000] {
            self.add(&format!("IP length {change:+}"), |request| request.ip_length = change);
            self.add(&format!("UDP length {change:+}"), |request| request.udp_length = change);
        }
        for len in [0, 1, 7, 8, 65_535] {
            self.add(&format!("UDP length {len}"), |request| request.udp_length_is = Some(len));
        }
    }

    fn fragments(&mut self) {
        let of = |kinds: &Self, cut: usize, order: &[usize]| {
            let request = kinds.good();
            let frames = two_fragments(&request, cut);
            order.iter().map(|at| frames[*at].clone()).collect::<Vec<_>>()
        };
        let orders: [(&str, usize, &[usize]); 7] = [
            ("two fragments", 16, &[0, 1]),
            ("two fragments, the last one first", 16, &[1, 0]),
            ("the UDP header alone in the first fragment", 8, &[0, 1]),
            ("an empty last fragment", 32, &[0, 1]),
            ("the first fragment alone", 16, &[0]),
            ("the last fragment alone", 16, &[1]),
            ("the first fragment twice", 16, &[0, 0, 1]),
        ];
        for (name, cut, order) in orders {
            let frames = of(self, cut, order);
            self.add_frames(name, frames);
        }
    }

    fn addresses(&mut self) {
        let network = |own: Ipv4Addr, last: u8| {
            let [a, b, c, _] = own.octets();
            IpAddr::from([a, b, c, last])
        };
        let own: [IpAddr; 2] = [self.ends.server.0.into(), self.ends.server.1.into()];
        let client: [IpAddr; 2] = [self.ends.client.0.into(), self.ends.client.1.into()];
        let addresses: Vec<(&str, IpAddr)> = if self.ipv6 {
            let ip = |text: &str| text.parse::<Ipv6Addr>().unwrap().into();
            vec![
                ("no address", ip("::")),
                ("the loopback", ip("::1")),
                ("a mapped address", self.ends.client.0.to_ipv6_mapped().into()),
                ("a compatible address", ip("::10.0.0.1")),
                ("a NAT64 address", ip("64:ff9b::a00:1")),
                ("the interface's group", ip("ff01::1")),
                ("the link's group", ip("ff02::1")),
                ("another group of the link", ip("ff02::99")),
                ("the site's group", ip("ff05::2")),
                ("a global group", ip("ff0e::1234")),
                ("a group of scope 0", ip("ff00::1")),
                ("the server", own[1]),
                ("the client", client[1]),
                ("a documentation address", ip("2001:db8::1")),
                ("an old site's address", ip("fec0::1")),
                ("a link's address", ip("fe80::dead:beef")),
            ]
        } else {
            let ip = |text: &str| text.parse::<Ipv4Addr>().unwrap().into();
            vec![
                ("no address", ip("0.0.0.0")),
                ("this network", ip("0.1.2.3")),
                ("the loopback", ip("127.0.0.1")),
                ("another loopback", ip("127.9.9.9")),
                ("the loopback's broadcast", ip("127.255.255.255")),
                ("all systems", ip("224.0.0.1")),
                ("a group", ip("239.1.2.3")),
                ("the last group", ip("239.255.255.255")),
                ("a reserved address", ip("240.0.0.1")),
                ("the last reserved address", ip("255.255.255.254")),
                ("everyone", ip("255.255.255.255")),
                ("the subnet's broadcast", network(self.ends.server.0, 255)),
                ("the subnet's network", network(self.ends.server.0, 0)),
                ("the server", own[0]),
                ("the server's second address", SECOND.into()),
                ("the second subnet's broadcast", network(SECOND, 255)),
                ("the second subnet's network", network(SECOND, 0)),
                ("the client", client[0]),
                ("a documentation address", ip("192.0.2.1")),
                ("a link's address", ip("169.254.7.7")),
            ]
        };
        for (name, address) in &addresses {
            self.add(&format!("from {name}"), |request| request.source = *address);
            self.add(&format!("to the address of {name}"), |request| request.destination = *address);
        }
        if !self.ipv6 {
            // The loop case: from one served address to another.
            self.add("from one served address to another", |request| {
                (request.source, request.destination) = (SECOND.into(), own[0]);
                request.ports.0 = request.ports.1;
            });
            self.add("to a second address that is served", |request| request.destination = SECOND.into());
        }
    }

    fn ipv4_headers(&mut self) {
        for first in (0..16).filter(|version| *version != 4).map(|version| version << 4 | 5) {
            self.add(&format!("version {}", first >> 4), |request| request.version_and_length = Some(first));
        }
        for words in (0..16).filter(|words| *words != 5) {
            self.add(&format!("header of {words} words"), |request| {
                request.version_and_length = Some(0x40 | words);
            });
        }
        for bits in [1, 0x0100, 0xffff] {
            self.add(&format!("IP checksum with {bits:#06x} turned over"), |request| {
                request.ip_checksum_change = bits;
            });
        }
        for flags in [0x8000, 0x4000, 0xc000, 0xe000, 0x2000, 0x2001, 1, 0x1fff, 0x3fff] {
            self.add(&format!("flags {flags:#06x}"), |request| request.fragment = flags);
        }
        let options: [(&str, &[u8]); 12] = [
            ("end of options", &[0; 4]),
            ("no operation", &[1; 4]),
            ("40 bytes of options", &[1; 40]),
            ("record route", &[7, 7, 4, 0, 0, 0, 0, 0]),
            ("timestamp", &[68, 8, 5, 0, 0, 0, 0, 0]),
            ("router alert", &[148, 4, 0, 0]),
            ("loose source route", &[131, 7, 4, 10, 0, 0, 1, 0]),
            ("strict source route", &[137, 7, 4, 10, 0, 0, 1, 0]),
            ("stream identifier", &[136, 4, 0, 0]),
            ("security label", &[134, 6, 0, 0, 0, 0, 0, 0]),
            ("option of no length", &[7, 0, 4, 0]),
            ("option longer than the header", &[7, 200, 4, 0]),
        ];
        for (name, options) in options {
            self.add(name, |request| request.options = options.to_vec());
        }
        for protocol in PROTOCOLS {
            self.add(&format!("protocol {protocol}"), |request| request.next_header = protocol);
        }
    }

    fn ipv6_headers(&mut self) {
        for version in (0..16).filter(|version| *version != 6) {
            self.add(&format!("version {version}"), |request| {
                request.version_and_length = Some(version << 4);
            });
        }
        for label in [1, 0x12345, 0xfffff] {
            self.add(&format!("flow label {label:#x}"), |request| request.flow_label = label);
        }
        for protocol in PROTOCOLS {
            self.add(&format!("next header {protocol}"), |request| request.next_header = protocol);
        }
        // Each: next header, length, and padding of four bytes.
        let header = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
        let chains: [(&str, u8, Vec<u8>); 12] = [
            ("hop by hop", 0, header(UDP).to_vec()),
            ("destination options", 60, header(UDP).to_vec()),
            ("hop by hop and destination options", 0, [header(60), header(UDP)].concat()),
            ("hop by hop in second place", 60, [header(0), header(UDP)].concat()),
            ("destination options twice", 60, [header(60), header(UDP)].concat()),
            ("a routing header, nothing left", 43, vec![UDP, 0, 0, 0, 0, 0, 0, 0]),
            ("a routing header, one left", 43, vec![UDP, 0, 0, 1, 0, 0, 0, 0]),
            ("a routing header of an unknown type", 43, vec![UDP, 0, 200, 0, 0, 0, 0, 0]),
            ("a fragment that is whole", 44, vec![UDP, 0, 0, 0, 0, 0, 0, 1]),
            ("an unknown option to be skipped", 60, vec![UDP, 0, 0x1e, 4, 0, 0, 0, 0]),
            ("an unknown option to be refused", 60, vec![UDP, 0, 0x9e, 4, 0, 0, 0, 0]),
            ("router alert", 0, vec![UDP, 0, 5, 2, 0, 0, 1, 0]),
        ];
        for (name, first, options) in chains {
            self.add(name, |request| (request.next_header, request.options) = (first, options));
        }
        self.add("a jumbogram", |request| {
            (request.next_header, request.options) = (0, vec![UDP, 0, 194, 4, 0, 1, 0, 0]);
            request.ip_length = -i32::MAX;
        });
        self.add("a header that ends behind the packet", |request| {
            (request.next_header, request.options) = (60, vec![UDP, 30, 1, 4, 0, 0, 0, 0]);
        });
    }
}
