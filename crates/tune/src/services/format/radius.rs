//! FreeRADIUS: sections in braces, and items that end at a comma or with their line. Its policy language may contain
//! anything in between: what is no item and no section is skipped.
//!
//! ```text
//! listen {                 the first word names the section
//!     type = auth, port = 1812
//! }
//! thread pool { max_servers = 32 }
//! $INCLUDE sites-enabled/
//! ```

use std::ops::Range;

use super::{Directive, Include, Parsed, Section, line_at, span, unquoted};

/// Reads a file.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut open: Vec<usize> = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let end = start + line_len(&text[start..]);
        let line = start..start + comment_cut(&text[start..end]).trim_end_matches(['\n', '\r']).len();
        read(text, line, end, &mut open, &mut parsed);
        start = end;
    }
    parsed
}

/// The length of the line that a text begins with: a backslash at its end continues it, but not a comment.
fn line_len(text: &str) -> usize {
    let whole = text.trim_start_matches([' ', '\t']).starts_with('#');
    let mut len = 0;
    for line in text.split_inclusive('\n') {
        len += line.len();
        if whole || !line.trim_end().ends_with('\\') {
            break;
        }
    }
    len
}

/// Reads a line, without its comment. `end`: where the next one begins.
fn read(text: &str, line: Range<usize>, end: usize, open: &mut Vec<usize>, parsed: &mut Parsed) {
    let mut at = line.start;
    while let Some(rest) = text.get(at..line.end).filter(|rest| !rest.is_empty()) {
        let blank =
            rest.len() - rest.trim_start_matches(|letter: char| is_blank(letter) || letter == ',').len();
        if blank > 0 {
            at += blank;
        } else if rest.starts_with('#') {
            return;
        } else if rest.starts_with('}') {
            open.pop();
            at += 1;
        } else if let Some((path, optional)) = included(rest) {
            let word = path.split_whitespace().next().unwrap_or_default();
            let quote = path.chars().next().filter(|letter| matches!(letter, '"' | '\''));
            let word = quote.and_then(|quote| path.get(..path[1..].find(quote)? + 2)).unwrap_or(word);
            parsed.includes.push(Include {
                paths: vec![unquoted(word).to_owned()],
                at: span(text, word).start,
                section: open.last().copied(),
                optional,
            });
            return;
        } else if let Some((key, value)) = item(rest) {
            let span = at + value.start..at + value.end;
            parsed.directives.push(Directive {
                section: open.last().copied(),
                key: key.to_owned(),
                value: unquoted(&text[span.clone()]).to_owned(),
                line: line_at(text, at),
                span: span.clone(),
            });
            at = span.end.max(at + key.len());
        } else if let Some(head) = head(rest) {
            let name = rest[..head].split_whitespace().next().unwrap_or_default().to_owned();
            let before = &text[line.clone()];
            let indent = &before[..before.len() - before.trim_start_matches([' ', '\t']).len()];
            open.push(parsed.sections.len());
            let after = at + head + 1;
            let follows = !text[after..line.end].trim().is_empty();
            let whole = text[..end].trim_end_matches(['\n', '\r']).len();
            let place = if follows { after } else { whole.max(after) };
            let indent = format!("{indent}\t");
            parsed.sections.push(Section { name, start: at, at: place, indent, follows });
            at = after;
        } else {
            // Of what is skipped, a brace that ends its section counts.
            match find(rest, '}') {
                Some(brace) => at += brace,
                None => return,
            }
        }
    }
}

/// How what stands for another value begins: a variable, one of the server's environment, an expansion of each request.
pub(in crate::services) const EXPANDED: [&str; 3] = ["${", "$ENV{", "%{"];

/// White space, also that of a line which goes on.
fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || letter == '\\'
}

/// What a line includes, and whether it may be absent.
fn included(line: &str) -> Option<(&str, bool)> {
    let after = |word: &str| {
        let (start, rest) = line.split_at_checked(word.len())?;
        let path = rest.trim_start();
        (start.eq_ignore_ascii_case(word) && path.len() < rest.len()).then_some(path)
    };
    after("$INCLUDE").map(|path| (path, false)).or_else(|| after("$-INCLUDE").map(|path| (path, true)))
}

/// The key of the item that a text begins with, and where its value is.
fn item(text: &str) -> Option<(&str, Range<usize>)> {
    let len = text.find(|letter: char| !(letter.is_ascii_alphanumeric() || "-_.".contains(letter)))?;
    let operator = text[len..].trim_start_matches(is_blank);
    let value = [":=", "+=", "="].iter().find_map(|sign| operator.strip_prefix(sign))?;
    // `==` and `=~` compare.
    if len == 0 || value.starts_with(['=', '~']) {
        return None;
    }
    let value = value.trim_start_matches(is_blank);
    let start = text.len() - value.len();
    Some((&text[..len], start..start + value_len(value)))
}

/// The length of a value: a string in quotes, or up to a separator; `${...}`, `$ENV{...}` and `%{...}` are one.
fn value_len(text: &str) -> usize {
    if text.starts_with(['"', '\'', '`']) {
        return string_len(text);
    }
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' if depth > 0 || EXPANDED.iter().any(|begin| text[..=at].ends_with(begin)) => depth += 1,
            '}' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            ',' | '}' | '{' => return at,
            letter if is_blank(letter) => return at,
            _ => {}
        }
    }
    text.len()
}

/// The length of the string that a text begins with; a backslash takes the next letter with it.
fn string_len(text: &str) -> usize {
    let mut letters = text.char_indices();
    let open = letters.next().map(|(_, open)| open);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => _ = letters.next(),
            letter if Some(letter) == open => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Where the brace is that begins a section: the last letter of a line, or the first that is outside of quotes and not
/// of `${...}`.
fn head(line: &str) -> Option<usize> {
    line.trim_end().strip_suffix('{').map(str::len).or_else(|| find(line, '{'))
}

/// Where a brace is outside of quotes and of `${...}`.
fn find(text: &str, brace: char) -> Option<usize> {
    let mut at = 0;
    while let Some(letter) = text[at..].chars().next() {
        let rest = &text[at..];
        at += match letter {
            letter if letter == brace => return Some(at),
            '"' | '\'' | '`' => string_len(rest),
            '$' | '%' if EXPANDED.iter().any(|begin| rest.starts_with(begin)) => value_len(rest).max(1),
            letter => letter.len_utf8(),
        };
    }
    None
}

/// Without a comment: a `#` at the beginning, or after white space and outside of quotes. Within a word it may be of an
/// expression.
fn comment_cut(line: &str) -> &str {
    let (mut at, mut before) = (0, ' ');
    while let Some(letter) = line[at..].chars().next() {
        at += match letter {
            '#' if before.is_whitespace() => return &line[..at],
            '"' | '\'' | '`' if !before.is_alphanumeric() => string_len(&line[at..]),
            letter => letter.len_utf8(),
        };
        before = letter;
    }
    line
}
