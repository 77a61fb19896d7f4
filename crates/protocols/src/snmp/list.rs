//! The file of `--oids`: a request per line.
//!
//! ```text
//! # a comment
//! 1.3.6.1.2.1.1.3.0
//! get 1.3.6.1.2.1.1.1.0 1.3.6.1.2.1.1.5.0
//! getbulk 1.3.6.1.2.1.2.2.1.10 1.3.6.1.2.1.2.2.1.16
//! ```

use std::io::Read;
use std::path::Path;

use super::oid::{Oid, OidError};
use super::pdu::{MAX_OIDS, Operation, Question};

/// Most requests of a file, and its longest size in bytes: bounds the memory, of which a request needs about 100 bytes.
const MAX_LINES: usize = 65_536;
const MAX_BYTES: u64 = 16 << 20;

/// Why a file of requests is not usable.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error("cannot read it: {0}")]
    Read(#[from] std::io::Error),
    #[error("it has no OID: expected a line such as `get 1.3.6.1.2.1.1.3.0`")]
    Empty,
    #[error("it has more than {MAX_LINES} requests or {MAX_BYTES} bytes")]
    TooLong,
    #[error("line {line}: {why}")]
    Line { line: usize, why: LineError },
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error(transparent)]
    Oid(#[from] OidError),
    #[error("no OID after `{0}`")]
    NoOid(String),
    #[error("{0} OIDs, at most {MAX_OIDS} fit a request")]
    TooMany(usize),
}

/// Reads a file; `operation` and `repetitions` are those of lines without.
pub(super) fn read(path: &Path, operation: Operation, repetitions: u32) -> Result<Vec<Question>, ListError> {
    let mut text = String::new();
    udpath_files::input(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(ListError::TooLong);
    }
    parse(&text, operation, repetitions)
}

fn parse(text: &str, operation: Operation, repetitions: u32) -> Result<Vec<Question>, ListError> {
    let mut questions = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default();
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (operation, oids) = match words.split_first() {
            None => continue,
            Some((first, rest)) => match first.parse::<Operation>() {
                Ok(operation) => (operation, rest),
                Err(()) => (operation, &words[..]),
            },
        };
        let question = question(&words, operation, oids, repetitions);
        questions.push(question.map_err(|why| ListError::Line { line, why })?);
        if questions.len() > MAX_LINES {
            return Err(ListError::TooLong);
        }
    }
    if questions.is_empty() { Err(ListError::Empty) } else { Ok(questions) }
}

fn question(
    words: &[&str],
    operation: Operation,
    oids: &[&str],
    repetitions: u32,
) -> Result<Question, LineError> {
    if oids.is_empty() {
        return Err(LineError::NoOid(words.concat()));
    }
    if oids.len() > MAX_OIDS {
        return Err(LineError::TooMany(oids.len()));
    }
    let oids = oids.iter().map(|oid| oid.parse()).collect::<Result<Vec<Oid>, _>>()?;
    Ok(Question { operation, oids, repetitions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_requests() {
        let text = "# all\n\n1.3.6.1\n  getbulk .1.3.6.1.2 1.3.6.2 # two\r\ngetnext 2.5\n";
        let questions = parse(text, Operation::Get, 7).unwrap();
        let oids = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let expected = [
            (Operation::Get, oids(&["1.3.6.1"])),
            (Operation::GetBulk, oids(&["1.3.6.1.2", "1.3.6.2"])),
            (Operation::GetNext, oids(&["2.5"])),
        ]
        .map(|(operation, oids)| Question { operation, oids, repetitions: 7 });
        assert_eq!(questions, expected);
    }

    #[test]
    fn bad_lines_are_named() {
        for (text, said) in [
            ("", "it has no OID"),
            ("# nothing\n\n", "it has no OID"),
            ("1.3.6\nset 1.3.6", "line 2: `set` is not an OID"),
            ("\n\nget", "line 3: no OID after `get`"),
            ("get 1.3 1.x", "line 1: `x` in `1.x` is not a number"),
            (&"1.3 ".repeat(33), "line 1: 33 OIDs, at most 32"),
            (&"1.3\n".repeat(65_537), "it has more than 65536 requests"),
        ] {
            let error = parse(text, Operation::Get, 1).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        parse(&"1.3\n".repeat(65_536), Operation::Get, 1).unwrap();
    }
}
