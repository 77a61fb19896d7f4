//! The header of RFC 5905, figure 8, and which datagrams are requests.
//!
//! ```text
//!   0  LI 2 bits | version 3 | mode 3   1  stratum   2  poll   3  precision
//!   4  root delay  4    8  root dispersion  4    12  reference id  4
//!   16  reference time  8    24  origin  8    32  receive  8    40  transmit  8      then extension fields, then a MAC
//! ```
//! All numbers are big endian.

use std::time::Duration;

/// Seconds from 1900, where NTP's first era begins, to 1970.
const UNIX_EPOCH: u64 = 2_208_988_800;

/// A time stamp: seconds since the era began (32 bits) and their fraction (32 bits). Eras last 136 years; 0 means
/// unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Of a time since the Unix epoch; the fraction is rounded down.
    #[must_use]
    pub fn of(time: Duration) -> Self {
        let seconds = time.as_secs().wrapping_add(UNIX_EPOCH) << 32;
        Self(seconds | ((u64::from(time.subsec_nanos()) << 32) / 1_000_000_000))
    }

    /// Seconds from `earlier` to this time, within half an era (RFC 5905, 6).
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.wrapping_sub(earlier.0) as i64 as f64 / 4_294_967_296.0
    }
}

/// What a clock is set by: the IPv4 address of its server, or four letters at stratum 1 and in kiss-o'-death packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReferenceId(pub [u8; 4]);

impl ReferenceId {
    /// An uncalibrated local clock at stratum 1 (RFC 5905, figure 12).
    pub const LOCAL_PRIMARY: Self = Self(*b"LOCL");
    /// A local clock at a higher stratum: 127.127.1.1, by the convention of the reference implementation.
    pub const LOCAL: Self = Self([127, 127, 1, 1]);
    /// Not synchronized yet (RFC 5905, 7.4).
    pub const INIT: Self = Self(*b"INIT");
    /// Kiss-o'-death: the client asks too often (RFC 5905, 7.4).
    pub const RATE: Self = Self(*b"RATE");
    /// Kiss-o'-death codes that refuse service (RFC 5905, 7.4).
    pub const REFUSALS: [Self; 3] = [Self::RATE, Self(*b"DENY"), Self(*b"RSTR")];
}

/// Mode of a client's request.
pub(super) const CLIENT: u8 = 3;
/// Mode of a server's reply.
pub(super) const SERVER: u8 = 4;
/// The protocol version of RFC 5905.
pub(super) const VERSION: u8 = 4;
/// Leap indicator of a clock that is not synchronized.
pub(super) const ALARM: u8 = 3;

/// The header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// Leap indicator: 0 none, 1 the last minute of the day has 61 seconds, 2 it has 59, 3 not synchronized.
    pub leap: u8,
    /// Version, 0 to 7.
    pub version: u8,
    /// Mode, 0 to 7.
    pub mode: u8,
    /// Stratum: 1 with a reference clock, one more than its server's otherwise; 0 unspecified.
    pub stratum: u8,
    /// Poll interval, log2 seconds.
    pub poll: i8,
    /// Precision of the clock, log2 seconds.
    pub precision: i8,
    /// Round-trip delay to the reference clock, units of 2^-16 s.
    pub root_delay: u32,
    /// Largest error of the clock, less half of the delay, units of 2^-16 s.
    pub root_dispersion: u32,
    /// What the clock is set by.
    pub reference_id: ReferenceId,
    /// When the clock was last set.
    pub reference: Timestamp,
    /// When the request left the client, by the client's clock (T1).
    pub origin: Timestamp,
    /// When it arrived at the server (T2).
    pub receive: Timestamp,
    /// When this packet left (T3; in a request T1).
    pub transmit: Timestamp,
}

impl Header {
    /// Bytes of the header.
    pub const LEN: usize = 48;

    /// The header's wire form. Bits beyond a field's width are cut.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut wire = [0; Self::LEN];
        wire[0] = self.leap << 6 | (self.version & 7) << 3 | (self.mode & 7);
        wire[1..4].copy_from_slice(&[self.stratum, self.poll as u8, self.precision as u8]);
        wire[4..8].copy_from_slice(&self.root_delay.to_be_bytes());
        wire[8..12].copy_from_slice(&self.root_dispersion.to_be_bytes());
        wire[12..16].copy_from_slice(&self.reference_id.0);
        let times = [self.reference, self.origin, self.receive, self.transmit];
        for (place, time) in wire[16..].chunks_exact_mut(8).zip(times) {
            place.copy_from_slice(&time.0.to_be_bytes());
        }
        wire
    }

    /// The header of a datagram; `None` if it is shorter.
    #[must_use]
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        let wire = datagram.first_chunk::<{ Self::LEN }>()?;
        let word = |at: usize| u32::from_be_bytes([wire[at], wire[at + 1], wire[at + 2], wire[at + 3]]);
        let time = |at: usize| Timestamp(u64::from(word(at)) << 32 | u64::from(word(at + 4)));
        Some(Self {
            leap: wire[0] >> 6,
            version: wire[0] >> 3 & 7,
            mode: wire[0] & 7,
            stratum: wire[1],
            poll: wire[2] as i8,
            precision: wire[3] as i8,
            root_delay: word(4),
            root_dispersion: word(8),
            reference_id: ReferenceId([wire[12], wire[13], wire[14], wire[15]]),
            reference: time(16),
            origin: time(24),
            receive: time(32),
            transmit: time(40),
        })
    }
}

/// What a reply needs of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// Version of the client, 1 to 4: that of the reply.
    pub version: u8,
    /// The client's poll interval, log2 seconds.
    pub poll: i8,
    /// The client's time stamp, returned as the origin.
    pub transmit: Timestamp,
}

/// Why a datagram gets no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Its length or its extension fields are not those of NTP.
    #[error("not an NTP packet")]
    Malformed,
    /// Not a client's request of versions 1 to 4; among others, modes 6 and 7.
    #[error("not a client's request")]
    NotARequest,
    /// It has a message authentication code, and this server has no keys.
    #[error("authenticated with an unknown key")]
    Authenticated,
}

/// Lengths of a message authentication code: a key id with a digest of 128 or 160 bits, or a key id alone (a
/// crypto-NAK).
const MAC_LENS: [usize; 3] = [4, 20, 24];
/// Shortest extension field (RFC 7822, 3).
const EXTENSION_MIN: usize = 16;

impl Query {
    /// Reads a request. Extension fields are skipped, as RFC 7822 asks of a server that does not know them.
    ///
    /// # Errors
    /// Why the datagram gets no reply.
    #[inline]
    pub fn decode(datagram: &[u8]) -> Result<Self, PacketError> {
        let Some((header, rest)) = datagram.split_first_chunk::<{ Header::LEN }>() else {
            // Control messages (mode 6) may be shorter than the header.
            return Err(match datagram.first() {
                Some(first) if matches!(first & 7, 6 | 7) => PacketError::NotARequest,
                _ => PacketError::Malformed,
            });
        };
        let (version, mode) = (header[0] >> 3 & 7, header[0] & 7);
        if mode != CLIENT || !(1..=VERSION).contains(&version) {
            return Err(PacketError::NotARequest);
        }
        if !rest.is_empty() {
            check_trailer(version, rest)?;
        }
        let [.., t0, t1, t2, t3, t4, t5, t6, t7] = *header;
        let transmit = Timestamp(u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]));
        Ok(Self { version, poll: header[2] as i8, transmit })
    }
}

/// Checks what follows the header: extension fields (version 4 only), and no MAC.
fn check_trailer(version: u8, mut rest: &[u8]) -> Result<(), PacketError> {
    // What is longer than any MAC begins with an extension field (RFC 7822, 3.1).
    while version == VERSION && rest.len() > MAC_LENS[2] {
        let len = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        if len < EXTENSION_MIN || !len.is_multiple_of(4) {
            return Err(PacketError::Malformed);
        }
        rest = rest.get(len..).ok_or(PacketError::Malformed)?;
    }
    match rest.len() {
        0 => Ok(()),
        // Versions 1 and 2 had a key id with 64 bits.
        12 if version < VERSION => Err(PacketError::Authenticated),
        len if MAC_LENS.contains(&len) => Err(PacketError::Authenticated),
        _ => Err(PacketError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of `chronyd -Q` 4.3, as received: everything but version, poll, precision and transmit time is blank.
    const CHRONYD_REQUEST: [u8; 48] = bytes(
        b"2300062000000000000000000000000000000000000000000000000000000000\
          0000000000000000f0b0129e9994bf13",
    );
    /// A reply of chronyd 4.3 with `local stratum 10`, to a request with the transmit time 9a4c1107f35520be.
    const CHRONYD_REPLY: [u8; 48] = bytes(
        b"240a00e600000000000000007f7f0101eead7f44e7d60e479a4c1107f35520be\
          eead7f45fe31ace5eead7f45fe4f4120",
    );

    const fn bytes(hex: &[u8; 96]) -> [u8; 48] {
        const fn digit(hex: u8) -> u8 {
            if hex.is_ascii_digit() { hex - b'0' } else { hex - b'a' + 10 }
        }
        let (mut wire, mut at) = ([0; 48], 0);
        while at < 48 {
            wire[at] = digit(hex[at * 2]) << 4 | digit(hex[at * 2 + 1]);
            at += 1;
        }
        wire
    }

    #[test]
    fn a_servers_reply_is_understood() {
        let header = Header::decode(&CHRONYD_REPLY).unwrap();
        let expected = Header {
            version: 4,
            mode: 4,
            stratum: 10,
            precision: -26,
            reference_id: ReferenceId::LOCAL,
            reference: Timestamp(0xeead_7f44_e7d6_0e47),
            origin: Timestamp(0x9a4c_1107_f355_20be),
            receive: Timestamp(0xeead_7f45_fe31_ace5),
            transmit: Timestamp(0xeead_7f45_fe4f_4120),
            ..Header::default()
        };
        assert_eq!(header, expected);
        assert_eq!(expected.encode(), CHRONYD_REPLY);
    }

    #[test]
    fn a_client_is_understood() {
        let query = Query { version: 4, poll: 6, transmit: Timestamp(0xf0b0_129e_9994_bf13) };
        assert_eq!(Query::decode(&CHRONYD_REQUEST), Ok(query));
        let header = Header::decode(&CHRONYD_REQUEST).unwrap();
        assert_eq!((header.version, header.mode, header.precision), (4, 3, 32));
        assert_eq!(header.encode(), CHRONYD_REQUEST);
    }

    #[test]
    fn time_stamps_count_from_1900() {
        assert_eq!(Timestamp::of(Duration::ZERO).0, 2_208_988_800 << 32);
        // The first example of RFC 5905's era table: 2000-01-01.
        assert_eq!(Timestamp::of(Duration::from_secs(946_684_800)).0 >> 32, 3_155_673_600);
        let half = Timestamp::of(Duration::from_millis(500));
        assert_eq!(half.0 & 0xffff_ffff, 1 << 31);
        assert!((half.seconds_since(Timestamp::of(Duration::ZERO)) - 0.5).abs() < 1e-9);
        // 2036: the next era, in which seconds start at 0 again.
        let era = Duration::from_secs((1 << 32) - UNIX_EPOCH);
        assert_eq!(Timestamp::of(era).0, 0);
        let before = Timestamp::of(era - Duration::from_secs(1));
        assert!((Timestamp::of(era).seconds_since(before) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn only_requests_of_known_versions_are_answered() {
        let mut wire = CHRONYD_REQUEST;
        for first in 0..=255 {
            wire[0] = first;
            let (version, mode) = (first >> 3 & 7, first & 7);
            let expected = (1..=4).contains(&version) && mode == 3;
            match Query::decode(&wire) {
                Ok(query) => assert!(expected && query.version == version, "{first:#x}"),
                Err(error) => assert!(!expected && error == PacketError::NotARequest, "{first:#x}"),
            }
        }
        assert_eq!(Query::decode(&[0x16, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), Err(PacketError::NotARequest));
        assert_eq!(Query::decode(&[0x17, 0, 3, 42, 0, 0, 0, 0]), Err(PacketError::NotARequest), "monlist");
        assert_eq!(Query::decode(&CHRONYD_REQUEST[..47]), Err(PacketError::Malformed));
        assert_eq!(Query::decode(&[]), Err(PacketError::Malformed));
    }

    #[test]
    fn extension_fields_are_skipped_and_macs_are_not_accepted() {
        let with = |version: u8, trailer: &[u8]| {
            let mut wire = CHRONYD_REQUEST.to_vec();
            wire[0] = version << 3 | CLIENT;
            wire.extend_from_slice(trailer);
            Query::decode(&wire).map(|query| query.version)
        };
        let field = |len: u16| {
            let mut field = vec![0; usize::from(len)];
            field[..4].copy_from_slice(&[0x01, 0x04, (len >> 8) as u8, len as u8]);
            field
        };
        assert_eq!(with(4, &field(28)), Ok(4));
        assert_eq!(with(4, &[field(16), field(28)].concat()), Ok(4));
        assert_eq!(with(4, &field(1024)), Ok(4));
        for mac in MAC_LENS {
            assert_eq!(with(4, &vec![1; mac]), Err(PacketError::Authenticated), "{mac}");
            assert_eq!(with(3, &vec![1; mac]), Err(PacketError::Authenticated), "{mac}");
            assert_eq!(
                with(4, &[field(32), vec![1; mac]].concat()),
                Err(PacketError::Authenticated),
                "{mac}"
            );
        }
        assert_eq!(with(2, &[1; 12]), Err(PacketError::Authenticated));
        for malformed in [vec![0; 1], vec![0; 8], vec![0; 28], field(28)[..27].to_vec(), vec![0xff; 64]] {
            assert_eq!(with(4, &malformed), Err(PacketError::Malformed), "{malformed:?}");
        }
        assert_eq!(with(3, &field(28)), Err(PacketError::Malformed), "extension fields came with version 4");
    }
}
