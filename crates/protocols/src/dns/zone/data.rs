//! Whether the data of a record are what its type allows. Text of a type is checked by its reader; the generic form (RFC 3597) may hold
//! anything, and so may text that was cut short.

use domain::base::iana::Rtype;
use domain::base::name::ParsedName;
use domain::base::rdata::{ComposeRecordData, ParseRecordData as _};
use domain::dep::octseq::Parser;
use domain::rdata::ZoneRecordData;

use super::super::name;

/// A part of the data of a type that `domain` does not know.
enum Part {
    /// So many bytes.
    Fixed(usize),
    /// An uncompressed name.
    Name,
    /// A character string: a length and so many bytes.
    String,
    /// One character string or more.
    Strings,
    /// At least so many bytes.
    Rest(usize),
}

/// The data of types that `domain` does not know, after their documents.
fn parts(rtype: Rtype) -> Option<&'static [Part]> {
    use Part::{Fixed, Name, Rest, String, Strings};

    Some(match rtype {
        // RFC 1183, RFC 2230, RFC 6742
        Rtype::AFSDB | Rtype::RT | Rtype::KX | Rtype::LP => &[Fixed(2), Name],
        // RFC 2163
        Rtype::PX => &[Fixed(2), Name, Name],
        Rtype::TALINK => &[Name, Name],
        // RFC 1183; an ISDN address may have a subaddress
        Rtype::X25 => &[String],
        Rtype::ISDN | Rtype::SPF | Rtype::NINFO | Rtype::AVC => &[Strings],
        // RFC 1712
        Rtype::GPOS => &[String, String, String],
        // RFC 1876: version 0
        Rtype::LOC => &[Fixed(16)],
        // RFC 7043
        Rtype::EUI48 => &[Fixed(6)],
        Rtype::EUI64 => &[Fixed(8)],
        // RFC 6742
        Rtype::NID | Rtype::L64 => &[Fixed(10)],
        Rtype::L32 => &[Fixed(6)],
        // RFC 7553
        Rtype::URI => &[Fixed(4), Rest(0)],
        // RFC 4398
        Rtype::CERT => &[Fixed(5), Rest(1)],
        // RFC 4701
        Rtype::DHCID => &[Fixed(3), Rest(1)],
        // RFC 8162
        Rtype::SMIMEA => &[Fixed(3), Rest(1)],
        // RFC 7477
        Rtype::CSYNC => &[Fixed(6), Rest(0)],
        // RFC 1706
        Rtype::NSAP => &[Rest(1)],
        // RFC 4431, RFC 2535
        Rtype::DLV => &[Fixed(4), Rest(1)],
        Rtype::KEY | Rtype::RKEY => &[Fixed(4), Rest(0)],
        _ => return None,
    })
}

/// Whether `domain` reads the text of this type.
pub(super) fn has_text(rtype: Rtype) -> bool {
    matches!(
        rtype,
        Rtype::A
            | Rtype::AAAA
            | Rtype::CAA
            | Rtype::CDNSKEY
            | Rtype::CDS
            | Rtype::CNAME
            | Rtype::DNAME
            | Rtype::DNSKEY
            | Rtype::DS
            | Rtype::HINFO
            | Rtype::HTTPS
            | Rtype::IPSECKEY
            | Rtype::MB
            | Rtype::MD
            | Rtype::MF
            | Rtype::MG
            | Rtype::MINFO
            | Rtype::MR
            | Rtype::MX
            | Rtype::NAPTR
            | Rtype::NS
            | Rtype::NSEC
            | Rtype::NSEC3
            | Rtype::NSEC3PARAM
            | Rtype::OPENPGPKEY
            | Rtype::PTR
            | Rtype::RP
            | Rtype::RRSIG
            | Rtype::SOA
            | Rtype::SRV
            | Rtype::SSHFP
            | Rtype::SVCB
            | Rtype::TLSA
            | Rtype::TXT
            | Rtype::ZONEMD
    )
}

/// Whether the data are whole, and nothing else.
///
/// # Errors
/// A sentence: what the data are not.
pub(super) fn check(rtype: Rtype, data: &[u8]) -> Result<(), String> {
    let whole = match parts(rtype) {
        _ if matches!(rtype, Rtype::DS | Rtype::CDS | Rtype::DLV) && !is_digest(data) => false,
        Some(parts) => fits(parts, data),
        None if has_text(rtype) => again(rtype, data).is_some_and(|again| again == data),
        // Anything may be there (RFC 3597).
        None => true,
    };
    if whole { Ok(()) } else { Err(format!("{} bytes that are no data of type {rtype}", data.len())) }
}

/// Whether a DS has a digest, as long as its type says (RFC 4034, 5.1; RFC 4509; RFC 5933; RFC 6605).
fn is_digest(data: &[u8]) -> bool {
    let Some((fixed, digest)) = data.split_at_checked(4) else { return false };
    match fixed[3] {
        1 => digest.len() == 20,
        2 | 3 => digest.len() == 32,
        4 => digest.len() == 48,
        _ => !digest.is_empty(),
    }
}

/// The data as `domain` writes them after it has read them: without what it did not read, and with every name uncompressed.
fn again(rtype: Rtype, data: &[u8]) -> Option<Vec<u8>> {
    let mut parser = Parser::from_ref(data);
    let read = ZoneRecordData::<&[u8], ParsedName<&[u8]>>::parse_rdata(rtype, &mut parser).ok()??;
    let mut again = Vec::with_capacity(data.len());
    (parser.remaining() == 0).then_some(())?;
    read.compose_rdata(&mut again).ok()?;
    // An empty text has not even one string.
    (rtype != Rtype::TXT || !data.is_empty()).then_some(again)
}

fn fits(parts: &[Part], data: &[u8]) -> bool {
    let mut rest = data;
    for part in parts {
        let len = match part {
            Part::Fixed(len) => Some(*len),
            Part::Name => name::length(rest),
            Part::String => rest.first().map(|len| 1 + usize::from(*len)),
            Part::Strings => strings(rest),
            Part::Rest(least) => (rest.len() >= *least).then_some(rest.len()),
        };
        match len.and_then(|len| rest.get(len..)) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.is_empty()
}

/// The length of all character strings to the end, of which there is one at least.
fn strings(data: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < data.len() {
        at += 1 + usize::from(data[at]);
    }
    (at == data.len() && at > 0).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_whole_and_nothing_else() {
        let name = b"\x01a\x01x\0";
        let with = |before: &[u8], after: &[u8]| [before, &name[..], after].concat();
        for (rtype, data, right) in [
            (Rtype::A, vec![192, 0, 2, 1], true),
            (Rtype::A, vec![], false),
            (Rtype::A, vec![192, 0, 2], false),
            (Rtype::A, vec![192, 0, 2, 1, 0], false),
            (Rtype::AAAA, vec![0; 16], true),
            (Rtype::AAAA, vec![0; 4], false),
            (Rtype::MX, with(&[0, 5], &[]), true),
            (Rtype::MX, vec![0, 5], false),
            (Rtype::MX, vec![0, 5, 0xc0, 0], false),
            (Rtype::MX, with(&[0, 5], &[1]), false),
            (Rtype::NS, name.to_vec(), true),
            (Rtype::NS, vec![1, b'a', 0xc0, 0], false),
            (Rtype::NS, vec![], false),
            (Rtype::TXT, vec![], false),
            (Rtype::TXT, vec![0], true),
            (Rtype::TXT, vec![3, b'a'], false),
            (Rtype::SOA, [name, &name[..], &[0; 20]].concat(), true),
            (Rtype::SOA, [name, &name[..], &[0; 19]].concat(), false),
            (Rtype::SRV, with(&[0; 6], &[]), true),
            (Rtype::SRV, with(&[0; 5], &[]), false),
            (Rtype::AFSDB, with(&[0, 1], &[]), true),
            (Rtype::AFSDB, vec![0, 1, 0xc0, 12], false),
            (Rtype::LOC, vec![0; 16], true),
            (Rtype::LOC, vec![0; 15], false),
            (Rtype::URI, vec![0, 1, 0], false),
            (Rtype::SPF, vec![1, b'v'], true),
            (Rtype::EUI48, vec![0; 8], false),
            (Rtype::from_int(65_280), vec![], true),
        ] {
            assert_eq!(check(rtype, &data).is_ok(), right, "{rtype} {data:?}");
        }
    }
}
