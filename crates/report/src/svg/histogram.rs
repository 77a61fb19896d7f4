//! Histograms of durations or sizes: a row of bars for each kind, on one logarithmic axis that shows typical values,
//! rare values and the maximum at once. Every bar is one doubling wide; heights are comparable within a row.

use super::{Anchor, Drawing, Paper, fitted};
use crate::scale::Log;
use crate::units;

/// Values in one range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bar {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) count: u64,
}

/// One kind.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Text beside it.
    pub(crate) note: String,
    pub(crate) bars: Vec<Bar>,
    /// Values marked with a line through the row: the median and the 99th percentile.
    pub(crate) marks: Vec<f64>,
}

/// Shared by all rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chart<'a> {
    /// Prefix of the chart's ids: unique on the page.
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    /// Title of the axis.
    pub(crate) axis: &'a str,
    /// Formats a value for the axis.
    pub(crate) value: fn(f64) -> String,
}

/// Height of a row's bars, and distance between rows.
const BARS: f64 = 34.0;
const ROW: f64 = 46.0;
/// The lowest visible bar: a value above zero is never shown as zero.
const LOWEST: f64 = 1.5;

pub(crate) fn draw(chart: &Chart<'_>, rows: &[Row], paper: Paper) -> String {
    let wide = paper.is_wide();
    let (left, right) = if wide { (262.0, 700.0) } else { (14.0, 346.0) };
    // On a phone, a row's name is above it.
    let above = if wide { 4.0 } else { 20.0 };
    let step = ROW + if wide { 0.0 } else { 16.0 };
    let ends = || rows.iter().flat_map(|row| &row.bars).filter(|bar| bar.count > 0);
    let across = Log::between(
        ends().map(|bar| bar.from).fold(f64::INFINITY, f64::min),
        ends().map(|bar| bar.to).fold(0.0, f64::max),
    );
    let x = |value: f64| left + across.place(value) * (right - left);
    let bottom = 8.0 + rows.len() as f64 * step;

    let mut drawing = Drawing::on(paper);
    for tick in across.ticks(if wide { 10 } else { 5 }) {
        drawing.line("grid", x(tick), 4.0, x(tick), bottom);
        let label = units::mark(&(chart.value)(tick));
        drawing.text("tick", Anchor::Middle, x(tick), bottom + 15.0, &label);
    }
    for (at, row) in rows.iter().enumerate() {
        let top = at as f64 * step + above;
        let base = top + BARS;
        if wide {
            drawing.text("name", Anchor::End, left - 12.0, base - 8.0, &fitted(&row.name, 14.0, left - 16.0));
            drawing.text("small", Anchor::Start, right + 10.0, base - 8.0, &fitted(&row.note, 12.0, 188.0));
        } else {
            drawing.text("name", Anchor::Start, 4.0, top - 5.0, &fitted(&row.name, 14.0, 190.0));
            drawing.text("small", Anchor::End, 356.0, top - 5.0, &fitted(&row.note, 12.0, 158.0));
        }
        let most = row.bars.iter().map(|bar| bar.count).max().unwrap_or(0).max(1) as f64;
        for bar in row.bars.iter().filter(|bar| bar.count > 0) {
            let (from, to) = (x(bar.from), x(bar.to));
            let height = (bar.count as f64 / most * BARS).max(LOWEST);
            drawing.rect("part histogram", from, base - height, (to - from).max(1.0), height);
        }
        for mark in &row.marks {
            drawing.line("mark", x(*mark), top, x(*mark), base);
        }
        drawing.line("base-line", left, base, right, base);
    }
    drawing.text("axis", Anchor::Middle, f64::midpoint(left, right), bottom + 33.0, chart.axis);
    let description =
        "A row of bars for each kind, by size; lines mark half and 99 %. The table has the figures.";
    drawing.finish(chart.id, bottom + 41.0, chart.title, description)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHART: Chart<'_> = Chart { id: "x", title: "Times", axis: "time", value: units::time };

    fn row(bars: &[(f64, f64, u64)]) -> Row {
        let bars = bars.iter().map(|&(from, to, count)| Bar { from, to, count }).collect();
        Row { name: "a".into(), note: "n".into(), bars, marks: vec![150.0] }
    }

    /// Widths and heights of the bars.
    fn drawn(svg: &str) -> Vec<(f64, f64)> {
        let bars = svg.lines().filter(|line| line.contains("part histogram"));
        let number = |line: &str, name: &str| {
            line.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        bars.map(|line| (number(line, " width"), number(line, " height"))).collect()
    }

    #[test]
    fn doublings_are_equally_wide_and_heights_are_counts() {
        let svg =
            draw(&CHART, &[row(&[(100.0, 200.0, 10), (200.0, 400.0, 5), (400.0, 800.0, 0)])], Paper::Wide);
        let bars = drawn(&svg);
        assert_eq!(bars.len(), 2, "nothing is drawn of what is not there");
        assert!((bars[0].0 - bars[1].0).abs() < 0.2, "{bars:?}");
        assert_eq!((bars[0].1, bars[1].1), (34.0, 17.0));
    }

    #[test]
    fn something_is_seen_beside_a_million() {
        let bars = drawn(&draw(&CHART, &[row(&[(1.0, 2.0, 1_000_000), (2.0, 4.0, 1)])], Paper::Narrow));
        assert_eq!(bars[1].1, LOWEST);
    }

    #[test]
    fn impossible_rows_stay_within_the_drawing() {
        let odd = [(0.0, f64::INFINITY, u64::MAX), (f64::NAN, -1.0, 3), (5.0, 5.0, 1)];
        for paper in [Paper::Wide, Paper::Narrow] {
            let svg = draw(&CHART, &[row(&odd), row(&[])], paper);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            let _ = draw(&CHART, &[], paper);
        }
    }
}
