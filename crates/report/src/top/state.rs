//! The user's choices: the view, its order and position, the filter.

use std::time::Duration;

use super::columns::{Order, arrow, named};
use super::{cpus, queues, sockets};

/// A view.
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
    /// All views, in the order of their keys.
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

/// The initial order of a view.
pub(super) const fn first_order(view: View) -> Order {
    let column = match view {
        View::Sockets => sockets::DROPPED,
        View::Overview | View::Cpus | View::Queues => 0,
    };
    Order { column, reversed: false }
}

/// Number of sortable columns of a view.
const fn count(view: View) -> usize {
    match view {
        View::Overview => 0,
        View::Cpus => cpus::COLUMNS.len(),
        View::Queues => queues::COLUMNS.len(),
        View::Sockets => sockets::COLUMNS.len(),
    }
}

/// `by drops/s, largest first`, abbreviated: the name of the column and the direction.
pub(super) fn order_name(view: View, order: Order) -> Option<String> {
    let (name, falling) = match view {
        View::Overview => return None,
        View::Cpus => named(cpus::COLUMNS, order)?,
        View::Queues => named(queues::COLUMNS, order)?,
        View::Sockets => named(sockets::COLUMNS, order)?,
    };
    Some(format!("by {name} {}", arrow(falling != order.reversed)))
}

/// Intervals that the keys step through, seconds.
const INTERVALS: [f64; 9] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// The user's choices.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The current view.
    pub view: View,
    /// The order of each view's rows.
    pub(super) order: [Order; 4],
    /// The first visible line of each view.
    pub(super) first: [usize; 4],
    /// Show only rows that contain this; case-insensitive.
    pub filter: String,
    /// Keys are added to the filter.
    pub typing: bool,
    /// Updates are paused.
    pub paused: bool,
    /// The help covers the view.
    pub help: bool,
    /// Interval between updates.
    pub interval: Duration,
}

impl State {
    /// The overview without a filter, updated every `interval`.
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

    /// Sorts by the next or previous column, each in its default direction.
    pub fn order_by_next(&mut self, back: bool) {
        let columns = count(self.view);
        let order = &mut self.order[self.view as usize];
        if columns > 0 {
            let step = if back { columns - 1 } else { 1 };
            *order = Order { column: (order.column + step) % columns, reversed: false };
        }
    }

    /// Reverses the order.
    pub const fn reverse(&mut self) {
        let order = &mut self.order[self.view as usize];
        order.reversed = !order.reversed;
    }

    /// Scrolls by `lines`; drawing clamps the position to the ends.
    pub fn scroll(&mut self, lines: isize) {
        let first = &mut self.first[self.view as usize];
        *first = first.saturating_add_signed(lines);
    }

    /// The first visible line of this view.
    #[must_use]
    pub const fn first(&self) -> usize {
        self.first[self.view as usize]
    }

    /// Clamps the position to what was drawn: `lines` in total, of which `page` fit.
    pub fn settle(&mut self, lines: usize, page: usize) {
        let first = &mut self.first[self.view as usize];
        *first = (*first).min(lines.saturating_sub(page));
    }

    /// Selects the next longer or shorter interval.
    pub fn pace(&mut self, slower: bool) {
        let now = self.interval.as_secs_f64();
        // An interval from the command line may be between two steps.
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
