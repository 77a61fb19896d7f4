//! The progress of loads that run at the same time, as one line.

use udpath_load::Progress;
use udpath_report::load_line;

use crate::terminal::StatusLine;

/// Renews one line in place with the sum of all loads.
#[derive(Debug)]
pub(super) struct ProgressLine {
    line: StatusLine,
    loads: Vec<Progress>,
}

impl ProgressLine {
    /// A line for this many loads.
    pub(super) fn new(loads: usize) -> Self {
        Self { line: StatusLine::new(), loads: vec![Progress::default(); loads] }
    }

    /// Shows the last report of a load, with those of the others.
    pub(super) fn show(&mut self, load: usize, progress: &Progress) {
        self.loads[load] = progress.clone();
        let sum = self.loads.iter().fold(Progress::default(), |sum, p| Progress {
            elapsed: sum.elapsed.max(p.elapsed),
            total: sum.total.max(p.total),
            sent: sum.sent + p.sent,
            ok: sum.ok + p.ok,
            lost: sum.lost + p.lost,
            tps: sum.tps + p.tps,
            interval: None,
        });
        self.line.show(&load_line(&sum));
    }

    /// Erases the line, so that the result starts on an empty one.
    pub(super) fn clear(&mut self) {
        self.line.clear();
    }
}
