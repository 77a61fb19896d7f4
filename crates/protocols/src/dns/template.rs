//! The load: queries composed once, and replies checked against them.
//!
//! ```text
//!   options.rs ─▸ file.rs, generate.rs ─▸ queries.rs: all queries, read-only, shared by all threads
//!                 (name.rs, types.rs)         │ number = 65,536 x flow + low 16 bits of seq
//!   write:  copy that query, id = ids.rs(run, flow, low 16 bits of seq)
//!   check:  id ─▸ seq ─▸ the same query ─▸ reply.rs: header, question byte for byte, records
//! ```
//! A flow asks for 65,536 queries in order, then for the same again; the next flow continues behind them. So two flows
//! cover 131,072 queries, and with enough flows all queries are sent equally often.

mod file;
mod generate;
mod ids;
pub(super) mod name;
mod options;
mod queries;
mod reply;
mod types;
mod zone_for;

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::Arc;

use udpath_load::result::{Counts, Kind, LoadResult};
use udpath_load::template::{
    Id, InKernel, Judgement, Lengths, Prebuilt, Protocol, ReplyRules, Rule, Template, Verdict, Written,
};

use crate::said::{self, Said};
use crate::{OptionError, Options};
use ids::{Ids, scramble};
use options::Chosen;
use queries::Query;
use reply::Contents;

pub(super) use options::OPTIONS;
pub use queries::MAX_QUERY;
pub(super) use zone_for::zone_for;

/// Bits of an identifier.
const ID_BITS: u32 = 16;

/// Counted in place of the response code: such a reply sends the client to TCP.
const TRUNCATED: &str = "truncated";
/// Truncated replies per lost request that show a response rate limit. Wider: loss on the way and large answers look
/// like one. Narrower: a limit is missed where some requests are lost otherwise.
const ALIKE: RangeInclusive<f64> = 0.5..=2.0;

/// What the kernel engine checks of a reply: the flags and the number of questions, which are the four bytes behind the
/// identifier. As [`reply::check`], but for response codes that are not assigned, the question and the records: those
/// are checked in a sample.
const RULES: [Rule; 6] = {
    const FLAGS: usize = 2;
    const WITH_QUESTION: [u8; 4] = [0xf9, 0x4f, 0xff, 0xff];
    const WITH_CODE: [u8; 4] = [0xf9, 0x4f, 0, 0];
    [
        Rule::when(FLAGS, WITH_QUESTION, [0x81, 0, 0, 1], Verdict::Valid),
        Rule::when(FLAGS, WITH_QUESTION, [0x81, 3, 0, 1], Verdict::Valid),
        Rule::when(FLAGS, WITH_CODE, [0x81, 0, 0, 0], Verdict::Corrupt),
        Rule::when(FLAGS, WITH_CODE, [0x81, 3, 0, 0], Verdict::Corrupt),
        Rule::when(FLAGS, [0xf9, 0x40, 0, 0], [0x81, 0, 0, 0], Verdict::Refused),
        Rule::when(FLAGS, [0; 4], [0; 4], Verdict::Corrupt),
    ]
};

/// DNS for a load.
#[derive(Debug, Clone)]
pub struct DnsLoad {
    /// Distinguishes identifiers of this run from those of others.
    key: u64,
    chosen: Arc<Chosen>,
}

impl DnsLoad {
    /// The queries that `options` describe, in run `run`. Give each run its own number: the identifiers of a reply to
    /// an earlier run then are those of other queries, or of none.
    ///
    /// # Errors
    /// An invalid option, or a line of the file of queries that is not a query.
    pub fn from_options(run: u64, options: &Options) -> Result<Self, OptionError> {
        Ok(Self { key: scramble(run), chosen: Arc::new(Chosen::from_options(options)?) })
    }
}

impl Protocol for DnsLoad {
    fn name(&self) -> &'static str {
        "dns"
    }

    fn min_size(&self) -> usize {
        self.chosen.queries.lengths().longest
    }

    fn max_size(&self) -> usize {
        MAX_QUERY
    }

    fn one_size(&self) -> bool {
        false
    }

    fn lengths(&self) -> Option<Lengths> {
        Some(self.chosen.queries.lengths())
    }

    fn ids(&self) -> u64 {
        1 << ID_BITS
    }

    fn in_kernel(&self) -> Option<InKernel> {
        let requests = self.chosen.queries.count().min(1 << ID_BITS) as u32;
        Some(InKernel::Prebuilt(Prebuilt {
            requests: Written::InTurn(requests),
            id: Id { at: 0, echoed_at: 0, width: 2, bits: ID_BITS },
            reply: ReplyRules {
                min: queries::HEADER,
                max: self.chosen.max_reply,
                within: Vec::new(),
                rules: Cow::Borrowed(&RULES),
            },
        }))
    }

    fn template(&self) -> Box<dyn Template> {
        let (key, chosen) = (self.key, Arc::clone(&self.chosen));
        Box::new(DnsTemplate { key, chosen, said: Default::default() })
    }

    fn hint(&self, result: &LoadResult) -> Option<String> {
        let hints = [self.chosen.left_out.clone(), limited(&result.kinds, &result.counts)];
        let hints: Vec<String> = hints.into_iter().flatten().collect();
        (!hints.is_empty()).then(|| hints.join("; "))
    }
}

/// Writes queries and judges replies.
#[derive(Debug, Clone)]
pub struct DnsTemplate {
    key: u64,
    chosen: Arc<Chosen>,
    /// Intact replies by response code, and the truncated ones.
    said: [Said; reply::CODES.len() + 1],
}

impl DnsTemplate {
    /// The query of transaction `seq`, of which only 16 bits count, in `flow`.
    #[inline]
    fn query(&self, flow: u32, seq: u16) -> Query<'_> {
        self.chosen.queries.get(u64::from(flow) << ID_BITS | u64::from(seq))
    }
}

impl Template for DnsTemplate {
    fn name(&self) -> &'static str {
        "dns"
    }

    fn min_size(&self) -> usize {
        self.chosen.queries.lengths().longest
    }

    fn max_reply(&self, _size: usize) -> usize {
        self.chosen.max_reply
    }

    fn seq_bits(&self) -> u32 {
        ID_BITS
    }

    fn write(&mut self, flow: u32, seq: u64, request: &mut [u8]) -> usize {
        let seq = seq as u16;
        let query = self.query(flow, seq).bytes();
        // As long as the longest query, or longer.
        let place = &mut request[..query.len()];
        place.copy_from_slice(query);
        place[..2].copy_from_slice(&Ids::of(self.key, flow).id(seq).to_be_bytes());
        query.len()
    }

    fn check(&self, flow: u32, reply: &[u8]) -> Judgement {
        let id = reply::id(reply).filter(|_| reply.len() <= self.chosen.max_reply);
        let Some(id) = id else { return Judgement::Corrupt };
        let seq = Ids::of(self.key, flow).seq(id);
        let contents = reply::check(reply, self.query(flow, seq).question(), self.chosen.walk);
        let (seq, code) = (u64::from(seq), usize::from(reply::code(reply)));
        let said = if reply::is_truncated(reply) { reply::CODES.len() } else { code };
        if contents != Contents::Wrong
            && let Some(said) = self.said.get(said)
        {
            said.count(contents == Contents::Refusal);
        }
        match contents {
            Contents::Answer => Judgement::Valid { seq },
            Contents::Refusal => Judgement::Refused { seq },
            Contents::Wrong => Judgement::Corrupt,
        }
    }

    fn kinds(&self) -> Vec<Kind> {
        said::kinds(reply::CODES.iter().chain([&TRUNCATED]).copied(), &self.said)
    }
}

/// A response rate limit as servers have it by default truncates every second reply beyond the rate and sends none of
/// the others (NSD's `rrl-slip` and BIND's `slip` of 2): about as many truncated replies as lost requests.
fn limited(kinds: &[Kind], counts: &Counts) -> Option<String> {
    let truncated = kinds.iter().find(|kind| kind.name == TRUNCATED)?.count;
    let read: u64 = kinds.iter().map(|kind| kind.count).sum();
    // The kernel engine reads only a sample of the replies.
    let truncated = truncated as f64 / read as f64 * counts.received as f64;
    let alike = counts.lost > 0 && ALIKE.contains(&(truncated / counts.lost as f64));
    alike.then(|| {
        format!(
            "about {truncated:.0} replies were truncated and {} requests had none: the server limits its response rate (NSD by \
             default to 200/s for one name: rrl-ratelimit); use more names, or turn the limit off while you measure",
            counts.lost
        )
    })
}

#[cfg(test)]
mod tests;
