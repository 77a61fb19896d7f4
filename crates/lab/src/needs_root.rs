//! Behaviour of tests that need a lab, and so root, when run without it.
//!
//! The test harness cannot skip a test at run time. So a test that needs root begins with [`needs_root!`]: without root
//! it returns immediately, which the harness counts as passed, and one line on stderr names it and the reason. With
//! `UDPATH_REQUIRE_ALL=1`, as in `make test`, it fails instead, so that CI never skips anything.
//!
//! [`needs_root!`]: crate::needs_root!

use std::ffi::OsStr;
use std::io::{self, Write};

use crate::user_namespace::missing;

/// Name of the variable that forbids skips. Any value except empty and `0` does.
const REQUIRE_ALL: &str = "UDPATH_REQUIRE_ALL";

/// Outcome for a test.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Decision {
    Run,
    /// Return immediately; the line for stderr.
    Skip(String),
    /// Panic with this message.
    Fail(String),
}

fn decide(test: &str, root: bool, require_all: Option<&OsStr>) -> Decision {
    const REASON: &str = "needs root, in the initial user namespace";
    let required = require_all.is_some_and(|value| !value.is_empty() && value != "0");
    match (root, required) {
        (true, _) => Decision::Run,
        (false, false) => Decision::Skip(format!("skipped: {test}: {REASON}")),
        (false, true) => Decision::Fail(format!("{test} {REASON}, and {REQUIRE_ALL} forbids skipping it")),
    }
}

/// True if the calling test must return immediately, for lack of root. If so, prints the test's name and the reason,
/// bypassing the harness's output capture. For [`needs_root!`](crate::needs_root!).
///
/// # Panics
/// `UDPATH_REQUIRE_ALL` is set and the caller is not root.
#[must_use]
pub fn skipped_without_root(file: &str) -> bool {
    let thread = std::thread::current();
    // The harness names each test's thread after the test, unless it runs one test at a time, on the main thread.
    let test = thread.name().filter(|name| *name != "main").unwrap_or(file);
    match decide(test, missing().is_empty(), std::env::var_os(REQUIRE_ALL).as_deref()) {
        Decision::Run => false,
        Decision::Skip(line) => {
            // Not eprintln!, which the harness captures. A closed stderr has no reader.
            let _ = writeln!(io::stderr(), "{line}");
            true
        }
        Decision::Fail(message) => panic!("{message}"),
    }
}

/// Skips the calling test without root: returns from it, with a line on stderr. With `UDPATH_REQUIRE_ALL=1` the test
/// fails instead. Must be the first statement in every test that needs root.
#[macro_export]
macro_rules! needs_root {
    () => {
        if $crate::skipped_without_root(::core::file!()) {
            return;
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_root_a_test_is_skipped_unless_all_are_required() {
        let said = "skipped: a::b: needs root, in the initial user namespace";
        for require_all in [None, Some(""), Some("0")] {
            let decided = decide("a::b", false, require_all.map(OsStr::new));
            assert_eq!(decided, Decision::Skip(said.to_owned()), "{require_all:?}");
        }
        let Decision::Fail(message) = decide("a::b", false, Some(OsStr::new("1"))) else {
            panic!("a required test is skipped")
        };
        assert!(message.contains("a::b needs root") && message.contains("UDPATH_REQUIRE_ALL"), "{message}");
    }

    #[test]
    fn with_root_every_test_runs() {
        for require_all in [None, Some("1")] {
            assert_eq!(decide("a::b", true, require_all.map(OsStr::new)), Decision::Run);
        }
    }
}
