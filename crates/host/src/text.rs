//! Common to all text readers: read a file, parse it, and note failures.

use std::str::FromStr;

use udpath_steer::CpuSet;

use crate::{Absence, Missing, Provenance, Source};

/// Most bytes of a file of a process that are read. `status`, the longest, has some 1,500; a control group's path has
/// at most 4,096 in each of some dozen hierarchies.
const OF_PROCESS: usize = 64 << 10;
/// Most characters of a line that an error repeats: enough to recognise it, and one line on a terminal.
const QUOTED: usize = 80;

/// A line that does not have the file's format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}: '{text}'")]
pub struct Malformed {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
    /// Its beginning, without control characters.
    pub text: String,
}

impl Malformed {
    /// `index`: the line, from 0.
    pub(crate) fn new(index: usize, text: &str, why: impl Into<String>) -> Self {
        let text = text.trim().chars().take(QUOTED).map(|c| if c.is_control() { ' ' } else { c }).collect();
        Self { line: index + 1, why: why.into(), text }
    }

    /// An [`Absence`] that names the file.
    pub(crate) fn of(&self, path: &str) -> Absence {
        Absence::NotUnderstood(format!("{path}, {self}"))
    }
}

/// A file of a process in which its name may stand: the process chooses that, and it may be any bytes.
pub(crate) fn of_process(source: &dyn Source, path: &str) -> Result<String, Absence> {
    source.start(path, OF_PROCESS)
}

/// Parses a file.
pub(crate) fn parsed<T>(
    source: &dyn Source,
    path: &str,
    parse: impl FnOnce(&str) -> Result<T, Malformed>,
) -> Result<T, Absence> {
    parse(&source.text(path)?).map_err(|malformed| malformed.of(path))
}

/// Parses a file; on failure, `what` is reported as missing.
pub(crate) fn wanted<T>(
    source: &dyn Source,
    missing: &mut Vec<Missing>,
    what: &str,
    path: &str,
    parse: impl FnOnce(&str) -> Result<T, Malformed>,
) -> Option<T> {
    noted(missing, what, path, parsed(source, path, parse))
}

/// Parses a file. Its absence is normal and not reported; a file that is unreadable or malformed is.
pub(crate) fn optional<T>(
    source: &dyn Source,
    missing: &mut Vec<Missing>,
    what: &str,
    path: &str,
    parse: impl FnOnce(&str) -> Result<T, Malformed>,
) -> Option<T> {
    match parsed(source, path, parse) {
        Err(Absence::NotThere | Absence::NotSupported | Absence::NotCaptured) => None,
        other => noted(missing, what, path, other),
    }
}

/// The value; an absence is noted as `what`, from the file `path`.
pub(crate) fn noted<T>(
    missing: &mut Vec<Missing>,
    what: &str,
    path: &str,
    found: Result<T, Absence>,
) -> Option<T> {
    found
        .map_err(|why| missing.push(Missing { what: what.into(), from: Provenance::File(path.into()), why }))
        .ok()
}

/// Parses a set of CPUs (or nodes) as a list.
pub(crate) fn cpu_list(text: &str) -> Result<CpuSet, Malformed> {
    // Without the boot parameter, kernels printed a null pointer: nohz_full, isolated.
    let text = if text.trim() == "(null)" { "" } else { text };
    CpuSet::from_list(text).map_err(|error| Malformed::new(0, text, error.to_string()))
}

/// Parses a set of CPUs as a mask.
pub(crate) fn cpu_mask(text: &str) -> Result<CpuSet, Malformed> {
    CpuSet::from_mask(text).map_err(|error| Malformed::new(0, text, error.to_string()))
}

/// Parses a single value.
pub(crate) fn one<T: FromStr>(text: &str) -> Result<T, Malformed> {
    text.trim().parse().map_err(|_| Malformed::new(0, text, "no number"))
}

/// Parses one line of words.
pub(crate) fn words(text: &str) -> Result<String, Malformed> {
    Ok(text.trim().to_owned())
}

/// The value of the first line `KEY:value` or `KEY : value`.
pub(crate) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(key)?.trim_start().strip_prefix(':')?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_where_and_quotes_no_control_characters() {
        let malformed = Malformed::new(2, "a\u{1b}[31mb", "no number");
        assert_eq!(malformed.to_string(), "line 3: no number: 'a [31mb'");
        assert_eq!(Malformed::new(0, &"x".repeat(1000), "long").text.len(), QUOTED);
    }

    #[test]
    fn a_list_that_was_never_set_is_empty() {
        assert_eq!(cpu_list("(null)\n"), Ok(CpuSet::new()));
        assert_eq!(cpu_list("\n"), Ok(CpuSet::new()));
        assert_eq!(cpu_list("0-3,8\n").unwrap().len(), 5);
        assert!(cpu_list("0-\n").is_err());
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 17\nmodel name\t: AMD EPYC\n";
        assert_eq!(field(text, "model name"), Some("AMD EPYC"));
        assert_eq!(field(text, "model"), Some("17"));
        assert_eq!(field(text, "mode"), None);
    }
}
