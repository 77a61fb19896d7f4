//! The files of /etc/default: a variable with a program's arguments, `OPTIONS="-u bind -n 4"`. Each option with a value
//! is a key of the section that the variable is.

use super::{Directive, Parsed, Section, numbered, span};

/// Reads a file.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for (number, start, line) in numbered(text) {
        let Some((name, value)) = line.split_once('=') else { continue };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let section = parsed.sections.len();
        let inside = value.trim().trim_matches(['"', '\'']);
        let at = if inside.is_empty() { start + line.len() } else { span(text, inside).end };
        let (name, indent) = (name.to_owned(), String::new());
        parsed.sections.push(Section { name, start, at, indent, follows: false });
        let mut words = inside.split_whitespace().peekable();
        while let Some(word) = words.next() {
            if !word.starts_with('-') || !word.is_char_boundary(2) {
                continue;
            }
            let (key, attached) = word.split_at(2);
            let value = match attached {
                "" => words.next_if(|next| !next.starts_with('-')),
                attached => Some(attached),
            };
            let Some(value) = value else { continue };
            parsed.directives.push(Directive {
                section: Some(section),
                key: key.to_owned(),
                value: value.to_owned(),
                span: span(text, value),
                line: number,
            });
        }
    }
    parsed
}
