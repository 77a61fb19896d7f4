//! The ethtool family: requests about one interface. Documentation/netlink/specs/ethtool.yaml.

pub mod bitset;
pub mod channels;
pub mod coalesce;
pub mod features;
pub mod rings;
pub mod rss;
pub mod time_stamping;

use crate::attribute::{Attributes, Writer};
use crate::error::Error;
use crate::generic::{Generic, attributes};
use crate::numbers::*;
use crate::socket::Answers;

/// The family's name.
const FAMILY: &str = "ethtool";
/// The first attribute of every message is its header.
const HEADER: u16 = 1;

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
    attributes(answers).next().ok_or_else(|| Error::other("the kernel sent no answer"))
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
