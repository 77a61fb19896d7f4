//! The formats of configuration files, read just far enough to find keys and to place new ones.
//!
//! ```text
//!  text ─▸ Parsed ── directives: section, key, value, and the bytes where the value stands
//!                ├── sections:   where a new line of the section goes, and how its lines are indented
//!                └── includes:   other files, each with its place and section
//! ```
//! Nothing is ever written from a parsed form: an edit replaces or inserts a few bytes of the text, so that comments,
//! order and layout stay. What a reader does not understand it skips.

mod braces;
mod clauses;
mod joined;
pub(super) mod lines;
mod lua;
mod objects;
mod radius;
mod shell;

use std::ops::Range;

use serde::Deserialize;

pub(super) use radius::EXPANDED;

/// The format of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Format {
    /// `key: value` in sections such as `server:`; indentation means nothing: NSD, Unbound.
    Clauses,
    /// The same, and indentation counts: Knot.
    Indented,
    /// `key value;` in `options { ... };`: BIND.
    Braces,
    /// `key = value` in `listen { ... }`, line by line: FreeRADIUS.
    Radius,
    /// `key value`: chrony.
    Lines,
    /// `key=value`: coturn.
    Pairs,
    /// `module(load="imudp" key="value")`: rsyslog.
    Objects,
    /// A program in Lua: dnsdist. Read only.
    Lua,
    /// `OPTIONS="-u bind -n 4"`: the files of /etc/default.
    Shell,
}

/// What was found in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    /// Its lines with a key, in order.
    pub(super) directives: Vec<Directive>,
    /// Its sections, in order.
    pub(super) sections: Vec<Section>,
    /// Files that it includes, in order.
    pub(super) includes: Vec<Include>,
    /// What the server reads and this does not, each with its line.
    pub(super) unread: Vec<(usize, &'static str)>,
}

/// Where a file includes others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Include {
    /// As written: a path, a pattern, or a folder; several of them are read as if they were one folder.
    pub(super) paths: Vec<String>,
    /// Where it stands in the text, in bytes.
    pub(super) at: usize,
    /// The index of the section that it stands in.
    pub(super) section: Option<usize>,
    /// The server starts without it, too.
    pub(super) optional: bool,
}

/// A key with its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Directive {
    /// The index of its section; `None` outside of all.
    pub(super) section: Option<usize>,
    pub(super) key: String,
    /// Without quotes.
    pub(super) value: String,
    /// The bytes of the value, with its quotes; empty if there is no value.
    pub(super) span: Range<usize>,
    /// From 1.
    pub(super) line: usize,
}

/// A section.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: String,
    /// Where it begins in the text, in bytes.
    pub(super) start: usize,
    /// Where a new line goes.
    at: usize,
    /// What its lines begin with.
    indent: String,
    /// Something else follows on its first line.
    follows: bool,
}

impl Format {
    /// Reads a file.
    pub(super) fn parse(self, text: &str) -> Parsed {
        match self {
            Self::Clauses => clauses::parse(text),
            Self::Indented => clauses::parse_indented(text),
            Self::Braces => braces::parse(text),
            Self::Radius => radius::parse(text),
            Self::Lines => lines::parse(text, lines::Style::Chrony),
            Self::Pairs => lines::parse(text, lines::Style::Coturn),
            Self::Objects => objects::parse(text),
            Self::Lua => lua::parse(text),
            Self::Shell => shell::parse(text),
        }
    }

    /// The text that sets a key in a section that does not set it yet, and where it goes.
    pub(super) fn inserted(self, section: &Section, key: &str, value: &str) -> Option<(usize, String)> {
        let line = self.line(key, value)?;
        // Where more follows, the line stays one, so that all of it that does not change is not new to a diff.
        let stays = section.follows && matches!(self, Self::Braces | Self::Clauses);
        if self == Self::Objects || stays {
            return Some((section.at, format!(" {line}")));
        }
        let indent = &section.indent;
        let after = if section.follows { format!("\n{indent}") } else { String::new() };
        Some((section.at, format!("\n{indent}{line}{after}")))
    }

    /// Whether two names of keys or sections are the same: in some formats, capitals do not matter.
    pub(super) fn same(self, one: &str, other: &str) -> bool {
        match self {
            Self::Clauses | Self::Braces | Self::Lines | Self::Objects => one.eq_ignore_ascii_case(other),
            Self::Indented | Self::Radius | Self::Pairs | Self::Lua | Self::Shell => one == other,
        }
    }

    /// A new file, or the end of one, with these keys in one section.
    pub(super) fn file(self, section: &str, keys: &[(&str, &str)]) -> Option<String> {
        let (before, indent, after) = match self {
            Self::Clauses | Self::Indented => (format!("{section}:\n"), "    ", ""),
            Self::Braces => (format!("{section} {{\n"), "\t", "};\n"),
            Self::Lines | Self::Pairs => (String::new(), "", ""),
            Self::Radius if section.is_empty() => (String::new(), "", ""),
            // Their sections stand for sockets and modules: a new one would be a new socket.
            Self::Radius | Self::Objects | Self::Lua | Self::Shell => return None,
        };
        let lines =
            keys.iter().map(|(key, value)| self.line(key, value).map(|line| format!("{indent}{line}\n")));
        Some(format!("{before}{}{after}", lines.collect::<Option<String>>()?))
    }

    fn line(self, key: &str, value: &str) -> Option<String> {
        Some(match self {
            Self::Clauses | Self::Indented => format!("{key}: {value}"),
            Self::Braces => format!("{key} {value};"),
            Self::Radius => format!("{key} = {value}"),
            Self::Lines if value.is_empty() => key.to_owned(),
            Self::Lines => format!("{key} {value}"),
            Self::Pairs => format!("{key}={value}"),
            Self::Objects => format!("{key}=\"{value}\""),
            Self::Lua | Self::Shell => return None,
        })
    }

    /// A value as it stands in a file, where `before` stands now: in quotes if that is.
    pub(super) fn replaced(self, before: &str, value: &str) -> String {
        match before.chars().next() {
            // To coturn, single quotes are letters.
            Some(quote @ ('"' | '\'')) if self != Self::Pairs || quote == '"' => {
                format!("{quote}{value}{quote}")
            }
            _ => value.to_owned(),
        }
    }
}

/// The lines of a text, with the offset of each and its number from 1. Without line ends.
fn numbered(text: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    let mut at = 0;
    text.split_inclusive('\n').zip(1..).map(move |(line, number)| {
        let start = at;
        at += line.len();
        (number, start, line.trim_end_matches(['\n', '\r']))
    })
}

/// The part of a line before a comment: before the first of `marks` that is outside of quotes, in which a backslash
/// takes the next letter with it.
fn code<'a>(line: &'a str, marks: &[char]) -> &'a str {
    let mut quote = None;
    let mut letters = line.char_indices();
    while let Some((at, letter)) = letters.next() {
        match quote {
            Some(_) if letter == '\\' => _ = letters.next(),
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if matches!(letter, '"' | '\'') => quote = Some(letter),
            None if marks.contains(&letter) => return &line[..at],
            None => {}
        }
    }
    line
}

/// A value without its quotes.
fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let inner = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

/// The bytes of `part` in `text`, which it is a slice of.
fn span(text: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
    start..(start + part.len()).min(text.len())
}

/// The number of the line at an offset, from 1.
pub(super) fn line_at(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests;
