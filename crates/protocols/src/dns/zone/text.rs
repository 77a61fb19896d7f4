//! Splits the text of a master file into entries (RFC 1035, 5.1): what parentheses join, without comments.
//!
//! ```text
//! www  3600 IN SOA ns admin (     tokens: www 3600 IN SOA ns admin 1 7200 3600 1209600 300, all at the line of `www`
//!           1     ; serial        a line that begins with space has no owner: `indented`
//!           2h 1h 2w 300 )
//! ```
//! A token is what stands in the text: escapes are kept, quotes are not, but whether it had some. A fault ends its
//! entry, and the next line begins a new one.

use super::faults::Fault;

/// A word of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    /// As it is written, without its quotes.
    pub(super) text: &'a [u8],
    /// Whether it had quotes.
    pub(super) quoted: bool,
    /// Whether it follows the token before it without space.
    pub(super) joined: bool,
}

impl Token<'_> {
    /// Whether it is this word, without quotes, in any case.
    pub(super) fn is(&self, word: &str) -> bool {
        !self.quoted && self.text.eq_ignore_ascii_case(word.as_bytes())
    }
}

/// Where an entry began, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: u32,
    /// Its line began with space: it has the owner of the record before.
    pub(super) indented: bool,
}

/// Reads entries.
pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
}

impl<'a> Scanner<'a> {
    /// Of a whole file, whose first line has this number.
    pub(super) fn new(text: &'a [u8], line: u32) -> Self {
        Self { text, at: 0, line }
    }

    /// The next entry's tokens, into `tokens`; `None` at the end.
    pub(super) fn next(&mut self, tokens: &mut Vec<Token<'a>>) -> Option<Result<Place, Fault>> {
        tokens.clear();
        let mut place = Place { line: self.line, indented: false };
        let mut open = None::<u32>;
        let mut begun = false;
        loop {
            let Some(byte) = self.text.get(self.at).copied() else {
                return match open {
                    Some(line) => Some(Err(Fault::of_zone(line, "this `(` has no `)`"))),
                    None => (!tokens.is_empty()).then_some(Ok(place)),
                };
            };
            if !begun {
                place = Place { line: self.line, indented: matches!(byte, b' ' | b'\t') };
                begun = true;
            }
            match byte {
                // BIND and NSD end a line at a CR alone, too.
                b'\n' | b'\r' if byte == b'\n' || self.text.get(self.at + 1) != Some(&b'\n') => {
                    self.at += 1;
                    self.line += u32::from(byte == b'\n');
                    if open.is_none() {
                        if !tokens.is_empty() {
                            return Some(Ok(place));
                        }
                        begun = false;
                    }
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b';' => self.skip_line(),
                b'(' if open.is_some() => return Some(self.fault("a `(` inside parentheses: remove it")),
                b'(' => {
                    open = Some(self.line);
                    self.at += 1;
                }
                b')' if open.is_none() => return Some(self.fault("this `)` has no `(`")),
                b')' => {
                    open = None;
                    self.at += 1;
                }
                b'"' => match self.quoted() {
                    Some(token) => tokens.push(token),
                    None => return Some(self.fault("this quoted text has no end on its line: add a `\"`")),
                },
                _ => match self.word() {
                    Some(token) => tokens.push(token),
                    None => return Some(self.fault("a `\\` at the end of a line: remove it")),
                },
            }
        }
    }

    /// A fault at the line of the position; continues with the next line.
    fn fault(&mut self, reason: &str) -> Result<Place, Fault> {
        let fault = Fault::of_zone(self.line, reason);
        self.skip_line();
        Err(fault)
    }

    /// To the end of the line, which stays.
    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }

    /// Whether no space stands before `start`.
    fn joined(&self, start: usize) -> bool {
        start > 0 && !matches!(self.text[start - 1], b' ' | b'\t' | b'\r' | b'\n' | b'(' | b')')
    }

    /// A text in quotes; `None` if it does not end on its line.
    fn quoted(&mut self) -> Option<Token<'a>> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            match self.text.get(at)? {
                b'"' => break,
                b'\n' => return None,
                // The end of a line is a byte like others after a backslash, as in BIND and NSD.
                b'\\' if at + 1 < self.text.len() => at += 2,
                _ => at += 1,
            }
        }
        self.line += self.text[start..at].iter().filter(|byte| **byte == b'\n').count() as u32;
        self.at = at + 1;
        Some(Token { text: &self.text[start..at], quoted: true, joined: self.joined(start - 1) })
    }

    /// A word without quotes; `None` if a backslash ends it with its line.
    fn word(&mut self) -> Option<Token<'a>> {
        let start = self.at;
        loop {
            match self.text.get(self.at) {
                None | Some(b' ' | b'\t' | b'\r' | b'\n' | b';' | b'(' | b')' | b'"') => break,
                Some(b'\\') => match self.text.get(self.at + 1) {
                    None | Some(b'\n' | b'\r') => return None,
                    Some(_) => self.at += 2,
                },
                Some(_) => self.at += 1,
            }
        }
        Some(Token { text: &self.text[start..self.at], quoted: false, joined: self.joined(start) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `LINE:owner|token|"quoted"`, or `LINE!reason`.
    fn entries(text: &str) -> Vec<String> {
        let mut scanner = Scanner::new(text.as_bytes(), 1);
        let mut tokens = Vec::new();
        let mut all = Vec::new();
        while let Some(entry) = scanner.next(&mut tokens) {
            all.push(match entry {
                Err(fault) => format!("{}!{}", fault.line, fault.reason.split(':').next().unwrap()),
                Ok(Place { line, indented }) => {
                    let words = tokens.iter().map(|token| {
                        let text = String::from_utf8_lossy(token.text);
                        if token.quoted { format!("\"{text}\"") } else { text.into_owned() }
                    });
                    let words = words.collect::<Vec<_>>().join("|");
                    format!("{line}{}{words}", if indented { "+" } else { ":" })
                }
            });
            assert!(all.len() < 100, "it ends");
        }
        all
    }

    #[test]
    fn entries_are_what_parentheses_join_without_comments() {
        assert_eq!(
            entries("a A 1 ; x (\n\n; only a comment\n \n\tB ( 2 ; \"\n3\n) 4\r\nlast"),
            ["1:a|A|1", "5+B|2|3|4", "8:last"]
        );
        assert_eq!(entries("(a\nb)c(\nd) e\nf"), ["1:a|b|c|d|e", "4:f"]);
        assert_eq!(entries(""), Vec::<String>::new());
    }

    #[test]
    fn a_cr_alone_ends_a_line_and_lines_are_counted_by_their_lf() {
        assert_eq!(entries("a A 1\rb A 2\r c\r\r\nd ( 3\r4 )\r"), ["1:a|A|1", "1:b|A|2", "1+c", "2:d|3|4"]);
    }

    #[test]
    fn quotes_and_escapes_keep_what_would_end_a_token() {
        assert_eq!(entries(r#"a "b ; ( \" c" d\ e\;\(f"#), [r#"1:a|"b ; ( \" c"|d\ e\;\(f"#]);
        assert_eq!(entries("a \"\" x\"y\"z"), ["1:a|\"\"|x|\"y\"|z"]);
        assert_eq!(entries("a \\\nb \\"), ["1!a `\\` at the end of a line", "2!a `\\` at the end of a line"]);
    }

    #[test]
    fn after_a_fault_the_next_line_is_read() {
        assert_eq!(
            entries("a )\nb \"x\nc ( (\nd\ne ( f\n"),
            [
                "1!this `)` has no `(`",
                "2!this quoted text has no end on its line",
                "3!a `(` inside parentheses",
                "4:d",
                "5!this `(` has no `)`",
            ]
        );
    }
}
