//! rsyslog: the objects `module(...)`, `input(...)` and `include(...)`, and the directive `$IncludeConfig`. All else is
//! skipped.
//!
//! ```text
//! module(load="imudp" threads="2") input(type="imudp"     several on a line, one over several
//!        port=["514", "10514"])                           a value: a string, an array, the output of a command (`...`)
//! # and /* comments */
//! ```
//! Lines are joined first. [`super::joined`]

use std::ops::Range;

use super::joined::Joined;
use super::{Directive, Include, Parsed, Section, line_at, span};

/// The objects that are read.
const OBJECTS: [&str; 3] = ["module", "input", "include"];
const INCLUDE: &str = "$IncludeConfig";
/// What begins the names of imudp's directives, older than its objects.
const DIRECTIVES: [&str; 3] = ["$UDPServer", "$IMUDP", "$InputUDPServer"];
const LOAD: &str = "$ModLoad";
/// What is not read.
const LEGACY: &str =
    "an old directive of imudp; write module(load=\"imudp\" ...) and input(type=\"imudp\" ...)";
const ENABLED: &str = "whether it is enabled (config.enabled) is the output of a command";
const TEXT: &str = "what include() has from a text or a command";

/// Reads a file.
pub(super) fn parse(file: &str) -> Parsed {
    let joined = Joined::new(file);
    let mut parsed = joined_lines(&joined.text);
    // Until here all places are those of the joined lines.
    for directive in &mut parsed.directives {
        directive.span = joined.span(&directive.span);
        directive.line = line_at(file, directive.span.start);
    }
    for section in &mut parsed.sections {
        section.start = joined.place(section.start);
        section.at = joined.place(section.at);
    }
    for include in &mut parsed.includes {
        include.at = joined.place(include.at);
    }
    for (place, _) in &mut parsed.unread {
        *place = line_at(file, joined.place(*place));
    }
    parsed
}

/// Reads lines that are joined. Of what is not read, it has the place instead of the line.
fn joined_lines(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if let Some(len) = blank(rest) {
            at += len;
        } else if rest.get(..INCLUDE.len()).is_some_and(|start| start.eq_ignore_ascii_case(INCLUDE)) {
            let line = rest.lines().next().unwrap_or_default();
            // What follows is a comment, or ignored.
            let path = line[INCLUDE.len()..].split_whitespace().next().unwrap_or_default();
            let include = Include {
                paths: vec![path.to_owned()],
                at: if path.is_empty() { at } else { span(text, path).start },
                section: None,
                optional: false,
            };
            parsed.includes.push(include);
            at += line.len();
        } else if let Some(line) = rest.lines().next().filter(|line| is_legacy(line)) {
            parsed.unread.push((at, LEGACY));
            at += line.len();
        } else if let Some(len) = on_one_line(rest) {
            at += len;
        } else if let Some((name, begin)) = opened(text, at) {
            // What is no object after all is skipped up to there.
            at = object(text, begin, &name, &mut parsed).unwrap_or(begin);
        } else {
            at += rest
                .find(|letter: char| !is_word(letter))
                .filter(|len| *len > 0)
                .unwrap_or_else(|| first_len(rest));
        }
    }
    parsed
}

/// Whether a line loads or configures imudp without an object.
fn is_legacy(line: &str) -> bool {
    let begins = |with: &str| line.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    let loads = || line[LOAD.len()..].split_whitespace().next().is_some_and(is_imudp);
    DIRECTIVES.into_iter().any(begins) || begins(LOAD) && loads()
}

/// Whether a module's name, or the path of its file, is imudp's.
fn is_imudp(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or_default();
    file.strip_suffix(".so").unwrap_or(file) == "imudp"
}

/// The length of the white space or the comment that a text begins with.
fn blank(text: &str) -> Option<usize> {
    let space = text.len() - text.trim_start().len();
    if space > 0 {
        Some(space)
    } else if text.starts_with('#') {
        Some(text.find('\n').unwrap_or(text.len()))
    } else {
        let inside = text.strip_prefix("/*")?;
        Some(inside.find("*/").map_or(text.len(), |end| end + 4))
    }
}

/// The length of the string that a text begins with, if it ends on its line: of old lines, not all quotes are strings.
fn on_one_line(text: &str) -> Option<usize> {
    string(text, &['"', '\'']).filter(|len| !text[..*len].contains('\n'))
}

/// The object whose parameters begin at `at`: its name, and where they do.
fn opened(text: &str, at: usize) -> Option<(String, usize)> {
    let rest = &text[at..];
    let len = rest.find(|letter: char| !is_word(letter))?;
    let name = rest[..len].to_ascii_lowercase();
    let after = rest[len..].trim_start();
    (OBJECTS.contains(&name.as_str()) && after.starts_with('('))
        .then(|| (name, at + rest.len() - after.len() + 1))
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "._".contains(letter)
}

/// The length of the first letter.
fn first_len(text: &str) -> usize {
    text.chars().next().map_or(1, char::len_utf8)
}

/// Reads the parameters of an object; returns where it ends. `None`: they are none.
fn object(text: &str, begin: usize, name: &str, parsed: &mut Parsed) -> Option<usize> {
    let mut found = Vec::new();
    let mut at = begin;
    loop {
        let rest = text.get(at..)?;
        if let Some(len) = blank(rest) {
            at += len;
            continue;
        }
        if rest.starts_with(')') {
            break;
        }
        // key="value"
        let len = rest.find(|letter: char| !is_word(letter)).filter(|len| *len > 0)?;
        let value = skip_blanks(rest.get(len..)?).strip_prefix('=').map(skip_blanks)?;
        let start = at + rest.len() - value.len();
        let end = start + value_len(value)?;
        found.push((&rest[..len], start..end));
        at = end;
    }
    let is = |key: &str, name: &str| key.eq_ignore_ascii_case(name);
    let inside = |span: &Range<usize>| text[span.start + 1..span.end - 1].to_owned();
    let is_command = |span: &Range<usize>| text[span.clone()].starts_with('`');
    if let Some((_, span)) = found.iter().find(|(key, _)| is(key, "config.enabled")) {
        let value = inside(span);
        // What echo says is known without a variable; there is no other command but cat.
        let said = value.strip_prefix("echo ").map(str::trim).filter(|said| !said.contains('$'));
        match if is_command(span) { said } else { Some(value.as_str()) } {
            // Not only "off" switches it off.
            Some(said) if said != "on" => return Some(at),
            Some(_) => {}
            None => parsed.unread.push((span.start, ENABLED)),
        }
    }
    let section = parsed.sections.len();
    let (name_of, indent) = (name.to_owned(), String::new());
    parsed.sections.push(Section { name: name_of, start: begin, at, indent, follows: false });
    let optional = found.iter().any(|(key, span)| is(key, "mode") && inside(span) == "optional");
    for (key, span) in found {
        let mut value = inside(&span);
        // A module may be named by its file.
        if name == "module" && is(key, "load") {
            let file = value.rsplit('/').next().unwrap_or_default();
            value = file.strip_suffix(".so").unwrap_or(file).to_owned();
        }
        if name == "include" && (is(key, "text") || is(key, "file") && is_command(&span)) {
            parsed.unread.push((span.start, TEXT));
        } else if name == "include" && is(key, "file") {
            parsed.includes.push(Include {
                paths: vec![value.replace("\\\\", "\\")],
                at: span.start,
                section: None,
                optional,
            });
        }
        let (section, key) = (Some(section), key.to_owned());
        // The line is that of the file.
        parsed.directives.push(Directive { section, key, value, span, line: 0 });
    }
    Some(at)
}

fn skip_blanks(mut text: &str) -> &str {
    while let Some(len) = blank(text) {
        text = &text[len..];
    }
    text
}

/// The length of a value: a string, an array of strings, or a command in backticks.
fn value_len(text: &str) -> Option<usize> {
    let Some(mut rest) = text.strip_prefix('[') else { return string(text, &['"', '\'', '`']) };
    loop {
        rest = skip_blanks(rest).trim_start_matches(',');
        rest = skip_blanks(rest);
        if let Some(after) = rest.strip_prefix(']') {
            return Some(text.len() - after.len());
        }
        rest = &rest[string(rest, &['"', '\''])?..];
    }
}

/// The length of the string that a text begins with, quotes included; a backslash takes the next letter with it.
fn string(text: &str, quotes: &[char]) -> Option<usize> {
    let mut letters = text.char_indices();
    let (_, open) = letters.next().filter(|(_, letter)| quotes.contains(letter))?;
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => _ = letters.next()?,
            letter if letter == open => return Some(at + 1),
            _ => {}
        }
    }
    None
}
