//! Repeating tests: a few rounds in `make test`, all rounds in `make soak`, which keeps the results.
//!
//! `make soak` sets `UDPATH_SOAK` to the file for the results. Without it, a campaign runs its short number of
//! rounds and only prints.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;

/// Name of the variable that holds the path of the results file.
const RESULTS: &str = "UDPATH_SOAK";

/// Is this `make soak`?
#[must_use]
pub fn is_whole() -> bool {
    env::var_os(RESULTS).is_some()
}

/// Number of rounds of this campaign: `short` in `make test`, `whole` in `make soak`.
#[must_use]
pub fn rounds(short: u32, whole: u32) -> u32 {
    if is_whole() { whole } else { short }
}

/// Reports one figure of a campaign, as a line `NAME: FIGURE` such as `kills during apply: 100, settings left: 0`.
///
/// # Panics
/// The results file cannot be written.
pub fn record(name: &str, figure: &str) {
    println!("{name}: {figure}");
    let Some(path) = env::var_os(RESULTS) else { return };
    // One write per line: other tests append to the same file concurrently.
    let line = format!("{name}: {figure}\n");
    let written = OpenOptions::new().create(true).append(true).open(&path);
    let written = written.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
