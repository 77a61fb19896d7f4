//! The ethtool family: requests about one interface. Documentation/netlink/specs/ethtool.yaml.

pub mod bitset;

use crate::attribute::{Attributes, Writer};
use crate::error::Error;
use crate::generic::{Generic, attributes};
use crate::numbers::*;
use crate::socket::Answers;

/// The family's name.
const FAMILY: &str = "ethtool";
/// The first attribute of every message is its header.
const HEADER: u16 = 1;

/// How wide a coalescing value is in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// One byte: on or off.
    Byte,
    /// Four bytes.
    Word,
}

/// Coalescing values: ethtool's name, attribute, width.
pub const COALESCING: [(&str, u16, Width); 27] = [
    ("rx-usecs", ETHTOOL_A_COALESCE_RX_USECS, Width::Word),
    ("rx-frames", ETHTOOL_A_COALESCE_RX_MAX_FRAMES, Width::Word),
    ("rx-usecs-irq", ETHTOOL_A_COALESCE_RX_USECS_IRQ, Width::Word),
    ("rx-frames-irq", ETHTOOL_A_COALESCE_RX_MAX_FRAMES_IRQ, Width::Word),
    ("tx-usecs", ETHTOOL_A_COALESCE_TX_USECS, Width::Word),
    ("tx-frames", ETHTOOL_A_COALESCE_TX_MAX_FRAMES, Width::Word),
    ("tx-usecs-irq", ETHTOOL_A_COALESCE_TX_USECS_IRQ, Width::Word),
    ("tx-frames-irq", ETHTOOL_A_COALESCE_TX_MAX_FRAMES_IRQ, Width::Word),
    ("stats-block-usecs", ETHTOOL_A_COALESCE_STATS_BLOCK_USECS, Width::Word),
    ("adaptive-rx", ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, Width::Byte),
    ("adaptive-tx", ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX, Width::Byte),
    ("pkt-rate-low", ETHTOOL_A_COALESCE_PKT_RATE_LOW, Width::Word),
    ("rx-usecs-low", ETHTOOL_A_COALESCE_RX_USECS_LOW, Width::Word),
    ("rx-frames-low", ETHTOOL_A_COALESCE_RX_MAX_FRAMES_LOW, Width::Word),
    ("tx-usecs-low", ETHTOOL_A_COALESCE_TX_USECS_LOW, Width::Word),
    ("tx-frames-low", ETHTOOL_A_COALESCE_TX_MAX_FRAMES_LOW, Width::Word),
    ("pkt-rate-high", ETHTOOL_A_COALESCE_PKT_RATE_HIGH, Width::Word),
    ("rx-usecs-high", ETHTOOL_A_COALESCE_RX_USECS_HIGH, Width::Word),
    ("rx-frames-high", ETHTOOL_A_COALESCE_RX_MAX_FRAMES_HIGH, Width::Word),
    ("tx-usecs-high", ETHTOOL_A_COALESCE_TX_USECS_HIGH, Width::Word),
    ("tx-frames-high", ETHTOOL_A_COALESCE_TX_MAX_FRAMES_HIGH, Width::Word),
    ("sample-interval", ETHTOOL_A_COALESCE_RATE_SAMPLE_INTERVAL, Width::Word),
    ("cqe-mode-tx", ETHTOOL_A_COALESCE_USE_CQE_MODE_TX, Width::Byte),
    ("cqe-mode-rx", ETHTOOL_A_COALESCE_USE_CQE_MODE_RX, Width::Byte),
    ("tx-aggr-max-bytes", ETHTOOL_A_COALESCE_TX_AGGR_MAX_BYTES, Width::Word),
    ("tx-aggr-max-frames", ETHTOOL_A_COALESCE_TX_AGGR_MAX_FRAMES, Width::Word),
    ("tx-aggr-time-usecs", ETHTOOL_A_COALESCE_TX_AGGR_TIME_USECS, Width::Word),
];

/// Requests the answer to a `*_GET` about an interface.
///
/// # Errors
/// `EOPNOTSUPP` if driver or kernel lack it, `ENODEV` if the interface does not exist.
pub fn get(generic: &mut Generic, command: u16, interface: &str) -> Result<Answers, Error> {
    generic.request(FAMILY, command, |body| header(body, interface))
}

/// A dump of everything that an interface has of one kind; `fill` writes the attributes after the header.
///
/// # Errors
/// As [`get`].
pub fn dump(
    generic: &mut Generic,
    command: u16,
    interface: &str,
    fill: impl FnOnce(&mut Writer),
) -> Result<Answers, Error> {
    generic.dump(FAMILY, command, |body| {
        header(body, interface);
        fill(body);
    })
}

/// A `*_SET` of an interface; `fill` writes the attributes after the header. Settings without an attribute stay.
///
/// # Errors
/// The refusal of the kernel or driver.
pub fn set(
    generic: &mut Generic,
    command: u16,
    interface: &str,
    fill: impl FnOnce(&mut Writer),
) -> Result<(), Error> {
    let done = generic.request(FAMILY, command, |body| {
        header(body, interface);
        fill(body);
    });
    done.map(|_| ())
}

/// The single answer to a request.
///
/// # Errors
/// There is none.
pub fn single(answers: &Answers) -> Result<Attributes<'_>, Error> {
    attributes(answers).next().ok_or_else(|| Error::other("the kernel gave no answer"))
}

/// The kernel's own names for the bits of a set (`ETH_SS_*`), from the first bit on.
///
/// # Errors
/// The kernel does not know the set.
pub fn strings(generic: &mut Generic, names: u16) -> Result<Vec<String>, Error> {
    let answers = generic.request(FAMILY, ETHTOOL_MSG_STRSET_GET, |body| {
        // About no device; the header is still required.
        body.nest(HEADER, |_| {});
        body.nest(ETHTOOL_A_STRSET_STRINGSETS, |sets| {
            sets.nest(ETHTOOL_A_STRINGSETS_STRINGSET, |set| {
                set.u32(ETHTOOL_A_STRINGSET_ID, names.into());
            });
        });
    })?;
    let set = single(&answers)?.nested(ETHTOOL_A_STRSET_STRINGSETS).nested(ETHTOOL_A_STRINGSETS_STRINGSET);
    let strings = set.nested(ETHTOOL_A_STRINGSET_STRINGS);
    Ok(strings
        .iter()
        .filter(|(kind, _)| *kind == ETHTOOL_A_STRINGS_STRING)
        .filter_map(|(_, string)| Attributes::new(string).text(ETHTOOL_A_STRING_VALUE))
        .collect())
}

/// Names the interface of a request.
fn header(body: &mut Writer, interface: &str) {
    body.nest(HEADER, |header| {
        header.text(ETHTOOL_A_HEADER_DEV_NAME, interface);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_features_and_no_rings() {
        let mut generic = Generic::open().unwrap();
        let answers = get(&mut generic, ETHTOOL_MSG_FEATURES_GET, "lo").unwrap();
        let active = bitset::read(single(&answers).unwrap().nested(ETHTOOL_A_FEATURES_ACTIVE));
        assert_eq!(active.get("loopback"), Some(&true));
        let refused = get(&mut generic, ETHTOOL_MSG_RINGS_GET, "lo").unwrap_err();
        assert_eq!(refused.errno, Some(libc::EOPNOTSUPP));
        let missing = get(&mut generic, ETHTOOL_MSG_RINGS_GET, "nope0").unwrap_err();
        assert_eq!(missing.errno, Some(libc::ENODEV));
        assert_eq!(strings(&mut generic, ETH_SS_RSS_HASH_FUNCS).unwrap()[..2], ["toeplitz", "xor"]);
    }
}
