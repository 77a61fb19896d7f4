//! Offloads, by the kernel's names (`ethtool -k`).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{bitset, get, single};
use crate::error::Error;
use crate::generic::Generic;
use crate::numbers::*;

/// One offload of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Whether it is on.
    pub active: bool,
    /// Whether it was requested. Differs from `active` while something it depends on is missing.
    pub wanted: bool,
    /// Whether it can be changed. If not, ethtool shows `[fixed]`.
    pub changeable: bool,
}

/// Offloads by the kernel's names: `rx-gro`, `rx-udp-gro-forwarding`, `rx-ntuple-filter`. `ethtool -k`.
pub type Features = BTreeMap<String, Feature>;

/// Reads the offloads of an interface.
///
/// # Errors
/// The reason there is no answer: `EOPNOTSUPP` if driver or kernel lack it, `ENODEV` if the interface does not exist.
pub fn read(generic: &mut Generic, interface: &str) -> Result<Features, Error> {
    let answers = get(generic, ETHTOOL_MSG_FEATURES_GET, interface)?;
    let is = single(&answers)?;
    let [hardware, wanted, active, never] = [
        ETHTOOL_A_FEATURES_HW,
        ETHTOOL_A_FEATURES_WANTED,
        ETHTOOL_A_FEATURES_ACTIVE,
        ETHTOOL_A_FEATURES_NOCHANGE,
    ]
    .map(|kind| bitset::read(is.nested(kind)));
    let on = |set: &BTreeMap<String, bool>, name: &str| set.get(name).copied().unwrap_or(false);
    // The first set has a mask of all features, so it lists every existing one. Bits without an offload have no
    // name.
    Ok(hardware
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, changeable)| {
            let feature = Feature {
                active: on(&active, name),
                wanted: on(&wanted, name),
                changeable: *changeable && !on(&never, name),
            };
            (name.clone(), feature)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_features() {
        let features = read(&mut Generic::open().unwrap(), "lo").unwrap();
        assert!(features.len() > 40, "{features:?}");
        // netdev_features.h and the loopback driver: checksums cannot be turned off, and loopback is always on.
        let loops = Feature { active: true, wanted: true, changeable: false };
        assert_eq!(
            features.get("loopback").map(|f| (f.active, f.changeable)),
            Some((loops.active, loops.changeable))
        );
    }
}
