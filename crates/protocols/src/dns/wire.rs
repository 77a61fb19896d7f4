//! Queries as they arrive: header, one question, and the OPT record of EDNS (RFC 1035, 4; RFC 6891).
//!
//! ```text
//! 0    2      4        6        8        10       12                        q
//! | id | flags| qd = 1 | an = 0 | ns = 0 | ar <= 2 | name | type | class    | OPT, TSIG
//! ```
//! Everything is bounded by the length of the message, at most two additional records are looked at, and nothing
//! panics.

use super::name::{self, QueryName};

/// Bytes of the header.
pub(super) const HEADER: usize = 12;
/// Bytes of a reply that a client without EDNS takes over UDP (RFC 1035, 2.3.4).
pub(super) const PLAIN_UDP: u16 = 512;
/// Most bytes of a reply over UDP, whatever the client takes: it fits every path with IPv6's minimum MTU of 1280, so
/// that no reply is fragmented (RFC 9715). Lower: more clients must ask again over TCP; higher: replies get lost with a
/// fragment.
pub(super) const MAX_UDP: u16 = 1232;

/// Types with a meaning for a query (RFC 1035, 3.2; RFC 6895, 3.1).
pub(super) mod rtype {
    pub(in super::super) const A: u16 = 1;
    pub(in super::super) const NS: u16 = 2;
    pub(in super::super) const CNAME: u16 = 5;
    pub(in super::super) const SOA: u16 = 6;
    pub(in super::super) const HINFO: u16 = 13;
    pub(in super::super) const MX: u16 = 15;
    pub(in super::super) const TXT: u16 = 16;
    pub(in super::super) const AAAA: u16 = 28;
    pub(in super::super) const SRV: u16 = 33;
    pub(in super::super) const DNAME: u16 = 39;
    pub(in super::super) const OPT: u16 = 41;
    pub(in super::super) const DS: u16 = 43;
    pub(in super::super) const RRSIG: u16 = 46;
    pub(in super::super) const NSEC: u16 = 47;
    pub(in super::super) const DNSKEY: u16 = 48;
    pub(in super::super) const NSEC3: u16 = 50;
    pub(in super::super) const NSEC3PARAM: u16 = 51;
    /// Meta types: 128 to 255.
    pub(in super::super) const FIRST_META: u16 = 128;
    pub(in super::super) const IXFR: u16 = 251;
    pub(in super::super) const AXFR: u16 = 252;
    pub(in super::super) const ANY: u16 = 255;
}

/// Classes.
pub(super) mod class {
    pub(in super::super) const IN: u16 = 1;
    pub(in super::super) const CHAOS: u16 = 3;
    pub(in super::super) const ANY: u16 = 255;
}

/// Response codes (RFC 1035, 4.1.1; RFC 6891, 9).
pub(super) mod rcode {
    pub(in super::super) const NOERROR: u16 = 0;
    pub(in super::super) const FORMERR: u16 = 1;
    pub(in super::super) const SERVFAIL: u16 = 2;
    pub(in super::super) const NXDOMAIN: u16 = 3;
    pub(in super::super) const NOTIMP: u16 = 4;
    pub(in super::super) const REFUSED: u16 = 5;
    pub(in super::super) const YXDOMAIN: u16 = 6;
    /// Its upper 8 bits are in OPT.
    pub(in super::super) const BADVERS: u16 = 16;
}

/// A query that follows the protocol.
#[derive(Debug)]
pub(super) struct Query<'a> {
    /// Header and question, to be repeated in the reply with the case of its letters.
    pub(super) head: &'a [u8],
    pub(super) name: QueryName,
    pub(super) qtype: u16,
    pub(super) qclass: u16,
    pub(super) edns: Option<Edns<'a>>,
}

/// What an OPT record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edns<'a> {
    /// Bytes of a reply over UDP that the client takes, 512 or more.
    pub(super) payload: u16,
    pub(super) version: u8,
    /// Whether it wants DNSSEC records; a reply repeats it (RFC 3225, 3).
    pub(super) dnssec: bool,
    /// The data of its COOKIE option.
    pub(super) cookie: Option<&'a [u8]>,
}

/// Why a message is no query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryError {
    /// No header, or a response: an answer could make two servers answer each other for ever.
    Unanswerable,
    /// Answered by a header with this response code.
    Rejected(u16),
}

impl<'a> Query<'a> {
    /// Reads a message.
    #[inline]
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, QueryError> {
        let (header, rest) = message.split_first_chunk::<HEADER>().ok_or(QueryError::Unanswerable)?;
        if header[2] & 0x80 != 0 {
            return Err(QueryError::Unanswerable);
        }
        if header[2] & 0x78 != 0 {
            return Err(QueryError::Rejected(rcode::NOTIMP));
        }
        let malformed = QueryError::Rejected(rcode::FORMERR);
        let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let additional = count(10);
        // A TSIG record may stand beside OPT.
        if count(4) != 1 || additional > 2 {
            return Err(malformed);
        }
        let name = QueryName::parse(rest).ok_or(malformed)?;
        let question = name.wire().len() + 4;
        let [t0, t1, c0, c1] = *rest.get(question - 4..).and_then(<[u8]>::first_chunk).ok_or(malformed)?;
        let (qtype, qclass) = (u16::from_be_bytes([t0, t1]), u16::from_be_bytes([c0, c1]));
        let head = message.get(..HEADER + question).ok_or(malformed)?;
        let records = message.get(HEADER + question..).ok_or(malformed)?;
        // Only an IXFR has records before those (RFC 1995, 3), and it is refused whatever they are.
        if count(6) != 0 || count(8) != 0 {
            let transfer = count(6) == 0 && qtype == rtype::IXFR;
            return if transfer {
                Ok(Self { head, name, qtype, qclass, edns: None })
            } else {
                Err(malformed)
            };
        }
        let edns = if additional == 0 && records.is_empty() {
            None
        } else {
            edns(records, additional).ok_or(malformed)?
        };
        Ok(Self { head, name, qtype, qclass, edns })
    }

    /// Whether the client wants the records of DNSSEC (RFC 4035, 3.1).
    #[inline]
    pub(super) fn dnssec(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec)
    }

    /// Most bytes of the reply over UDP.
    #[inline]
    pub(super) fn udp_limit(&self) -> usize {
        usize::from(self.edns.map_or(PLAIN_UDP, |edns| edns.payload.min(MAX_UDP)))
    }
}

/// The OPT record among `count` additional records, which must be all that is left of the message.
fn edns(mut records: &[u8], count: u16) -> Option<Option<Edns<'_>>> {
    let mut found = None;
    for _ in 0..count {
        let owner = name::length(records)?;
        let fixed: [u8; 10] = *records.get(owner..)?.first_chunk()?;
        let [t0, t1, p0, p1, _extended, version, flags, _zero, l0, l1] = fixed;
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        let data = records.get(owner + 10..)?.get(..len)?;
        if u16::from_be_bytes([t0, t1]) == rtype::OPT {
            if owner != 1 || found.is_some() {
                return None;
            }
            let payload = u16::from_be_bytes([p0, p1]).max(PLAIN_UDP);
            // Options of another version may look different (RFC 6891, 6.1.3).
            let cookie = if version == 0 { cookie(data)? } else { None };
            found = Some(Edns { payload, version, dnssec: flags & 0x80 != 0, cookie });
        }
        records = records.get(owner + 10 + len..)?;
    }
    records.is_empty().then_some(found)
}

/// The first COOKIE option, whose length must be valid (RFC 7873, 5.2.2); the outer `None` says that the options are
/// malformed.
fn cookie(mut options: &[u8]) -> Option<Option<&[u8]>> {
    const COOKIE: u16 = 10;
    let mut found = None;
    while !options.is_empty() {
        let [c0, c1, l0, l1] = *options.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        let data = options.get(4..)?.get(..len)?;
        if u16::from_be_bytes([c0, c1]) == COOKIE && found.is_none() {
            if len != 8 && !(16..=40).contains(&len) {
                return None;
            }
            found = Some(data);
        }
        options = options.get(4 + len..)?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A query for `www.example A IN` with these additional records.
    fn query(additional: &[&[u8]]) -> Vec<u8> {
        let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, additional.len() as u8];
        message.extend_from_slice(b"\x03wWw\x07example\0\0\x01\0\x01");
        additional.iter().for_each(|record| message.extend_from_slice(record));
        message
    }

    fn opt(payload: u16, version: u8, options: &[u8]) -> Vec<u8> {
        let mut record = vec![0, 0, 41];
        record.extend(payload.to_be_bytes());
        record.extend([0, version, 0, 0]);
        record.extend((options.len() as u16).to_be_bytes());
        record.extend_from_slice(options);
        record
    }

    #[test]
    fn question_and_edns_are_read() {
        let message = query(&[]);
        let plain = Query::parse(&message).unwrap();
        assert_eq!((plain.qtype, plain.qclass, plain.edns), (1, 1, None));
        assert_eq!((plain.head, plain.udp_limit()), (&message[..], 512));
        assert_eq!(plain.name.wire(), b"\x03www\x07example\0");
        let cookie = [0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        let padded = [&[0, 12, 0, 2, 0, 0][..], &cookie].concat();
        let message = query(&[&opt(4096, 0, &padded)]);
        let asked = Query::parse(&message).unwrap();
        assert_eq!(
            asked.edns,
            Some(Edns { payload: 4096, version: 0, dnssec: false, cookie: Some(&cookie[4..]) })
        );
        assert_eq!(asked.udp_limit(), 1232);
        let small = query(&[&opt(100, 0, &[])]);
        assert_eq!(Query::parse(&small).unwrap().udp_limit(), 512);
    }

    #[test]
    fn what_is_no_query_is_told_apart() {
        let error = |message: &[u8]| Query::parse(message).map(|_| ()).unwrap_err();
        let (malformed, unanswerable) = (QueryError::Rejected(rcode::FORMERR), QueryError::Unanswerable);
        let good = query(&[]);
        assert_eq!(error(&good[..11]), unanswerable);
        for len in 12..good.len() {
            assert_eq!(error(&good[..len]), malformed, "{len} bytes");
        }
        let with = |at: usize, byte: u8| {
            let mut message = good.clone();
            message[at] = byte;
            error(&message)
        };
        assert_eq!(with(2, 0x81), unanswerable, "a response");
        assert_eq!(with(2, 0x10), QueryError::Rejected(rcode::NOTIMP), "STATUS");
        for (at, byte) in [(5, 0), (5, 2), (7, 1), (9, 1), (11, 1), (11, 3), (12, 0xc0)] {
            assert_eq!(with(at, byte), malformed, "byte {at} = {byte}");
        }
        assert_eq!(error(&[&good[..], b"x"].concat()), malformed, "more than the counts say");
    }

    #[test]
    fn broken_edns_is_malformed() {
        let parse = |records: &[&[u8]]| Query::parse(&query(records)).map(|query| query.edns.is_some());
        let malformed = Err(QueryError::Rejected(rcode::FORMERR));
        let good = opt(1232, 0, &[]);
        assert_eq!(parse(&[&good]), Ok(true));
        assert_eq!(parse(&[&good, &good]), malformed, "two");
        assert_eq!(parse(&[&good[..10]]), malformed, "cut short");
        assert_eq!(parse(&[&[&b"\x01a"[..], &good].concat()]), malformed, "not of the root");
        for cookie in [&[0, 10, 0, 7, 1, 2, 3, 4, 5, 6, 7][..], &[0, 10, 0, 9, 1], &[0, 10]] {
            assert_eq!(parse(&[&opt(1232, 0, cookie)]), malformed, "{cookie:?}");
        }
        assert_eq!(parse(&[&opt(1232, 1, &[0, 10])]), Ok(true), "another version");
        let other = [&b"\0\0\xfa\0\xff\0\0\0\0"[..], &[0, 1, 9]].concat();
        assert_eq!(parse(&[&good, &other]), Ok(true), "TSIG beside it");
    }
}
