//! FreeRADIUS: sections in braces, read line by line, since its policy language may contain anything in between.
//!
//! ```text
//! listen {                 the first word names the section
//!     type = auth
//! }
//! $INCLUDE sites-enabled/
//! ```

use super::{Directive, Include, Parsed, Section, numbered, span, unquoted};

/// Reads a file.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut open: Vec<usize> = Vec::new();
    for (number, start, line) in numbered(text) {
        let trimmed = comment_cut(line).trim();
        let always = trimmed.strip_prefix("$INCLUDE");
        if let Some(path) = always.or_else(|| trimmed.strip_prefix("$-INCLUDE")) {
            parsed.includes.push(Include {
                path: unquoted(path).to_owned(),
                at: span(text, path).start,
                section: open.last().copied(),
                optional: always.is_none(),
            });
            continue;
        }
        if trimmed.starts_with('}') {
            open.pop();
        }
        if let Some(head) = trimmed.strip_suffix('{') {
            let name = head.trim_start_matches('}').split_whitespace().next().unwrap_or_default().to_owned();
            open.push(parsed.sections.len());
            let indent = &line[..line.len() - line.trim_start().len()];
            let (at, indent) = (start + line.len(), format!("{indent}\t"));
            parsed.sections.push(Section { name, start, at, indent });
            continue;
        }
        let Some((key, value)) = trimmed.split_once('=') else { continue };
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            continue;
        }
        parsed.directives.push(Directive {
            section: open.last().copied(),
            key: key.to_owned(),
            value: unquoted(value).to_owned(),
            span: span(text, value),
            line: number,
        });
    }
    parsed
}

/// Without a comment: a `#` at the beginning, or after white space and outside of quotes.
fn comment_cut(line: &str) -> &str {
    let mut quoted = false;
    let mut blank = true;
    for (at, letter) in line.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            '#' if !quoted && blank => return &line[..at],
            _ => {}
        }
        blank = letter.is_whitespace();
    }
    line
}
