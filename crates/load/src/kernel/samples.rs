//! Complete checks of some replies to prebuilt requests: the program in the kernel checks lengths, identifiers and a
//! few fields of all of them, [`Template::check`] here a sample of those it found valid.
//!
//! ```text
//!   reply ── program: ok, refused ──▶ copy ── restore the request's own identifier ──▶ Template::check
//!                                                                     agrees? else the counts are corrected
//! ```
//! At low rates the sample is every reply; at high rates each CPU contributes up to 32 per reading.

use udpath_bpf::{Judged, RequestTable, Sample, Samples};

use crate::plan::Segment;
use crate::result::{Counts, Kind};
use crate::template::{Judgement, Protocol, Template};

/// Most replies checked per reading, every 2 to 20 ms. Lower: on machines of many CPUs the sample is smaller. Higher:
/// this thread takes a noticeable share of a CPU that the server uses too.
const MAX_PER_READING: usize = 1024;

/// The sample of a run, and what it found.
pub(super) struct SampleCheck<'a> {
    samples: Samples<'a>,
    table: &'a RequestTable,
    template: Box<dyn Template>,
    segment: Segment,
    found: Found,
}

/// What the complete checks found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Replies checked.
    pub(super) checked: u64,
    /// Of these: corrupt, and not what the program had found.
    pub(super) corrupt: u64,
    /// Of these: refusals that the program had found valid.
    pub(super) refused: u64,
    /// What the counts change by.
    corrections: Corrections,
}

/// Replies by how they were counted and what they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Corrections {
    ok_corrupt: u64,
    ok_refused: u64,
    late_corrupt: u64,
    late_refused: u64,
    refused_corrupt: u64,
    refused_ok: u64,
}

impl<'a> SampleCheck<'a> {
    pub(super) fn new(
        samples: Samples<'a>,
        table: &'a RequestTable,
        protocol: &dyn Protocol,
        segment: Segment,
    ) -> Self {
        Self { samples, table, template: protocol.template(), segment, found: Found::default() }
    }

    /// Checks the copies that the program has made since the last reading.
    pub(super) fn read(&mut self) {
        let Self { samples, table, template, segment, found } = self;
        samples.read(MAX_PER_READING, |sample, reply| {
            table.restore(sample.request, reply);
            let (own, asked) = table.transaction(sample.request);
            let bits = u64::MAX.checked_shr(u64::BITS - template.seq_bits()).unwrap_or(0);
            let judgement = match template.check(segment.flow(own), reply) {
                Judgement::Valid { seq } | Judgement::Refused { seq } if seq & bits != asked & bits => {
                    Judgement::Corrupt
                }
                judgement => judgement,
            };
            found.count(sample, judgement);
        });
    }

    pub(super) fn found(&self) -> Found {
        self.found
    }

    /// The intact ones of the replies checked, by what they say.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        self.template.kinds()
    }
}

impl Found {
    fn count(&mut self, sample: Sample, judgement: Judgement) {
        self.checked += 1;
        let Corrections { ok_corrupt, ok_refused, late_corrupt, late_refused, refused_corrupt, refused_ok } =
            &mut self.corrections;
        let (corrected, counted) = match (sample.judged, judgement) {
            (Judged::Ok | Judged::Overdue, Judgement::Valid { .. })
            | (Judged::Refused, Judgement::Refused { .. }) => return,
            (Judged::Ok, Judgement::Refused { .. }) => (ok_refused, &mut self.refused),
            (Judged::Overdue, Judgement::Refused { .. }) => (late_refused, &mut self.refused),
            (Judged::Ok, Judgement::Corrupt | Judgement::WrongFlow) => (ok_corrupt, &mut self.corrupt),
            (Judged::Overdue, Judgement::Corrupt | Judgement::WrongFlow) => (late_corrupt, &mut self.corrupt),
            (Judged::Refused, Judgement::Corrupt | Judgement::WrongFlow) => {
                (refused_corrupt, &mut self.corrupt)
            }
            (Judged::Refused, Judgement::Valid { .. }) => {
                *refused_ok += 1;
                return;
            }
        };
        *corrected += 1;
        *counted += 1;
    }

    /// Counts the checked replies as what they are. A request whose reply is corrupt has no valid one, so it is lost.
    pub(super) fn correct(&self, counts: &mut Counts) {
        let c = &self.corrections;
        let corrupt = c.ok_corrupt + c.late_corrupt + c.refused_corrupt;
        counts.ok = (counts.ok + c.refused_ok).saturating_sub(c.ok_corrupt + c.ok_refused);
        counts.late = counts.late.saturating_sub(c.late_corrupt + c.late_refused);
        counts.refused =
            (counts.refused + c.ok_refused + c.late_refused).saturating_sub(c.refused_corrupt + c.refused_ok);
        counts.corrupt += corrupt;
        counts.lost += corrupt;
    }

    /// The sum of two samples.
    pub(super) fn plus(&self, other: &Self) -> Self {
        let (a, b) = (&self.corrections, &other.corrections);
        Self {
            checked: self.checked + other.checked,
            corrupt: self.corrupt + other.corrupt,
            refused: self.refused + other.refused,
            corrections: Corrections {
                ok_corrupt: a.ok_corrupt + b.ok_corrupt,
                ok_refused: a.ok_refused + b.ok_refused,
                late_corrupt: a.late_corrupt + b.late_corrupt,
                late_refused: a.late_refused + b.late_refused,
                refused_corrupt: a.refused_corrupt + b.refused_corrupt,
                refused_ok: a.refused_ok + b.refused_ok,
            },
        }
    }

    /// The size of the sample, for the reader of the result; `received` replies in total.
    pub(super) fn note(&self, received: u64) -> String {
        format!(
            "{} of {received} replies were checked completely, the others by length, identifier and a few fields",
            self.checked
        )
    }

    /// What the sample says of the other replies, if it found any fault.
    pub(super) fn warning(&self) -> Option<String> {
        let faults = self.corrupt + self.refused;
        (faults > 0).then(|| {
            format!(
                "of {} replies that were checked completely, {} were corrupt and {} refusals, which the check in the driver \
                 does not see: about {:.2} % of all that count as ok may be",
                self.checked,
                self.corrupt,
                self.refused,
                faults as f64 / self.checked as f64 * 100.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUDGED: [Judged; 3] = [Judged::Ok, Judged::Overdue, Judged::Refused];
    const JUDGEMENTS: [Judgement; 4] = [
        Judgement::Valid { seq: 0 },
        Judgement::Refused { seq: 0 },
        Judgement::WrongFlow,
        Judgement::Corrupt,
    ];

    /// Every combination, several times: the counts still balance, and are what the complete check says.
    #[test]
    fn corrected_counts_balance() {
        let mut counts = Counts { sent: 100, ok: 50, late: 20, refused: 20, lost: 10, ..Counts::default() };
        counts.received = 90;
        counts.check().unwrap();
        let mut found = Found::default();
        for (times, judged) in (1..).zip(JUDGED) {
            for judgement in JUDGEMENTS {
                (0..times).for_each(|_| found.count(Sample { request: 0, judged }, judgement));
            }
        }
        found.correct(&mut counts);
        counts.check().unwrap();
        // ok: 1 of 4 stays, 3 refusals are valid. late: 2 of 8 stay. refused: 3 of 12 stay, 1 + 2 were found valid.
        assert_eq!((counts.ok, counts.late, counts.refused), (50 - 3 + 3, 20 - 6, 20 - 9 + 3));
        assert_eq!((counts.corrupt, counts.lost), (12, 22));
        assert_eq!((found.checked, found.corrupt, found.refused), (24, 12, 3));
        assert!(found.note(90).contains("24 of 90"), "{}", found.note(90));
        assert!(found.warning().unwrap().contains("62.50 %"), "{:?}", found.warning());
        assert_eq!(Found::default().warning(), None);
    }
}
