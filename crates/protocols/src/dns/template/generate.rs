//! Queries for generated names: a pattern with a number, types by weight, and a share of names that do not exist.

use super::ids::scramble;
use super::name::{self, NameError};
use super::queries::{Composer, Draw};
use super::types::Shares;

/// Queries that a load of few names has at least if it draws types, missing names or EDNS: each share is then met
/// within 3 per cent. Fewer: shares are coarse. More: the server's caches are asked for more missing names than there
/// are names.
pub(super) const MIN_DRAWN: usize = 10_000;
/// Stands for the number in a pattern.
pub(super) const PLACE: &str = "{}";

/// What to ask for.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// The name, with `{}` for the number.
    pub(super) pattern: String,
    /// Number of names: 1 without `{}`.
    pub(super) count: usize,
    pub(super) types: Shares,
    /// Share of queries for a name that does not exist, 0 to 100 per cent.
    pub(super) missing: u8,
}

impl Names {
    /// Whether the pattern has a place for the number.
    pub(super) fn are_numbered(&self) -> bool {
        self.pattern.contains(PLACE)
    }

    /// Adds a query for each name, in random order. If shares are to be met, few names are asked for repeatedly.
    pub(super) fn compose(&self, queries: &mut Composer, edns_is_mixed: bool) -> Result<(), NameError> {
        let mut draw = Draw::default();
        let mixed = edns_is_mixed || self.types.is_mixed() || (1..100).contains(&self.missing);
        let rounds = if mixed { MIN_DRAWN.div_ceil(self.count) } else { 1 };
        let (mut order, mut wire) = (shuffled(self.count), Vec::new());
        for round in 0..rounds {
            order.rotate_left(round % self.count);
            for number in &order {
                let mut text = self.pattern.replacen(PLACE, &number.to_string(), 1);
                let (rtype, missing) = (self.types.pick(draw.next()), draw.happens(self.missing));
                let random = draw.next() as u32;
                if missing {
                    text = if text == "." { String::new() } else { text };
                    // Below the name, so within the zone.
                    text = format!("missing-{random:08x}.{text}");
                }
                name::write(text.as_bytes(), &mut wire)?;
                queries.push(&wire, rtype);
            }
        }
        Ok(())
    }
}

/// The numbers below `count` in random order, the same every time (Fisher and Yates): no cache of a server's profits
/// from neighbours.
fn shuffled(count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        order.swap(last, (scramble(last as u64) % (last as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::queries::{Edns, HEADER, Queries};
    use super::*;

    fn composed(names: &Names, edns: Edns) -> Result<Queries, NameError> {
        let mut composer = Composer::new(edns);
        names.compose(&mut composer, edns.is_mixed())?;
        Ok(composer.finish().expect("one or more"))
    }

    fn names(pattern: &str, count: usize) -> Names {
        Names { pattern: pattern.into(), count, types: Shares::only(1), missing: 0 }
    }

    #[test]
    fn every_name_is_asked_for_once() {
        let queries = composed(&names("h{}.example.org", 1000), Edns::default()).unwrap();
        assert_eq!(queries.count(), 1000);
        let all: HashSet<_> = (0..1000).map(|number| queries.get(number).question().to_vec()).collect();
        for number in 0..1000 {
            let label = format!("h{number}");
            let question =
                [&[label.len() as u8], label.as_bytes(), b"\x07example\x03org\0\0\x01\0\x01"].concat();
            assert!(all.contains(&question), "{number}");
        }
        let sorted = (0..1000).filter(|number| *number == shuffled(1000)[*number as usize]);
        assert!(sorted.count() < 20);
    }

    #[test]
    fn one_name_is_one_query_unless_something_is_drawn() {
        let one = names("example.org", 1);
        assert_eq!(composed(&one, Edns { percent: 100, ..Edns::default() }).unwrap().count(), 1);
        assert_eq!(composed(&one, Edns { percent: 99, ..Edns::default() }).unwrap().count(), MIN_DRAWN);
        assert_eq!(composed(&Names { missing: 100, ..one }, Edns::default()).unwrap().count(), 1);
    }

    #[test]
    fn shares_are_met() {
        let mixed =
            Names { types: "A:70,AAAA:30".parse().unwrap(), missing: 20, ..names("{}.example.org", 3) };
        let queries = composed(&mixed, Edns { percent: 40, size: 1232, dnssec: true }).unwrap();
        let count = queries.count();
        assert!(count >= MIN_DRAWN && count.is_multiple_of(3));
        let share = |has: &dyn Fn(&[u8], &[u8]) -> bool| {
            let all = (0..count as u64).map(|number| queries.get(number));
            all.filter(|query| has(query.bytes(), query.question())).count() as f64 / count as f64
        };
        let close =
            |share: f64, expected: f64| assert!((share - expected).abs() < 0.03, "{share} {expected}");
        close(share(&|_, question| question.ends_with(&[0, 28, 0, 1])), 0.3);
        close(share(&|_, question| question.starts_with(b"\x10missing-")), 0.2);
        close(share(&|bytes, _| bytes[HEADER - 1] == 1), 0.4);
        // Independent of each other.
        close(share(&|bytes, question| bytes[HEADER - 1] == 1 && question.ends_with(&[0, 28, 0, 1])), 0.12);
    }

    #[test]
    fn the_root_has_missing_names_too() {
        let root = Names { missing: 100, ..names(".", 1) };
        assert!(composed(&root, Edns::default()).unwrap().get(0).question().starts_with(b"\x10missing-"));
    }

    #[test]
    fn a_name_that_is_too_long_is_an_error() {
        let pattern = format!("{}{{}}.example.org", "l".repeat(62));
        assert!(composed(&names(&pattern, 10), Edns::default()).is_ok());
        assert_eq!(composed(&names(&pattern, 11), Edns::default()).err(), Some(NameError::LongLabel));
    }
}
