//! The one place that writes to stdout and stderr. Errors, names of processes, paths, agents' words and the output of
//! checkers belong to somebody else: whatever a terminal would obey in them is shown instead (`udpath_host::visible`).
//!
//! ```text
//!  stderrln!, say    one line on stderr           line ends within it are shown
//!  say_lines         lines made by `report`       line ends and own colours stay
//!  print             a result on stdout: lines or a JSON document, which stays the same document
//!  print_exact       stdout for another program: shell commands, metrics, tab-separated text
//!  drive             the terminal's own cursor, for progress; no text
//! ```
//! Lints and scripts/check-habits.sh keep other files from writing there. A closed stderr never ends an operation.

use std::io::{self, Write};

use udpath_host::visible;

use crate::exit::Failure;

/// A line on stderr, formatted like `println!`.
macro_rules! stderrln {
    ($($text:tt)*) => { $crate::terminal::say(&format!($($text)*)) };
}

/// A line on stderr.
pub(crate) fn say(text: &str) {
    write(&line_of(text));
}

/// The bytes of such a line.
pub(crate) fn line_of(text: &str) -> String {
    visible::line(text) + "\n"
}

/// A line on stderr that is not ended yet.
pub(super) fn say_part(text: &str) {
    write(&visible::line(text));
}

/// Lines on stderr, each of them terminated.
pub(crate) fn say_lines(text: &str) {
    write(&visible::lines(text, super::style().colour));
}

/// Moves the cursor on stderr and erases: `control` is a constant of this program.
pub(super) fn drive(control: &str) {
    write(control);
}

/// In one call, so that lines of several processes do not mix.
fn write(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes a complete result to stdout.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_exact(&visible::lines(text, super::style().colour))
}

/// Writes to stdout what another program reads, byte for byte.
pub(crate) fn print_exact(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    write!(out, "{text}{newline}").and_then(|()| out.flush()).map_err(|e| Failure::Cannot(e.into()))
}
