//! BIND: statements that end in `;`, some with a block in braces; comments of C, C++ and the shell.
//!
//! ```text
//! options {
//!     udp-receive-buffer 4194304;     // key and value
//! };
//! include "/etc/bind/named.conf.options";
//! ```

use std::ops::Range;

use super::{Directive, Include, Parsed, Section, line_at, unquoted};

/// Reads a file.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut open: Vec<usize> = Vec::new();
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while let Some(token) = token(text, &mut at) {
        let word = |place: Option<&Range<usize>>| place.map_or("", |place| &text[place.clone()]);
        match &text[token.clone()] {
            "{" => {
                let indent = if open.is_empty() { "\t" } else { "\t\t" };
                let name = word(words.first()).to_owned();
                open.push(parsed.sections.len());
                let start = token.start;
                let indent = indent.to_owned();
                let line = at + text[at..].find('\n').unwrap_or(text.len() - at);
                let follows = self::token(text, &mut { at }).is_some_and(|next| next.start < line);
                parsed.sections.push(Section { name, start, at: token.end, indent, follows });
                words.clear();
            }
            "}" => {
                open.pop();
                words.clear();
            }
            ";" => {
                let key = word(words.first());
                if key.eq_ignore_ascii_case("include") && words.len() == 2 {
                    parsed.includes.push(Include {
                        paths: vec![unquoted(word(words.get(1))).to_owned()],
                        at: words[1].start,
                        section: open.last().copied(),
                        optional: false,
                    });
                } else if let (Some(first), Some(last)) = (words.first(), words.last()) {
                    let span = words.get(1).map_or(first.end..first.end, |value| value.start..last.end);
                    parsed.directives.push(Directive {
                        section: open.last().copied(),
                        key: key.to_owned(),
                        value: unquoted(&text[span.clone()]).to_owned(),
                        span,
                        line: line_at(text, first.start),
                    });
                }
                words.clear();
            }
            _ => words.push(token),
        }
    }
    parsed
}

/// The next word, string, brace or semicolon; comments and white space are skipped.
fn token(text: &str, at: &mut usize) -> Option<Range<usize>> {
    loop {
        let rest = text.get(*at..)?;
        *at += rest.len() - rest.trim_start().len();
        let rest = text.get(*at..)?;
        let skipped = if rest.starts_with("//") || rest.starts_with('#') {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(inside) = rest.strip_prefix("/*") {
            inside.find("*/").map_or(rest.len(), |end| end + 4)
        } else {
            break;
        };
        *at += skipped;
    }
    let (start, rest) = (*at, text.get(*at..)?);
    let first = rest.chars().next()?;
    let len = match first {
        '{' | '}' | ';' => 1,
        '"' => string_len(rest),
        // A comment of the shell's begins also within a word (isc_lex_gettoken).
        _ => rest
            .find(|letter: char| letter.is_whitespace() || "{};\"#".contains(letter))
            .unwrap_or(rest.len())
            .max(first.len_utf8()),
    };
    *at = start + len;
    Some(start..*at)
}

/// The length of the string that a text begins with: to its end a backslash takes the next letter with it.
fn string_len(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => _ = letters.next(),
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}
