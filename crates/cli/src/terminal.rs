//! The standard streams: data on stdout, messages on stderr.

#[macro_use]
mod sink;

use std::io::IsTerminal;

use udpath_report::Style;

#[cfg(test)]
pub(crate) use sink::line_of;
use sink::{drive, say_part};
pub(crate) use sink::{print, print_exact, say, say_lines};

/// The style of results on stdout.
pub(crate) fn style() -> Style {
    let terminal = std::io::stdout().is_terminal();
    let width = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    Style {
        colour: terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        width: if width == 0 { 100 } else { width },
    }
}

/// Lines of the terminal available to a result, so that the next prompt does not scroll its first line away; `None` if
/// stdout is not a terminal, or its size is unknown.
pub(crate) fn lines() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    usize::from(size.ws_row).checked_sub(1).filter(|lines| *lines > 0)
}

/// A line on stderr that shows how far an operation is, renewed in place; nothing unless stderr is a terminal. Errors
/// are ignored: a closed terminal must not end the operation.
#[derive(Debug)]
pub(crate) struct StatusLine {
    terminal: bool,
    shown: bool,
}

impl StatusLine {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), shown: false }
    }

    /// Is stderr a terminal?
    pub(crate) const fn is_live(&self) -> bool {
        self.terminal
    }

    /// Replaces the line.
    pub(crate) fn show(&mut self, text: &str) {
        if self.terminal {
            drive("\r\x1b[K");
            say_part(text);
            self.shown = true;
        }
    }

    /// Replaces the line and moves to the next.
    pub(crate) fn keep(&mut self, text: &str) {
        self.show(text);
        self.end();
    }

    /// Keeps the line and moves to the next.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            drive("\n");
        }
    }

    /// Erases the line.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            drive("\r\x1b[K");
        }
    }
}

/// Several lines on stderr that are renewed in place; nothing unless stderr is a terminal.
#[derive(Debug)]
pub(crate) struct StatusBlock {
    terminal: bool,
    /// Lines shown now.
    shown: usize,
}

impl StatusBlock {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), shown: 0 }
    }

    /// Lines that fit the terminal.
    pub(crate) fn lines(&self) -> usize {
        let size =
            rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_row));
        size.saturating_sub(1).max(2)
    }

    /// Replaces the lines.
    pub(crate) fn show(&mut self, text: &str) {
        if self.terminal {
            self.clear();
            say_lines(text);
            self.shown = text.lines().count();
        }
    }

    /// Prints a line that stays, above the others.
    pub(crate) fn message(&mut self, text: &str) {
        self.clear();
        say(text);
    }

    /// Erases the lines.
    pub(crate) fn clear(&mut self) {
        let shown = std::mem::take(&mut self.shown);
        if shown > 0 {
            drive(&format!("\x1b[{shown}A\x1b[J"));
        }
    }
}
