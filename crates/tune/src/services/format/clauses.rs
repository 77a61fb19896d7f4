//! `key: value` in sections, as NSD, Unbound and Knot have them.
//!
//! ```text
//! server:                      NSD, Unbound: the name of a clause begins one, line ends and indentation mean nothing
//! server: server-count: 1      so that others may follow on its line,
//!     server-count:            and a value may be on a later one
//!         1  # ...
//! include: "/etc/nsd/nsd.conf.d/*.conf"
//! ```
//! In Knot a line has one key, with a value or a list of them in brackets, and a key without indentation and without a
//! value begins a section.

use std::ops::Range;

use super::{Directive, Include, Parsed, Section, code, line_at, numbered, span, unquoted};

/// Indentation of a section that has no line yet.
const INDENT: &str = "    ";

/// The clauses of NSD and Unbound. Another key begins a clause only if it is followed by a key instead of a value.
const CLAUSES: [&str; 19] = [
    "server",
    "remote-control",
    // NSD.
    "zone",
    "key",
    "pattern",
    "verify",
    "tls-auth",
    // Both.
    "dnstap",
    "xdp",
    // Unbound.
    "stub-zone",
    "forward-zone",
    "auth-zone",
    "rpz",
    "view",
    "python",
    "dynlib",
    "dnscrypt",
    "cachedb",
    "ipset",
];

/// Reads a file of NSD or Unbound.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let words = words(text);
    let mut first = false;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        let Some(key) = word.key(text) else { continue };
        // Its value: up to the next word that is a key.
        let begin = at;
        if !CLAUSES.iter().any(|clause| clause.eq_ignore_ascii_case(key)) {
            while let Some(next) = words.get(at)
                && !(next.is_key(text) && (at > begin || next.ends_word))
            {
                at += 1;
            }
        }
        let values = words.get(begin..at).unwrap_or_default();
        let Some((one, last)) = values.first().zip(values.last()) else {
            let end = word.place.end;
            let line = end + text[end..].find('\n').unwrap_or(text.len() - end);
            // What follows on its line stays behind what is inserted.
            let follows = words.get(at).is_some_and(|next| next.place.start < line);
            let end = if follows { end } else { line };
            let (name, start) = (key.to_owned(), word.place.start);
            let indent = INDENT.to_owned();
            let section = Section { name, start, at: end, indent, follows };
            parsed.sections.push(section);
            first = true;
            continue;
        };
        let place = one.place.start..last.place.end;
        let section = parsed.sections.len().checked_sub(1);
        let value = unquoted(&text[place.clone()]).to_owned();
        if ["include", "include-toplevel"].iter().any(|include| include.eq_ignore_ascii_case(key)) {
            let section = section.filter(|_| key.len() == "include".len());
            let include = Include { paths: vec![value], at: place.start, section, optional: false };
            parsed.includes.push(include);
            continue;
        }
        if let Some(section) = parsed.sections.last_mut().filter(|_| first) {
            let start = text[..word.place.start].rfind('\n').map_or(0, |end| end + 1);
            let indent = &text[start..word.place.start];
            if !indent.is_empty() && indent.trim().is_empty() {
                indent.clone_into(&mut section.indent);
            }
            first = false;
        }
        let (key, line) = (key.to_owned(), line_at(text, word.place.start));
        parsed.directives.push(Directive { section, key, value, span: place, line });
    }
    parsed
}

/// A key with its colon, a value, or a part of one.
struct Word {
    /// With quotes.
    place: Range<usize>,
    /// It is the first of its line, or a key as if it were.
    begins_line: bool,
    /// After it there is white space, or a quote.
    ends_word: bool,
}

impl Word {
    /// The key that it is.
    fn key<'a>(&self, text: &'a str) -> Option<&'a str> {
        text[self.place.clone()].strip_suffix(':').filter(|key| is_key(key))
    }

    fn is_key(&self, text: &str) -> bool {
        self.key(text).is_some() && (self.ends_word || self.begins_line)
    }
}

/// The words of a text, without comments. A word in quotes ends with them, any other at white space or a quote; a key
/// ends at its colon, also before a value.
fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let (mut at, mut line_begins) = (0, true);
    // After a key, a word is a value up to its end.
    let mut after_key = false;
    while let Some(letter) = text[at..].chars().next() {
        let rest = &text[at..];
        if letter.is_whitespace() {
            line_begins |= letter == '\n';
            at += letter.len_utf8();
            continue;
        }
        if letter == '#' {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        let len = match letter {
            '"' | '\'' => quoted(rest).unwrap_or(rest.len()),
            _ => rest.find(|letter: char| letter.is_whitespace() || letter == '"').unwrap_or(rest.len()),
        };
        // `key:value`, which Unbound accepts: where a key may stand. A second value looks like one only if it is an
        // address.
        let colon = rest[..len].find(':').filter(|colon| is_key(&rest[..*colon]));
        let colon = colon.filter(|colon| !after_key && (line_begins || !is_group(&rest[..*colon])));
        let place = at..at + colon.map_or(len, |colon| colon + 1);
        let begins_line = line_begins || colon.is_some();
        let ends_word =
            text[place.end..].chars().next().is_none_or(|next| next.is_whitespace() || next == '"');
        at = place.end;
        let word = Word { place, begins_line, ends_word };
        after_key =
            word.key(text).is_some_and(|key| !CLAUSES.iter().any(|clause| clause.eq_ignore_ascii_case(key)));
        words.push(word);
        line_begins = false;
    }
    words
}

/// The length of a string in quotes: to the quote that ends it; a backslash takes the next letter with it. None if it
/// does not end on its line.
fn quoted(text: &str) -> Option<usize> {
    let mut letters = text.char_indices();
    let (_, open) = letters.next()?;
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\n' => return Some(at),
            '\\' => _ = letters.next(),
            letter if letter == open => return Some(at + letter.len_utf8()),
            _ => {}
        }
    }
    None
}

/// Reads a file of Knot.
pub(super) fn parse_indented(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut first = false;
    for (number, start, line) in numbered(text) {
        let trimmed = code(line, &['#']).trim();
        let item = trimmed.strip_prefix("- ").unwrap_or(trimmed);
        let Some((key, value)) = item.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        if !is_key(key) {
            continue;
        }
        let nested = line.starts_with([' ', '\t', '-']);
        let section = parsed.sections.len().checked_sub(1);
        if key == "include" && !value.is_empty() {
            for item in items(value) {
                let (paths, at) = (vec![unquoted(item).to_owned()], span(text, item).start);
                parsed.includes.push(Include { paths, at, section, optional: false });
            }
            continue;
        }
        if value.is_empty() {
            if !nested {
                let (name, indent) = (key.to_owned(), INDENT.to_owned());
                let (begin, at) = (span(text, key).start, start + line.len());
                parsed.sections.push(Section { name, start: begin, at, indent, follows: false });
                first = true;
            }
            continue;
        }
        if let Some(section) = parsed.sections.last_mut().filter(|_| first) {
            let indent = &line[..line.len() - line.trim_start().len()];
            // An item of a list is not where a new key could stand.
            if !indent.is_empty() && !trimmed.starts_with("- ") {
                indent.clone_into(&mut section.indent);
            }
            first = false;
        }
        for item in items(value) {
            let (key, value, span) = (key.to_owned(), unquoted(item).to_owned(), span(text, item));
            parsed.directives.push(Directive { section, key, value, span, line: number });
        }
    }
    parsed
}

/// The values of a line: each of a list `[a, "b"]` is as one on a line of its own, in this order.
fn items(value: &str) -> Vec<&str> {
    let Some(mut rest) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return vec![value];
    };
    let mut items = Vec::new();
    while !rest.is_empty() {
        let item = code(rest, &[',']);
        items.push(item.trim());
        rest = rest.get(item.len() + 1..).unwrap_or_default();
    }
    items.retain(|item| !item.is_empty());
    items
}

/// Whether it may be a part of an IPv6 address.
fn is_group(text: &str) -> bool {
    text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}
