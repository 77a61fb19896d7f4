//! What a reader has chosen: the view, its order and place, the filter.

use std::time::Duration;

use super::columns::{Order, arrow, named};
use super::{cpus, queues, sockets};

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View {
    /// UDP, interfaces, and the findings.
    #[default]
    Overview,
    /// A line for each CPU.
    Cpus,
    /// A line for each receive queue.
    Queues,
    /// A line for each socket.
    Sockets,
}

impl View {
    /// All of them, in the order of their keys.
    pub const ALL: [Self; 4] = [Self::Overview, Self::Cpus, Self::Queues, Self::Sockets];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Cpus => "CPUs",
            Self::Queues => "queues",
            Self::Sockets => "sockets",
        }
    }
}

/// The order that a view begins with.
pub(super) const fn first_order(view: View) -> Order {
    let column = match view {
        View::Sockets => sockets::DROPPED,
        View::Overview | View::Cpus | View::Queues => 0,
    };
    Order { column, reversed: false }
}

/// How many columns a view can be ordered by.
const fn count(view: View) -> usize {
    match view {
        View::Overview => 0,
        View::Cpus => cpus::COLUMNS.len(),
        View::Queues => queues::COLUMNS.len(),
        View::Sockets => sockets::COLUMNS.len(),
    }
}

/// `by drops/s, largest first`, in a sign: the name of the column and where it leads.
pub(super) fn order_name(view: View, order: Order) -> Option<String> {
    let (name, falling) = match view {
        View::Overview => return None,
        View::Cpus => named(cpus::COLUMNS, order)?,
        View::Queues => named(queues::COLUMNS, order)?,
        View::Sockets => named(sockets::COLUMNS, order)?,
    };
    Some(format!("by {name} {}", arrow(falling != order.reversed)))
}

/// Lengths of an interval that keys step through, seconds.
const INTERVALS: [f64; 9] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// What a reader has chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// What is looked at.
    pub view: View,
    /// The order of each view's rows.
    pub(super) order: [Order; 4],
    /// The first line that is shown, of each view.
    pub(super) first: [usize; 4],
    /// Only rows that contain this are shown; any case.
    pub filter: String,
    /// Keys go into the filter.
    pub typing: bool,
    /// Nothing new is read or shown.
    pub paused: bool,
    /// The help covers the view.
    pub help: bool,
    /// From one look to the next.
    pub interval: Duration,
}

impl State {
    /// The overview, nothing filtered, a look each `interval`.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self {
            view: View::default(),
            order: View::ALL.map(first_order),
            first: [0; 4],
            filter: String::new(),
            typing: false,
            paused: false,
            help: false,
            interval,
        }
    }

    /// The next view, or the one before.
    pub const fn turn(&mut self, back: bool) {
        let step = if back { View::ALL.len() - 1 } else { 1 };
        self.view = View::ALL[(self.view as usize + step) % View::ALL.len()];
    }

    /// Orders by the next column, or the one before, each in the direction that is natural to it.
    pub fn order_by_next(&mut self, back: bool) {
        let columns = count(self.view);
        let order = &mut self.order[self.view as usize];
        if columns > 0 {
            let step = if back { columns - 1 } else { 1 };
            *order = Order { column: (order.column + step) % columns, reversed: false };
        }
    }

    /// Turns the order round.
    pub const fn reverse(&mut self) {
        let order = &mut self.order[self.view as usize];
        order.reversed = !order.reversed;
    }

    /// Moves by that many lines; beyond an end is that end, once it is drawn.
    pub fn scroll(&mut self, lines: isize) {
        let first = &mut self.first[self.view as usize];
        *first = first.saturating_add_signed(lines);
    }

    /// The first line that is shown of this view.
    #[must_use]
    pub const fn first(&self) -> usize {
        self.first[self.view as usize]
    }

    /// Holds the place within what was drawn: `lines` in all, of which `page` fit.
    pub fn settle(&mut self, lines: usize, page: usize) {
        let first = &mut self.first[self.view as usize];
        *first = (*first).min(lines.saturating_sub(page));
    }

    /// The next longer interval, or the next shorter one.
    pub fn pace(&mut self, slower: bool) {
        let now = self.interval.as_secs_f64();
        // What was given on the command line may lie between two steps.
        let next = if slower {
            INTERVALS.into_iter().find(|step| *step > now * 1.001)
        } else {
            INTERVALS.into_iter().rev().find(|step| *step < now * 0.999)
        };
        if let Some(next) = next {
            self.interval = Duration::from_secs_f64(next);
        }
    }
}
