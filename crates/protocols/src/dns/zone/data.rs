//! Whether the data of a record are what its type allows. Text of a type is checked by its reader; the generic form
//! (RFC 3597) may hold anything, and so may text that was cut short.
//!
//! ```text
//! type ─▸ layout: its parts ─▸ each is there, whole, and nothing behind them      special: parts that depend on one another
//! ```

mod layout;
pub(super) mod special;

use domain::base::iana::Rtype;

use self::layout::{Part, parts};
use super::super::name;
use super::types;

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
    match parts(rtype) {
        Some(parts) if !fits(parts, data) => {
            Err(format!("{} bytes that are no data of type {}", data.len(), types::name(rtype)))
        }
        // Anything may be there (RFC 3597).
        _ => Ok(()),
    }
}

fn fits(parts: &[Part], data: &[u8]) -> bool {
    let mut rest = data;
    for part in parts {
        let len = match part {
            Part::Fixed(len) => Some(*len),
            Part::Covered => (!rest.starts_with(&[0, 0])).then_some(2),
            Part::Name => name::length(rest),
            Part::String => rest.first().map(|len| 1 + usize::from(*len)),
            Part::Strings => strings(rest),
            Part::Rest(least) => (rest.len() >= *least).then_some(rest.len()),
            Part::Checked(is_right) => is_right(rest).then_some(rest.len()),
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
mod tests;
