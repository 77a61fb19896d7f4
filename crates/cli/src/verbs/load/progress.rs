//! The progress line of a run: on stderr, if that is a terminal.

use std::io::{self, IsTerminal, Write};

use udpath_load::Progress;

/// Renews one line in place.
#[derive(Debug)]
pub(super) struct ProgressLine {
    /// Stderr is a terminal; otherwise nothing is shown.
    terminal: bool,
    shown: bool,
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), shown: false }
    }

    pub(super) fn show(&mut self, p: &Progress) {
        if !self.terminal {
            return;
        }
        self.shown = true;
        // A closed terminal must not end the run.
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{:.1} of {:.1} s: {:.0} tps, {} sent, {} ok, {} lost",
            p.elapsed.as_secs_f64(),
            p.total.as_secs_f64(),
            p.tps,
            p.sent,
            p.ok,
            p.lost
        );
    }

    /// Erases the line, so that the result starts on an empty one.
    pub(super) fn clear(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
            self.shown = false;
        }
    }
}
