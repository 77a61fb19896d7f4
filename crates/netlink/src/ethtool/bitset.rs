//! Ethtool's bit sets in their long form, where each bit has its name.

use std::collections::BTreeMap;

use crate::numbers::{
    ETHTOOL_A_BITSET_BIT_NAME, ETHTOOL_A_BITSET_BIT_VALUE, ETHTOOL_A_BITSET_BITS, ETHTOOL_A_BITSET_BITS_BIT,
    ETHTOOL_A_BITSET_NOMASK,
};
use crate::{Attributes, Writer};

/// Names and values. A set without a mask lists only the bits that are set; one with a mask also those that are not.
pub fn read(set: Attributes<'_>) -> BTreeMap<String, bool> {
    let listed_is_set = set.has(ETHTOOL_A_BITSET_NOMASK);
    let bits = set.nested(ETHTOOL_A_BITSET_BITS);
    bits.iter()
        .filter(|(kind, _)| *kind == ETHTOOL_A_BITSET_BITS_BIT)
        .filter_map(|(_, bit)| {
            let bit = Attributes::new(bit);
            Some((bit.text(ETHTOOL_A_BITSET_BIT_NAME)?, listed_is_set || bit.has(ETHTOOL_A_BITSET_BIT_VALUE)))
        })
        .collect()
}

/// Bits to change, and their new values. The others keep theirs.
pub fn write(set: &mut Writer, bits: &[(&str, bool)]) {
    set.nest(ETHTOOL_A_BITSET_BITS, |list| {
        for (name, value) in bits {
            list.nest(ETHTOOL_A_BITSET_BITS_BIT, |bit| {
                bit.text(ETHTOOL_A_BITSET_BIT_NAME, name);
                if *value {
                    bit.flag(ETHTOOL_A_BITSET_BIT_VALUE);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masked_set_distinguishes_on_from_off() {
        let mut writer = Writer::default();
        write(&mut writer, &[("rx-gro", true), ("tx-nocache-copy", false)]);
        let bytes = writer.finish();
        let wanted = BTreeMap::from([("rx-gro".to_owned(), true), ("tx-nocache-copy".to_owned(), false)]);
        assert_eq!(read(Attributes::new(&bytes)), wanted);
        let mut writer = Writer::default();
        writer.flag(ETHTOOL_A_BITSET_NOMASK);
        write(&mut writer, &[("rx-gro", false)]);
        let bytes = writer.finish();
        assert_eq!(read(Attributes::new(&bytes)), BTreeMap::from([("rx-gro".to_owned(), true)]));
    }
}
