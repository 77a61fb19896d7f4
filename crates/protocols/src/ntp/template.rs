//! The load: requests of a client that reveals nothing but a number, and replies checked as a client checks them.
//!
//! A client may put anything into its transmit time, since the server only returns it (RFC 5905, 9.2; chronyd puts
//! random bits there). Here it is the transaction: flow, seq and a mark, scrambled.
//!
//! ```text
//!   63     57 56      40 39                0
//!   | mark 7 | flow 17  | seq 40           |  ──▸ a bijection ──▸ xor the key of the run ──▸ transmit time
//! ```

use std::borrow::Cow;

use udpath_load::result::Kind;
use udpath_load::template::{
    Id, InKernel, Judgement, Prebuilt, Protocol, ReplyRules, Rule, Template, Verdict, Written,
};

use crate::said::{self, Said};

use super::packet::{ALARM, CLIENT, Header, ReferenceId, SERVER, Timestamp, VERSION};

/// Bits of the sequence number within a flow: at 1 million requests per second and flow, 12 days.
const SEQ_BITS: u32 = 40;
/// Bits of the flow: `MAX_FLOWS` is 2^17.
const FLOW_BITS: u32 = 17;
/// In the upper bits of every number of ours.
const MARK: u64 = 0x5a;

/// Longest time between receive and transmit time of a valid reply, seconds: longer than any queue in a server.
/// Shorter: a server that is behind seems corrupt; longer: fewer damaged time stamps are found.
const MAX_HELD: f64 = 16.0;
/// Root delay and dispersion of a synchronized server are below this, in units of 2^-16 s: RFC 5905's MAXDISP, 16 s.
const MAX_DISPERSION: u32 = 16 << 16;

/// Offsets in a header of the first byte (leap, version, mode), the reference id, the origin and the transmit time.
const FIRST: usize = 0;
const REFERENCE_ID: usize = 12;
const ORIGIN: usize = 24;
const TRANSMIT: usize = 40;

/// What a client sees first in a reply: version and mode; then a refusal, which only a server that is not synchronized
/// sends.
const RULES: [Rule; 5] = {
    const VERSION_AND_MODE: [u8; 4] = [0x3f, 0, 0, 0];
    const LEAP: [u8; 4] = [0xc0, 0, 0, 0];
    const ALL: [u8; 4] = [0xff; 4];
    let [rate, deny, restrict] = ReferenceId::REFUSALS;
    [
        Rule::unless(FIRST, VERSION_AND_MODE, [VERSION << 3 | SERVER, 0, 0, 0], Verdict::Corrupt),
        Rule::unless(FIRST, LEAP, [ALARM << 6, 0, 0, 0], Verdict::Valid),
        Rule::when(REFERENCE_ID, ALL, rate.0, Verdict::Refused),
        Rule::when(REFERENCE_ID, ALL, deny.0, Verdict::Refused),
        Rule::when(REFERENCE_ID, ALL, restrict.0, Verdict::Refused),
    ]
};

/// Names of replies: of a server whose clock is right, of one whose clock is not, and those of
/// [`ReferenceId::REFUSALS`].
const NAMES: [&str; 5] = ["synchronized", "not synchronized", "RATE", "DENY", "RSTR"];

/// NTP for a load.
#[derive(Debug, Clone, Copy)]
pub struct NtpLoad {
    run: u64,
}

impl NtpLoad {
    /// Requests of run `run`. Give each run its own number: replies to an earlier run then count as corrupt, not valid.
    #[must_use]
    pub fn new(run: u64) -> Self {
        Self { run }
    }
}

impl Protocol for NtpLoad {
    fn name(&self) -> &'static str {
        "ntp"
    }

    fn min_size(&self) -> usize {
        Header::LEN
    }

    fn max_size(&self) -> usize {
        Header::LEN
    }

    /// One request: only the transmit time differs, and the server returns it as origin.
    fn in_kernel(&self) -> Option<InKernel> {
        Some(InKernel::Prebuilt(Prebuilt {
            requests: Written::InTurn(1),
            id: Id { at: TRANSMIT, echoed_at: ORIGIN, width: 8, bits: 64 },
            reply: ReplyRules {
                min: Header::LEN,
                max: Header::LEN,
                within: Vec::new(),
                rules: Cow::Borrowed(&RULES),
            },
        }))
    }

    fn template(&self) -> Box<dyn Template> {
        Box::new(NtpTemplate::new(self.run))
    }
}

/// Writes requests and judges replies.
#[derive(Debug, Clone)]
pub struct NtpTemplate {
    run: u64,
    /// Intact replies, in the order of [`NAMES`].
    said: [Said; NAMES.len()],
}

impl Template for NtpTemplate {
    fn name(&self) -> &'static str {
        "ntp"
    }

    fn min_size(&self) -> usize {
        Header::LEN
    }

    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]) -> usize {
        let number = MARK << (FLOW_BITS + SEQ_BITS)
            | (u64::from(flow) & mask(FLOW_BITS)) << SEQ_BITS
            | (seq & mask(SEQ_BITS));
        let transmit = Timestamp(scramble(number) ^ self.key());
        let header = Header { version: VERSION, mode: CLIENT, transmit, ..Header::default() };
        // The plan's size is that of the header; a longer one would be filled with zeros.
        let (head, rest) = request.split_at_mut(Header::LEN);
        head.copy_from_slice(&header.encode());
        rest.fill(0);
        head.len() + rest.len()
    }

    fn check(&self, flow: u32, reply: &[u8]) -> Judgement {
        let Some(header) = Header::decode(reply).filter(|_| reply.len() == Header::LEN) else {
            return Judgement::Corrupt;
        };
        let refusal = ReferenceId::REFUSALS.iter().position(|refusal| *refusal == header.reference_id);
        let refusal = refusal.filter(|_| header.leap == ALARM);
        if !is_valid(&header) {
            return Judgement::Corrupt;
        }
        let number = unscramble(header.origin.0 ^ self.key());
        if number >> (FLOW_BITS + SEQ_BITS) != MARK {
            return Judgement::Corrupt;
        }
        if number >> SEQ_BITS & mask(FLOW_BITS) != u64::from(flow) {
            return Judgement::WrongFlow;
        }
        let seq = number & mask(SEQ_BITS);
        let place = refusal.map_or(usize::from(header.leap == ALARM), |refusal| 2 + refusal);
        if let Some(said) = self.said.get(place) {
            said.count(refusal.is_some());
        }
        if refusal.is_some() { Judgement::Refused { seq } } else { Judgement::Valid { seq } }
    }

    /// None while all are alike.
    fn kinds(&self) -> Vec<Kind> {
        let kinds = said::kinds(NAMES, &self.said);
        if kinds.iter().all(|kind| kind.name == NAMES[0]) { Vec::new() } else { kinds }
    }
}

impl NtpTemplate {
    fn new(run: u64) -> Self {
        Self { run, said: Default::default() }
    }

    /// What distinguishes the numbers of this run from those of others.
    fn key(&self) -> u64 {
        scramble(self.run)
    }
}

/// Whether a server may send this to a client of version 4 (RFC 5905, A.5.1.1 and 7.4). A server that is not
/// synchronized may, and one that refuses service.
fn is_valid(header: &Header) -> bool {
    let Header { leap, stratum, root_delay, root_dispersion, .. } = *header;
    let state = if leap == ALARM {
        stratum == 0 || stratum == 16
    } else {
        (1..=15).contains(&stratum) && root_delay < MAX_DISPERSION && root_dispersion < MAX_DISPERSION
    };
    let held = header.transmit.seconds_since(header.receive);
    state
        && header.version == VERSION
        && header.mode == SERVER
        && header.precision <= 0
        && header.receive != Timestamp(0)
        && header.transmit != Timestamp(0)
        && (0.0..=MAX_HELD).contains(&held)
}

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014), a bijection: neighbouring numbers give unlike time stamps.
fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Its inverse: the shifts undone, the factors replaced by their inverses modulo 2^64.
fn unscramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    z ^ (z >> 30) ^ (z >> 60)
}

/// The inverse of an odd number modulo 2^64, by Newton's method: each step doubles the correct bits, from 3.
const fn inverse(odd: u64) -> u64 {
    let (mut found, mut step) = (odd, 0);
    while step < 5 {
        found = found.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(found)));
        step += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: u64 = 0x0123_4567_89ab_cdef;

    fn request(flow: u32, seq: u64) -> [u8; 48] {
        let mut bytes = [0xff; 48];
        NtpTemplate::new(RUN).write(flow, seq, &mut bytes);
        bytes
    }

    /// A good server's reply.
    fn reply(request: &[u8]) -> Header {
        let origin = Header::decode(request).unwrap().transmit;
        let (receive, transmit) = (Timestamp(0xe000_0000_0000_0000), Timestamp(0xe000_0000_0000_1000));
        let version_and_mode =
            Header { version: 4, mode: 4, stratum: 2, precision: -24, ..Header::default() };
        Header { root_delay: 300, root_dispersion: 70, origin, receive, transmit, ..version_and_mode }
    }

    fn check(flow: u32, reply: &Header) -> Judgement {
        NtpTemplate::new(RUN).check(flow, &reply.encode())
    }

    #[test]
    fn scrambling_is_undone() {
        for z in [0, 1, 2, u64::MAX, RUN, 1 << 63, 0x8000_0000_0000_0001] {
            assert_eq!(unscramble(scramble(z)), z);
            assert_eq!(scramble(unscramble(z)), z);
        }
    }

    #[test]
    fn a_reply_names_its_request() {
        for flow in [0, 1, 131_071] {
            for seq in [0, 1, 77, (1 << 40) - 1] {
                let reply = reply(&request(flow, seq));
                assert_eq!(check(flow, &reply), Judgement::Valid { seq });
                assert_eq!(check(flow ^ 1, &reply), Judgement::WrongFlow);
                // To another run it is a random number: corrupt, or by chance of another flow.
                let other = NtpTemplate::new(RUN + 1).check(flow, &reply.encode());
                assert!(!matches!(other, Judgement::Valid { .. }), "{flow} {seq}");
            }
        }
    }

    /// The offsets of the kernel's checks are those of the header's own codec.
    #[test]
    fn the_kernels_offsets_are_the_headers() {
        let fields = Header {
            leap: 3,
            version: 4,
            mode: 4,
            reference_id: ReferenceId::RATE,
            origin: Timestamp(0x0102_0304_0506_0708),
            transmit: Timestamp(0x1112_1314_1516_1718),
            ..Header::default()
        };
        let bytes = fields.encode();
        assert_eq!(bytes[FIRST], ALARM << 6 | VERSION << 3 | SERVER);
        assert_eq!(bytes[REFERENCE_ID..REFERENCE_ID + 4], *b"RATE");
        assert_eq!(bytes[ORIGIN..ORIGIN + 8], fields.origin.0.to_be_bytes());
        assert_eq!(bytes[TRANSMIT..TRANSMIT + 8], fields.transmit.0.to_be_bytes());
    }

    #[test]
    fn a_request_reveals_nothing_else() {
        let bytes = request(5, 6);
        assert_eq!((bytes[0], bytes[1..40].iter().all(|byte| *byte == 0)), (0x23, true));
        assert_ne!(bytes[40..], request(5, 7)[40..]);
    }

    #[test]
    fn replies_that_a_client_rejects_are_corrupt() {
        let good = reply(&request(3, 4));
        let bad = [
            ("the request itself", Header { mode: 3, ..good }),
            ("another version", Header { version: 3, ..good }),
            ("stratum 16", Header { stratum: 16, ..good }),
            ("stratum 0", Header { stratum: 0, ..good }),
            ("not synchronized, yet stratum 2", Header { leap: 3, ..good }),
            ("root delay", Header { root_delay: 16 << 16, ..good }),
            ("root dispersion", Header { root_dispersion: 16 << 16, ..good }),
            ("no transmit time", Header { transmit: Timestamp(0), receive: Timestamp(0), ..good }),
            ("sent before it arrived", Header { transmit: Timestamp(good.receive.0 - 1), ..good }),
            ("held for a minute", Header { transmit: Timestamp(good.receive.0 + (60 << 32)), ..good }),
            ("no origin", Header { origin: Timestamp(0), ..good }),
        ];
        for (what, header) in bad {
            assert_eq!(check(3, &header), Judgement::Corrupt, "{what}");
        }
        let waiting = Header { leap: 3, stratum: 0, reference_id: ReferenceId::INIT, ..good };
        assert_eq!(check(3, &waiting), Judgement::Valid { seq: 4 }, "not synchronized");
        let kiss = Header { leap: 3, stratum: 0, reference_id: ReferenceId::RATE, ..good };
        assert_eq!(check(3, &kiss), Judgement::Refused { seq: 4 });
        let template = NtpTemplate::new(RUN);
        template.check(3, &good.encode());
        assert_eq!(template.kinds(), []);
        let deny = Header { reference_id: ReferenceId::REFUSALS[1], ..kiss };
        for (header, times) in [(waiting, 2), (kiss, 3), (deny, 4), (Header { mode: 3, ..kiss }, 5)] {
            for _ in 0..times {
                template.check(3, &header.encode());
            }
        }
        let refused = |name, count| Kind { refused: count, ..Kind::new(name, count) };
        let answered = [Kind::new("synchronized", 1), Kind::new("not synchronized", 2)];
        assert_eq!(template.kinds(), [&answered[..], &[refused("RATE", 3), refused("DENY", 4)]].concat());
        let wire = good.encode();
        let template = NtpTemplate::new(RUN);
        assert_eq!(template.check(3, &wire[..47]), Judgement::Corrupt);
        assert_eq!(template.check(3, &[&wire[..], &[0]].concat()), Judgement::Corrupt);
    }

    /// Any flipped bit of the origin makes it another number; a mark and the flow, 24 bits, must match by chance.
    #[test]
    fn no_flipped_bit_of_the_origin_passes() {
        let wire = reply(&request(3, 4)).encode();
        for bit in 24 * 8..32 * 8 {
            let mut damaged = wire;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(
                !matches!(NtpTemplate::new(RUN).check(3, &damaged), Judgement::Valid { .. }),
                "bit {bit}"
            );
        }
    }
}
