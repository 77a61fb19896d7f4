//! The load: queries for one name, type A, told apart by their identifier.

use udpath_load::template::{Judgement, Protocol, Template};

use super::NAME;
use super::name::{self, QueryName};
use super::wire::{HEADER, class, rtype};
use crate::{OptionError, Options};

/// Bytes of a query for `example.org`.
pub(super) const DEFAULT_SIZE: usize = HEADER + 13 + 4;
/// Bits of the identifier.
const ID_BITS: u32 = 16;

/// DNS for a load.
#[derive(Debug, Clone)]
pub struct DnsLoad {
    template: DnsTemplate,
}

impl DnsLoad {
    /// From the options of `udpath load dns`. Each run has its own number, which the identifiers depend on.
    pub(super) fn from_options(run: u64, options: &Options) -> Result<Self, OptionError> {
        let asked: String = options
            .parsed(&NAME, "a name such as www.example.org", |text: &String| name::from_text(text).is_some())?
            .unwrap_or_else(|| "example.org".into());
        let wire = name::from_text(&asked).unwrap_or_default();
        // One question; recursion is not desired of an authoritative server.
        let mut query = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        query.extend_from_slice(&wire);
        query.extend(rtype::A.to_be_bytes());
        query.extend(class::IN.to_be_bytes());
        Ok(Self { template: DnsTemplate { key: run as u16, query } })
    }
}

impl Protocol for DnsLoad {
    fn name(&self) -> &'static str {
        "dns"
    }

    fn min_size(&self) -> usize {
        self.template.query.len()
    }

    fn max_size(&self) -> usize {
        self.template.query.len()
    }

    fn ids(&self) -> u64 {
        1 << ID_BITS
    }

    fn template(&self) -> Box<dyn Template> {
        Box::new(self.template.clone())
    }
}

/// Writes queries and judges replies.
#[derive(Debug, Clone)]
pub struct DnsTemplate {
    key: u16,
    query: Vec<u8>,
}

impl Template for DnsTemplate {
    fn name(&self) -> &'static str {
        "dns"
    }

    fn min_size(&self) -> usize {
        self.query.len()
    }

    fn max_reply(&self, _size: usize) -> usize {
        512
    }

    fn seq_bits(&self) -> u32 {
        ID_BITS
    }

    fn write(&mut self, _flow: u32, seq: u64, request: &mut [u8]) -> usize {
        request[..self.query.len()].copy_from_slice(&self.query);
        request[..2].copy_from_slice(&(seq as u16 ^ self.key).to_be_bytes());
        self.query.len()
    }

    fn check(&self, _flow: u32, reply: &[u8]) -> Judgement {
        let Some(([i0, i1, flags, code, q0, q1, ..], rest)) = reply.split_first_chunk::<HEADER>() else {
            return Judgement::Corrupt;
        };
        let same = QueryName::parse(rest).is_some() && rest.starts_with(&self.query[HEADER..]);
        if flags & 0xf8 != 0x80 || [*q0, *q1] != [0, 1] || !same {
            return Judgement::Corrupt;
        }
        let seq = u64::from(u16::from_be_bytes([*i0, *i1]) ^ self.key);
        // NOERROR and NXDOMAIN answer the question.
        if matches!(code & 0xf, 0 | 3) { Judgement::Valid { seq } } else { Judgement::Refused { seq } }
    }
}
