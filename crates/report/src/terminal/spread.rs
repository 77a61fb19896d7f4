//! The distribution of flows as a table: the busiest places first, and a sentence about how concentrated it is.

use udpath_steer::predict::Spread;

use super::table::{Cell, Table};
use super::{Paint, Style, bar};
use crate::units;

/// The share of the packets that counts as "most".
const MOST: f64 = 0.8;
/// Places with a line each; more are summed up. As many as the queues of a common NIC; more fill the screen.
const LINES: usize = 16;
/// Columns of the longest bar.
const BAR: usize = 20;

/// A distribution and the kind of its places.
pub(crate) struct SpreadTable<'a> {
    /// `queue`, `CPU`, `socket`.
    pub(crate) what: &'a str,
    /// The name of a place.
    pub(crate) name: &'a dyn Fn(u32) -> String,
    /// The spread.
    pub(crate) spread: &'a Spread,
    /// The number of places, if known.
    pub(crate) of: Option<u32>,
}

pub(crate) fn text(table: &SpreadTable<'_>, style: Style) -> String {
    let (spread, total) = (table.spread, table.spread.total());
    let share = |packets: u64| if total.packets == 0 { 0.0 } else { packets as f64 / total.packets as f64 };
    let mut lines = Table::with(vec![
        Cell::new(table.what),
        Cell::right("flows"),
        Cell::right("packets"),
        Cell::right("share"),
        Cell::new(""),
    ]);
    let mut line = |name: String, flows: u64, packets: u64, paint: Paint| {
        let part = share(packets);
        lines.row(vec![
            Cell::new(name).painted(paint),
            Cell::right(units::count(flows)),
            Cell::right(units::count(packets)),
            Cell::right(units::share(part)),
            Cell::new(bar(part, BAR)),
        ]);
    };
    let places = spread.places();
    for (place, amount) in places.iter().take(LINES) {
        line((table.name)(*place), amount.flows, amount.packets, Paint::Plain);
    }
    if let Some(rest) = places.get(LINES..).filter(|rest| !rest.is_empty()) {
        let (flows, packets) = rest.iter().fold((0, 0_u64), |(flows, packets), (_, amount)| {
            (flows + amount.flows, packets.saturating_add(amount.packets))
        });
        line(format!("{} more", rest.len()), flows, packets, Paint::Dim);
    }
    for (_, amount) in spread.unknown() {
        line("unknown".into(), amount.flows, amount.packets, Paint::Warn);
    }
    let mut text = style.wrapped(Paint::Bold, &sentence(table), 2);
    text += &lines.text(style);
    for (why, amount) in spread.unknown() {
        let why = format!("unknown for {} flows: {why}", units::count(amount.flows));
        text += &style.wrapped(Paint::Dim, &why, 2);
    }
    text
}

/// `3 of 16 queues take 82 % of the packets; evenly spread it would be 13`.
fn sentence(table: &SpreadTable<'_>) -> String {
    let (spread, total) = (table.spread, table.spread.total());
    let plural = |count: usize| if count == 1 { table.what.to_owned() } else { format!("{}s", table.what) };
    let Some((few, taken)) = spread.taking(MOST) else {
        return format!("the {} of most packets is unknown", table.what);
    };
    let share = units::share(taken as f64 / total.packets as f64);
    let of = table.of.map(|of| of as usize).filter(|of| *of >= few);
    let (of_all, even) = match of {
        Some(of) if of > 1 => {
            let even = (of as f64 * MOST).ceil() as usize;
            let even = if few < even { format!("; evenly spread it would be {even}") } else { String::new() };
            (format!("{few} of {of} {}", plural(of)), even)
        }
        _ => (format!("{few} {}", plural(few)), String::new()),
    };
    let take = if few == 1 { "takes" } else { "take" };
    format!("{of_all} {take} {share} of the packets{even}")
}

#[cfg(test)]
mod tests {
    use udpath_steer::predict::{Predictor, Tables};
    use udpath_steer::{Flow, rss::IndirectionTable};

    use super::*;

    fn spread(tables: &Tables, flows: u16) -> Spread {
        let predictor = Predictor::new(tables).unwrap();
        let mut spread = Spread::default();
        for port in 0..flows {
            let from = format!("192.0.2.7:{}", 1024 + port).parse().unwrap();
            let flow = Flow::udp(from, "192.0.2.1:53".parse().unwrap()).unwrap();
            spread.add(predictor.decide(&flow).queue, u64::from(port) + 1);
        }
        spread
    }

    fn shown(tables: &Tables, flows: u16) -> String {
        let spread = spread(tables, flows);
        let name = |place: u32| format!("rx-{place}");
        let table = SpreadTable { what: "queue", name: &name, spread: &spread, of: tables.queues };
        text(&table, Style::default())
    }

    #[test]
    fn few_that_take_most_are_named_first() {
        let mut weights = [1; 16];
        (weights[3], weights[7]) = (60, 50);
        let tables = Tables {
            key: Some("microsoft".parse().unwrap()),
            udp4: Some(udpath_steer::toeplitz::Fields::AddressesPorts),
            queues: Some(16),
            table: Some(IndirectionTable::weight(128, &weights).unwrap()),
            ..Tables::default()
        };
        let text = shown(&tables, 256);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("2 of 16 queues take 8"), "{text}");
        assert!(lines[0].ends_with("% of the packets; evenly spread it would be 13"), "{text}");
        assert!(lines[1].starts_with("queue") && lines[2].starts_with("rx-3"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn unknown_spreads_have_a_reason() {
        let text = shown(&Tables { queues: Some(4), ..Tables::default() }, 3);
        assert!(text.starts_with("the queue of most packets is unknown\n"), "{text}");
        assert!(text.contains("unknown for 3 flows: no indirection table given"), "{text}");
        let one = shown(&Tables { queues: Some(1), ..Tables::default() }, 3);
        assert!(one.starts_with("1 queue takes 100 % of the packets\n"), "{one}");
    }
}
