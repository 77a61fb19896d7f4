//! What a machine would carry, and a calibration.

use udpath_advise::calibration::Calibrated;
use udpath_model::capacity::{Help, Sweep};
use udpath_model::costs::Kind;
use udpath_model::{CapacityResult, LinkName, Outcome};

use super::table::{Cell, Table};
use super::{Paint, Style, bar, plot};
use crate::units;

/// Columns of the bar of how busy a link is.
const BAR: usize = 10;

/// All of it.
#[must_use]
pub fn text(answer: &CapacityResult, style: &Style) -> String {
    let style = *style;
    let mut out = style.wrapped(Paint::Bold, &headline(answer), 2);
    out += &style.wrapped(Paint::Plain, &limit(answer), 2);
    if let Some(first) = answer.helps.first() {
        out += &style.wrapped(Paint::Plain, &format!("Next: {}", help(first)), 2);
    }
    out.push('\n');
    out += &configurations(answer, style);
    out.push('\n');
    out += &links(&answer.outcome, style);
    if answer.helps.len() > 1 {
        out.push('\n');
        for other in &answer.helps[1..] {
            out += &style.wrapped(Paint::Plain, &format!("also: {}", help(other)), 6);
        }
    }
    if let Some(sweep) = &answer.sweep {
        out.push('\n');
        out += &swept(sweep, style);
    }
    out.push('\n');
    out += &style.wrapped(Paint::Dim, &format!("costs: {}", answer.costs), 2);
    for beyond in &answer.outcome.extrapolated {
        out += &style.wrapped(Paint::Warn, &format!("extrapolated: {beyond}"), 2);
    }
    out
}

fn headline(answer: &CapacityResult) -> String {
    let outcome = &answer.outcome;
    let what = if answer.description.replies { "transactions/s" } else { "datagrams/s" };
    format!(
        "{} would carry {} {what} ({} to {})",
        capital(&answer.source),
        units::tps(outcome.tps),
        units::tps(outcome.low),
        units::tps(outcome.high)
    )
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    // A file's name stays as it is.
    match letters.next() {
        Some(first) if text.starts_with("th") => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}

fn limit(answer: &CapacityResult) -> String {
    let outcome = &answer.outcome;
    let lost = outcome.lost.ring + outcome.lost.backlog + outcome.lost.socket;
    let lost =
        if lost > 0.000_5 { format!(" {} of requests are lost.", units::share(lost)) } else { String::new() };
    let spinning = outcome.cpu.spinning / (outcome.cpu.softirq + outcome.cpu.threads).max(1e-9);
    let spinning = if spinning > 0.05 {
        format!(" CPUs spin for locks {} of their time.", units::share(spinning))
    } else {
        String::new()
    };
    let limit = match outcome.saturated {
        Some(LinkName::Wire) => "Limited by the wire.".to_owned(),
        Some(LinkName::Softirq) => "Limited by the CPUs that process packets in softirqs.".to_owned(),
        Some(LinkName::SocketLock) => "Limited by the lock of a socket.".to_owned(),
        Some(LinkName::Workers) => "Limited by the CPUs of the workers.".to_owned(),
        Some(LinkName::TransmitLock) => "Limited by the lock of a transmit queue.".to_owned(),
        Some(LinkName::Cpus) => "Limited by all CPUs together.".to_owned(),
        None => nothing_saturated(answer),
    };
    limit + &lost + &spinning
}

/// As `diagnose` says it. A closed loop offers as much as is answered, so that it is never the limit by itself.
fn nothing_saturated(answer: &CapacityResult) -> String {
    let CapacityResult { outcome, description, .. } = answer;
    let used = (outcome.cpu.softirq + outcome.cpu.threads) / (outcome.cpu.cpus as f64).max(1.0);
    let busiest = outcome.links.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
    let busiest = busiest.map_or_else(String::new, |link| {
        format!(", the busiest link ({}) at {}", link.link.title(), units::share(link.busy))
    });
    let load = if description.inflight == 0 { "; the load is the limit" } else { "" };
    format!("Nothing is saturated: {} of the CPU used{busiest}{load}.", units::share(used))
}

fn help(help: &Help) -> String {
    format!("{} ({}, {})", help.change, units::tps(help.tps), units::ratio(help.ratio))
}

fn configurations(answer: &CapacityResult, style: Style) -> String {
    let mut table = Table::with(vec![
        Cell::new("configuration"),
        Cell::right("tps"),
        Cell::right("from"),
        Cell::right("to"),
        Cell::right("CPU"),
        Cell::new("saturated"),
    ]);
    for other in &answer.configurations {
        let outcome = &other.outcome;
        let paint = if other.described { Paint::Bold } else { Paint::Plain };
        table.row(vec![
            Cell::new(if other.described { format!("{} *", other.name) } else { other.name.clone() })
                .painted(paint),
            Cell::right(units::tps(outcome.tps)).painted(paint),
            Cell::right(units::tps(outcome.low)),
            Cell::right(units::tps(outcome.high)),
            Cell::right(units::share(outcome.cpu.busy())),
            Cell::new(outcome.saturated.map_or(units::NONE, LinkName::title)),
        ]);
    }
    table.text(style)
}

fn links(outcome: &Outcome, style: Style) -> String {
    let mut table = Table::with(vec![Cell::new("link"), Cell::right("busy"), Cell::new("")]);
    for link in &outcome.links {
        let paint = if Some(link.link) == outcome.saturated { Paint::Bad } else { Paint::Plain };
        table.row(vec![
            Cell::new(link.link.title()),
            Cell::right(units::share(link.busy)).painted(paint),
            Cell::new(bar(link.busy, BAR)).painted(paint),
        ]);
    }
    table.text(style)
}

fn swept(sweep: &Sweep, style: Style) -> String {
    let values: Vec<f64> = sweep.points.iter().map(|point| point.outcome.tps).collect();
    let mut out = plot::draw(&values, &[], style.width, units::tps);
    let mut table = Table::with(vec![
        Cell::right(&sweep.key),
        Cell::right("tps"),
        Cell::right("from"),
        Cell::right("to"),
        Cell::new("saturated"),
    ]);
    for point in &sweep.points {
        let outcome = &point.outcome;
        table.row(vec![
            Cell::right(point.value.to_string()),
            Cell::right(units::tps(outcome.tps)),
            Cell::right(units::tps(outcome.low)),
            Cell::right(units::tps(outcome.high)),
            Cell::new(outcome.saturated.map_or(units::NONE, LinkName::title)),
        ]);
    }
    out += &table.text(style);
    out
}

/// What a calibration found: the costs, and the rungs that they come from beside the model.
#[must_use]
pub fn calibration(found: &Calibrated, style: &Style) -> String {
    let style = *style;
    let costs = &found.costs;
    let mut out = style.wrapped(
        Paint::Bold,
        &format!("Costs of {}, good to {}", costs.machine, units::share(costs.error)),
        2,
    );
    out.push('\n');
    let mut table = Table::with(vec![Cell::new("cost"), Cell::right("ns"), Cell::new("of")]);
    for (term, value) in costs.terms.iter() {
        let figure = match term.kind {
            Kind::Ratio => format!("x {value:.2}"),
            Kind::Work | Kind::Move => format!("{value:.0}"),
        };
        table.row(vec![Cell::new(term.name), Cell::right(figure), Cell::whole(term.meaning)]);
    }
    out += &table.text(style);
    out.push('\n');
    let mut table = Table::with(vec![
        Cell::new("rung"),
        Cell::right("measured"),
        Cell::right("modelled"),
        Cell::right("off"),
    ]);
    for check in &found.checks {
        table.row(vec![
            Cell::new(check.measured.rung.name()),
            Cell::right(units::tps(check.measured.tps)),
            Cell::right(units::tps(check.modelled)),
            Cell::right(format!("{:+.1} %", check.off() * 100.0)),
        ]);
    }
    out + &table.text(style)
}

#[cfg(test)]
mod tests {
    use udpath_model::description::Io;
    use udpath_model::{Costs, Description, Effort, capacity, sweep};

    use super::*;

    #[test]
    fn the_limit_and_the_next_step_come_first() {
        let effort = Effort { seed: 1, runs: 1, warm_up_ms: 4, window_ms: 10 };
        let description =
            Description { cores: 4, queues: 4, workers: 4, io: Io::Reuseport, ..Description::default() };
        let costs = Costs::default();
        let mut answer = capacity("this machine", &description, &costs, &effort).unwrap();
        let points: Vec<(f64, Description)> =
            [1, 2, 4].map(|cores| (cores as f64, description.with_cores(cores))).into();
        answer.sweep = Some(sweep("cores", &points, &costs, &effort).unwrap());
        let text = text(&answer, &Style::default());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("This machine would carry "), "{text}");
        assert!(lines[1].starts_with("Limited by "), "{text}");
        assert!(lines[2].starts_with("Next: "), "{text}");
        assert!(text.contains("\nreuseport *"), "{text}");
        assert!(text.contains("extrapolated: 4 CPUs, calibrated with 2"), "{text}");
        assert!(text.contains("\ncores "), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn a_load_is_the_limit_only_if_it_does_not_wait_for_answers() {
        let effort = Effort { seed: 1, runs: 1, warm_up_ms: 4, window_ms: 10 };
        let open =
            Description { cores: 2, queues: 2, workers: 2, inflight: 0, rate: 5e4, ..Description::default() };
        let closed = Description { inflight: 1, flows: 1, rate: 0.0, ..open.clone() };
        for (description, ends) in [(open, "; the load is the limit."), (closed, " %.")] {
            let answer = capacity("this machine", &description, &Costs::default(), &effort).unwrap();
            let text = limit(&answer);
            assert!(text.starts_with("Nothing is saturated: "), "{text}");
            assert!(text.contains(" of the CPU used, the busiest link ("), "{text}");
            assert!(text.contains(ends), "{text}");
        }
    }
}
