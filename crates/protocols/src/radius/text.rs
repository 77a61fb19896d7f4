//! What the files of clients and users share: errors that name the line, and the words of a line, with FreeRADIUS's
//! quotes.
//!
//! ```text
//! bob  Cleartext-Password := "hello", Idle-Timeout = 60   # a comment
//! Word Word               :=  Quoted , Word         =Word
//! ```

use std::fmt;
use std::path::{Path, PathBuf};

use crate::misfits::encoding;

/// Longest file of clients or users, in bytes: some 500,000 users. Lower: large lists are refused; higher: a wrong file
/// takes as much memory before it is refused.
const MAX_FILE: u64 = 64 << 20;

/// A file that was not accepted. The message names the file, the line and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The line and what is wrong with it, or why the file cannot be read.
    pub reason: String,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LineError {
    /// Counted from 1.
    pub(super) line: usize,
    pub(super) reason: String,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// Reads a file and parses it.
pub(super) fn read<T, E: fmt::Display>(
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Result<T, FileError> {
    let failed = |reason| FileError { path: path.to_owned(), reason };
    let bytes =
        udpath_files::bytes(path, MAX_FILE).map_err(|error| failed(format!("cannot read it: {error}")))?;
    if let Some(wrong) = encoding(&bytes) {
        return Err(failed(format!("line 1: {wrong}")));
    }
    parse(&bytes).map_err(|error| failed(error.to_string()))
}

/// The lines of a file with their numbers, each as text, without its end.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = Result<(usize, &str), LineError>> {
    bytes.split(|byte| *byte == b'\n').zip(1..).map(|(text, line)| match str::from_utf8(text) {
        Ok(text) => Ok((line, text.strip_suffix('\r').unwrap_or(text))),
        Err(_) => Err(LineError { line, reason: "not UTF-8".into() }),
    })
}

/// A word of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    /// Between double quotes, with the escapes `\"`, `\\`, `\n`, `\r`, `\t` and `\101`.
    Quoted(String),
    /// Between single quotes, in which only `\'` and `\\` are escapes, and nothing is expanded.
    Literal(String),
    /// `=`, `:=`, `+=`, `==`, ...
    Operator(String),
    Comma,
}

/// As a message shows it: text from a file is printed without control characters.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(text) | Self::Operator(text) => write!(f, "`{}`", text.escape_debug()),
            Self::Quoted(text) | Self::Literal(text) => write!(f, "{text:?}"),
            Self::Comma => f.write_str("`,`"),
        }
    }
}

/// Characters of operators.
fn is_operator(c: char) -> bool {
    matches!(c, '=' | ':' | '+' | '-' | '!' | '<' | '>' | '~')
}

/// The words of a line up to its comment. An operator begins with `=`, or ends with it: `:=`; elsewhere its characters
/// are those of a word, as in `2001:db8::1` and `Framed-User`.
pub(super) fn tokens(line: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let after = match first {
            '#' => break,
            ',' => {
                found.push(Token::Comma);
                &rest[1..]
            }
            '"' => {
                let (text, after) = quoted(&rest[1..], '"')?;
                found.push(Token::Quoted(text));
                after
            }
            '\'' => {
                let (text, after) = quoted(&rest[1..], '\'')?;
                found.push(Token::Literal(text));
                after
            }
            _ => match operator(rest) {
                Some(len) => {
                    found.push(Token::Operator(rest[..len].to_owned()));
                    &rest[len..]
                }
                None => {
                    let len = word(rest);
                    found.push(Token::Word(rest[..len].to_owned()));
                    &rest[len..]
                }
            },
        };
        rest = after.trim_start();
    }
    Ok(found)
}

/// The length of the operator that the text begins with.
fn operator(text: &str) -> Option<usize> {
    let len = text.find(|c| !is_operator(c)).unwrap_or(text.len());
    let end = text[..len].find('=')? + 1;
    // `==`, `=~`
    Some(end + text[end..len].find(|c| c != '=' && c != '~').unwrap_or(len - end))
}

/// The length of the word that the text begins with, 1 character or more.
fn word(text: &str) -> usize {
    let ends = |(at, c): (usize, char)| {
        c.is_whitespace() || matches!(c, ',' | '"') || (at > 0 && operator(&text[at..]).is_some())
    };
    let first = text.chars().next().map_or(0, char::len_utf8);
    text.char_indices().find(|place| ends(*place)).map_or(text.len(), |(at, _)| at.max(first))
}

/// The text up to the closing quote, and what follows it.
fn quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut found = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                let (c, len) = escaped(rest, quote)?;
                found.push(c);
                rest = &rest[len..];
            }
            _ if c == quote => return Ok((found, rest)),
            _ => found.push(c),
        }
    }
    Err("a quote is not closed on this line".into())
}

/// The character that an escape stands for, and the length of what follows the backslash.
fn escaped(text: &str, quote: char) -> Result<(char, usize), String> {
    let first = text.chars().next().ok_or("a quote is not closed on this line")?;
    let simple = match first {
        '\\' => Some('\\'),
        _ if first == quote => Some(quote),
        'n' if quote == '"' => Some('\n'),
        'r' if quote == '"' => Some('\r'),
        't' if quote == '"' => Some('\t'),
        _ => None,
    };
    if let Some(c) = simple {
        return Ok((c, 1));
    }
    let octal =
        text.get(..3).filter(|digits| quote == '"' && digits.bytes().all(|digit| digit.is_ascii_digit()));
    match octal.map(|digits| u8::from_str_radix(digits, 8)) {
        Some(Ok(byte)) if byte.is_ascii() => Ok((byte.into(), 3)),
        Some(_) => {
            Err(format!("\\{} is no octet below 128: write the value as 0x and its octets", &text[..3]))
        }
        None => Err(format!("\\{} is no escape: a backslash is written \\\\", first.escape_debug())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> Vec<String> {
        tokens(line).unwrap().iter().map(Token::to_string).collect()
    }

    #[test]
    fn a_line_has_words_quotes_operators_and_a_comment() {
        assert_eq!(
            shown("bob  Cleartext-Password := \"he said \\\"no\\\"\\\\\",Idle-Timeout=60 # \"open"),
            [
                "`bob`",
                "`Cleartext-Password`",
                "`:=`",
                "\"he said \\\"no\\\"\\\\\"",
                "`,`",
                "`Idle-Timeout`",
                "`=`",
                "`60`"
            ]
        );
        assert_eq!(shown("2001:db8::/32 secret"), ["`2001:db8::/32`", "`secret`"]);
        assert_eq!(
            shown("A += 0x00 B == 1 C =~ x a!=b"),
            ["`A`", "`+=`", "`0x00`", "`B`", "`==`", "`1`", "`C`", "`=~`", "`x`", "`a`", "`!=`", "`b`"]
        );
        assert_eq!(shown(" \t# nothing"), [""; 0]);
        assert_eq!(shown("a#b é, x"), ["`a#b`", "`é`", "`,`", "`x`"]);
        assert_eq!(shown("'it\\'s' \"a\\tb\\101\" it's"), ["\"it's\"", "\"a\\tbA\"", "`it\\'s`"]);
        for (line, reason) in [
            ("\"a\\d\"", "\\d is no escape"),
            ("'a\\n'", "\\n is no escape"),
            ("\"a\\377\"", "\\377 is no octet below 128"),
            ("\"a\\", "a quote is not closed"),
            ("'a\"", "a quote is not closed"),
        ] {
            let error = tokens(line).unwrap_err();
            assert!(error.starts_with(reason), "{line}: {error}");
        }
        assert_eq!(tokens("a \"b"), Err("a quote is not closed on this line".into()));
        assert_eq!(shown(":"), ["`:`"]);
    }

    #[test]
    fn lines_are_counted_and_must_be_text() {
        let read: Vec<_> = lines(b"a\r\nb\n\xff\n").collect();
        assert_eq!(read[..2], [Ok((1, "a")), Ok((2, "b"))]);
        assert_eq!(read[2], Err(LineError { line: 3, reason: "not UTF-8".into() }));
    }

    #[test]
    fn a_file_error_names_the_file() {
        let missing = read(Path::new("/nonexistent/users"), |_| Ok::<_, LineError>(())).unwrap_err();
        assert!(
            missing.to_string().starts_with("/nonexistent/users: cannot read it: No such file"),
            "{missing}"
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        let wrong = read(file.path(), |_| Err::<(), _>(LineError { line: 3, reason: "x".into() }));
        assert_eq!(wrong.unwrap_err().to_string(), format!("{}: line 3: x", file.path().display()));
        let device = read(Path::new("/dev/null"), |_| Ok::<_, LineError>(())).unwrap_err();
        assert!(device.to_string().contains("is a device; only regular files are read"), "{device}");
    }
}
