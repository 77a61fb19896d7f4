//! Queries from a file as dnsperf 2.10 reads them: a name and a type per line, `;` and `#` begin a comment. What
//! follows the type is not looked at, but for a class, which is always IN.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::name::{self, NameError};
use super::queries::{Composer, MAX_QUERIES};
use super::types;
use crate::misfits::{Misfits, encoding};

/// Longest line, bytes: a name of 255 bytes, each written as `\DDD`, with a type and a comment. Longer lines are not
/// read to their end, so that no file fills the memory.
const MAX_LINE: usize = 4096;

/// Classes that are not sent. dnsperf takes no notice of them either, but sends another query than is written.
const OTHER_CLASSES: [&[u8]; 4] = [b"CH", b"CHAOS", b"HS", b"HESIOD"];

/// Why a file's queries cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("line 1: {0}")]
    Encoding(&'static str),
    #[error("line {0} has more than {MAX_LINE} bytes")]
    LongLine(usize),
    #[error("line {line}: {error}")]
    Name { line: usize, error: NameError },
    #[error("line {line}: no type behind the name: write `NAME TYPE`, such as `example.org A`")]
    NoType { line: usize },
    #[error("line {line}: unknown type {name}: write a type such as A or AAAA, or TYPE and its number")]
    Type { line: usize, name: String },
    #[error(
        "line {line}: {name} is no question of a load over UDP: transfers need TCP, and OPT, TSIG and TKEY stand elsewhere in a \
             message; TYPE and its number send it all the same"
    )]
    NoQuestion { line: usize, name: String },
    #[error("line {line}: class {class}: all queries are of class IN: leave the line out, or the class")]
    Class { line: usize, class: String },
    #[error("line {line}: more than {MAX_QUERIES} queries")]
    TooMany { line: usize },
    #[error("no queries in the file: write one per line, as `NAME TYPE`")]
    Empty,
}

/// Adds the queries of the file at `path`, in order; returns the lines that are none.
pub(super) fn read(path: &Path, queries: &mut Composer) -> Result<Misfits, FileError> {
    parse(BufReader::new(udpath_files::input(path)?), queries)
}

/// Adds the queries of `lines`; returns those that are none.
fn parse(mut lines: impl BufRead, queries: &mut Composer) -> Result<Misfits, FileError> {
    let (mut text, mut wire, mut line) = (Vec::new(), Vec::new(), 0);
    let mut misfits = Misfits::default();
    loop {
        text.clear();
        line += 1;
        if lines.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut text)? == 0 {
            break;
        }
        if text.len() > MAX_LINE {
            return Err(FileError::LongLine(line));
        }
        if line == 1
            && let Some(wrong) = encoding(&text)
        {
            return Err(FileError::Encoding(wrong));
        }
        match query(&text, line, &mut wire) {
            Ok(None) => {}
            Ok(Some(rtype)) if queries.push(&wire, rtype) => {}
            Ok(Some(_)) => return Err(FileError::TooMany { line }),
            Err(misfit) => misfits.add(&misfit),
        }
    }
    if queries.count() == 0 && misfits.is_empty() { Err(FileError::Empty) } else { Ok(misfits) }
}

/// The type of the query on a line, whose name goes to `wire`; `None` for an empty line.
fn query(text: &[u8], line: usize, wire: &mut Vec<u8>) -> Result<Option<u16>, FileError> {
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let Some(of_name) = words.next().filter(|word| !is_comment(word)) else { return Ok(None) };
    name::write(of_name, wire).map_err(|error| FileError::Name { line, error })?;
    let of_type = words.next().filter(|word| !is_comment(word)).ok_or(FileError::NoType { line })?;
    let shown = |word: &[u8]| String::from_utf8_lossy(word).escape_debug().to_string();
    let of_type_text = std::str::from_utf8(of_type).unwrap_or_default();
    if types::no_question(of_type_text) {
        return Err(FileError::NoQuestion { line, name: shown(of_type) });
    }
    let rtype = types::number(of_type_text).ok_or_else(|| FileError::Type { line, name: shown(of_type) })?;
    match words.next().filter(|word| OTHER_CLASSES.iter().any(|class| word.eq_ignore_ascii_case(class))) {
        Some(class) => Err(FileError::Class { line, class: shown(class) }),
        None => Ok(Some(rtype)),
    }
}

fn is_comment(word: &[u8]) -> bool {
    word.starts_with(b";") || word.starts_with(b"#")
}

#[cfg(test)]
mod tests {
    use super::super::queries::{Edns, Queries};
    use super::*;

    fn parsed(text: &[u8]) -> Result<Queries, String> {
        let mut composer = Composer::new(Edns::default());
        let misfits = parse(text, &mut composer).map_err(|error| error.to_string())?;
        if misfits.is_empty() {
            Ok(composer.finish().expect("one or more"))
        } else {
            Err(misfits.to_string())
        }
    }

    #[test]
    fn all_bad_lines_are_listed_and_the_others_are_queries() {
        let mut composer = Composer::new(Edns::default());
        let misfits = parse(&b"a A\nb\nc AXFR\nd MX\ne A CH\n"[..], &mut composer).unwrap();
        assert_eq!(composer.count(), 2);
        let hint = misfits.hint(2, "queries").unwrap();
        assert!(
            hint.starts_with("3 lines left out, 2 queries used: line 2: no type behind the name"),
            "{hint}"
        );
        assert!(
            hint.contains("; line 3: AXFR is no question")
                && hint.contains("; line 5: class CH: all queries"),
            "{hint}"
        );
        let many = "x\n".repeat(100);
        let text = parse(many.as_bytes(), &mut composer).unwrap().to_string();
        assert!(
            text.contains("line 20: ") && !text.contains("line 21") && text.ends_with("; and 80 more"),
            "{text}"
        );
    }

    #[test]
    fn names_and_types_in_order() {
        let text = b"; a comment\n\nwww.example.org A\r\n  \t\n# another\n\tb.\t aaaa ; why\n. TYPE2#x\n";
        let error = parsed(text).unwrap_err();
        assert_eq!(error.split(": write").next(), Some("line 7: unknown type TYPE2#x"));
        let queries = parsed(&text[..text.len() - b"#x\n".len()]).unwrap();
        let questions: Vec<_> = (0..3).map(|number| queries.get(number).question()).collect();
        let expected: [&[u8]; 3] =
            [b"\x03www\x07example\x03org\0\0\x01\0\x01", b"\x01b\0\0\x1c\0\x01", b"\0\0\x02\0\x01"];
        assert_eq!((questions, queries.count()), (expected.to_vec(), 3));
        assert_eq!(queries.get(3), queries.get(0), "from the first again");
    }

    /// As dnsperf 2.10 does.
    #[test]
    fn what_follows_the_type_is_not_looked_at() {
        let queries = parsed(b"a A IN\na A in 300 x\na A some words ; more\na A \xff\na A\n").unwrap();
        assert_eq!(queries.count(), 5);
        assert!((1..5).all(|number| queries.get(number) == queries.get(0)));
        assert_eq!(parsed(b"a TYPE252\nb TYPE41").unwrap().count(), 2);
    }

    #[test]
    fn bad_lines_are_named() {
        let long = [&b"a A\n"[..], &vec![b'a'; MAX_LINE + 1]].concat();
        for (text, expected) in [
            (&b"a A\nb\n"[..], "line 2: no type behind the name"),
            (b"a ; A", "line 1: no type behind the name"),
            (b"a AXFR", "line 1: AXFR is no question of a load over UDP: transfers need TCP"),
            (b"a ixfr", "line 1: ixfr is no question"),
            (b"a OPT", "line 1: OPT is no question"),
            (b"a TSIG", "line 1: TSIG is no question"),
            (b"a TKEY", "line 1: TKEY is no question"),
            (b"a \xff\n", "line 1: unknown type \u{fffd}"),
            (b"a..b A", "line 1: the name has an empty label"),
            (b"\n\na A chaos", "line 3: class chaos: all queries are of class IN"),
            (&long, "line 2 has more than 4096 bytes"),
            (b"", "no queries in the file"),
            (b"; nothing\n\n", "no queries in the file"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(matches!(read(Path::new("/"), &mut Composer::new(Edns::default())), Err(FileError::Read(_))));
    }
}
