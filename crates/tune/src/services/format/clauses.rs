//! `key: value` in sections, as NSD, Unbound and Knot have them.
//!
//! ```text
//! server:                      a key without a value begins a section (Knot: only without indentation)
//! server: server-count: 1      as well, and others may follow on its line (NSD, Unbound)
//!     server-count: 1  # ...
//! include: "/etc/nsd/nsd.conf.d/*.conf"
//! ```

use super::{Directive, Include, Parsed, Section, code, numbered, span, unquoted};

/// Indentation of a section that has no line yet.
const INDENT: &str = "    ";

/// Reads a file. `indented`: only a line without indentation begins a section.
pub(super) fn parse(text: &str, indented: bool) -> Parsed {
    let mut parsed = Parsed::default();
    let mut first = false;
    for (number, start, line) in numbered(text) {
        let code = code(line, &['#']);
        let trimmed = code.trim();
        let mut rest = trimmed.strip_prefix("- ").unwrap_or(trimmed);
        while let Some((key, value, after)) = statement(rest, indented) {
            rest = after;
            let at = span(text, value).start;
            let nested = indented && line.starts_with([' ', '\t', '-']);
            if matches!(key, "include" | "include-toplevel") && !value.is_empty() {
                let section = parsed.sections.len().checked_sub(1).filter(|_| key == "include");
                parsed.includes.push(Include {
                    path: unquoted(value).to_owned(),
                    at,
                    section,
                    optional: false,
                });
                continue;
            }
            if value.is_empty() {
                if !nested {
                    let name = key.to_owned();
                    // What follows on its line stays there: a new line goes before it.
                    let end = if after.is_empty() { start + line.len() } else { at };
                    let start = span(text, key).start;
                    parsed.sections.push(Section { name, start, at: end, indent: INDENT.to_owned() });
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
            parsed.directives.push(Directive {
                section: parsed.sections.len().checked_sub(1),
                key: key.to_owned(),
                value: unquoted(value).to_owned(),
                span: span(text, value),
                line: number,
            });
        }
    }
    parsed
}

/// The key and the value that `text` begins with, and the rest, which begins with another key. In Knot a line has one.
fn statement(text: &str, one: bool) -> Option<(&str, &str, &str)> {
    let (key, after) = text.trim_start().split_once(':')?;
    is_key(key.trim()).then_some(())?;
    // Where the next word is that ends in a colon and is a key.
    let mut quote = None;
    let (mut word, mut end) = (None, after.len());
    for (at, letter) in after.char_indices() {
        match quote {
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if matches!(letter, '"' | '\'') => (quote, word) = (Some(letter), word.or(Some(at))),
            None if letter.is_whitespace() => word = None,
            None => {
                let begin = *word.get_or_insert(at);
                let last = after[at + letter.len_utf8()..].chars().next().is_none_or(char::is_whitespace);
                if !one && letter == ':' && last && is_key(&after[begin..at]) {
                    end = begin;
                    break;
                }
            }
        }
    }
    Some((key.trim(), after[..end].trim(), &after[end..]))
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}
