//! The reply to a query: what the index has, in the form of a message.
//!
//! ```text
//! query ─▸ Response::to: version, class and type that are served? ─▸ Index::find
//!                                                          │
//!          Response::write: header, question as it came, records, OPT with the cookie
//!                           too long: without optional records, else truncated (RFC 2181, 9)
//! ```

use super::cookie::{self, Cookie};
use super::index::{Found, Index, Section};
use super::limit::Kind;
use super::name;
use super::wire::{HEADER, MAX_UDP, Query, class, rcode, rtype};

/// Bytes of an OPT record without options.
pub(super) const OPT: usize = 11;
/// TTL of the record that stands for all types, seconds (RFC 8482, 4.2: not so short that clients repeat the query
/// often).
const ANY_TTL: u32 = 3600;
/// A pointer to the question's name.
const QUESTION: [u8; 2] = [0xc0, HEADER as u8];

/// What to reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Response<'a> {
    content: Content<'a>,
    authoritative: bool,
    rcode: u16,
}

#[derive(Debug, Clone, Copy)]
enum Content<'a> {
    Nothing,
    Section(Section<'a>),
    /// A DNAME record and the CNAME record made of it; the labels that the question has in front of its owner.
    Alias(Section<'a>, usize),
    /// One record of the question's name: type, class, TTL and data.
    Record(u16, u16, u32, &'a [u8]),
}

impl<'a> Response<'a> {
    /// The response to a query. `version`: the data of the TXT record with the version.
    #[inline]
    pub(super) fn to(query: &Query<'_>, index: &'a Index, version: &'a [u8]) -> Self {
        if query.edns.is_some_and(|edns| edns.version > 0) {
            return Self::error(rcode::BADVERS);
        }
        match query.qclass {
            class::IN | class::ANY => {}
            class::CHAOS => return Self::chaos(query, version),
            _ => return Self::error(rcode::REFUSED),
        }
        match query.qtype {
            rtype::ANY => {}
            rtype::OPT => return Self::error(rcode::FORMERR),
            rtype::AXFR | rtype::IXFR => return Self::error(rcode::REFUSED),
            rtype::FIRST_META..rtype::ANY => return Self::error(rcode::NOTIMP),
            _ => {}
        }
        let response = match index.find(&query.name, query.qtype, query.dnssec()) {
            Found::Section(section) => Self {
                content: Content::Section(section),
                authoritative: section.authoritative,
                rcode: section.rcode,
            },
            Found::AnyType => Self::record(rtype::HINFO, class::IN, ANY_TTL, b"\x07RFC8482\0"),
            Found::Alias(section, labels) => Self::alias(query, section, labels),
            Found::NotOurs => Self::error(rcode::REFUSED),
        };
        // Of all classes there may be more (RFC 1035, 6.2).
        Self { authoritative: response.authoritative && query.qclass == class::IN, ..response }
    }

    fn error(rcode: u16) -> Self {
        Self { content: Content::Nothing, authoritative: false, rcode }
    }

    fn record(rtype: u16, class: u16, ttl: u32, data: &'a [u8]) -> Self {
        let content = Content::Record(rtype, class, ttl, data);
        Self { content, authoritative: true, rcode: rcode::NOERROR }
    }

    /// The version, for those who look after servers.
    fn chaos(query: &Query<'_>, version: &'a [u8]) -> Self {
        let asked = [&b"\x07version\x04bind\0"[..], b"\x07version\x06server\0"].contains(&query.name.wire());
        if asked && [rtype::TXT, rtype::ANY].contains(&query.qtype) {
            Self::record(rtype::TXT, class::CHAOS, 0, version)
        } else {
            Self::error(rcode::REFUSED)
        }
    }

    /// A name below a DNAME record (RFC 6672, 3.1). The client follows the CNAME record by itself.
    fn alias(query: &Query<'_>, section: Section<'a>, labels: usize) -> Self {
        let whole = query.name.wire().len();
        let in_front = whole - query.name.suffix(labels).len();
        let fits = alias_target(&section).is_some_and(|target| in_front + target.len() <= name::MAX_NAME);
        if fits {
            Self { content: Content::Alias(section, labels), authoritative: true, rcode: rcode::NOERROR }
        } else {
            Self { content: Content::Section(section), authoritative: true, rcode: rcode::YXDOMAIN }
        }
    }

    /// Which answer it is, for the rate limit: all questions with the same records have the same one. Negative answers
    /// are one for each zone, referrals for each delegation, and answers of a wildcard for each wildcard, so that
    /// made-up names do not make new ones.
    pub(super) fn id(&self) -> u32 {
        match self.content {
            Content::Section(section) | Content::Alias(section, _) => section.id,
            Content::Nothing | Content::Record(..) => 0,
        }
    }

    /// What it says, for the rate limit.
    pub(super) fn kind(&self) -> Kind {
        match (self.rcode, self.content) {
            (rcode::NXDOMAIN, _) => Kind::NoName,
            (rcode::NOERROR, Content::Section(section)) if section.counts[0] == 0 && self.authoritative => {
                Kind::NoData
            }
            (rcode::NOERROR, _) => Kind::Answer,
            _ => Kind::Error,
        }
    }

    /// Writes the reply to `out`, all of which may be used, and returns its length; `None` if it is too short for any
    /// reply. `truncate`: without records, to make the client ask over TCP.
    #[inline]
    pub(super) fn write(
        &self,
        query: &Query<'_>,
        out: &mut [u8],
        cookie: Option<&Cookie>,
        truncate: bool,
    ) -> Option<usize> {
        let head = query.head.len();
        let opt = query.edns.map_or(0, |_| OPT + cookie.map_or(0, |_| cookie::OPTION));
        let (start, rest) = out.split_at_mut_checked(head)?;
        let room = rest.len().checked_sub(opt)?;
        let written = if truncate { None } else { self.records(query, &mut rest[..room]) };
        let truncated = written.is_none();
        let (len, counts) = written.unwrap_or((0, [0; 3]));

        start.copy_from_slice(query.head);
        // Opcode 0, recursion desired and checking disabled as asked.
        start[2] = 0x80 | start[2] & 1 | u8::from(self.authoritative) << 2 | u8::from(truncated) << 1;
        start[3] = start[3] & 0x10 | self.rcode as u8 & 0xf;
        let additional = counts[2] + u16::from(opt > 0);
        for (place, count) in
            start[4..HEADER].as_chunks_mut::<2>().0.iter_mut().zip([1, counts[0], counts[1], additional])
        {
            *place = count.to_be_bytes();
        }
        if let Some(edns) = query.edns {
            write_opt(rest.get_mut(len..len + opt)?, self.rcode, edns.dnssec, cookie);
        }
        Some(head + len + opt)
    }

    /// Writes the records that fit; returns their bytes and counts. `None`: the reply is truncated.
    #[inline]
    fn records(&self, query: &Query<'_>, out: &mut [u8]) -> Option<(usize, [u16; 3])> {
        match self.content {
            Content::Nothing => Some((0, [0; 3])),
            Content::Section(section) => {
                let [answer, authority, _] = section.counts;
                // Additional records stand behind the proof: without those that can be missed, there are none.
                let proven = !section.proof.is_empty();
                let (len, counts) = if section.body.len() <= out.len() && !proven {
                    (section.body.len(), section.counts)
                } else {
                    (section.required, [answer, authority, section.glue])
                };
                section.copy_to(out.get_mut(..len)?);
                if !proven {
                    return Some((len, counts));
                }
                let (more, records) = section.proof.write(&query.name, out, len)?;
                Some((len + more, [answer, authority + records, section.glue]))
            }
            Content::Alias(section, labels) => {
                let own = section.body.len();
                section.copy_to(out.get_mut(..own)?);
                let question = &query.head[HEADER..];
                let in_front = query.name.wire().len() - query.name.suffix(labels).len();
                let target = alias_target(&section)?;
                let ttl = *section.body.get(6..)?.first_chunk()?;
                let data = [question.get(..in_front)?, target];
                let len = write_record(
                    out.get_mut(own..)?,
                    rtype::CNAME,
                    class::IN,
                    u32::from_be_bytes(ttl),
                    &data,
                )?;
                Some((own + len, [section.counts[0] + 1, 0, 0]))
            }
            Content::Record(rtype, class, ttl, data) => {
                Some((write_record(out, rtype, class, ttl, &[data])?, [1, 0, 0]))
            }
        }
    }
}

/// Writes an OPT record: the upper bits of the response code, DO as asked, the cookie.
pub(super) fn write_opt(opt: &mut [u8], rcode: u16, dnssec: bool, cookie: Option<&Cookie>) {
    let [p0, p1] = MAX_UDP.to_be_bytes();
    let extended = (rcode >> 4) as u8;
    let options = cookie.map_or(0, |_| cookie::OPTION as u8);
    let fixed = [0, 0, rtype::OPT as u8, p0, p1, extended, 0, u8::from(dnssec) << 7, 0, 0, options];
    opt[..OPT].copy_from_slice(&fixed);
    if let Some(Cookie { data, .. }) = cookie {
        opt[OPT..][..4].copy_from_slice(&[0, 10, 0, data.len() as u8]);
        opt[OPT + 4..].copy_from_slice(data);
    }
}

/// The target of a section with one DNAME record: data that is a name, after pointer, type, class, TTL and length.
fn alias_target<'a>(section: &Section<'a>) -> Option<&'a [u8]> {
    let target = section.body.get(12..)?;
    target.get(..name::length(target)?)
}

/// Writes a record of the question's name with the data in pieces; returns its length, or `None` if it does not fit.
fn write_record(out: &mut [u8], rtype: u16, class: u16, ttl: u32, data: &[&[u8]]) -> Option<usize> {
    let len: usize = data.iter().map(|piece| piece.len()).sum();
    let size = u16::try_from(len).ok()?;
    let ([t0, t1], [c0, c1], [l0, l1]) = (rtype.to_be_bytes(), class.to_be_bytes(), size.to_be_bytes());
    let [s0, s1, s2, s3] = ttl.to_be_bytes();
    let [q0, q1] = QUESTION;
    let fixed = [q0, q1, t0, t1, c0, c1, s0, s1, s2, s3, l0, l1];
    let mut at = 0;
    for piece in [&fixed[..]].iter().chain(data) {
        out.get_mut(at..)?.get_mut(..piece.len())?.copy_from_slice(piece);
        at += piece.len();
    }
    Some(at)
}

#[cfg(test)]
pub(super) mod tests;
