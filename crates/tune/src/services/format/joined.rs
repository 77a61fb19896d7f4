//! The lines of rsyslog's files as it joins them before it reads anything (`readConfFile`): one that ends in a
//! backslash goes on with the next, also within a word, a string or a comment.
//!
//! ```text
//! module(load="imudp" \          the backslash, what is blank around the line end, and the line end vanish
//!     threads="4")
//! ```

use std::ops::Range;

/// A text without what vanishes, and where its letters stand in the file.
pub(super) struct Joined {
    pub(super) text: String,
    /// Where something vanished: an offset in this text, and the one of the same letter in the file.
    cuts: Vec<(usize, usize)>,
}

impl Joined {
    pub(super) fn new(file: &str) -> Self {
        let mut joined = Self { text: String::with_capacity(file.len()), cuts: Vec::new() };
        let (mut at, mut goes_on) = (0, false);
        for line in file.split_inclusive('\n') {
            let inside = line.strip_suffix('\n').unwrap_or(line);
            let start = if goes_on { inside.len() - inside.trim_start_matches(is_blank).len() } else { 0 };
            if goes_on {
                joined.cuts.push((joined.text.len(), at + start));
            }
            let rest = &line[start..];
            let before = rest.trim_end_matches(is_blank).strip_suffix('\\');
            joined.text += before.unwrap_or(rest);
            goes_on = before.is_some();
            at += line.len();
        }
        joined
    }

    /// Where the letter at an offset stands in the file.
    pub(super) fn place(&self, at: usize) -> usize {
        let later = self.cuts.partition_point(|(cut, _)| *cut <= at);
        let cut = later.checked_sub(1).and_then(|last| self.cuts.get(last));
        cut.map_or(at, |(cut, place)| place + (at - cut))
    }

    /// Where letters stand in the file, with what vanished between them.
    pub(super) fn span(&self, letters: &Range<usize>) -> Range<usize> {
        let start = self.place(letters.start);
        let end = letters.end.checked_sub(1).map_or(0, |last| self.place(last) + 1);
        start..end.max(start)
    }
}

/// isspace(3).
fn is_blank(letter: char) -> bool {
    matches!(letter, ' ' | '\t'..='\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_at_the_end_joins_lines() {
        for (file, text) in [
            ("a\nb\n", "a\nb\n"),
            ("a \\\n b\n", "a b\n"),
            ("a\\\nb\\\n  c\nd\n", "abc\nd\n"),
            ("a\\ \t\r\n\u{b}b", "ab"),
            ("a\\\n   \nb\n", "a\nb\n"),
            ("a\\\n   \\\n b\n", "ab\n"),
            // Only one of them; and one that is no last letter.
            ("a\\\\\nb\\c\n", "a\\b\\c\n"),
            ("a\\", "a"),
            ("\\\n\\\n", ""),
            (" a\n b", " a\n b"),
            ("é\\\n ü\\\n", "éü"),
        ] {
            let joined = Joined::new(file);
            assert_eq!(joined.text, text, "{file:?}");
            for (at, letter) in text.char_indices() {
                assert!(file[joined.place(at)..].starts_with(letter), "{file:?} {at}");
                let span = joined.span(&(at..at + letter.len_utf8()));
                assert_eq!(&file[span], letter.to_string(), "{file:?} {at}");
            }
        }
        let joined = Joined::new("x=\"5\\\n  1\" y");
        assert_eq!((joined.text.as_str(), joined.span(&(2..6))), ("x=\"51\" y", 2..10));
    }
}
