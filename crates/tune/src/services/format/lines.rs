//! One key on a line, without sections: chrony's `key value` and coturn's `key=value` or `key value`.

use super::{Directive, Include, Parsed, numbered, span, unquoted};

/// Whose lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Comments begin with `!`, `;`, `#` or `%`; keys in any case; `include` and `confdir` lead to other files.
    Chrony,
    /// Comments begin with `#`.
    Coturn,
}

/// Reads a file.
pub(super) fn parse(text: &str, style: Style) -> Parsed {
    let mut parsed = Parsed::default();
    for (number, _, line) in numbered(text) {
        let line = line.trim();
        let comment = match style {
            Style::Chrony => line.starts_with(['!', ';', '#', '%']),
            Style::Coturn => line.starts_with('#'),
        };
        if line.is_empty() || comment {
            continue;
        }
        let (key, value) = match style {
            Style::Chrony => line.split_once([' ', '\t']).unwrap_or((line, &line[line.len()..])),
            // Blanks, tabs and `=` in any number separate them (mainrelay.c, parse_arg_string).
            Style::Coturn => {
                let end = line.find([' ', '\t', '=']).unwrap_or(line.len());
                (&line[..end], line[end..].trim_start_matches([' ', '\t', '=']))
            }
        };
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
        // A number of coturn's ends before anything else, such as a comment.
        let value = match style {
            Style::Coturn if value.starts_with(|letter: char| letter.is_ascii_digit()) => {
                value.split_whitespace().next().unwrap_or(value)
            }
            _ => value,
        };
        let include = |paths: Vec<String>, optional| {
            let at = span(text, value).start;
            Include { paths, at, section: None, optional }
        };
        match (style, key.as_str()) {
            (Style::Chrony, "include") => parsed.includes.push(include(vec![value.to_owned()], false)),
            (Style::Chrony, "confdir") => {
                let folders = value.split_whitespace().map(|folder| format!("{folder}/*.conf"));
                parsed.includes.push(include(folders.collect(), true));
            }
            _ => {}
        }
        parsed.directives.push(Directive {
            section: None,
            key,
            value: unquoted(value).to_owned(),
            span: span(text, value),
            line: number,
        });
    }
    parsed
}
