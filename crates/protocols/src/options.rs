//! Options that a protocol adds to `serve` and `load`: declared in the protocol's folder, typed as `--NAME VALUE`.
//!
//! ```text
//! ENTRY.serve_options: &[OptionSpec] ──▶ the program's arguments, help and completions
//!                                          │ what the user gave
//! ENTRY.start(config, tcp, &Options) ◀─────┘ values are parsed here; an OptionError names the option and the valid range
//! ```

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

/// An option of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionSpec {
    /// Long name, without the dashes.
    pub name: &'static str,
    /// Placeholder of its value in help, such as `FILE`; `None`: a flag.
    pub value: Option<&'static str>,
    /// Whether it may be given several times.
    pub repeatable: bool,
    /// Whether its value is a secret, or has one: no error and no result shows it.
    pub secret: bool,
    /// One line of help, with the default, without a full stop.
    pub help: &'static str,
}

/// The options given by the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    given: Vec<(&'static str, OsString)>,
}

/// An option with an invalid value, or without another that it needs. The message names both.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The value was not accepted.
    #[error("invalid --{option} {value}: {reason}")]
    Invalid {
        /// Name of the option.
        option: &'static str,
        /// What was given.
        value: String,
        /// What was expected.
        reason: String,
    },
    /// It belongs to other protocols.
    #[error("--{option} is an option of {others}, not of {protocol}: remove it")]
    NotOf {
        /// Name of the option.
        option: &'static str,
        /// The protocols that have it.
        others: String,
        /// The one that was chosen.
        protocol: &'static str,
    },
    /// The protocol cannot do without it.
    #[error("--{option} {value} is required: name {what}")]
    Missing {
        /// Name of the option.
        option: &'static str,
        /// Placeholder of its value.
        value: &'static str,
        /// What the value names.
        what: &'static str,
    },
    /// The option has no effect without another.
    #[error("--{option} needs --{other}")]
    Needs {
        /// Name of the option.
        option: &'static str,
        /// The one that it needs.
        other: &'static str,
    },
}

impl Options {
    /// Adds an option; a flag has an empty value.
    pub fn push(&mut self, spec: &OptionSpec, value: impl Into<OsString>) {
        self.given.push((spec.name, value.into()));
    }

    /// All of them, in the order given; a flag has an empty value.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.given.iter().map(|(name, value)| (*name, value.as_os_str()))
    }

    /// Whether the option was given.
    #[must_use]
    pub fn has(&self, spec: &OptionSpec) -> bool {
        self.values(spec).next().is_some()
    }

    /// The last value of the option, parsed; `None` if it was not given. `expected` describes valid values.
    ///
    /// # Errors
    /// A value that does not parse, or that `valid` rejects.
    pub fn parsed<T: FromStr>(
        &self,
        spec: &OptionSpec,
        expected: impl Display,
        valid: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, OptionError> {
        let Some(value) = self.values(spec).last() else { return Ok(None) };
        let parsed = value.to_str().and_then(|text| text.parse().ok()).filter(valid);
        parsed.map(Some).ok_or_else(|| OptionError::Invalid {
            option: spec.name,
            value: if spec.secret && !value.is_empty() {
                "...".to_owned()
            } else {
                value.display().to_string()
            },
            reason: format!("expected {expected}"),
        })
    }

    /// The last value of the option, a path to `what`.
    ///
    /// # Errors
    /// It was not given.
    pub fn required_path(&self, spec: &OptionSpec, what: &'static str) -> Result<PathBuf, OptionError> {
        let missing = OptionError::Missing { option: spec.name, value: spec.value.unwrap_or_default(), what };
        self.values(spec).last().map(PathBuf::from).ok_or(missing)
    }

    /// All values of the option as paths, in the order given.
    pub fn paths<'a>(&'a self, spec: &'a OptionSpec) -> impl Iterator<Item = PathBuf> + 'a {
        self.values(spec).map(PathBuf::from)
    }

    fn values<'a>(&'a self, spec: &'a OptionSpec) -> impl Iterator<Item = &'a OsStr> + 'a {
        self.given.iter().filter(|(name, _)| *name == spec.name).map(|(_, value)| value.as_os_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: OptionSpec =
        OptionSpec { name: "count", value: Some("N"), repeatable: false, secret: false, help: "how many" };
    const ZONE: OptionSpec =
        OptionSpec { name: "zone", value: Some("FILE"), repeatable: true, secret: false, help: "a file" };

    #[test]
    fn values_are_parsed_and_errors_name_the_option() {
        let mut options = Options::default();
        let count = |options: &Options| options.parsed(&COUNT, "1 to 9", |n: &u8| (1..=9).contains(n));
        assert_eq!(count(&options), Ok(None));
        options.push(&COUNT, "7");
        assert_eq!(count(&options), Ok(Some(7)));
        for wrong in ["0", "10", "seven", ""] {
            options.push(&COUNT, wrong);
            let error = count(&options).unwrap_err();
            assert_eq!(error.to_string(), format!("invalid --count {wrong}: expected 1 to 9"));
        }
    }

    #[test]
    fn a_repeatable_option_keeps_its_order() {
        let mut options = Options::default();
        assert!(!options.has(&ZONE));
        for file in ["a", "b"] {
            options.push(&ZONE, file);
        }
        assert!(options.has(&ZONE));
        assert_eq!(options.paths(&ZONE).collect::<Vec<_>>(), [PathBuf::from("a"), PathBuf::from("b")]);
    }
}
