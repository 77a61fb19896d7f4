//! Colours and widths of text.

use crate::unbroken::UNBROKEN;
use crate::words;

/// How to render text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Use ANSI colours.
    pub colour: bool,
    /// Columns of the terminal. The layout is designed for 80; more widens the bars, fewer drops them.
    pub width: usize,
}

impl Default for Style {
    /// 80 columns, no colour.
    fn default() -> Self {
        Self { colour: false, width: 80 }
    }
}

/// The meaning of a piece of text, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
    Warn,
}

impl Style {
    /// `text` between the codes of `paint`, or unchanged.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        let code = match paint {
            _ if !self.colour || text.is_empty() => return text.to_owned(),
            Paint::Plain => return text.to_owned(),
            Paint::Bold => "1",
            Paint::Dim => "2",
            Paint::Good => "32",
            Paint::Bad => "31",
            Paint::Warn => "33",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// `text` broken at spaces into lines of this width, with continuation lines indented by `indent`, every line
    /// terminated. A number and its unit stay together.
    pub(crate) fn wrapped(self, paint: Paint, text: &str, indent: usize) -> String {
        let width = self.width.max(40);
        let text = words::one_line(text);
        let mut pieces: Vec<String> = Vec::new();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            match pieces.last_mut() {
                Some(last) if last.ends_with(|c: char| c.is_ascii_digit()) && is_unit(word) => {
                    last.push(' ');
                    last.push_str(word);
                }
                _ => pieces.push(word.to_owned()),
            }
        }
        let mut lines = vec![String::new()];
        for piece in pieces {
            let line = lines.last_mut().expect("there is always a line");
            if line.trim().is_empty() {
                line.push_str(&piece);
            } else if line.chars().count() + 1 + piece.chars().count() <= width {
                line.push(' ');
                line.push_str(&piece);
            } else {
                lines.push(" ".repeat(indent) + &piece);
            }
        }
        lines.iter().map(|line| self.paint(paint, &line.replace(UNBROKEN, " ")) + "\n").collect()
    }
}

/// Is this a unit after a number, with or without punctuation after it?
fn is_unit(word: &str) -> bool {
    const UNITS: [&str; 14] =
        ["k", "M", "G", "%", "ns", "µs", "ms", "s", "min", "bytes", "KiB", "MiB", "GiB", "TiB"];
    UNITS.contains(&word.trim_end_matches(['.', ',', ';', ':', ')']))
}
