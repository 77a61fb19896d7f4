//! Tests that need several CPUs, on a machine with fewer: skipped as `udpath_lab::needs_root!` skips, never silently.

use std::io::{self, Write};

/// True if the calling test must return immediately, as this process may use fewer than `cpus` CPUs. If so, prints the
/// test's name and the reason, bypassing the harness's output capture. For [`needs_cpus!`](crate::needs_cpus!).
///
/// # Panics
/// There are too few, and `UDPATH_REQUIRE_ALL` forbids skipping.
#[must_use]
pub fn skipped_without_cpus(file: &str, cpus: usize) -> bool {
    let usable = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if usable >= cpus {
        return false;
    }
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or(file);
    let required =
        std::env::var_os("UDPATH_REQUIRE_ALL").is_some_and(|value| !value.is_empty() && value != "0");
    assert!(
        !required,
        "{test} needs {cpus} CPUs and may use {usable}, and UDPATH_REQUIRE_ALL forbids skipping it"
    );
    // Not eprintln!, which the harness captures. A closed stderr has no reader.
    let _ = writeln!(io::stderr(), "skipped: {test}: needs {cpus} CPUs, and may use {usable}");
    true
}

/// Skips the calling test on fewer CPUs: returns from it, with a line on stderr. With `UDPATH_REQUIRE_ALL=1` the test
/// fails instead. Must precede everything that the test does.
#[macro_export]
macro_rules! needs_cpus {
    ($cpus:expr) => {
        if $crate::skipped_without_cpus(::core::file!(), $cpus) {
            return;
        }
    };
}
