//! An experiment's cases as ratios to the first of their group, on a logarithmic axis: rates of other machines cannot
//! share an axis, their ratios can. And its sweeps as lines.
//!
//! ```text
//! open load
//! RSS, one socket           |◇●×                       ◇ published   ● measured   × modelled
//! + softirqs on every CPU   ◇ ×───●|
//! + SO_REUSEPORT                   |●────────────×◇
//!                         0.05    0.5    1   2   5  10
//! ```

use udpath_experiment::outcome::{CaseOutcome, FigureOrigin, Outcome, Point, Sweep};

use super::{Anchor, Drawing, Paper, fitted, text_width};
use crate::scale::{Linear, Log};
use crate::units;
use crate::words::experiment as words;

/// Half the size of a mark.
const MARK: f64 = 6.0;
/// Distinct looks (colour and dashes) of the style sheet; further lines reuse them.
const LOOKS: usize = 8;

/// Positions of the dots on this medium.
struct Layout {
    left: f64,
    right: f64,
    row: f64,
    heading: f64,
    /// From a row's top to its line.
    line: f64,
}

impl Layout {
    const fn on(paper: Paper) -> Self {
        match paper {
            Paper::Wide => Self { left: 330.0, right: 880.0, row: 26.0, heading: 26.0, line: 13.0 },
            Paper::Narrow => Self { left: 10.0, right: 346.0, row: 42.0, heading: 26.0, line: 28.0 },
        }
    }
}

/// The dots of an experiment; empty if no case has a ratio. `name` is unique on the page.
pub(crate) fn draw(outcome: &Outcome, name: &str, paper: Paper) -> String {
    let ratios = words::ratios(&outcome.cases);
    // A group whose only figure is its first case shows nothing but a 1.
    let told = |case: &CaseOutcome| {
        ratios.iter().any(|(other, of)| {
            other.group == case.group
                && other.unit == case.unit
                && of.iter().flatten().any(|ratio| *ratio != 1.0)
        })
    };
    let rows: Vec<_> =
        ratios.iter().filter(|(case, of)| of.iter().any(Option::is_some) && told(case)).collect();
    let all = || rows.iter().flat_map(|(_, of)| of.iter().flatten().copied());
    if rows.is_empty() {
        return String::new();
    }
    let axis = Log::between(all().fold(1.0, f64::min) * 0.9, all().fold(1.0, f64::max) * 1.1);
    let layout = Layout::on(paper);
    let x = |ratio: f64| layout.left + axis.place(ratio) * (layout.right - layout.left);
    let mut drawing = Drawing::on(paper);
    let (mut y, top) = (legend(&mut drawing, &layout, &rows), 26.0);
    let mut marks = Vec::new();
    let mut group: Option<&Option<String>> = None;
    for (case, of) in &rows {
        if group != Some(&case.group) {
            group = Some(&case.group);
            if let Some(title) = &case.group {
                let title = fitted(title, 13.0, layout.right - 8.0);
                drawing.text("name strong", Anchor::Start, 4.0, y + 17.0, &title);
                y += layout.heading;
            }
        }
        let at = y + layout.line;
        match paper {
            Paper::Wide => {
                let label = fitted(&case.label, 14.0, layout.left - 24.0);
                drawing.text("name", Anchor::End, layout.left - 14.0, at + 4.5, &label);
            }
            Paper::Narrow => {
                let label = fitted(&case.label, 14.0, layout.right - layout.left);
                drawing.text("name", Anchor::Start, layout.left, y + 15.0, &label);
            }
        }
        marks.push((at, of.map(|ratio| ratio.map(x))));
        y += layout.row;
    }
    for tick in axis.ticks(if paper.is_wide() { 10 } else { 5 }) {
        let class = if (tick - 1.0).abs() < 1e-9 { "base-line" } else { "grid" };
        drawing.line(class, x(tick), top, x(tick), y);
        drawing.text("tick", Anchor::Middle, x(tick), y + 17.0, &units::mark(&units::ratio(tick)));
    }
    for (at, places) in marks {
        let present = || places.iter().flatten().copied();
        drawing.line(
            "span",
            present().fold(f64::INFINITY, f64::min),
            at,
            present().fold(f64::NEG_INFINITY, f64::max),
            at,
        );
        for (origin, place) in ORIGINS.into_iter().zip(places) {
            if let Some(place) = place {
                mark(&mut drawing, origin, place, at);
            }
        }
    }
    let title = "ratio to the first case of the group, logarithmic";
    drawing.text("axis", Anchor::Middle, f64::midpoint(layout.left, layout.right), y + 36.0, title);
    let description = "Published, measured and modelled ratios of each case; the table has the figures.";
    drawing.finish(name, y + 44.0, &outcome.title, description)
}

/// In the order of [`words::ratios`].
const ORIGINS: [FigureOrigin; 3] = [FigureOrigin::Published, FigureOrigin::Measured, FigureOrigin::Modelled];

/// The marks that occur, explained; returns where the rows begin.
fn legend(drawing: &mut Drawing, layout: &Layout, rows: &[&(&CaseOutcome, [Option<f64>; 3])]) -> f64 {
    let mut x = layout.left;
    for (at, origin) in ORIGINS.into_iter().enumerate() {
        if rows.iter().any(|(_, of)| of[at].is_some()) {
            mark(drawing, origin, x + MARK, 12.0);
            drawing.text("legend", Anchor::Start, x + 3.0 * MARK, 16.5, words::origin(origin));
            x += 3.0 * MARK + text_width(words::origin(origin), 12.5) + 18.0;
        }
    }
    28.0
}

/// A diamond, a dot, a cross: apart without colours.
fn mark(drawing: &mut Drawing, origin: FigureOrigin, x: f64, y: f64) {
    let m = MARK;
    match origin {
        FigureOrigin::Published => {
            drawing.path("mark-published", &[(x - m, y), (x, y - m), (x + m, y), (x, y + m), (x - m, y)]);
        }
        FigureOrigin::Measured => drawing.rect("mark-measured", x - m * 0.7, y - m * 0.7, m * 1.4, m * 1.4),
        FigureOrigin::Modelled => {
            let m = m * 0.75;
            drawing.path("mark-modelled", &[(x - m, y - m), (x + m, y + m)]);
            drawing.path("mark-modelled", &[(x - m, y + m), (x + m, y - m)]);
        }
    }
}

/// A sweep as lines; empty if no line has two points. `name` is unique on the page.
pub(crate) fn lines(sweep: &Sweep, name: &str, paper: Paper) -> String {
    let points = || sweep.lines.iter().flat_map(|line| &line.points);
    let finite = |value: f64| value.is_finite() && value >= 0.0;
    if !sweep.lines.iter().any(|line| line.points.len() > 1) || !points().all(|p| finite(p.x) && finite(p.y))
    {
        return String::new();
    }
    let wide = paper.is_wide();
    let (left, right) = if wide { (86.0, 880.0) } else { (60.0, 346.0) };
    let (top, bottom) = (12.0, if wide { 292.0 } else { 232.0 });
    let across = Linear::to(points().map(|p| p.x).fold(0.0, f64::max), if wide { 8 } else { 4 });
    let high = |p: &Point| if finite(p.high) { p.high.max(p.y) } else { p.y };
    let up = Linear::to(points().map(high).fold(0.0, f64::max), 5);
    let x = |value: f64| left + across.place(value) * (right - left);
    let y = |value: f64| bottom - up.place(value) * (bottom - top);
    let mut drawing = Drawing::on(paper);
    for tick in up.ticks() {
        drawing.line("grid", left, y(tick), right, y(tick));
        let label = units::mark(&words::figure(sweep.unit, tick));
        drawing.text("tick", Anchor::End, left - 7.0, y(tick) + 4.0, &label);
    }
    for tick in across.ticks() {
        drawing.line("grid", x(tick), top, x(tick), bottom);
        drawing.text("tick", Anchor::Middle, x(tick), bottom + 17.0, &units::mark(&units::tps(tick)));
    }
    let axis = fitted(&sweep.x, 12.5, right - left);
    drawing.text("axis", Anchor::Middle, f64::midpoint(left, right), bottom + 36.0, &axis);
    let (mut at, mut below) = (6.0, bottom + 58.0);
    for (index, line) in sweep.lines.iter().enumerate() {
        let look = format!("curve look{}", if index < LOOKS { index } else { index % LOOKS });
        let places: Vec<(f64, f64)> = line.points.iter().map(|p| (x(p.x), y(p.y))).collect();
        drawing.path(&look, &places);
        for point in &line.points {
            drawing.rect("mark-point", x(point.x) - 2.5, y(point.y) - 2.5, 5.0, 5.0);
            if finite(point.low) && finite(point.high) && point.high > point.low {
                drawing.line("whisker", x(point.x), y(point.low), x(point.x), y(point.high));
            }
        }
        let name = format!("{} ({})", line.name, words::origin(line.origin));
        let name = fitted(&name, 13.0, paper.width() - 50.0);
        let width = 36.0 + text_width(&name, 13.5) + 12.0;
        if at + width > paper.width() - 4.0 && at > 6.0 {
            (at, below) = (6.0, below + 20.0);
        }
        drawing.path(&look, &[(at, below - 4.0), (at + 28.0, below - 4.0)]);
        drawing.text("legend", Anchor::Start, at + 34.0, below, &name);
        at += width;
    }
    let description = format!("{}; the table has the figures.", words::unit(sweep.unit));
    drawing.finish(name, below + 10.0, &sweep.title, &description)
}
