//! How the names of a zone with NSEC3 records are hashed (RFC 5155, 3.1 and 4.1), and what is too much.

use super::super::records::{Record, Records};
use super::super::wire::rtype;
use super::faults::Fault;

/// Most further rounds of a hash. RFC 9276 (3.1) recommends 0; validating resolvers took up to 150 as secure when that
/// was written, and take fewer by now. Lower: zones that resolvers understand are refused; higher: one query costs as
/// much as thousands.
const MAX_ITERATIONS: u16 = 150;
/// The only algorithm (RFC 5155, 11): SHA-1.
const SHA1: u8 = 1;

/// What NSEC3 and NSEC3PARAM records begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Nsec3Params<'a> {
    algorithm: u8,
    flags: u8,
    pub(in super::super) iterations: u16,
    pub(in super::super) salt: &'a [u8],
}

impl<'a> Nsec3Params<'a> {
    /// Those of a record's data.
    pub(in super::super) fn read(data: &'a [u8]) -> Option<Self> {
        let ([algorithm, flags, i0, i1, len], rest) = data.split_first_chunk()?;
        let (iterations, salt) = (u16::from_be_bytes([*i0, *i1]), rest.get(..usize::from(*len))?);
        Some(Self { algorithm: *algorithm, flags: *flags, iterations, salt })
    }

    /// Those of an NSEC3PARAM record, if it names a chain that can be used: one with flags is to be ignored (RFC 5155,
    /// 4.1.2).
    pub(in super::super) fn usable(data: &'a [u8]) -> Option<Self> {
        let is_usable = |params: &Self| {
            params.flags == 0 && params.algorithm == SHA1 && params.iterations <= MAX_ITERATIONS
        };
        Self::read(data).filter(is_usable)
    }

    /// Whether they hash names in the same way.
    pub(in super::super) fn are(&self, other: &Self) -> bool {
        let of = |params: &Self| (params.algorithm, params.iterations, params.salt.to_vec());
        of(self) == of(other)
    }
}

/// The fault of a signed zone with NSEC3 records of whose NSEC3PARAM records none can be used: what does not exist in
/// it could not be proven. Without NSEC3 records it may have a chain of NSEC records.
pub(super) fn fault(records: &Records, of_zone: &[Record]) -> Option<(u16, Fault)> {
    let named = of_zone.iter().filter(|record| record.rtype == rtype::NSEC3PARAM);
    let with_params = named.filter_map(|record| Some((record, Nsec3Params::read(records.data(record))?)));
    let mut all = with_params.filter(|(_, params)| params.flags == 0).peekable();
    let (first, params) = *all.peek()?;
    if all.any(|(record, _)| Nsec3Params::usable(records.data(record)).is_some())
        || [rtype::RRSIG, rtype::NSEC3]
            .iter()
            .any(|needed| !of_zone.iter().any(|record| record.rtype == *needed))
    {
        return None;
    }
    let what = if params.algorithm == SHA1 {
        format!(
            "{} iterations, more than the {MAX_ITERATIONS} that are served (RFC 9276 recommends 0)",
            params.iterations
        )
    } else {
        format!("hash algorithm {}, which is not known (1 is SHA-1)", params.algorithm)
    };
    Some((first.file, Fault::of_zone(first.line, format!("NSEC3PARAM with {what}: sign the zone again"))))
}
