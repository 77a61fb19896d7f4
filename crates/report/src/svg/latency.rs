//! Latency as curves over percentiles: rarer towards the right, and each further nine gets the same space. An average
//! hides the tail of a distribution, which users notice; here it is the right half of the chart.

use udpath_load::result::Latency;

use super::{Anchor, Drawing, Paper, fitted, spread, text_width};
use crate::scale::{Log, Percentiles};
use crate::units;

/// One curve.
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    pub(crate) latency: &'a Latency,
    /// Drawn thick: the curves to compare.
    pub(crate) strong: bool,
    /// Index of the style sheet's look (colour and dashes): 0 the first rung's, 1 the best one's, others follow.
    pub(crate) look: usize,
}

/// Distinct looks (colour and dashes) of the style sheet; further curves reuse them.
const LOOKS: usize = 8;

pub(crate) fn draw(curves: &[Curve<'_>], paper: Paper) -> String {
    let wide = paper.is_wide();
    let (left, right) = if wide { (74.0, 700.0) } else { (52.0, 350.0) };
    let (top, bottom) = if wide { (14.0, 354.0) } else { (14.0, 284.0) };
    let across = Percentiles::of(curves.iter().map(|c| c.latency.count).max().unwrap_or(0));
    let points: Vec<Vec<(f64, f64)>> = curves.iter().map(|c| visible(steps(c.latency), across)).collect();
    let drawn = || points.iter().flatten().filter(|(_, ns)| *ns > 0.0).map(|(_, ns)| *ns);
    let up = Log::between(drawn().fold(f64::INFINITY, f64::min), drawn().fold(0.0, f64::max));
    let x = |p: f64| left + across.place(p) * (right - left);
    let y = |ns: f64| bottom - up.place(ns) * (bottom - top);

    let mut drawing = Drawing::on(paper);
    for tick in up.ticks(12) {
        drawing.line("grid", left, y(tick), right, y(tick));
        drawing.text("tick", Anchor::End, left - 7.0, y(tick) + 4.0, &units::mark(&units::time(tick)));
    }
    let mut free_from = f64::NEG_INFINITY;
    for (p, label) in across.ticks() {
        drawing.line("grid", x(p), top, x(p), bottom);
        let half = text_width(&label, 12.0) / 2.0;
        let at = x(p).min(paper.width() - half - 2.0);
        if at - half > free_from {
            drawing.text("tick", Anchor::Middle, at, bottom + 17.0, &label);
            free_from = at + half + 3.0;
        }
    }
    drawing.text(
        "axis",
        Anchor::Middle,
        f64::midpoint(left, right),
        bottom + 36.0,
        "share of transactions at or below this latency",
    );
    // Thick curves last, so that thin ones never cross over them.
    let mut order: Vec<usize> = (0..curves.len()).collect();
    order.sort_by_key(|i| curves[*i].strong);
    for i in order {
        let places = thinned(points[i].iter().map(|(p, ns)| (x(*p), y(*ns))));
        drawing.path(&look(&curves[i]), &places);
    }
    let end = if wide {
        let ends: Vec<f64> = points.iter().map(|p| p.last().map_or(bottom, |(_, ns)| y(*ns))).collect();
        labels(&mut drawing, curves, &ends, (right, top, bottom));
        bottom + 44.0
    } else {
        legend(&mut drawing, curves, bottom + 54.0)
    };
    let description = "Latency by percentile, one curve each; the table has the figures.";
    drawing.finish("latency", end, "Latency by percentile", description)
}

fn look(curve: &Curve<'_>) -> String {
    // The first two looks are reserved; surplus curves share the others.
    let look = if curve.look < LOOKS { curve.look } else { 2 + (curve.look - 2) % (LOOKS - 2) };
    format!("curve look{look}{}", if curve.strong { " strong" } else { "" })
}

/// The curve as corners: up to a value's bucket, then along its percentiles.
fn steps(latency: &Latency) -> Vec<(f64, f64)> {
    let total: u64 = latency.histogram.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
    if total == 0 {
        // A result without its raw histogram still has its percentiles.
        let known = [(0.0, latency.min), (0.5, latency.p50), (0.9, latency.p90), (0.99, latency.p99)];
        let tail = [(0.999, latency.p99_9), (0.9999, latency.p99_99), (1.0, latency.max)];
        return known.into_iter().chain(tail).map(|(p, ns)| (p, ns as f64)).collect();
    }
    let mut buckets = latency.histogram.clone();
    buckets.sort_unstable();
    let mut corners = Vec::with_capacity(buckets.len() * 2);
    let mut below: u64 = 0;
    for (value, count) in buckets {
        let at = below as f64 / total as f64;
        below = below.saturating_add(count);
        corners.extend([(at, value as f64), (below as f64 / total as f64, value as f64)]);
    }
    corners
}

/// The visible corners: up to where the curve reaches the last tick. The lowest per cent is left out: it would only
/// compress the rest.
fn visible(corners: Vec<(f64, f64)>, across: Percentiles) -> Vec<(f64, f64)> {
    let end = corners.iter().position(|(p, _)| across.place(*p) >= 1.0).map_or(corners.len(), |i| i + 1);
    corners.into_iter().take(end).filter(|(p, _)| *p >= 0.01).collect()
}

/// Positions nearly a unit apart: a histogram has more buckets than the chart has room for.
fn thinned(places: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut last = None;
    for place in places {
        let far = kept.last().is_none_or(|(x, y)| (place.0 - x).abs() + (place.1 - y).abs() >= 0.8);
        if far {
            kept.push(place);
        }
        last = Some(place);
    }
    kept.extend(last.filter(|l| kept.last() != Some(l)));
    kept
}

/// Names at the curves' right ends, moved apart, each with a line to its end.
fn labels(drawing: &mut Drawing, curves: &[Curve<'_>], ends: &[f64], (right, top, bottom): (f64, f64, f64)) {
    let mut places = ends.to_vec();
    spread(&mut places, 16.0, top + 4.0, bottom - 2.0);
    for (i, curve) in curves.iter().enumerate() {
        drawing.path(
            &look(curve),
            &[(right + 2.0, ends[i]), (right + 14.0, places[i]), (right + 30.0, places[i])],
        );
        let class = if curve.strong { "legend strong" } else { "legend" };
        drawing.text(class, Anchor::Start, right + 35.0, places[i] + 4.5, &fitted(curve.name, 13.5, 162.0));
    }
}

/// Names under the chart, as many to a line as fit; returns their end.
fn legend(drawing: &mut Drawing, curves: &[Curve<'_>], from: f64) -> f64 {
    let (mut x, mut y) = (6.0, from);
    for curve in curves {
        let name = fitted(curve.name, 13.0, 290.0);
        let width = 36.0 + text_width(&name, 13.5) + 12.0;
        if x + width > 356.0 && x > 6.0 {
            (x, y) = (6.0, y + 20.0);
        }
        drawing.path(&look(curve), &[(x, y - 4.0), (x + 28.0, y - 4.0)]);
        let class = if curve.strong { "legend strong" } else { "legend" };
        drawing.text(class, Anchor::Start, x + 34.0, y, &name);
        x += width;
    }
    y + 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(histogram: Vec<(u64, u64)>) -> Latency {
        let (p50, p90, p99, p99_9, p99_99) = (2, 3, 4, 5, 6);
        Latency { count: 10, min: 1, mean: 2.0, p50, p90, p99, p99_9, p99_99, max: 7, histogram }
    }

    #[test]
    fn steps_are_the_cumulative_shares() {
        let corners = steps(&latency(vec![(100, 5), (200, 4), (300, 1)]));
        assert_eq!(
            corners,
            [(0.0, 100.0), (0.5, 100.0), (0.5, 200.0), (0.9, 200.0), (0.9, 300.0), (1.0, 300.0)]
        );
    }

    #[test]
    fn without_a_histogram_the_percentiles_are_drawn() {
        assert_eq!(steps(&latency(vec![])).last(), Some(&(1.0, 7.0)));
        assert_eq!(steps(&latency(vec![(5, 0)])).len(), 7);
    }

    #[test]
    fn counts_that_overflow_are_still_a_curve() {
        let corners = steps(&latency(vec![(2, u64::MAX), (1, u64::MAX)]));
        assert!(corners.iter().all(|(p, _)| (0.0..=1.0).contains(p)));
    }
}
