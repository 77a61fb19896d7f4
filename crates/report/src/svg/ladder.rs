//! The ladder: a bar per rung, the interval as a whisker around its end, a tick for every trial.
//!
//! ```text
//! wide    reuseport   ████████████████████████▒|--+--|     845 k   1.38 (1.36–1.40) × xps   ▲ better
//!                                     ' ' ''' '  trials
//! narrow  reuseport  ▲ better                845 k
//!         ███████████████████████████|-+-|
//!         1.38 (1.36–1.40) × xps
//! ```

use udpath_advise::result::{BoostResult, RungResult, Verdict};

use super::{Anchor, Drawing, Paper, fitted, text_width};
use crate::scale::Linear;
use crate::{units, words};

/// Positions on this medium.
struct Layout {
    paper: Paper,
    left: f64,
    right: f64,
    row: f64,
    top: f64,
    bar: f64,
}

impl Layout {
    const fn on(paper: Paper) -> Self {
        match paper {
            Paper::Wide => Self { paper, left: 120.0, right: 556.0, row: 46.0, top: 12.0, bar: 20.0 },
            Paper::Narrow => Self { paper, left: 4.0, right: 350.0, row: 70.0, top: 2.0, bar: 18.0 },
        }
    }

    fn x(&self, axis: &Linear, value: f64) -> f64 {
        self.left + axis.place(value) * (self.right - self.left)
    }
}

pub(crate) fn draw(result: &BoostResult, paper: Paper) -> String {
    let layout = Layout::on(paper);
    let best = words::best(result);
    let shown = |r: &&RungResult| r.verdict != Verdict::Failed;
    let highest =
        result.rungs.iter().filter(shown).flat_map(reach).filter(|v| v.is_finite()).fold(0.0, f64::max);
    let axis = Linear::to(highest, if paper.is_wide() { 5 } else { 4 });

    let mut drawing = Drawing::on(paper);
    let bottom = layout.top + result.rungs.len() as f64 * layout.row;
    for tick in axis.ticks() {
        let x = layout.x(&axis, tick);
        drawing.line("grid", x, layout.top, x, bottom);
        let anchor = match (paper, tick) {
            (Paper::Narrow, 0.0) => Anchor::Start,
            (Paper::Narrow, t) if axis.place(t) > 0.99 => Anchor::End,
            _ => Anchor::Middle,
        };
        drawing.text("tick", anchor, x, bottom + 17.0, &units::mark(&units::tps(tick)));
    }
    drawing.text(
        "axis",
        Anchor::Middle,
        f64::midpoint(layout.left, layout.right),
        bottom + 36.0,
        "transactions per second",
    );
    for (i, rung) in result.rungs.iter().enumerate() {
        let is_best = best.is_some_and(|b| std::ptr::eq(b, rung));
        row(&mut drawing, &layout, &axis, layout.top + i as f64 * layout.row, rung, is_best);
    }
    if paper.is_wide() {
        drawing.line("base-line", layout.left, layout.top, layout.left, bottom);
    }
    drawing.finish("ladder", bottom + 44.0, "The ladder", &words::conclusion(result))
}

/// The values of a rung on the axis: its rate, its interval's end, its trials.
fn reach(rung: &RungResult) -> Vec<f64> {
    let mut values = vec![rung.tps];
    values.extend(whisker(rung).map(|(_, high)| high));
    values.extend(rung.trials.iter().filter(|t| **t < rung.tps * 3.0));
    values
}

/// The interval of the ratio, scaled to the rung's own rate. `None` if it is invalid or there is nothing to compare.
fn whisker(rung: &RungResult) -> Option<(f64, f64)> {
    rung.against.as_ref()?;
    let (low, high) = (rung.tps * rung.ratio_low / rung.ratio, rung.tps * rung.ratio_high / rung.ratio);
    // An interval over more than three times the rate would flatten every bar; the figures beside it still show it.
    (low.is_finite() && high.is_finite() && high <= rung.tps * 3.0).then_some((low, high))
}

fn row(drawing: &mut Drawing, layout: &Layout, axis: &Linear, y: f64, rung: &RungResult, is_best: bool) {
    let failed = rung.verdict == Verdict::Failed;
    let (mark, verdict) = (mark(rung.verdict), words::outcome(rung));
    let verdict = if is_best { format!("{verdict}, best") } else { verdict };
    let verdict = format!("{mark} {verdict}");
    let verdict_class = verdict_class(rung.verdict);
    let name_class = if is_best { "name strong" } else { "name" };
    let rate = if failed { String::new() } else { units::tps(rung.tps) };
    let ratio = match &rung.against {
        Some(against) if !failed => format!("{} × {against}", units::interval(words::ratio(rung))),
        _ => String::new(),
    };

    let bar_y = match layout.paper {
        Paper::Wide => {
            let middle = y + layout.row / 2.0 - 2.0;
            let name = fitted(&rung.name, 14.0, layout.left - 14.0);
            drawing.text(name_class, Anchor::End, layout.left - 10.0, middle + 5.0, &name);
            drawing.text("rate strong", Anchor::End, 622.0, middle + 5.0, &rate);
            drawing.text(
                verdict_class,
                Anchor::Start,
                640.0,
                if ratio.is_empty() { middle + 5.0 } else { middle - 3.0 },
                &fitted(&verdict, 14.0, 258.0),
            );
            drawing.text("small", Anchor::Start, 640.0, middle + 14.0, &fitted(&ratio, 12.0, 258.0));
            middle - layout.bar / 2.0
        }
        Paper::Narrow => {
            let name = fitted(&rung.name, 14.0, 120.0);
            drawing.text(name_class, Anchor::Start, layout.left, y + 14.0, &name);
            let after = layout.left + text_width(&name, 15.0) + 10.0;
            let room = layout.right - after - 62.0;
            drawing.text(verdict_class, Anchor::Start, after, y + 14.0, &fitted(&verdict, 13.0, room));
            drawing.text("rate strong", Anchor::End, layout.right, y + 14.0, &rate);
            drawing.text("small", Anchor::Start, layout.left, y + 55.0, &fitted(&ratio, 12.0, 340.0));
            y + 20.0
        }
    };
    if failed {
        drawing.text(
            "small",
            Anchor::Start,
            layout.left + 8.0,
            bar_y + layout.bar / 2.0 + 4.0,
            "could not be run",
        );
        return;
    }

    let end = layout.x(axis, rung.tps);
    let class = match rung.verdict {
        _ if is_best => "bar best",
        Verdict::Worse => "bar worse",
        _ if words::undone(rung) => "bar undone",
        _ => "bar kept",
    };
    drawing.rect(class, layout.left, bar_y, end - layout.left, layout.bar);
    for trial in rung.trials.iter().filter(|t| t.is_finite()) {
        let x = layout.x(axis, *trial);
        drawing.line("trial", x, bar_y + layout.bar + 2.0, x, bar_y + layout.bar + 7.0);
    }
    if let Some((low, high)) = whisker(rung) {
        let middle = bar_y + layout.bar / 2.0;
        let (low, high) = (layout.x(axis, low), layout.x(axis, high));
        for class in ["whisker halo", "whisker"] {
            drawing.line(class, low, middle, high, middle);
            drawing.line(class, low, middle - 5.0, low, middle + 5.0);
            drawing.line(class, high, middle - 5.0, high, middle + 5.0);
        }
    }
}

/// The verdict as a sign that does not depend on colour.
pub(crate) const fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Base => "●",
        Verdict::Better => "▲",
        Verdict::Worse => "▼",
        Verdict::NotShown => "○",
        Verdict::Failed => "✕",
    }
}

/// The verdict as a class of the style sheet.
pub(crate) const fn verdict_class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Base => "verdict base",
        Verdict::Better => "verdict better",
        Verdict::Worse => "verdict worse",
        Verdict::NotShown => "verdict not-shown",
        Verdict::Failed => "verdict failed",
    }
}
