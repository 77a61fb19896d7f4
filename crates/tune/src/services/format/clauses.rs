//! `key: value` in sections, as NSD, Unbound and Knot have them.
//!
//! ```text
//! server:                      a key without a value begins a section (Knot: only without indentation)
//!     server-count: 1  # ...
//! include: "/etc/nsd/nsd.conf.d/*.conf"
//! ```

use super::{Directive, Parsed, Section, code, numbered, span, unquoted};

/// Indentation of a section that has no line yet.
const INDENT: &str = "    ";

/// Reads a file. `indented`: only a line without indentation begins a section.
pub(super) fn parse(text: &str, indented: bool) -> Parsed {
    let mut parsed = Parsed::default();
    let mut first = false;
    for (number, start, line) in numbered(text) {
        let code = code(line, &['#']);
        let trimmed = code.trim();
        let statement = trimmed.strip_prefix("- ").unwrap_or(trimmed);
        let Some((key, value)) = statement.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
            continue;
        }
        let nested = indented && line.starts_with([' ', '\t', '-']);
        if matches!(key, "include" | "include-toplevel") && !value.is_empty() {
            parsed.includes.push(unquoted(value).to_owned());
            continue;
        }
        if value.is_empty() {
            if !nested {
                let name = key.to_owned();
                parsed.sections.push(Section { name, at: start + line.len(), indent: INDENT.to_owned() });
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
    parsed
}
