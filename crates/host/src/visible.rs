//! Text of somebody else, for a terminal or a comment: nothing in it moves the cursor, hides, reorders or ends a line.
//!
//! Names of processes, paths, words of servers and checkers, and arguments may hold any character but NUL. A terminal
//! obeys some of them: `ESC [ 2 J` clears the screen, `ESC ] 52` writes the clipboard, U+202E shows the rest of a line
//! backwards. They are printed as JSON writes them (`\u001b`, `\n`), so that a reader sees that they are there, and a
//! JSON document that passes through here remains the same document.

use std::fmt::Write as _;

/// What begins a colour of this program's own, and each of its endings.
const COLOURS: [&str; 6] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"];

/// Whether a terminal obeys `c` instead of showing it: control characters (C0, DEL, C1), line and paragraph separators,
/// and characters that reorder text or mark its direction.
#[must_use]
pub fn drives(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// One line: ends of lines in it are visible too.
#[must_use]
pub fn line(text: &str) -> String {
    escaped(text, |_| 0)
}

/// Lines of this program's own: only ends of lines stay, and, if `colours`, the colours that it uses itself.
#[must_use]
pub fn lines(text: &str, colours: bool) -> String {
    escaped(text, |rest| match COLOURS.iter().find(|code| colours && rest.starts_with(**code)) {
        Some(code) => code.len(),
        None => usize::from(rest.starts_with('\n')),
    })
}

/// `own`: how many bytes at the beginning of the rest are this program's own, and stay.
fn escaped(text: &str, own: impl Fn(&str) -> usize) -> String {
    let mut visible = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match own(rest) {
            0 => {
                escape(c, &mut visible);
                c.len_utf8()
            }
            length => {
                visible.push_str(&rest[..length]);
                length
            }
        };
        rest = &rest[length..];
    }
    visible
}

fn escape(c: char, to: &mut String) {
    match c {
        '\n' => to.push_str("\\n"),
        '\r' => to.push_str("\\r"),
        '\t' => to.push_str("\\t"),
        // All of them are in the first plane, which four digits name. Writing to a string cannot fail.
        c if drives(c) => drop(write!(to, "\\u{:04x}", u32::from(c))),
        c => to.push(c),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_shown() {
        assert_eq!(line("a\x1b]52;c;eA==\x07b"), "a\\u001b]52;c;eA==\\u0007b");
        assert_eq!(line("one\r\ntwo\tthree"), "one\\r\\ntwo\\tthree");
        assert_eq!(line("\u{9b}2J\u{7f}\u{202e}\u{2066}\u{2028}"), "\\u009b2J\\u007f\\u202e\\u2066\\u2028");
        assert_eq!(line("größer 東京 👍 \\n"), "größer 東京 👍 \\n");
        assert_eq!(lines("a\x1b[31mb\x1b[0m\n\x1b[2J", true), "a\x1b[31mb\x1b[0m\n\\u001b[2J");
        assert_eq!(lines("a\x1b[31mb\n", false), "a\\u001b[31mb\n");
    }

    proptest! {
        #[test]
        fn nothing_drives_a_terminal(text in "(\\PC|\\pC|[\\x00-\\x9f]|\\x1b\\[[0-9;]{0,3}[mJHK]|[\u{200b}-\u{206f}]){0,40}") {
            prop_assert!(!line(&text).chars().any(drives), "{:?}", text);
            prop_assert!(!lines(&text, false).chars().any(|c| c != '\n' && drives(c)), "{:?}", text);
            let mut coloured = lines(&text, true);
            COLOURS.iter().for_each(|code| coloured = coloured.replace(code, ""));
            prop_assert!(!coloured.chars().any(|c| c != '\n' && drives(c)), "{:?}", text);
        }

        #[test]
        fn a_json_document_stays_the_same(text in "\\PC*|[\u{7f}-\u{9f}\u{2028}-\u{202e}\\x00-\\x1f]*") {
            let document = serde_json::json!({ "name": text });
            for written in [serde_json::to_string(&document).unwrap(), serde_json::to_string_pretty(&document).unwrap()] {
                let read: serde_json::Value = serde_json::from_str(&lines(&written, true)).unwrap();
                prop_assert_eq!(&read, &document);
            }
        }
    }
}
