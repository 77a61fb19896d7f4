//! The options of the load, and the queries that they describe.

use std::str::FromStr;

use crate::misfits::SKIP_INVALID;
use crate::{OptionError, OptionSpec, Options};

use super::file;
use super::generate::{MIN_DRAWN, Names};
use super::queries::{Composer, Edns, MAX_QUERIES, Queries};
use super::types::Shares;

pub(super) const QUERIES: OptionSpec = OptionSpec {
    name: "queries",
    value: Some("FILE"),
    repeatable: false,
    secret: false,
    help: "queries to send in order, a name and a type per line, as dnsperf reads them",
};
pub(super) const NAME: OptionSpec = OptionSpec {
    name: "name",
    value: Some("PATTERN"),
    repeatable: false,
    secret: false,
    help: "name to ask for; {} stands for a number, such as host{}.example.org [default: example.org]",
};
pub(super) const NAMES: OptionSpec = OptionSpec {
    name: "names",
    value: Some("N"),
    repeatable: false,
    secret: false,
    help: "number of names: {} in --name is 0 to N - 1, in random order [default: 1]",
};
const TYPES: OptionSpec = OptionSpec {
    name: "types",
    value: Some("TYPE:WEIGHT,..."),
    repeatable: false,
    secret: false,
    help: "types to ask for, such as A:70,AAAA:20,MX:10 [default: A]",
};
const MISSING: OptionSpec = OptionSpec {
    name: "missing",
    value: Some("PERCENT"),
    repeatable: false,
    secret: false,
    help: "share of queries for a name that does not exist, a random label below --name [default: 0]",
};
const EDNS: OptionSpec = OptionSpec {
    name: "edns",
    value: Some("PERCENT"),
    repeatable: false,
    secret: false,
    help: "share of queries with EDNS [default: 0; 100 with --bufsize or --dnssec]",
};
const BUFSIZE: OptionSpec = OptionSpec {
    name: "bufsize",
    value: Some("BYTES"),
    repeatable: false,
    secret: false,
    help: "EDNS: longest reply to accept [default: 1232]",
};
const DNSSEC: OptionSpec = OptionSpec {
    name: "dnssec",
    value: None,
    repeatable: false,
    secret: false,
    help: "EDNS: ask for DNSSEC records (the DO bit)",
};
const VERIFY: OptionSpec = OptionSpec {
    name: "verify",
    value: None,
    repeatable: false,
    secret: false,
    help: "walk all records of each reply: one that is cut off or inconsistent counts as corrupt",
};

/// All of them.
pub(in crate::dns) const OPTIONS: &[OptionSpec] =
    &[QUERIES, SKIP_INVALID, NAME, NAMES, TYPES, MISSING, EDNS, BUFSIZE, DNSSEC, VERIFY];

/// Longest reply over UDP without EDNS, bytes (RFC 1035, 4.2.1), and the shortest limit that EDNS may set (RFC 6891,
/// 6.2.3).
pub(super) const PLAIN_REPLY: u16 = 512;
/// What resolvers use since the DNS flag day of 2020: such replies are not fragmented.
const DEFAULT_BUFSIZE: u16 = 1232;

/// What the user asked for.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) queries: Queries,
    /// What the file of queries has besides, in words.
    pub(super) left_out: Option<String>,
    /// Longest reply, bytes.
    pub(super) max_reply: usize,
    /// Whether all records of replies are walked.
    pub(super) walk: bool,
}

impl Chosen {
    /// Reads the options, and the file of queries.
    pub(super) fn from_options(options: &Options) -> Result<Self, OptionError> {
        let edns = edns(options)?;
        let (mut composer, mut left_out) = (Composer::new(edns), None);
        match options.paths(&QUERIES).last() {
            Some(path) => {
                if let Some(other) = [NAME, NAMES, TYPES, MISSING].iter().find(|other| options.has(other)) {
                    let reason = format!("the file has the names and types; remove --{}", other.name);
                    return Err(invalid(&QUERIES, &path.display(), reason));
                }
                let misfits = file::read(&path, &mut composer)
                    .map_err(|error| invalid(&QUERIES, &path.display(), error))?;
                // Without any query, too.
                if !misfits.is_empty() && (!options.has(&SKIP_INVALID) || composer.count() == 0) {
                    return Err(invalid(&QUERIES, &path.display(), misfits));
                }
                left_out = misfits.hint(composer.count(), "queries");
                if edns.is_mixed() {
                    composer.repeat(MIN_DRAWN);
                }
            }
            None => {
                let names = names(options)?;
                let composed = names.compose(&mut composer, edns.is_mixed());
                composed.map_err(|error| invalid(&NAME, &names.pattern, error))?;
            }
        }
        // Both have added one or more.
        let queries = composer.finish().ok_or_else(|| invalid(&NAME, &"", "no queries"))?;
        let longest = if edns.percent > 0 { edns.size.max(PLAIN_REPLY) } else { PLAIN_REPLY };
        Ok(Self { queries, left_out, max_reply: longest.into(), walk: options.has(&VERIFY) })
    }
}

fn edns(options: &Options) -> Result<Edns, OptionError> {
    let (size, dnssec) = (
        options.parsed(&BUFSIZE, "512 to 65535 bytes", |size: &u16| *size >= PLAIN_REPLY)?,
        options.has(&DNSSEC),
    );
    let default = if size.is_some() || dnssec { 100 } else { 0 };
    let percent = percent(options, &EDNS)?.unwrap_or(default);
    Ok(Edns { percent, size: size.unwrap_or(DEFAULT_BUFSIZE), dnssec })
}

/// The names of the options, without `--queries`.
pub(super) fn names(options: &Options) -> Result<Names, OptionError> {
    let count = options.parsed(&NAMES, format!("1 to {MAX_QUERIES}"), |n| (1..=MAX_QUERIES).contains(n))?;
    let names = Names {
        pattern: options.parsed(&NAME, "a name", |_: &String| true)?.unwrap_or_else(|| "example.org".into()),
        count: count.unwrap_or(1),
        types: options
            .parsed(&TYPES, "types such as A:70,AAAA:30", |_: &Shares| true)?
            .unwrap_or_else(|| Shares::only(1)),
        missing: percent(options, &MISSING)?.unwrap_or(0),
    };
    if names.count > 1 && !names.are_numbered() {
        let reason = "--name has no {} for the number: use a name such as host{}.example.org";
        return Err(invalid(&NAMES, &names.count, reason));
    }
    Ok(names)
}

fn percent(options: &Options, of: &OptionSpec) -> Result<Option<u8>, OptionError> {
    let percent = options.parsed(of, "0 to 100, in per cent", |Percent(share): &Percent| *share <= 100)?;
    Ok(percent.map(|Percent(share)| share))
}

/// A number with or without a per cent sign.
struct Percent(u8);

impl FromStr for Percent {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_suffix('%').unwrap_or(text).trim_end().parse().map(Self)
    }
}

pub(super) fn invalid(
    option: &OptionSpec,
    value: &dyn std::fmt::Display,
    reason: impl ToString,
) -> OptionError {
    OptionError::Invalid { option: option.name, value: value.to_string(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(given: &[(&OptionSpec, &str)]) -> Result<Chosen, String> {
        let mut options = Options::default();
        for (spec, value) in given {
            options.push(spec, value);
        }
        Chosen::from_options(&options).map_err(|error| error.to_string())
    }

    #[test]
    fn the_default_is_one_plain_query() {
        let Chosen { queries, max_reply, walk, .. } = chosen(&[]).unwrap();
        assert_eq!((queries.count(), max_reply, walk), (1, 512, false));
        assert_eq!(queries.get(0).question(), b"\x07example\x03org\0\0\x01\0\x01");
    }

    #[test]
    fn edns_follows_its_options() {
        let opt = |given: &[(&OptionSpec, &str)]| {
            let Chosen { queries, max_reply, .. } = chosen(given).unwrap();
            let bytes = queries.get(0).bytes().to_vec();
            (bytes[11] == 1).then(|| (bytes[bytes.len() - 11..].to_vec(), max_reply))
        };
        assert_eq!(opt(&[]), None);
        assert_eq!(opt(&[(&EDNS, "100%")]), Some((vec![0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0], 1232)));
        assert_eq!(opt(&[(&DNSSEC, "")]), Some((vec![0, 0, 41, 4, 208, 0, 0, 0x80, 0, 0, 0], 1232)));
        assert_eq!(opt(&[(&BUFSIZE, "4096")]), Some((vec![0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0], 4096)));
        assert_eq!(opt(&[(&BUFSIZE, "4096"), (&EDNS, "0")]), None);
    }

    #[test]
    fn a_file_gives_the_queries() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "a A\nb TXT\n").unwrap();
        let path = file.path().display().to_string();
        assert_eq!(chosen(&[(&QUERIES, &path)]).unwrap().queries.count(), 2);
        let mixed = chosen(&[(&QUERIES, &path), (&EDNS, "50")]).unwrap();
        assert_eq!(mixed.queries.count(), MIN_DRAWN);
        std::fs::write(&file, "a A\nb NONE\n").unwrap();
        let error = chosen(&[(&QUERIES, &path)]).unwrap_err();
        assert!(
            error.starts_with(&format!("invalid --queries {path}: line 2: unknown type NONE")),
            "{error}"
        );
    }

    #[test]
    fn each_fault_is_named() {
        for (given, expected) in [
            (&[(&NAMES, "0")][..], "invalid --names 0: expected 1 to 8388608"),
            (&[(&NAMES, "2")], "invalid --names 2: --name has no {} for the number"),
            (&[(&NAME, "a..b")], "invalid --name a..b: the name has an empty label"),
            (&[(&TYPES, "A:0")], "invalid --types A:0: expected types such as"),
            (&[(&MISSING, "101")], "invalid --missing 101: expected 0 to 100"),
            (&[(&EDNS, "-1")], "invalid --edns -1: expected 0 to 100"),
            (&[(&BUFSIZE, "511")], "invalid --bufsize 511: expected 512 to 65535"),
            (&[(&QUERIES, "/nonexistent")], "invalid --queries /nonexistent: No such file"),
            (
                &[(&QUERIES, "q"), (&TYPES, "A")],
                "invalid --queries q: the file has the names and types; remove --types",
            ),
        ] {
            let error = chosen(given).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
