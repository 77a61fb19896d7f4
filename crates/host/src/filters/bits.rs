//! Partially known bytes: the parts of a datagram that a filter loads, and the results of comparing them.

use std::cmp::Ordering;

use super::chain::Applies;

/// Bytes, with a bit mask of what is known; an unknown bit is 0 in `value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bits {
    value: Vec<u8>,
    known: Vec<u8>,
}

impl Bits {
    pub(super) fn known(value: &[u8]) -> Self {
        Self { value: value.to_vec(), known: vec![0xff; value.len()] }
    }

    pub(super) fn unknown(len: usize) -> Self {
        Self { value: vec![0; len], known: vec![0; len] }
    }

    /// Writes known bytes at `at`, as far as they fit.
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.overlay(at, &Self::known(bytes));
    }

    /// Writes bytes at `at`, as far as they fit.
    pub(super) fn overlay(&mut self, at: usize, bits: &Self) {
        for (index, (value, known)) in bits.value.iter().zip(&bits.known).enumerate() {
            if let (Some(to), Some(mask)) = (self.value.get_mut(at + index), self.known.get_mut(at + index)) {
                (*to, *mask) = (*value, *known);
            }
        }
    }

    /// `len` bytes starting at `at`; bytes beyond the end are unknown.
    pub(super) fn part(&self, at: usize, len: usize) -> Self {
        let mut part = Self::unknown(len);
        let end = self.value.len().min(at.saturating_add(len));
        if at < end {
            part.overlay(
                0,
                &Self { value: self.value[at..end].to_vec(), known: self.known[at..end].to_vec() },
            );
        }
        part
    }

    /// Whether any bit is known.
    pub(super) fn any(&self) -> bool {
        self.known.iter().any(|known| *known != 0)
    }

    /// The bytes, if all of them are known.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        self.known.iter().all(|known| *known == 0xff).then_some(&self.value)
    }

    /// Applies `mask`, then `xor`.
    pub(super) fn masked(mut self, mask: &[u8], xor: &[u8]) -> Self {
        for (index, (value, known)) in self.value.iter_mut().zip(&mut self.known).enumerate() {
            let (mask, xor) = (mask.get(index).copied().unwrap_or(0), xor.get(index).copied().unwrap_or(0));
            // Masked-out bits are known, whatever they were.
            *known |= !mask;
            *value = ((*value & mask) ^ xor) & *known;
        }
        self
    }

    /// Whether it starts with `other`.
    pub(super) fn equals(&self, other: &[u8]) -> Applies {
        let part = self.part(0, other.len());
        let pairs = || part.value.iter().zip(&part.known).zip(other);
        if pairs().any(|((value, known), other)| (value ^ other) & known != 0) {
            Applies::No
        } else if part.whole().is_some() {
            Applies::Yes
        } else {
            Applies::Maybe
        }
    }

    /// Whether its order relative to `other` is accepted, both read as numbers in network byte order.
    pub(super) fn is(&self, other: &[u8], wanted: impl Fn(Ordering) -> bool) -> Applies {
        match self.part(0, other.len()).whole() {
            Some(value) if wanted(value.cmp(other)) => Applies::Yes,
            Some(_) => Applies::No,
            None => Applies::Maybe,
        }
    }
}

/// The opposite of a condition.
pub(super) fn not(applies: Applies) -> Applies {
    match applies {
        Applies::No => Applies::Yes,
        Applies::Maybe => Applies::Maybe,
        Applies::Yes => Applies::No,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_bits_decide() {
        let mut header = Bits::unknown(8);
        header.put(2, &[0x1b, 0x58]);
        let port = header.part(2, 2);
        assert_eq!(port.equals(&7000_u16.to_be_bytes()), Applies::Yes);
        assert_eq!(port.equals(&7001_u16.to_be_bytes()), Applies::No);
        assert_eq!(header.part(0, 2).equals(&[0, 0]), Applies::Maybe);
        // One known byte of two is enough to show that they differ.
        assert_eq!(header.part(1, 2).equals(&[0, 0]), Applies::No);
        assert_eq!(header.part(1, 2).equals(&[0, 0x1b]), Applies::Maybe);
        assert_eq!(port.is(&7000_u16.to_be_bytes(), Ordering::is_ge), Applies::Yes);
        assert_eq!(header.part(0, 2).is(&[0, 9], Ordering::is_le), Applies::Maybe);
        assert_eq!(Bits::unknown(2).masked(&[0, 0], &[0, 5]).equals(&[0, 5]), Applies::Yes);
    }

    proptest! {
        /// Any answer other than "maybe" is correct for every value of the unknown bits.
        #[test]
        fn answers_hold_for_every_filling(
            filling in prop::array::uniform4(any::<u8>()),
            known in prop::array::uniform4(any::<u8>()),
            mask in prop::array::uniform4(any::<u8>()),
            xor in prop::array::uniform4(any::<u8>()),
            other in prop::array::uniform4(any::<u8>()),
            take_own in any::<bool>(),
        ) {
            let value = std::array::from_fn::<_, 4, _>(|i| filling[i] & known[i]).to_vec();
            let real: Vec<u8> = (0..4).map(|i| (filling[i] & mask[i]) ^ xor[i]).collect();
            let other = if take_own { real.clone() } else { other.to_vec() };
            let bits = Bits { value, known: known.to_vec() }.masked(&mask, &xor);
            let holds = |answer, truth: bool| match answer {
                Applies::Yes => truth,
                Applies::No => !truth,
                Applies::Maybe => true,
            };
            prop_assert!(holds(bits.equals(&other), real == other));
            prop_assert!(holds(not(bits.equals(&other)), real != other));
            prop_assert!(holds(bits.is(&other, Ordering::is_lt), real < other));
        }
    }
}
