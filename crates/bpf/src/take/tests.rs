//! The program as a function of one frame (`BPF_PROG_TEST_RUN`). Loading requires CAP_BPF.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use error_reporter::Report;

use super::ingress::spot;
use super::*;

const PORT: u16 = 5300;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const LAYOUT: TakeLayout = TakeLayout { queues: 4, longest: 1792, addresses: 2, rx_hash: false };
const V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

/// The program with the port bound to everything, and a socket on queue 0 (unbound, so nothing is delivered to it).
fn taking() -> Take {
    let mut take = Take::load(&LAYOUT).expect("the program loads (needs CAP_BPF)");
    take.bind((Ipv4Addr::UNSPECIFIED, PORT).into()).unwrap();
    take.bind((Ipv6Addr::UNSPECIFIED, PORT).into()).unwrap();
    take.set_mac(Some(MAC));
    take
}

fn socket() -> OwnedFd {
    use rustix::net::{AddressFamily, SocketType, socket};
    socket(AddressFamily::XDP, SocketType::RAW, None).expect("an AF_XDP socket (needs CAP_NET_RAW)")
}

/// A datagram of eight bytes to the port.
fn frame(ipv6: bool) -> Vec<u8> {
    let mut frame = [MAC, [2, 0, 0, 0, 0, 2]].concat();
    if ipv6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 17, 64]);
        frame.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).octets());
        frame.extend(V6.octets());
    } else {
        frame.extend([8, 0, 0x45, 0, 0, 36, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2]);
        frame.extend(V4.octets());
    }
    frame.extend(40_000_u16.to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend([0, 16, 0xab, 0xcd]);
    frame.extend(*b"eight by");
    intact(frame)
}

/// With a correct IPv4 header checksum, if there is one.
fn intact(mut frame: Vec<u8>) -> Vec<u8> {
    if frame[12..14] == [8, 0] {
        let words = frame[14..34].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let old = u32::from(u16::from_be_bytes([frame[24], frame[25]]));
        let sum = words.sum::<u32>() - old;
        let sum = (sum & 0xffff) + (sum >> 16);
        frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
    frame
}

/// With these tags, each as type and control word.
fn tagged(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let mut with = frame[..12].to_vec();
    for (kind, control) in tags {
        with.extend(kind.to_be_bytes());
        with.extend(control.to_be_bytes());
    }
    with.extend(&frame[12..]);
    with
}

/// `frame` with `bytes` at `at`, and a matching header checksum.
fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    intact(frame)
}

#[test]
fn whole_datagrams_for_the_port_are_taken() {
    udpath_lab::needs_root!();
    let mut take = taking();
    for ipv6 in [false, true] {
        assert_eq!(take.judge(&frame(ipv6)).unwrap(), Outcome::NoSocket, "passed: queue 0 has no socket");
    }
    let socket = socket();
    take.set_socket(0, socket.as_fd()).unwrap();
    for ipv6 in [false, true] {
        let plain = frame(ipv6);
        let padded = [plain.as_slice(), &[0; 30]].concat();
        for frame in [plain.clone(), padded] {
            assert_eq!(take.judge(&frame).unwrap(), Outcome::Taken, "{frame:02x?}");
        }
    }
    assert_eq!((take.outcomes().of(Outcome::Taken), take.outcomes().of(Outcome::NoSocket)), (4, 2));
    assert_eq!(take.outcomes().passed(), 2);
    take.clear_socket(0);
    assert_eq!(take.judge(&frame(false)).unwrap(), Outcome::NoSocket);
    take.set_socket(0, socket.as_fd()).unwrap();
    drop(socket);
    assert_eq!(take.judge(&frame(false)).unwrap(), Outcome::NoSocket, "its place is empty once it is closed");
}

#[test]
fn everything_else_passes_and_is_counted_by_reason() {
    udpath_lab::needs_root!();
    let mut take = taking();
    take.set_vlans([(7, 0)]);
    let socket = socket();
    take.set_socket(0, socket.as_fd()).unwrap();
    let (v4, v6) = (|| frame(false), || frame(true));
    let mut damaged = v4();
    damaged[24] ^= 1;
    let cases: &[(Outcome, &str, Vec<u8>)] = &[
        (Outcome::OtherHost, "another MAC", with(v4(), 5, &[9])),
        (Outcome::Group, "link broadcast", with(v4(), 0, &[0xff; 6])),
        (Outcome::Group, "link multicast", with(v6(), 0, &[0x33, 0x33, 0, 0, 0, 1])),
        (Outcome::Malformed, "sent by a group", with(v4(), 6, &[3])),
        (Outcome::Vlan, "another VLAN", tagged(&v4(), &[(0x8100, 5)])),
        (Outcome::Vlan, "a provider's VLAN", tagged(&v4(), &[(0x88a8, 7)])),
        (Outcome::Vlan, "a provider's priority tag", tagged(&v4(), &[(0x88a8, 0)])),
        (Outcome::Vlan, "two tags", tagged(&v4(), &[(0x8100, 7), (0x8100, 7)])),
        (Outcome::Vlan, "a VLAN in a priority tag", tagged(&v4(), &[(0x8100, 0), (0x8100, 7)])),
        (Outcome::Vlan, "QinQ", tagged(&v4(), &[(0x88a8, 7), (0x8100, 7)])),
        (Outcome::Vlan, "three tags", tagged(&v4(), &[(0x88a8, 7), (0x88a8, 7), (0x8100, 7)])),
        (Outcome::Malformed, "cut in a tag", tagged(&v4(), &[(0x8100, 7)])[..16].to_vec()),
        (Outcome::NotIp, "ARP", with(v4(), 12, &[8, 6])),
        (Outcome::NotIp, "a length", with(v4(), 12, &[0, 46])),
        (Outcome::Malformed, "cut in the IPv4 header", v4()[..33].to_vec()),
        (Outcome::Malformed, "cut in the IPv6 header", v6()[..53].to_vec()),
        (Outcome::Malformed, "IPv4 type, IPv6 version", with(v4(), 14, &[0x65])),
        (Outcome::Malformed, "IPv6 type, IPv4 version", with(v6(), 14, &[0x40])),
        (Outcome::Malformed, "header of 16 bytes", with(v4(), 14, &[0x44])),
        (Outcome::Malformed, "wrong IPv4 header checksum", damaged),
        (Outcome::Options, "IPv4 options", with(v4(), 14, &[0x46])),
        (Outcome::Malformed, "IPv4 longer than the frame", with(v4(), 16, &[0, 37])),
        (Outcome::Malformed, "IPv4 shorter than its header", with(v4(), 16, &[0, 19])),
        (Outcome::Malformed, "IPv6 longer than the frame", with(v6(), 18, &[0, 17])),
        (Outcome::Fragment, "the first fragment", with(v4(), 20, &[0x20, 0])),
        (Outcome::Fragment, "the last fragment", with(v4(), 20, &[0, 5])),
        (Outcome::Fragment, "an IPv6 fragment", with(v6(), 20, &[44])),
        (Outcome::Extension, "hop-by-hop options", with(v6(), 20, &[0])),
        (Outcome::Extension, "destination options", with(v6(), 20, &[60])),
        (Outcome::NotUdp, "TCP", with(v4(), 23, &[6])),
        (Outcome::NotUdp, "ICMP", with(v4(), 23, &[1])),
        (Outcome::NotUdp, "ICMPv6", with(v6(), 20, &[58])),
        (Outcome::NotUdp, "UDP-Lite", with(v4(), 23, &[136])),
        (Outcome::Malformed, "IPv4 ends in the UDP header", with(v4(), 16, &[0, 27])),
        (Outcome::Malformed, "IPv6 ends in the UDP header", with(v6(), 18, &[0, 7])),
        (Outcome::Malformed, "UDP longer than IP", with(v4(), 38, &[0, 17])),
        (Outcome::Malformed, "UDP shorter than its header", with(v4(), 38, &[0, 7])),
        (Outcome::Malformed, "UDP length 0", with(v6(), 58, &[0, 0])),
        (Outcome::OtherPort, "another port", with(v4(), 36, &5301_u16.to_be_bytes())),
        (Outcome::OtherPort, "the same low byte", with(v4(), 36, &(PORT ^ 0x100).to_be_bytes())),
        (Outcome::OtherPort, "port 0", with(v6(), 56, &[0, 0])),
        (Outcome::Special, "from port 0", with(v4(), 34, &[0, 0])),
        (Outcome::Special, "IPv6 without checksum", with(v6(), 60, &[0, 0])),
        (Outcome::Group, "IPv4 multicast", with(v4(), 30, &[224, 0, 0, 251])),
        (Outcome::Group, "IPv4 broadcast", with(v4(), 30, &[255; 4])),
        (Outcome::Group, "IPv6 multicast", with(v6(), 38, &[0xff, 2])),
        (Outcome::Special, "to loopback", with(v4(), 30, &[127, 0, 0, 1])),
        (Outcome::Special, "from loopback", with(v4(), 26, &[127, 0, 0, 1])),
        (Outcome::Special, "from nobody", with(v4(), 26, &[0; 4])),
        (Outcome::Special, "from a group", with(v4(), 26, &[224, 0, 0, 1])),
        (Outcome::Special, "from IPv6's loopback", with(v6(), 22, &Ipv6Addr::LOCALHOST.octets())),
        (Outcome::Special, "from a mapped address", with(v6(), 22, &V4.to_ipv6_mapped().octets())),
        (Outcome::Special, "IPv6 from itself", with(v6(), 22, &V6.octets())),
        (Outcome::Special, "IPv4 from itself", with(v4(), 26, &V4.octets())),
        (Outcome::TooLong, "beyond the sockets' frames", [v4(), vec![0; 1800]].concat()),
    ];
    for (outcome, what, frame) in cases {
        assert_eq!(take.judge(frame).unwrap(), *outcome, "{what}");
    }
    assert_eq!(take.outcomes().passed(), cases.len() as u64);
    assert_eq!(take.outcomes().of(Outcome::Taken), 0);
    let names: BTreeSet<_> = Outcome::ALL.iter().map(|outcome| outcome.name()).collect();
    assert_eq!(names.len(), Outcome::ALL.len());
}

#[test]
fn binds_change_while_the_program_is_loaded() {
    udpath_lab::needs_root!();
    let mut take = Take::load(&LAYOUT).unwrap();
    let socket = socket();
    take.set_socket(0, socket.as_fd()).unwrap();
    let judged = |take: &Take| [false, true].map(|ipv6| take.judge(&frame(ipv6)).unwrap());
    let (yes, no) = (Outcome::Taken, Outcome::OtherPort);
    assert_eq!(judged(&take), [no, no]);
    // One address of one family; its neighbor in the same word of the map; both removed again.
    take.bind((V4, PORT).into()).unwrap();
    take.bind((V4, PORT + 1).into()).unwrap();
    assert_eq!(judged(&take), [yes, no]);
    assert!(take.unbind((V4, PORT + 1).into()));
    assert_eq!(judged(&take), [yes, no]);
    assert!(take.unbind((V4, PORT).into()) && !take.unbind((V4, PORT).into()));
    assert_eq!(judged(&take), [no, no]);
    // Another address than the frame's.
    take.bind((Ipv4Addr::new(10, 0, 0, 9), PORT).into()).unwrap();
    take.bind((V6, PORT).into()).unwrap();
    assert_eq!(judged(&take), [no, yes]);
    // The wildcard as well, then removed.
    take.bind((Ipv4Addr::UNSPECIFIED, PORT).into()).unwrap();
    assert_eq!(judged(&take), [yes, yes]);
    take.unbind((Ipv4Addr::UNSPECIFIED, PORT).into());
    take.unbind((V6, PORT).into());
    assert_eq!(judged(&take), [no, no]);
    take.bind((V4.to_ipv6_mapped(), PORT).into()).unwrap();
    assert_eq!(judged(&take), [yes, no], "a mapped address is the IPv4 address");
    assert_eq!(take.bound().count(), 2);
}

#[test]
fn invalid_binds_are_rejected() {
    udpath_lab::needs_root!();
    let mut take = Take::load(&LAYOUT).unwrap();
    let refusal = |take: &mut Take, address: &str| {
        Report::new(take.bind(address.parse().unwrap()).unwrap_err()).to_string()
    };
    assert_eq!(
        refusal(&mut take, "10.0.0.1:0"),
        "cannot make BPF program 'take' take datagrams for 10.0.0.1:0: the port must not be 0"
    );
    assert!(
        refusal(&mut take, "[ff02::1]:53")
            .ends_with("multicast and broadcast addresses are served by the kernel")
    );
    take.bind("10.0.0.1:53".parse().unwrap()).unwrap();
    take.bind("10.0.0.2:53".parse().unwrap()).unwrap();
    assert_eq!(
        refusal(&mut take, "10.0.0.3:53"),
        "cannot make BPF program 'take' take datagrams for 10.0.0.3:53: no more addresses fit; bind the wildcard, or \
         load with room for more"
    );
    let refused = Report::new(take.set_socket(4, socket().as_fd()).unwrap_err()).to_string();
    assert!(refused.starts_with("cannot redirect queue 4 to its AF_XDP socket: "), "{refused}");
    let refused = take.attach("nothere0", AttachMode::Native).unwrap_err();
    assert!(matches!(refused, Error::NoInterface { .. }), "{refused}");
    assert!(take.judge(&[0; 4]).is_err(), "the kernel tries no frame without an Ethernet header");
}

/// What the program redirects of a frame that it takes.
fn handed_on(take: &Take, frame: &[u8]) -> Vec<u8> {
    let mut out = vec![0; frame.len()];
    let options = TestRunOptions { data_out: Some(&mut out), ..TestRunOptions::default() };
    let result = take.run(frame, options).unwrap();
    assert_eq!(result.return_value, XDP_REDIRECT);
    out.truncate(result.data_size_out as usize);
    out
}

#[test]
fn tagged_frames_of_served_vlans_are_taken() {
    udpath_lab::needs_root!();
    let mut take = taking();
    let socket = socket();
    take.set_socket(0, socket.as_fd()).unwrap();
    take.set_vlans([(7, 5), (8, 0), (4094, 7), (0, 3), (4095, 1)]);
    for ipv6 in [false, true] {
        let plain = frame(ipv6);
        // A bare priority is not passed on: its tag is removed, as the kernel does.
        for control in [0, 0xe000, 0x1000] {
            assert_eq!(handed_on(&take, &tagged(&plain, &[(0x8100, control)])), plain, "{control:#x}");
        }
        // A VLAN's tag gets the priority of replies, replacing the request's priority and drop eligibility.
        for (control, reply) in [(0x2007, 0xa007), (0xf008, 0x0008), (0x0ffe, 0xeffe)] {
            let handed_on = handed_on(&take, &tagged(&plain, &[(0x8100, control)]));
            assert_eq!(handed_on, tagged(&plain, &[(0x8100, reply)]), "{control:#x}");
        }
        for control in [6, 9, 0x0fff, 0x0707] {
            assert_eq!(
                take.judge(&tagged(&plain, &[(0x8100, control)])).unwrap(),
                Outcome::Vlan,
                "{control:#x}"
            );
        }
    }
    // VLANs are added and removed.
    take.set_vlans([(9, 1)]);
    let judged = |control| take.judge(&tagged(&frame(false), &[(0x8100, control)])).unwrap();
    assert_eq!([7, 8, 9, 0].map(judged), [Outcome::Vlan, Outcome::Vlan, Outcome::Taken, Outcome::Taken]);
    // Without a socket the frame goes to the kernel unchanged.
    take.clear_socket(0);
    let with_priority = tagged(&frame(false), &[(0x8100, 0xe000)]);
    let mut out = vec![0; with_priority.len()];
    let options = TestRunOptions { data_out: Some(&mut out), ..TestRunOptions::default() };
    take.run(&with_priority, options).unwrap();
    assert_eq!(out, with_priority);
}

/// `frame(..)` from another address.
fn from(source: IpAddr) -> Vec<u8> {
    match source {
        IpAddr::V4(v4) => with(frame(false), 26, &v4.octets()),
        IpAddr::V6(v6) => with(frame(true), 22, &v6.octets()),
    }
}

#[test]
fn sources_that_the_kernel_may_refuse_are_left_to_it() {
    udpath_lab::needs_root!();
    let mut take = taking();
    let socket = socket();
    take.set_socket(0, socket.as_fd()).unwrap();
    let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
    let addresses = ["10.0.0.9", "10.0.0.255", "10.0.0.0", "fd00::9", "fe80::9"].map(ip);
    let sources = Sources { addresses: addresses.into(), ..Sources::default() };
    take.set_sources(&sources).unwrap();
    for source in addresses {
        assert_eq!(take.judge(&from(source)).unwrap(), Outcome::Source, "{source}");
    }
    // Other addresses, some with the same bit as one above.
    let others =
        ["10.0.0.8", "10.0.1.255", "10.9.0.9", "10.9.9.0", "10.144.9.9", "fd00::a", "fd00::1:8", "a00:9::"];
    let others = others.map(ip);
    assert!(others.iter().any(|other| addresses.iter().any(|left| spot(*left) == spot(*other))));
    for source in others {
        assert_eq!(take.judge(&from(source)).unwrap(), Outcome::Taken, "{source}");
    }
    // One removed, one kept, one added.
    let later = Sources { addresses: ["10.0.0.9", "10.0.0.8"].map(ip).into(), ..Sources::default() };
    take.set_sources(&later).unwrap();
    let judged = |source| take.judge(&from(ip(source))).unwrap();
    assert_eq!(
        ["10.0.0.9", "10.0.0.8", "10.0.0.0", "fd00::9"].map(judged),
        [Outcome::Source, Outcome::Source, Outcome::Taken, Outcome::Taken]
    );
}

#[test]
fn networks_are_left_to_the_kernel_by_vlan() {
    udpath_lab::needs_root!();
    let mut take = taking();
    let socket = socket();
    take.set_socket(0, socket.as_fd()).unwrap();
    take.set_vlans([(7, 0)]);
    let network =
        |(vlan, address, len): (u16, &str, u8)| Network { vlan, address: address.parse().unwrap(), len };
    let networks = [
        (0, "10.1.0.0", 16),
        (0, "10.1.2.0", 24),
        (0, "192.0.2.7", 32),
        (7, "10.2.0.0", 15),
        (0, "fd01::", 32),
    ];
    let sources = Sources { networks: networks.map(network).into(), ..Sources::default() };
    take.set_sources(&sources).unwrap();
    let asked = [
        ("10.1.9.9", true, false),
        ("10.1.2.9", true, false),
        ("10.2.0.1", false, true),
        ("10.3.255.255", false, true),
        ("10.4.0.0", false, false),
        ("192.0.2.7", true, false),
        ("192.0.2.6", false, false),
        ("fd01:0:1::9", true, false),
        ("fd01:1::9", false, false),
    ];
    for (source, untagged, tagged_) in asked {
        let source: IpAddr = source.parse().unwrap();
        let outcome = |left| if left { Outcome::Source } else { Outcome::Taken };
        assert_eq!(take.judge(&from(source)).unwrap(), outcome(untagged), "{source}");
        assert_eq!(
            take.judge(&tagged(&from(source), &[(0x8100, 0x4000)])).unwrap(),
            outcome(untagged),
            "{source}"
        );
        assert_eq!(take.judge(&tagged(&from(source), &[(0x8100, 7)])).unwrap(), outcome(tagged_), "{source}");
        assert_eq!(sources.leaves(source), untagged, "{source}");
    }
    let one = Sources { networks: [network((0, "10.1.2.0", 24))].into(), ..Sources::default() };
    take.set_sources(&one).unwrap();
    let judged = |source: &str| take.judge(&from(source.parse().unwrap())).unwrap();
    assert_eq!(["10.1.2.9", "10.1.9.9"].map(judged), [Outcome::Source, Outcome::Taken]);
    take.set_sources(&Sources::default()).unwrap();
    assert_eq!(take.judge(&from("10.1.2.9".parse().unwrap())).unwrap(), Outcome::Taken);
    let no_network = Sources { networks: [network((0, "10.0.0.0", 33))].into(), ..Sources::default() };
    let refused = Report::new(take.set_sources(&no_network).unwrap_err()).to_string();
    assert!(refused.ends_with("10.0.0.0/33 is not a network"), "{refused}");
}
