//! Security advisories about a knob: what a larger value exposes, and the versions that mend it.

use std::cmp::Ordering;
use std::fmt;

use serde::Deserialize;

/// What is known about a knob of a server's profile.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advisory {
    /// Its name: `CVE-2026-50252`.
    pub id: String,
    /// What a larger value of the knob exposes.
    pub what: String,
    /// Versions that mend it: the project's own, and that of Debian's package in each release that has one. Empty: none
    /// is known.
    pub mended: Vec<String>,
}

/// `CVE-2026-50252 (cache poisoning ...), mended in 1.2-3`
impl fmt::Display for Advisory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}), ", self.id, self.what)?;
        match self.mended.is_empty() {
            true => f.write_str("and no version is known that mends it"),
            false => write!(f, "mended in {}", self.mended.join(", ")),
        }
    }
}

impl Advisory {
    /// Whether the installed version mends it; not if that is not known. A release's own fix counts for versions of the
    /// same origin, as 1.17.1-2+deb12u5 does for 1.17.1-2+deb12u6; a version above all that are known has it as well.
    pub(super) fn is_mended_in(&self, version: Option<&str>) -> bool {
        let Some(version) = version else { return false };
        let since = |mended: &&String| order(version, mended) != Ordering::Less;
        let origin =
            |version: &str| version.rsplit_once('-').map_or(version, |(origin, _)| origin).to_owned();
        let mut own = self.mended.iter().filter(|mended| origin(mended) == origin(version));
        let later = !self.mended.is_empty() && self.mended.iter().all(|mended| since(&mended));
        later || own.any(|mended| since(&mended))
    }
}

/// The order of Debian's versions, `[EPOCH:]UPSTREAM[-REVISION]` (deb-version(7)). Any text has a place in it.
#[must_use]
pub fn order(one: &str, other: &str) -> Ordering {
    let epoch = |version: &str| -> (u64, String) {
        match version.split_once(':') {
            Some((epoch, rest)) => (epoch.parse().unwrap_or(0), rest.to_owned()),
            None => (0, version.to_owned()),
        }
    };
    let parts = |version: &str| {
        let (upstream, revision) = version.rsplit_once('-').unwrap_or((version, ""));
        (upstream.to_owned(), revision.to_owned())
    };
    let ((epoch_one, one), (epoch_other, other)) = (epoch(one), epoch(other));
    let ((one, revision_one), (other, revision_other)) = (parts(&one), parts(&other));
    epoch_one
        .cmp(&epoch_other)
        .then_with(|| part(&one, &other))
        .then_with(|| part(&revision_one, &revision_other))
}

/// Parts without digits and numbers, in turn.
fn part(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    while !one.is_empty() || !other.is_empty() {
        let digit = |letter: char| letter.is_ascii_digit();
        let words = |text: &str| text.find(digit).unwrap_or(text.len());
        let (word_one, rest_one) = one.split_at(words(one));
        let (word_other, rest_other) = other.split_at(words(other));
        let numbers = |text: &str| text.find(|letter| !digit(letter)).unwrap_or(text.len());
        let (number_one, left_one) = rest_one.split_at(numbers(rest_one));
        let (number_other, left_other) = rest_other.split_at(numbers(rest_other));
        let number = |text: &str| text.trim_start_matches('0').to_owned();
        let (number_one, number_other) = (number(number_one), number(number_other));
        let order = word(word_one, word_other)
            .then(number_one.len().cmp(&number_other.len()))
            .then(number_one.cmp(&number_other));
        if order != Ordering::Equal {
            return order;
        }
        (one, other) = (left_one, left_other);
    }
    Ordering::Equal
}

/// A tilde sorts before everything, even the end; letters before all else.
fn word(one: &str, other: &str) -> Ordering {
    let rank = |letter: Option<char>| match letter {
        Some('~') => 0,
        None => 1,
        Some(letter) if letter.is_ascii_alphabetic() => 2 + u32::from(letter),
        Some(letter) => 0x1000 + u32::from(letter),
    };
    let (mut one, mut other) = (one.chars(), other.chars());
    loop {
        let (a, b) = (one.next(), other.next());
        match rank(a).cmp(&rank(b)) {
            Ordering::Equal if a.is_none() => return Ordering::Equal,
            Ordering::Equal => {}
            order => return order,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn versions_are_ordered_as_debian_orders_them() {
        for pair in [
            ["1.0~rc1-1", "1.0-1"],
            ["1.17.1-2", "1.17.1-2+deb12u4"],
            ["1.17.1-2+deb12u4", "1.17.1-2+deb12u10"],
            ["1.9", "1.17"],
            ["1.17.1", "1.17.1a"],
            ["1.17.1a", "1.17.1+x"],
            ["9.9-9", "1:0.1-1"],
            ["1.0-1~bpo1", "1.0-1"],
            ["1.0", "1.0-1"],
        ] {
            assert_eq!(order(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(order(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        for (one, other) in [("1.0", "1.0"), ("0:1.00-1", "1.0-1"), ("", ""), ("~", "~")] {
            assert_eq!(order(one, other), Ordering::Equal, "{one} {other}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_order_is_dpkg_s(
            one in "([0-9]:)?[0-9][0-9a-c.+~]{0,6}(-[0-9a-c.+~]{1,5})?",
            other in "([0-9]:)?[0-9][0-9a-c.+~]{0,6}(-[0-9a-c.+~]{1,5})?",
            same in any::<bool>(),
        ) {
            let other = if same { format!("{one}{}", &other[..1]) } else { other };
            let dpkg = |relation: &str| {
                let arguments = ["--compare-versions", &one, relation, &other];
                std::process::Command::new("dpkg").args(arguments).status().unwrap().success()
            };
            let found = match (dpkg("lt"), dpkg("eq")) {
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Equal,
                _ => Ordering::Greater,
            };
            prop_assert_eq!(order(&one, &other), found);
        }
    }

    #[test]
    fn a_fix_of_a_release_counts_there_and_a_later_version_has_it() {
        let advisory = |mended: &[&str]| Advisory {
            id: "CVE-1".into(),
            what: "x".into(),
            mended: mended.iter().map(ToString::to_string).collect(),
        };
        let known = advisory(&["1.17.1-2+deb12u5", "1.22.0-2+deb13u1", "1.24.0-1"]);
        for (version, mended) in [
            (Some("1.17.1-2+deb12u4"), false),
            (Some("1.17.1-2+deb12u5"), true),
            (Some("1.17.1-2+deb12u6"), true),
            (Some("1.22.0-2"), false),
            (Some("1.22.0-2+deb13u1"), true),
            (Some("1.23.0-1"), false),
            (Some("1.25.0-1"), true),
            (None, false),
        ] {
            assert_eq!(known.is_mended_in(version), mended, "{version:?}");
        }
        assert!(!advisory(&[]).is_mended_in(Some("99-1")));
        assert!(advisory(&[]).to_string().ends_with("no version is known that mends it"));
        assert!(known.to_string().ends_with("mended in 1.17.1-2+deb12u5, 1.22.0-2+deb13u1, 1.24.0-1"));
    }
}
