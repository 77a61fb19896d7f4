//! Identifiers of queries: the low 16 bits of a sequence number, scrambled.
//!
//! ```text
//!   run, flow ──▶ key            seq ──▶ xor key, multiply, fold, add key, multiply, fold, xor key ──▶ id
//! ```
//! For one run and flow it is a bijection of 16 bits, so no two of 65,536 queries in a row share an identifier, and a
//! reply's identifier gives the sequence number back. Identifiers in order would hide a server that answers by the
//! wrong one.

/// The factors, odd, and their inverses modulo 2^16.
const FACTORS: [u16; 2] = [0x9e3b, 0x6d2d];
const INVERSES: [u16; 2] = [inverse(FACTORS[0]), inverse(FACTORS[1])];

/// The identifiers of one flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids {
    keys: [u16; 3],
}

impl Ids {
    /// Those of flow `flow` in run `run`.
    #[inline]
    pub(super) fn of(run: u64, flow: u32) -> Self {
        let key = scramble(run ^ scramble(u64::from(flow)));
        Self { keys: [key as u16, (key >> 16) as u16, (key >> 32) as u16] }
    }

    /// The identifier of query `seq`.
    #[inline]
    pub(super) fn id(self, seq: u16) -> u16 {
        let mut z = (seq ^ self.keys[0]).wrapping_mul(FACTORS[0]);
        z = (z ^ z >> 8).wrapping_add(self.keys[1]).wrapping_mul(FACTORS[1]);
        z ^ z >> 7 ^ self.keys[2]
    }

    /// The query with this identifier: each step of [`Ids::id`] undone.
    #[inline]
    pub(super) fn seq(self, id: u16) -> u16 {
        let mut z = id ^ self.keys[2];
        z = (z ^ z >> 7 ^ z >> 14).wrapping_mul(INVERSES[1]).wrapping_sub(self.keys[1]);
        (z ^ z >> 8).wrapping_mul(INVERSES[0]) ^ self.keys[0]
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014) after one step of its counter: unlike numbers for neighbours,
/// 0 too.
#[inline]
pub(super) fn scramble(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The inverse of an odd number modulo 2^16, by Newton's method: each step doubles the correct bits, from 3.
const fn inverse(odd: u16) -> u16 {
    let (mut found, mut step) = (odd, 0);
    while step < 3 {
        found = found.wrapping_mul(2_u16.wrapping_sub(odd.wrapping_mul(found)));
        step += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_identifier_names_one_query() {
        for (run, flow) in [(0, 0), (0, 1), (1, 0), (u64::MAX, 131_071)] {
            let (ids, mut seen) = (Ids::of(run, flow), vec![false; 1 << 16]);
            for seq in 0..=u16::MAX {
                let id = ids.id(seq);
                assert_eq!(ids.seq(id), seq, "{run} {flow}");
                assert!(
                    !std::mem::replace(&mut seen[usize::from(id)], true),
                    "{run} {flow} {seq}: {id} twice"
                );
            }
        }
    }

    /// Of two flows, or two runs, about one identifier of 65,536 is the same for the same query.
    #[test]
    fn flows_and_runs_differ() {
        let same = |one: Ids, other: Ids| (0..=u16::MAX).filter(|seq| one.id(*seq) == other.id(*seq)).count();
        for flow in 1..50 {
            assert!(same(Ids::of(7, 0), Ids::of(7, flow)) < 20, "flow {flow}");
            assert!(same(Ids::of(7, 0), Ids::of(7 + u64::from(flow), 0)) < 20, "run {flow}");
        }
    }
}
