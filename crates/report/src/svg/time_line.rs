//! CPU time over time. Few CPUs get a lane each with stacked kinds of time; many get a heat map with a row each: its
//! colour is the largest kind, darker when busier.

use udpath_load::cpu::CpuUse;

use super::cpus::{KINDS, legend, patterns, shares};
use super::{Anchor, Drawing, Paper};
use crate::time_line::{Lane, folded};
use crate::units;

/// Prefix of the names of this chart's fills.
const CHART: &str = "time-";
/// Most CPUs with a lane each. Higher: lanes are too low for stacked bars.
const LANES: usize = 16;
/// Most rows of the heat map; with more CPUs, neighbours share one. Higher: the page is too long to read.
const ROWS: usize = 128;
/// Largest height of the heat map, and of a row.
const TALLEST: f64 = 512.0;
const ROW: (f64, f64) = (3.0, 14.0);
/// Steps of colour between idle and full.
const STEPS: f64 = 5.0;

/// Draws lanes of an interval of `seconds`; empty without lanes.
pub(crate) fn draw(lanes: &[Lane], seconds: f64, paper: Paper) -> String {
    let lanes = if lanes.len() <= LANES { lanes.to_vec() } else { folded(lanes.to_vec(), ROWS) };
    let columns = lanes.iter().map(|lane| lane.slices.len()).max().unwrap_or(0);
    if columns == 0 {
        return String::new();
    }
    let heat = lanes.len() > LANES;
    let (height, gap) =
        if heat { ((TALLEST / lanes.len() as f64).clamp(ROW.0, ROW.1), 0.0) } else { (30.0, 6.0) };
    let left = if paper.is_wide() { 92.0 } else { 74.0 };
    let right = paper.width() - 14.0;
    let x = |column: usize| left + (right - left) * column as f64 / columns as f64;
    let mut drawing = Drawing::on(paper);
    drawing.raw(&patterns(paper, CHART));
    let top = legend(&mut drawing, paper, CHART) + 8.0;
    let mut y = top;
    // Labels need 13 units each; low rows are labelled at intervals.
    let every = (13.0 / (height + gap)).ceil() as usize;
    for (row, lane) in lanes.iter().enumerate() {
        if row % every == 0 {
            let middle = y + height.max(9.0) / 2.0 + 4.0;
            drawing.text("tick", Anchor::End, left - 7.0, middle, &lane.name());
        }
        for (column, used) in lane.slices.iter().enumerate() {
            let (from, to) = (x(column), x(column + 1));
            if heat {
                warm(&mut drawing, used, from, y, to - from, height);
            } else {
                stack(&mut drawing, used, from, y, to - from, height);
            }
        }
        if !heat {
            drawing.line("grid", left, y + height, right, y + height);
        }
        y += height + gap;
    }
    let bottom = y - gap;
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let at = left + part * (right - left);
        drawing.text("tick", Anchor::Middle, at, bottom + 15.0, &units::duration(part * seconds));
    }
    let (about, description) = if heat {
        (
            "each row is a CPU, or the busiest of some; the deeper the colour, the busier",
            "Rows of CPUs, coloured by the kind of \
          time that they had most of in each slice.",
        )
    } else {
        (
            "each lane is one CPU, full at its top",
            "A lane for each CPU: user, system, softirq and interrupt time, stacked in each \
          slice.",
        )
    };
    drawing.text("axis", Anchor::Middle, f64::midpoint(left, right), bottom + 33.0, about);
    drawing.finish("time", bottom + 41.0, "CPU time over time", description)
}

/// One slice: the kinds stacked, idle left free.
fn stack(drawing: &mut Drawing, used: &CpuUse, x: f64, y: f64, width: f64, height: f64) {
    let mut free = height;
    for ((kind, _), share) in KINDS.iter().zip(shares(used)) {
        let part = if *kind == "idle" || !share.is_finite() { 0.0 } else { share.clamp(0.0, 1.0) * height };
        let part = part.min(free);
        free -= part;
        if part >= 0.25 {
            drawing.filled(&format!("{CHART}{kind}"), x, y + free, width, part);
        }
    }
}

/// One cell of the heat map.
fn warm(drawing: &mut Drawing, used: &CpuUse, x: f64, y: f64, width: f64, height: f64) {
    let kinds =
        KINDS.iter().zip(shares(used)).filter(|((kind, _), share)| *kind != "idle" && share.is_finite());
    let Some(((kind, _), _)) = kinds.max_by(|(_, a), (_, b)| a.total_cmp(b)) else { return };
    let step = ((1.0 - used.idle).clamp(0.0, 1.0) * STEPS).ceil();
    if step > 0.0 {
        drawing.rect(&format!("heat fill-{kind} h{step}"), x, y, width, height);
    }
}
