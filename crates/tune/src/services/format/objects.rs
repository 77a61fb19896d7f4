//! rsyslog: the objects `module(...)`, `input(...)` and `include(...)`, and the directive `$IncludeConfig`. All else is
//! skipped.

use super::{Directive, Include, Parsed, Section, line_at, numbered, span};

/// Reads a file.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut end = 0;
    for (_, start, line) in numbered(text) {
        // Still inside of an object that began on an earlier line.
        if start < end {
            continue;
        }
        let trimmed = line.trim_start();
        if let Some(path) = trimmed.strip_prefix("$IncludeConfig") {
            let at = span(text, path).start;
            parsed.includes.push(Include {
                path: path.trim().to_owned(),
                at,
                section: None,
                optional: false,
            });
            continue;
        }
        let Some((name, _)) = trimmed.split_once('(') else { continue };
        let name = name.trim().to_ascii_lowercase();
        if matches!(name.as_str(), "module" | "input" | "include") {
            let begin = start + line.find('(').unwrap_or_default() + 1;
            end = object(text, begin, &name, &mut parsed);
        }
    }
    parsed
}

/// Reads the parameters of an object; returns where it ends.
fn object(text: &str, begin: usize, name: &str, parsed: &mut Parsed) -> usize {
    let section = parsed.sections.len();
    let mut found = Vec::new();
    let mut at = begin;
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let trimmed = rest.trim_start();
        at += rest.len() - trimmed.len();
        if trimmed.starts_with('#') {
            at += trimmed.find('\n').unwrap_or(trimmed.len());
            continue;
        }
        if trimmed.starts_with(')') {
            break;
        }
        // key="value"
        let Some((key, value)) = trimmed.split_once('=') else { return text.len() };
        let plain = !key.trim().is_empty()
            && key.trim().bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte));
        let lead = value.len() - value.trim_start().len();
        let Some(close) = string(value.trim_start()).filter(|_| plain) else { return text.len() };
        let start = at + key.len() + 1 + lead;
        found.push((key.trim(), start..start + close));
        at = start + close;
    }
    parsed.sections.push(Section { name: name.to_owned(), start: begin, at, indent: String::new() });
    let is = |key: &str, name: &str| key.eq_ignore_ascii_case(name);
    let optional =
        found.iter().any(|(key, span)| is(key, "mode") && &text[span.start + 1..span.end - 1] == "optional");
    for (key, span) in found {
        let value = text[span.start + 1..span.end - 1].to_owned();
        if name == "include" && is(key, "file") {
            parsed.includes.push(Include { path: value.clone(), at: span.start, section: None, optional });
        }
        let line = line_at(text, span.start);
        parsed.directives.push(Directive { section: Some(section), key: key.to_owned(), value, span, line });
    }
    at
}

/// The length of the string that a text begins with, quotes included; a backslash takes the next letter with it.
fn string(text: &str) -> Option<usize> {
    let mut letters = text.char_indices();
    letters.next().filter(|(_, letter)| *letter == '"')?;
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => _ = letters.next()?,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}
