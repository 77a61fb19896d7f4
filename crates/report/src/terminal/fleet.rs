//! A load by a fleet while it runs: the sum, and each agent.

use udpath_fleet::caller::{AgentView, View};
use udpath_load::result::Latency;

use super::table::{Cell, Table};
use super::{Paint, Style};
use crate::{units, words};

/// The fleet on at most `lines` lines: the agents that answer least come first if not all fit.
#[must_use]
pub fn text(view: &View, style: &Style, lines: usize) -> String {
    let style = *style;
    let mut out = style.wrapped(Paint::Bold, &sum(view), 0);
    // The headings, and the line of those left out.
    let room = lines.saturating_sub(out.lines().count() + 2);
    let mut agents: Vec<&AgentView> = view.agents.iter().collect();
    if agents.len() > room {
        agents
            .sort_by(|a, b| b.lost.is_some().cmp(&a.lost.is_some()).then(a.beat.tps.total_cmp(&b.beat.tps)));
    }
    let left_out = agents.len().saturating_sub(room);
    agents.truncate(room);
    let headings = ["tps", "p50", "p99", "sent", "lost", "clock"].map(Cell::right);
    let first = [Cell::new("segment"), Cell::new("agent")];
    let mut table = Table::with(first.into_iter().chain(headings).chain([Cell::new("")]).collect());
    for agent in agents {
        table.row(row(agent));
    }
    out += &table.text(style);
    if left_out > 0 {
        out += &style.wrapped(Paint::Dim, &format!("and {left_out} more, with higher rates"), 0);
    }
    out
}

/// The sum in one sentence.
fn sum(view: &View) -> String {
    let alive = || view.agents.iter().filter(|agent| agent.lost.is_none());
    let time = match view.elapsed {
        None => "before the start".to_owned(),
        Some(elapsed) => format!(
            "{} of {}",
            units::duration(elapsed.min(view.total).as_secs_f64().floor()),
            units::duration(view.total.as_secs_f64())
        ),
    };
    let (count, tps) = (alive().count(), alive().map(|agent| agent.beat.tps).sum::<f64>());
    let lost: u64 = alive().map(|agent| agent.beat.lost).fold(0, u64::saturating_add);
    let mut sentence = format!(
        "{time}: {count} {}, {} transactions/s",
        words::plural(u32::try_from(count).unwrap_or(u32::MAX), "agent"),
        units::tps(tps)
    );
    let latencies = alive().filter_map(|agent| agent.beat.latency.clone());
    if let Some(all) = latencies.reduce(|a, b| a.merged(&b)) {
        let of = |value: u64| units::time(value as f64);
        sentence += &format!("; half answered within {}, 99 % within {}", of(all.p50), of(all.p99));
    }
    sentence += &format!("; {} lost", units::count(lost));
    if !view.connected {
        sentence += "; no connection to the NATS server";
    }
    sentence
}

fn row(agent: &AgentView) -> Vec<Cell> {
    let of = |value: fn(&Latency) -> u64| {
        agent.beat.latency.as_ref().map_or_else(|| units::NONE.to_owned(), |l| units::time(value(l) as f64))
    };
    let state = match (&agent.lost, agent.done) {
        (Some(why), _) => format!("lost: {why}"),
        (None, true) => "done".to_owned(),
        (None, false) => String::new(),
    };
    let paint = if agent.lost.is_some() { Paint::Warn } else { Paint::Plain };
    let figures = [
        units::tps(agent.beat.tps),
        of(|latency| latency.p50),
        of(|latency| latency.p99),
        units::count(agent.beat.sent),
        units::count(agent.beat.lost),
        words::load::signed(agent.offset.ahead_ns),
    ];
    let first = [Cell::new(agent.segment.to_string()), Cell::new(&agent.name)];
    let cells = first.into_iter().chain(figures.iter().map(Cell::right)).chain([Cell::whole(state)]);
    cells.map(|cell| cell.painted(paint)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use udpath_fleet::Offset;
    use udpath_fleet::caller::Beat;
    use udpath_load::plan::Segment;

    use super::*;

    fn view() -> View {
        let agent = |index: u32| {
            let latency = Latency::from_buckets(vec![(50_000, 99), (900_000, 1)], 50_000, 900_000, 58_500.0);
            AgentView {
                name: format!("host{index}"),
                segment: Segment::new(index, 5).unwrap(),
                beat: Beat { sent: 1000, ok: 990, lost: 2, tps: 1000.0 * f64::from(index), latency },
                offset: Offset { ahead_ns: 5_000_000_000, delay_ns: 100_000 },
                done: index == 2,
                lost: (index == 5).then(|| "nothing was heard".to_owned()),
            }
        };
        let total = Duration::from_secs(30);
        View {
            elapsed: Some(Duration::from_millis(12_300)),
            total,
            connected: true,
            agents: (1..=5).map(agent).collect(),
        }
    }

    #[test]
    fn the_sum_is_that_of_those_who_live_and_every_agent_has_a_row() {
        let text = text(&view(), &Style { colour: false, width: 160 }, 40);
        assert!(
            text.starts_with("12 s of 30 s: 4 agents, 10.0 k transactions/s; half answered within 50.0 µs"),
            "{text}"
        );
        assert!(text.contains("8 lost"), "{text}");
        for words in ["1/5", "host5", "lost: nothing was heard", "done", "+5.00 s"] {
            assert!(text.contains(words), "{words} is missing in\n{text}");
        }
    }

    #[test]
    fn a_small_terminal_shows_the_lost_and_the_slow() {
        let shown = text(&view(), &Style { colour: false, width: 160 }, 6);
        assert!(shown.lines().count() <= 6, "{shown}");
        assert!(shown.contains("host5") && shown.contains("host1") && !shown.contains("host4"), "{shown}");
        assert!(shown.contains("more, with higher rates"), "{shown}");
        assert!(text(&view(), &Style { colour: false, width: 160 }, 0).lines().count() >= 1);
        let before = View { elapsed: None, connected: false, ..view() };
        let shown = text(&before, &Style { colour: false, width: 160 }, 40);
        assert!(shown.contains("before the start") && shown.contains("no connection"), "{shown}");
    }
}
