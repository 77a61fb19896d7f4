//! Lines of a user's file that do not fit, of which the first are named. With `--skip-invalid` a load goes on without
//! them, and `serve dns` does unless it is `--strict`.

use std::fmt;

use crate::OptionSpec;

/// `--skip-invalid`.
pub(crate) const SKIP_INVALID: OptionSpec = OptionSpec {
    name: "skip-invalid",
    value: None,
    repeatable: false,
    secret: false,
    help: "leave out what does not fit in the file, and say how much; without it, that is an error",
};

/// What is wrong with how a text is encoded, by its first bytes, and what would be right.
pub(crate) fn encoding(text: &[u8]) -> Option<&'static str> {
    match text {
        [0xef, 0xbb, 0xbf, ..] => {
            Some("the file begins with a byte order mark: save it as UTF-8 without one")
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            Some("the file is UTF-16: save it as UTF-8 without a byte order mark")
        }
        _ => None,
    }
}

/// Most lines named. Fewer: a file takes more rounds to mend; more: nobody reads them.
const MAX_NAMED: usize = 20;

/// What does not fit, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Misfits {
    named: Vec<String>,
    count: usize,
}

impl Misfits {
    /// Adds one, with its line, what is wrong, and what would be right.
    pub(crate) fn add(&mut self, misfit: &dyn fmt::Display) {
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(misfit.to_string());
        }
    }

    /// Adds some that are not named.
    pub(crate) fn add_unnamed(&mut self, count: usize) {
        self.count += count;
    }

    /// Each that is named, and how many more there are.
    pub(crate) fn lines(&self) -> Vec<String> {
        let more = self.count - self.named.len();
        self.named.iter().cloned().chain((more > 0).then(|| format!("and {more} more"))).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What is to be said where they are left out; `what`: the things that are left, such as `queries`.
    pub(crate) fn hint(&self, left: usize, what: &str) -> Option<String> {
        let lines = if self.count == 1 { "line" } else { "lines" };
        (!self.is_empty()).then(|| format!("{} {lines} left out, {left} {what} used: {self}", self.count))
    }
}

impl fmt::Display for Misfits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("; "))
    }
}
