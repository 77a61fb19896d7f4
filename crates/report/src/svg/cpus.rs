//! CPU time as a stacked bar per CPU, grouped by rung. Replaces a page of `sar -u -P ALL`.

use udpath_load::cpu::CpuUse;

use super::{Anchor, Drawing, Paper, fitted, text_width};
use crate::units;

/// The kinds of CPU time in stacking order, each with its legend.
pub(crate) const KINDS: [(&str, &str); 6] = [
    ("usr", "usr: the programs"),
    ("sys", "sys: system calls"),
    ("soft", "soft: packets in the kernel"),
    ("irq", "irq: interrupts"),
    ("steal", "steal: other guests"),
    ("idle", "idle"),
];

/// The shares of one CPU, in the order of [`KINDS`].
pub(crate) const fn shares(used: &CpuUse) -> [f64; 6] {
    [used.usr, used.sys, used.soft, used.irq, used.steal, used.idle]
}

/// One group of bars: a rung, or a run of the load.
pub(crate) struct Group<'a> {
    pub(crate) name: &'a str,
    pub(crate) strong: bool,
    pub(crate) cpus: &'a [CpuUse],
}

pub(crate) fn draw(groups: &[Group<'_>], paper: Paper) -> String {
    let wide = paper.is_wide();
    let named = groups.iter().any(|g| !g.name.is_empty());
    let left = match (wide, named) {
        (true, true) => 178.0,
        (true, false) => 66.0,
        (false, _) => 50.0,
    };
    let right = paper.width() - if wide { 80.0 } else { 44.0 };
    let most = groups.iter().map(|g| g.cpus.len()).max().unwrap_or(0);
    // Few CPUs get bars tall enough for their figures; many get bars that still fit on a page.
    let (bar, gap) = match most {
        0..=4 => (18.0, 4.0),
        5..=16 => (10.0, 2.0),
        17..=48 => (6.0, 1.0),
        _ => (3.0, 0.5),
    };

    let mut drawing = Drawing::on(paper);
    drawing.raw(&patterns(paper, ""));
    let mut y = legend(&mut drawing, paper, "") + 8.0;
    let top = y;
    let x = |share: f64| left + share.clamp(0.0, 1.0) * (right - left);
    let mut bars = Drawing::on(paper);
    for group in groups.iter().filter(|g| !g.cpus.is_empty()) {
        let class = if group.strong { "name strong" } else { "name" };
        if !wide && named {
            bars.text(class, Anchor::Start, 4.0, y + 12.0, &fitted(group.name, 14.0, 340.0));
            y += 19.0;
        }
        let height = group.cpus.len() as f64 * (bar + gap) - gap;
        if wide && named {
            let name = fitted(group.name, 14.0, 110.0);
            bars.text(class, Anchor::End, left - 62.0, y + height / 2.0 + 5.0, &name);
        }
        // Labels need 13 units each; narrow bars are labelled at intervals.
        let every = (13.0 / (bar + gap)).ceil() as usize;
        for (i, used) in group.cpus.iter().enumerate() {
            let middle = y + bar / 2.0 + 4.0;
            if i % every == 0 {
                bars.text("tick", Anchor::End, left - 7.0, middle, &format!("CPU {}", used.cpu));
                bars.text("tick", Anchor::Start, right + 6.0, middle, &busy(used, wide));
            }
            stack(&mut bars, used, y, bar, x);
            y += bar + gap;
        }
        y += 12.0;
    }
    let bottom = y - 8.0;
    for percent in [0.0, 0.25, 0.5, 0.75, 1.0] {
        drawing.line("grid", x(percent), top, x(percent), bottom);
        drawing.text("tick", Anchor::Middle, x(percent), bottom + 15.0, &units::share(percent));
    }
    drawing.raw(&bars.body);
    drawing.text(
        "axis",
        Anchor::Middle,
        f64::midpoint(left, right),
        bottom + 33.0,
        "share of the CPU's time",
    );
    let description =
        "Stacked bars of user, system, softirq, interrupt, stolen and idle time; the table has the figures.";
    drawing.finish("cpus", bottom + 41.0, "CPU time by CPU and kind", description)
}

fn busy(used: &CpuUse, wide: bool) -> String {
    let share = units::share((1.0 - used.idle).clamp(0.0, 1.0));
    if wide { format!("{share} busy") } else { share }
}

/// One CPU's bar.
fn stack(drawing: &mut Drawing, used: &CpuUse, y: f64, height: f64, x: impl Fn(f64) -> f64) {
    let mut from = 0.0;
    for ((kind, _), share) in KINDS.iter().zip(shares(used)) {
        let share = if share.is_finite() { share.max(0.0) } else { 0.0 };
        let (start, end) = (x(from), x(from + share));
        from += share;
        if end - start < 0.25 {
            continue;
        }
        drawing.filled(kind, start, y, end - start, height);
        let label = units::share(share);
        if height >= 14.0 && *kind != "idle" && end - start > text_width(&label, 11.0) + 12.0 {
            let middle = f64::midpoint(start, end);
            let plate = text_width(&label, 11.0) + 6.0;
            drawing.rect("plate", middle - plate / 2.0, y + 2.5, plate, height - 5.0);
            drawing.text("inside", Anchor::Middle, middle, y + height / 2.0 + 4.0, &label);
        }
    }
}

/// The legend, wrapped to the chart's width; returns its end. `chart`: prefix of the fills' names, unique to this
/// chart.
pub(super) fn legend(drawing: &mut Drawing, paper: Paper, chart: &str) -> f64 {
    let (mut x, mut y) = (4.0, 4.0);
    for (kind, words) in KINDS {
        let width = 20.0 + text_width(words, 12.5) + 14.0;
        if x + width > paper.width() && x > 4.0 {
            (x, y) = (4.0, y + 20.0);
        }
        drawing.filled(&format!("{chart}{kind}"), x, y, 14.0, 12.0);
        drawing.text("legend", Anchor::Start, x + 20.0, y + 10.5, words);
        x += width;
    }
    y + 16.0
}

/// A fill per kind: a colour, and a pattern for readers without colour. Names are global to the page, so each chart has
/// its own: fills defined in a chart that the style sheet hides do not paint.
pub(super) fn patterns(paper: Paper, chart: &str) -> String {
    let size = paper.class();
    let marks = [
        ("usr", ""),
        ("sys", ""),
        ("soft", r#"<path d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5"/>"#),
        ("irq", r#"<circle cx="3" cy="3" r="1.2"/>"#),
        ("steal", r#"<path d="M0 0L6 6M0 6L6 0"/>"#),
        ("idle", ""),
    ];
    let mut out = String::from("<defs>\n");
    for (kind, mark) in marks {
        out += &format!(
            "<pattern id=\"{chart}{kind}-{size}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
             <rect class=\"fill-{kind}\" width=\"6\" height=\"6\"/><g class=\"marks\">{mark}</g></pattern>\n"
        );
    }
    out + "</defs>\n"
}
