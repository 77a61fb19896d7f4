//! RSS: the receive queue that a network card selects for a packet.
//!
//! ```text
//! packet --fields--> Toeplitz --> hash --low bits--> table entry --> queue
//! ```
//!
//! [`Rss`] is the first arrow, [`IndirectionTable`] the others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::flow::Flow;
use crate::toeplitz::{Fields, Key, Toeplitz, Transform};

/// The hash of a network card: key, fields of each family, transform.
#[derive(Debug, Clone)]
pub struct Rss {
    toeplitz: Toeplitz,
    /// Fields of UDP over IPv4 that are hashed (`rx-flow-hash udp4`).
    pub udp4: Fields,
    /// Fields of UDP over IPv6 that are hashed (`rx-flow-hash udp6`).
    pub udp6: Fields,
    /// The transform of the fields.
    pub transform: Transform,
}

impl Rss {
    /// A hash over addresses and ports of both families with `key`.
    #[must_use]
    pub fn new(key: Key) -> Self {
        let (udp4, udp6) = (Fields::AddressesPorts, Fields::AddressesPorts);
        Self { toeplitz: Toeplitz::new(key), udp4, udp6, transform: Transform::None }
    }

    /// The hash of a UDP flow's packets. For the packet path: a few nanoseconds, no allocation.
    #[must_use]
    #[inline]
    pub fn hash(&self, flow: &Flow) -> u32 {
        self.toeplitz.hash(flow, self.fields(flow), self.transform)
    }

    /// The fields of the flow that are hashed.
    #[must_use]
    #[inline]
    pub const fn fields(&self, flow: &Flow) -> Fields {
        if flow.is_ipv4() { self.udp4 } else { self.udp6 }
    }
}

/// The queue for each value of the hash's low bits: `ethtool -x`.
///
/// Its length is a power of two, as for every card whose index rule is known: the low bits of the hash are the index.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(into = "Vec<u32>", try_from = "Vec<u32>")]
pub struct IndirectionTable {
    /// Never empty.
    entries: Box<[u32]>,
}

/// Why a table is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TableError {
    /// Not a power of two, or too long.
    #[error(
        "invalid indirection table size {entries}: expected a power of two up to {max}",
        max = IndirectionTable::MAX_LEN
    )]
    Length {
        /// The given number.
        entries: usize,
    },
    /// An entry with a queue that does not exist.
    #[error("entry {entry} of the indirection table is queue {queue}, but there are only {queues}, 0 to {}", queues.saturating_sub(1))]
    NoSuchQueue {
        /// Which entry, from 0.
        entry: usize,
        /// Its queue.
        queue: u32,
        /// How many queues there are.
        queues: u32,
    },
    /// No queue to spread over.
    #[error("an indirection table needs at least 1 queue to spread over")]
    NoQueue,
    /// All weights are 0, or there are none.
    #[error("all weights of the indirection table are 0; at least one must be positive")]
    NoWeight,
    /// More weight than entries.
    #[error("the weights add up to {sum}, more than the {entries} entries of the indirection table")]
    TooMuchWeight {
        /// The sum of all weights.
        sum: u64,
        /// The number of entries.
        entries: usize,
    },
}

impl IndirectionTable {
    /// The maximum length. The largest in the kernel has 2,048 entries (ice), mlx5 grows to 4 times its channels;
    /// this leaves room and keeps a mistyped number from allocating gigabytes.
    pub const MAX_LEN: usize = 65_536;

    /// A table with these entries.
    ///
    /// # Errors
    /// Invalid length.
    pub fn new(entries: Vec<u32>) -> Result<Self, TableError> {
        Self::length(entries.len())?;
        Ok(Self { entries: entries.into() })
    }

    /// The drivers' default: entry `i` is queue `i mod queues` (`ethtool_rxfh_indir_default` of
    /// `include/linux/ethtool.h`).
    ///
    /// # Errors
    /// Invalid length, or no queue.
    pub fn spread(entries: usize, queues: u32) -> Result<Self, TableError> {
        Self::equal(entries, 0, queues)
    }

    /// `ethtool -X DEV start START equal QUEUES`: entry `i` is queue `start + i mod queues`.
    ///
    /// # Errors
    /// Invalid length, or no queue.
    pub fn equal(entries: usize, start: u32, queues: u32) -> Result<Self, TableError> {
        Self::length(entries)?;
        if queues == 0 {
            return Err(TableError::NoQueue);
        }
        let entry = |at: usize| start.saturating_add((at % queues as usize) as u32);
        Ok(Self { entries: (0..entries).map(entry).collect() })
    }

    /// `ethtool -X DEV weight W0 W1 ...`: runs of entries, queue 0 first, of the lengths given by the weights
    /// (`fill_indir_table` of ethtool.c).
    ///
    /// # Errors
    /// Invalid length, all weights are 0, or their sum exceeds the number of entries.
    pub fn weight(entries: usize, weights: &[u32]) -> Result<Self, TableError> {
        Self::length(entries)?;
        let sum = weights.iter().map(|&weight| u64::from(weight)).sum::<u64>();
        if sum == 0 {
            return Err(TableError::NoWeight);
        }
        if sum > entries as u64 {
            return Err(TableError::TooMuchWeight { sum, entries });
        }
        // Entry i is the first queue whose share, together with those before, ends after i.
        let mut ends = (0_u32..).zip(weights).scan(0_u64, |partial, (queue, &weight)| {
            *partial += u64::from(weight);
            Some((queue, entries as u64 * *partial / sum))
        });
        let (mut queue, mut end) = (0, 0);
        let mut table = Vec::with_capacity(entries);
        for at in 0..entries as u64 {
            while at >= end {
                // The last share ends at `entries`, so there is always a next one.
                (queue, end) = ends.next().unwrap_or((queue, u64::MAX));
            }
            table.push(queue);
        }
        Ok(Self { entries: table.into() })
    }

    /// Checks that every entry is a queue of a card with `queues` queues.
    ///
    /// # Errors
    /// The first entry that is not.
    pub fn check(&self, queues: u32) -> Result<(), TableError> {
        match self.entries.iter().enumerate().find(|(_, queue)| **queue >= queues) {
            None => Ok(()),
            Some((entry, &queue)) => Err(TableError::NoSuchQueue { entry, queue, queues }),
        }
    }

    /// The queue of a hash.
    #[must_use]
    #[inline]
    pub fn queue(&self, hash: u32) -> u32 {
        self.entries[self.index(hash)]
    }

    /// The entry of a hash.
    #[must_use]
    #[inline]
    pub fn index(&self, hash: u32) -> usize {
        // A power of two, at most 2^16.
        hash as usize & (self.entries.len() - 1)
    }

    /// All entries.
    #[must_use]
    pub const fn entries(&self) -> &[u32] {
        &self.entries
    }

    fn length(entries: usize) -> Result<(), TableError> {
        if entries.is_power_of_two() && entries <= Self::MAX_LEN {
            Ok(())
        } else {
            Err(TableError::Length { entries })
        }
    }
}

impl From<IndirectionTable> for Vec<u32> {
    fn from(table: IndirectionTable) -> Self {
        table.entries.into()
    }
}

impl TryFrom<Vec<u32>> for IndirectionTable {
    type Error = TableError;

    fn try_from(entries: Vec<u32>) -> Result<Self, TableError> {
        Self::new(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_as_drivers_and_ethtool_do() {
        assert_eq!(IndirectionTable::spread(8, 3).unwrap().entries(), [0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(IndirectionTable::equal(4, 2, 2).unwrap().entries(), [2, 3, 2, 3]);
        // ethtool(8): "weight 6 2" on 8 entries.
        assert_eq!(IndirectionTable::weight(8, &[6, 2]).unwrap().entries(), [0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(IndirectionTable::weight(8, &[0, 1, 0, 1]).unwrap().entries(), [1, 1, 1, 1, 3, 3, 3, 3]);
        assert_eq!(IndirectionTable::weight(8, &[1, 1, 1]).unwrap().entries(), [0, 0, 1, 1, 1, 2, 2, 2]);
    }

    #[test]
    fn the_low_bits_choose() {
        let table = IndirectionTable::spread(128, 16).unwrap();
        assert_eq!(table.queue(0x51cc_c178), 0x78 % 16);
        assert_eq!(table.index(u32::MAX), 127);
    }

    #[test]
    fn invalid_tables_are_rejected() {
        let error = |table: Result<IndirectionTable, TableError>| table.unwrap_err().to_string();
        assert!(error(IndirectionTable::new(vec![0; 3])).contains("a power of two"));
        assert!(error(IndirectionTable::new(vec![])).contains("size 0"));
        assert!(error(IndirectionTable::spread(1 << 20, 1)).contains("up to 65536"));
        assert!(error(IndirectionTable::spread(8, 0)).contains("at least 1 queue"));
        assert!(error(IndirectionTable::weight(8, &[0, 0])).contains("all weights"));
        assert!(error(IndirectionTable::weight(8, &[8, 1])).contains("add up to 9"));
        let table = IndirectionTable::spread(8, 4).unwrap();
        assert_eq!(table.check(4), Ok(()));
        let error = table.check(3).unwrap_err().to_string();
        assert_eq!(error, "entry 3 of the indirection table is queue 3, but there are only 3, 0 to 2");
    }
}
