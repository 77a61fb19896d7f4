//! The kernel program against the parser here, over the same frames: every frame it takes must be readable, and
//! frames it leaves for lack of a bind, or for a reason that the parser does not have, must be ones it would not take
//! otherwise. Needs CAP_BPF.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use udpath_bpf::{Outcome, Take, TakeLayout};
use udpath_stack::wire::{Packet, Refusal, ipv4};

const PORT: u16 = 5300;
const VLAN: u8 = 5;

/// The program. No queue has a socket, so frames that would be taken are counted as having none.
fn take() -> Take {
    let layout = TakeLayout { queues: 1, longest: 1792, addresses: 1, rx_hash: false };
    let mut take = Take::load(&layout).expect("the program loads (needs CAP_BPF)");
    take.bind((Ipv4Addr::UNSPECIFIED, PORT).into()).unwrap();
    take.bind((Ipv6Addr::UNSPECIFIED, PORT).into()).unwrap();
    take.set_vlans([(VLAN.into(), 0)]);
    take
}

/// A tagged datagram to the port.
fn frame(ipv6: bool, tags: &[u16], payload: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0x20, VLAN]);
    }
    let len = (8 + payload) as u16;
    if ipv6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(len.to_be_bytes());
        frame.extend([17, 64]);
        frame.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).octets());
        frame.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets());
    } else {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + len).to_be_bytes());
        frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    }
    frame.extend(40_000_u16.to_be_bytes());
    frame.extend(PORT.to_be_bytes());
    frame.extend(len.to_be_bytes());
    frame.extend([0xab, 0xcd]);
    frame.resize(frame.len() + payload, 7);
    frame
}

/// Boundary values of the checks, and random ones.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![
        prop::sample::select(vec![
            0, 1, 5, 6, 7, 8, 9, 15, 17, 20, 0x20, 28, 0x44, 0x45, 0x46, 60, 0x60, 64, 0x7f, 0x80, 0x81,
            0x86, 0x88, 0xa8, 0xdd, 224, 239, 240, 0xfe, 255,
        ]),
        any::<u8>()
    ]
}

/// Whole datagrams, and datagrams with some header bytes changed, truncated or padded.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let tags = prop::collection::vec(prop::sample::select(vec![0x8100_u16, 0x88a8, 0x9100]), 0..=3);
    let changes = prop::collection::vec((0..62_usize, byte()), 0..4);
    let room = prop_oneof![3 => Just(0_isize), 1 => -70..70_isize, 1 => Just(1800_isize)];
    let sums = prop_oneof![4 => Just(true), 1 => Just(false)];
    (any::<bool>(), tags, 0..40_usize, changes, room, sums).prop_map(
        |(ipv6, tags, payload, changes, room, sums)| {
            let mut frame = frame(ipv6, &tags, payload);
            for (at, byte) in changes {
                if let Some(place) = frame.get_mut(at) {
                    *place = byte;
                }
            }
            let len = frame.len().saturating_add_signed(room).max(14);
            frame.resize(len, 0);
            if let (true, Ok(headers)) = (sums, Packet::parse(&frame))
                && let Ok(mut packet) = ipv4::View::new_mut(&mut frame[headers.l3()..])
            {
                packet.fill_checksum();
            }
            frame
        },
    )
}

#[test]
fn taken_frames_can_be_parsed() {
    udpath_lab::needs_root!();
    const CASES: u32 = 20_000;
    let take = take();
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let compared = TestRunner::new(config).run(&frames(), |frame| compare(&take, &frame));
    compared.unwrap_or_else(|failure| panic!("{failure}"));
    // Some frames were taken and some were not, or the test would prove little.
    let taken = take.outcomes().of(Outcome::NoSocket);
    assert!((u64::from(CASES) / 20..u64::from(CASES) * 19 / 20).contains(&taken), "{:?}", take.outcomes());
}

fn compare(take: &Take, frame: &[u8]) -> Result<(), TestCaseError> {
    let parsed = Packet::parse(frame).and_then(|headers| headers.verify_ip(frame).map(|()| headers));
    match take.judge(frame).map_err(|error| TestCaseError::fail(error.to_string()))? {
        Outcome::NoSocket => {
            let headers = parsed.map_err(|why| TestCaseError::fail(format!("taken, but {why}")))?;
            prop_assert_eq!(headers.destination_port(), PORT);
        }
        // Valid datagrams that are left for another reason.
        Outcome::OtherPort | Outcome::TooLong | Outcome::Special | Outcome::Vlan => {}
        // The parser gives the same reason, unless an earlier one hides it.
        outcome => {
            let Err(why) = parsed else {
                return Err(TestCaseError::fail(format!("left as {outcome:?}, but it can be read")));
            };
            prop_assert!(agrees(outcome, why), "left as {:?}, here it is {}", outcome, why);
        }
    }
    Ok(())
}

/// Whether the program's outcome matches the parser's reason.
fn agrees(outcome: Outcome, why: Refusal) -> bool {
    use Refusal as R;
    match outcome {
        Outcome::Group => {
            matches!(why, R::LinkBroadcast | R::LinkMulticast | R::DestinationBroadcast | R::DestinationMulticast)
                // The program checks the destination before the source.
                || why == R::SourceNotUnicast
        }
        Outcome::NotIp => why == R::NotIp,
        Outcome::Malformed => matches!(
            why,
            R::FrameShort
                | R::LinkSource
                | R::IpVersion
                | R::IpTruncated
                | R::Ipv4Length
                | R::Ipv4Checksum
                | R::UdpTruncated
                | R::UdpLengthZero
                | R::UdpLengthShort
                | R::UdpLengthLong
                // The program checks UDP before the addresses.
                | R::SourceNotUnicast
                | R::DestinationBroadcast
                | R::DestinationMulticast
                | R::DestinationNotUnicast
                | R::SameAddress
        ),
        Outcome::Options => why == R::Ipv4Options,
        Outcome::Fragment => why == R::Fragment,
        Outcome::Extension => matches!(why, R::Ipv6Extension | R::Ipv6Jumbogram),
        Outcome::NotUdp => matches!(why, R::NotUdp | R::UdpLite),
        _ => false,
    }
}
