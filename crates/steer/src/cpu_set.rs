//! A set of CPU numbers, in the two forms that the kernel uses.
//!
//! | form | example | where the kernel uses it |
//! |---|---|---|
//! | list | `0-3,8` | `/sys/devices/system/cpu/online`, `smp_affinity_list`, cgroup `cpuset.cpus` |
//! | mask | `00000001,0000000f` | `rps_cpus`, `xps_cpus`, `smp_affinity` |
//!
//! A mask is hexadecimal in groups of 32 CPUs, the group of the highest CPUs first. Lists are for people and are what
//! udpath prints; masks are for files that accept nothing else. Errors include the position in the text.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

mod error;

pub use error::CpuSetError;

/// CPUs held by one word of the set.
const WORD_BITS: u32 = u64::BITS;
/// CPUs in one group of a mask (`Documentation/core-api`, `%*pb`).
const GROUP_BITS: u32 = 32;

/// A set of CPU numbers up to [`CpuSet::MAX_CPU`]; memory grows with the highest one.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
#[schemars(from = "String", into = "String")]
pub struct CpuSet {
    /// Bit `b` of word `w` is CPU `64 w + b`. The last word is never zero, so equal sets are equal vectors.
    words: Vec<u64>,
}

impl CpuSet {
    /// The highest number in a set. Linux builds are limited to 8,192 CPUs on every architecture today; eight times
    /// that leaves room and keeps a mistyped number from allocating gigabytes.
    pub const MAX_CPU: u32 = 65_535;

    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// CPUs `0..count`.
    ///
    /// # Panics
    /// When `count` is over [`CpuSet::MAX_CPU`] + 1.
    #[must_use]
    pub fn first_n(count: u32) -> Self {
        (0..count).collect()
    }

    /// Adds a CPU; returns whether it was new.
    ///
    /// # Panics
    /// When `cpu` is over [`CpuSet::MAX_CPU`]. The parsers reject such numbers.
    pub fn insert(&mut self, cpu: u32) -> bool {
        assert!(cpu <= Self::MAX_CPU, "CPU {cpu} is over {}", Self::MAX_CPU);
        let word = (cpu / WORD_BITS) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let bit = 1 << (cpu % WORD_BITS);
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        new
    }

    /// Removes a CPU; returns whether it was in the set.
    pub fn remove(&mut self, cpu: u32) -> bool {
        let there = self.contains(cpu);
        if there {
            self.words[(cpu / WORD_BITS) as usize] &= !(1 << (cpu % WORD_BITS));
            self.trim();
        }
        there
    }

    /// Whether the CPU is in the set.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get((cpu / WORD_BITS) as usize).is_some_and(|word| word >> (cpu % WORD_BITS) & 1 == 1)
    }

    /// Number of CPUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The lowest CPU.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The highest CPU.
    #[must_use]
    pub fn last(&self) -> Option<u32> {
        let top = self.words.last()?;
        Some(self.words.len() as u32 * WORD_BITS - 1 - top.leading_zeros())
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        self.words.iter().zip(0_u32..).flat_map(|(&word, at)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(at * WORD_BITS + bit)
            })
        })
    }

    /// CPUs in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        let mut both = long.clone();
        both.words.iter_mut().zip(&short.words).for_each(|(word, more)| *word |= more);
        both
    }

    /// CPUs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let words = self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect();
        Self { words }.trimmed()
    }

    /// CPUs in this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.words.iter_mut().zip(&other.words).for_each(|(word, less)| *word &= !less);
        rest.trimmed()
    }

    /// Whether every CPU of this set is in the other.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Parses the list form: numbers and ranges between commas, `0-3,8`.
    ///
    /// A range may have a stride: `0-6:2` is every second CPU (taskset's syntax), `0-7:2/4` the first two of every
    /// four (the kernel's syntax). White space around the whole text is ignored, so the content of a file can be
    /// passed unchanged. An empty text is the empty set, as in the kernel.
    ///
    /// # Errors
    /// A [`CpuSetError`] that names the invalid part.
    pub fn from_list(text: &str) -> Result<Self, CpuSetError> {
        let mut set = Self::new();
        if text.trim().is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            let item = Item::trimmed(text, part);
            if item.text.is_empty() {
                return Err(CpuSetError::Empty { at: item.at });
            }
            let Range { low, high, take, of } = Range::parse(&item)?;
            (low..=high).filter(|cpu| (cpu - low) % of < take).for_each(|cpu| {
                set.insert(cpu);
            });
        }
        Ok(set)
    }

    /// Parses the mask form: hexadecimal groups of 32 CPUs, the highest first, `1,0000000f`. A leading `0x` is
    /// accepted, as by taskset. White space around the whole text is ignored.
    ///
    /// # Errors
    /// A [`CpuSetError`] that names the problem.
    pub fn from_mask(text: &str) -> Result<Self, CpuSetError> {
        let trimmed = text.trim();
        let digits = trimmed.strip_prefix("0x").or_else(|| trimmed.strip_prefix("0X")).unwrap_or(trimmed);
        let mut set = Self::new();
        for (group, above) in digits.rsplit(',').zip(0_u32..) {
            let group = Item { text: group, at: position(text, group) };
            let bits = group.hexadecimal()?;
            for bit in (0..GROUP_BITS).filter(|bit| bits >> bit & 1 == 1) {
                let cpu = u64::from(above) * u64::from(GROUP_BITS) + u64::from(bit);
                match u32::try_from(cpu) {
                    Ok(cpu) if cpu <= Self::MAX_CPU => set.insert(cpu),
                    _ => return Err(CpuSetError::TooHigh { cpu: cpu.to_string(), at: group.at }),
                };
            }
        }
        Ok(set)
    }

    /// The shortest mask form: `0`, `3`, `1,00000000`.
    #[must_use]
    pub fn to_mask(&self) -> String {
        // Four CPUs per digit; the top group has only the digits it needs.
        self.to_mask_of(self.last().map_or(1, |last| last + 1).next_multiple_of(4))
    }

    /// The mask form as the kernel prints it on a machine with `cpus` possible CPUs: one digit for every four, so
    /// `to_mask_of(2)` of CPU 0 is `1` and `to_mask_of(40)` of it is `00,00000001`. A set with higher CPUs is printed
    /// as wide as necessary: no CPU is ever omitted.
    #[must_use]
    pub fn to_mask_of(&self, cpus: u32) -> String {
        let cpus = cpus.max(self.last().map_or(1, |last| last + 1)).max(1);
        let groups = cpus.div_ceil(GROUP_BITS);
        let top_digits = (cpus - (groups - 1) * GROUP_BITS).div_ceil(4) as usize;
        let mut text = format!("{:0top_digits$x}", self.group(groups - 1));
        for at in (0..groups - 1).rev() {
            text.push_str(&format!(",{:08x}", self.group(at)));
        }
        text
    }

    /// The group of 32 CPUs that starts at `32 * at`.
    fn group(&self, at: u32) -> u32 {
        let word = self.words.get((at / 2) as usize).copied().unwrap_or(0);
        (word >> (at % 2 * GROUP_BITS)) as u32
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    fn trimmed(mut self) -> Self {
        self.trim();
        self
    }
}

/// One part of a list: of every `of` CPUs from `low` to `high`, the first `take`.
struct Range {
    low: u32,
    high: u32,
    take: u32,
    of: u32,
}

impl Range {
    fn parse(item: &Item<'_>) -> Result<Self, CpuSetError> {
        let text = item.text;
        let (span, stride) = text.split_once(':').map_or((text, None), |(span, stride)| (span, Some(stride)));
        let (low, high) = match span.split_once('-') {
            Some((low, high)) => (item.cpu(low)?, item.cpu(high)?),
            // A stride on a single CPU is meaningless: a range was intended.
            None if stride.is_some() => return Err(item.not_a_number(span)),
            None => (item.cpu(span)?, item.cpu(span)?),
        };
        if low > high {
            return Err(CpuSetError::Backwards { item: text.to_owned(), at: item.at });
        }
        let (take, of) = match stride.map(|stride| stride.split_once('/').ok_or(stride)) {
            None => (1, 1),
            Some(Ok((take, of))) => (item.cpu(take)?, item.cpu(of)?),
            Some(Err(of)) => (1, item.cpu(of)?),
        };
        if of == 0 || take == 0 || take > of {
            return Err(CpuSetError::Stride { item: text.to_owned(), at: item.at });
        }
        Ok(Self { low, high, take, of })
    }
}

/// A part of a text between commas, and the position at which it starts, from 1.
struct Item<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Item<'a> {
    fn trimmed(whole: &str, part: &'a str) -> Self {
        let text = part.trim();
        // For an empty part, the position of the comma after it.
        Self { text, at: position(whole, if text.is_empty() { &part[part.len()..] } else { text }) }
    }

    /// A decimal number up to the highest CPU; `number` is a piece of this part. Strict: `str::parse` alone would
    /// accept a sign.
    fn cpu(&self, number: &str) -> Result<u32, CpuSetError> {
        if number.is_empty() || !number.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(self.not_a_number(number));
        }
        match number.parse() {
            Ok(cpu) if cpu <= CpuSet::MAX_CPU => Ok(cpu),
            _ => Err(CpuSetError::TooHigh {
                cpu: number.to_owned(),
                at: self.at + position(self.text, number) - 1,
            }),
        }
    }

    fn not_a_number(&self, number: &str) -> CpuSetError {
        CpuSetError::NotANumber { item: self.text.to_owned(), at: self.at + position(self.text, number) - 1 }
    }

    /// The bits of a mask group.
    fn hexadecimal(&self) -> Result<u32, CpuSetError> {
        let wrong = self.text.chars().position(|digit| !digit.is_ascii_hexdigit());
        match (wrong, self.text.len()) {
            (Some(offset), _) => Err(CpuSetError::NotAMask { at: self.at + offset }),
            (None, 0) => Err(CpuSetError::NotAMask { at: self.at }),
            // More than 8 digits are the only remaining error.
            (None, _) if self.text.len() > (GROUP_BITS / 4) as usize => {
                Err(CpuSetError::GroupTooLong { group: self.text.to_owned(), at: self.at })
            }
            (None, _) => {
                u32::from_str_radix(self.text, 16).map_err(|_| CpuSetError::NotAMask { at: self.at })
            }
        }
    }
}

/// The position of `part` within `whole`, from 1.
fn position(whole: &str, part: &str) -> usize {
    let offset = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    whole.get(..offset).map_or(1, |before| before.chars().count() + 1)
}

/// The list form, as the kernel prints it: `0-3,8`; empty for the empty set.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut cpus = self.iter().peekable();
        while let Some(low) = cpus.next() {
            let mut high = low;
            while let Some(next) = cpus.next_if_eq(&(high + 1)) {
                high = next;
            }
            let comma = if text.is_empty() { "" } else { "," };
            match high - low {
                0 => text.push_str(&format!("{comma}{low}")),
                _ => text.push_str(&format!("{comma}{low}-{high}")),
            }
        }
        // Through pad, so that a table can set the width.
        f.pad(&text)
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        Self::from_list(text)
    }
}

/// # Panics
/// When a number is over [`CpuSet::MAX_CPU`].
impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Self::new();
        set.extend(cpus);
        set
    }
}

/// # Panics
/// When a number is over [`CpuSet::MAX_CPU`].
impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

/// As the list form.
impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From the list form.
impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}
