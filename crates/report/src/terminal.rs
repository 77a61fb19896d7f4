//! Text for a terminal: fits on a screen, aligned, coloured only on request.
//!
//! Colour only repeats what the text says. This module does not examine the terminal: the caller knows whether stdout
//! is a terminal, its width, and `NO_COLOR`.

pub(crate) mod boost;
pub(crate) mod capacity;
pub(crate) mod changes;
pub(crate) mod compare;
pub(crate) mod diagnosis;
pub(crate) mod difference;
pub(crate) mod experiment;
pub(crate) mod fleet;
pub(crate) mod history;
pub(crate) mod lab;
pub(crate) mod load;
pub(crate) mod machines;
pub(crate) mod map;
pub(crate) mod multiply;
mod plot;
pub(crate) mod policy;
pub(crate) mod predict;
pub(crate) mod profile;
pub(crate) mod progress;
pub(crate) mod running;
pub(crate) mod search;
pub(crate) mod serve;
pub(crate) mod service;
pub(crate) mod spread;
mod style;
pub(crate) mod support;
mod table;
pub(crate) mod traces;

use udpath_load::cpu::CpuUse;

use crate::time_line::{Lane, mark};
use crate::{units, words};
pub(crate) use style::Paint;
pub use style::Style;
use table::{Cell, Table};

/// A bar in eighths of a character: `share` of `width` columns.
pub(crate) fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    // A value above zero is never shown as zero.
    let eighths = ((share * width as f64 * 8.0).round() as usize).max(usize::from(share > 0.0));
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// Most CPUs with a line each; more are summarised by their mean and the busiest one.
const CPU_LINES: usize = 4;

/// Adds lines of CPU time by kind to a table that begins with a title column; with the load of each over time if
/// `lanes` has lanes of the same CPUs.
pub(crate) fn cpu_lines(table: &mut Table, title: &str, cpus: &[CpuUse], lanes: &[Lane]) {
    let mut line = |title: &str, name: String, used: &CpuUse, marks: String| {
        let mut cells = vec![Cell::new(title), Cell::right(name)];
        let kinds = [used.usr, used.sys, used.soft, used.irq, used.steal, used.idle];
        cells.extend(kinds.map(|share| Cell::right(units::share_in_column(share))));
        cells.extend((!marks.is_empty()).then(|| Cell::new(marks)));
        table.row(cells);
    };
    let of =
        |at: usize| lanes.get(at).map_or_else(String::new, |lane| lane.slices.iter().map(mark).collect());
    if cpus.len() <= CPU_LINES {
        for (i, used) in cpus.iter().enumerate() {
            line(if i == 0 { title } else { "" }, used.cpu.to_string(), used, of(i));
        }
        return;
    }
    if let Some(mean) = words::mean_cpu(cpus) {
        let slices = lanes.iter().map(|lane| lane.slices.len()).max().unwrap_or(0);
        let mean_of = |at: usize| {
            let slice: Vec<CpuUse> = lanes.iter().filter_map(|lane| lane.slices.get(at)).copied().collect();
            words::mean_cpu(&slice).as_ref().map(mark)
        };
        line(title, format!("mean of {}", cpus.len()), &mean, (0..slices).filter_map(mean_of).collect());
    }
    if let Some((at, busiest)) = cpus.iter().enumerate().min_by(|(_, a), (_, b)| a.idle.total_cmp(&b.idle)) {
        line("", format!("busiest: {}", busiest.cpu), busiest, of(at));
    }
}

/// The headings for [`cpu_lines`].
pub(crate) fn cpu_headings(first: &str) -> Vec<Cell> {
    let mut cells = vec![Cell::new(first)];
    cells.extend(["CPU", "usr", "sys", "soft", "irq", "steal", "idle"].map(Cell::right));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unbroken::unbroken;

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.53, 4), "██▏");
        assert_eq!(bar(1e-9, 4), "▏");
        assert_eq!((bar(0.0, 4), bar(f64::NAN, 4)), (String::new(), String::new()));
        assert_eq!(bar(7.0, 4), "████");
    }

    #[test]
    fn lines_break_at_spaces_and_only_there() {
        let style = Style { colour: false, width: 40 };
        let text = style.wrapped(Paint::Plain, &"seven ch ".repeat(10), 2);
        assert!(text.lines().all(|l| l.chars().count() <= 40), "{text}");
        assert!(text.lines().skip(1).all(|l| l.starts_with("  ") && !l.starts_with("   ")));
        let unit = style.wrapped(Paint::Plain, &format!("{} 0.25 s, and so on", "x".repeat(33)), 2);
        assert_eq!(unit.lines().nth(1), Some("  0.25 s, and so on"));
        assert_eq!(style.wrapped(Paint::Plain, " ", 2), "\n");
        let command = "udpath apply --set eth0:rps/rx-0=1-3 --set eth0:rps/rx-1=1-3";
        let kept = style.wrapped(Paint::Plain, &format!("spread: {}; or not", unbroken(command)), 2);
        assert_eq!(kept.lines().nth(1), Some(&*format!("  {command};")));
        let long = style.wrapped(Paint::Plain, &"x".repeat(90), 2);
        assert_eq!(long, format!("{}\n", "x".repeat(90)));
    }

    #[test]
    fn colour_only_on_request() {
        assert_eq!(Style::default().paint(Paint::Bad, "x"), "x");
        let style = Style { colour: true, width: 80 };
        assert_eq!(style.paint(Paint::Bad, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(style.paint(Paint::Plain, "x"), "x");
    }
}
