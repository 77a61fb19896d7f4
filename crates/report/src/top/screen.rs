//! The whole screen: the machine, the view, its rows, the keys.
//!
//! ```text
//!  udpath top  Linux 6.18.1, 2 CPUs, kvm                    1.0 s to 12:03:04 UTC
//!   1 overview  [2 CPUs]  3 queues   4 sockets                     by CPU ▲
//!  ...
//!  rows, or the help
//!  ...
//!  ? help  Tab view  < > order  r reverse  / filter  Space pause        1-18 of 64
//! ```

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::columns::{self, Column, DIM, Layout, Row, WARN};
use super::model::Top;
use super::state::{State, View, order_name};
use super::{cpus, overview, queues, sockets};
use crate::{units, words};

/// Lines that are not rows: the headline, the views, the keys.
const AROUND: u16 = 3;

/// The size of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// Total lines.
    pub lines: usize,
    /// Lines that fit on the screen.
    pub page: usize,
}

/// The keys, for the help.
const HELP: &[(&str, &str)] = &[
    ("1 2 3 4", "overview, CPUs, queues, sockets"),
    ("Tab, Shift-Tab", "next view, previous view"),
    ("< >, Left Right", "order by the previous column, by the next"),
    ("r", "reverse the order"),
    ("/", "show only what contains a text: interface, port, process"),
    ("", "Enter keeps it, Esc clears it"),
    ("Up Down, j k", "scroll; PgUp PgDn by pages, Home End to the ends"),
    ("Space, p", "pause, continue"),
    ("+ -", "longer intervals, shorter ones"),
    ("Ctrl-L", "redraw, and read settings again at once"),
    ("Ctrl-Z", "suspend"),
    ("q, Esc, Ctrl-C", "end"),
    ("", ""),
    ("!", "a finding: see the overview"),
    ("goes to, RPS", "CPUs of the interrupt; CPUs that handle packets after it"),
    ("squeezed", "the softirq gave up with work left (net.core.netdev_budget)"),
    ("queues", "of a CPU: those whose interrupts it handles"),
    ("group, thr", "sockets that share address and port; threads of the process"),
    ("queue full", "how full the receive buffer is, by the kernel's accounting"),
    ("", "The kernel counts what a socket drops, not what it receives"),
];

/// Draws one interval. `top` is `None` before the first one; `note` replaces the rows. `selection`: the requested
/// objects. Without `colour`, only letters and marks are used.
pub fn draw(
    frame: &mut Frame<'_>,
    top: Option<&Top>,
    state: &State,
    selection: Option<&str>,
    note: Option<&str>,
    colour: bool,
) -> Extent {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    let page = usize::from(area.height.saturating_sub(AROUND));
    let width = usize::from(area.width);
    let body = match (top, note) {
        _ if state.help => help(width),
        (_, Some(note)) => {
            Body::of(vec![Line::default(), Line::styled(format!(" {}", words::one_line(note)), WARN)])
        }
        (None, None) => Body::of(vec![Line::default(), Line::raw(" counting ...")]),
        (Some(top), None) => body(top, state, width, page),
    };
    let extent = Extent { lines: body.all, page: page.saturating_sub(body.head.len()) };
    let first = if state.help {
        0
    } else {
        state.first[state.view as usize].min(extent.lines.saturating_sub(extent.page))
    };
    let title = Style::new().add_modifier(Modifier::BOLD);
    let mut headline = vec![Span::styled(" udpath top", title)];
    headline
        .extend(selection.map(|selection| Span::styled(format!("  {}", words::one_line(selection)), title)));
    let headline = Line::from(headline);
    let when = when(top, state);
    // Two spaces between any two of the three.
    let room = width.saturating_sub(headline.width() + when.width() + 5);
    let about = top.map_or_else(String::new, |top| machine(top, room));
    ends(buffer, area, 0, headline + Span::raw(format!("  {about}")), when);
    ends(buffer, area, 1, tabs(state), right_of_tabs(state));
    let below = (body.head.iter()).chain(body.rows(first, extent.page));
    for (line, y) in below.zip(2..area.height.saturating_sub(1)) {
        buffer.set_line(area.x, area.y + y, line, area.width);
    }
    if area.height > AROUND {
        let place = place(first, extent, state);
        let keys = keys(state, width.saturating_sub(place.width() + 1));
        ends(buffer, area, area.height - 1, keys, place);
    }
    if !colour {
        for cell in &mut buffer.content {
            (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
        }
    }
    extent
}

/// The machine and the interval in one line of text.
pub(super) fn headline(top: &Top) -> String {
    let (error, over) = (units::rate_error(top.rate_error), units::duration(top.seconds));
    format!("{}; per second{error}, over {over}", machine(top, usize::MAX))
}

/// As many parts as fit whole.
fn machine(top: &Top, room: usize) -> String {
    let plural = if top.cpus.len() == 1 { "" } else { "s" };
    let under = top.hypervisor.as_ref().map_or_else(String::new, |name| format!(", hypervisor: {name}"));
    let mut parts = vec![format!("Linux {}", top.kernel), format!(", {} CPU{plural}", top.cpus.len()), under];
    while parts.len() > 1 && parts.iter().map(|part| part.chars().count()).sum::<usize>() > room {
        parts.pop();
    }
    words::shortened(&words::one_line(&parts.concat()), room)
}

/// The lines of a view: fixed ones, and scrolling ones.
struct Body {
    head: Vec<Line<'static>>,
    /// The scrolling lines, starting at `from`.
    rows: Vec<Line<'static>>,
    from: usize,
    all: usize,
}

impl Body {
    fn of(rows: Vec<Line<'static>>) -> Self {
        Self { head: Vec::new(), all: rows.len(), from: 0, rows }
    }

    fn rows(&self, first: usize, page: usize) -> impl Iterator<Item = &Line<'static>> {
        self.rows.iter().skip(first.saturating_sub(self.from)).take(page)
    }
}

fn body(top: &Top, state: &State, width: usize, page: usize) -> Body {
    match state.view {
        View::Overview => Body::of(overview::lines(top, &state.filter.to_lowercase(), usize::MAX, width)),
        View::Cpus => {
            let mut body = table(cpus::COLUMNS, &top.cpus, state, width, page);
            body.head.insert(0, Line::styled(format!(" {}", cpus::LEGEND), DIM));
            body
        }
        View::Queues => table(queues::COLUMNS, &top.queues, state, width, page),
        View::Sockets => table(sockets::COLUMNS, &top.sockets, state, width, page),
    }
}

/// Formats only the rows on the screen, even if there are ten thousand.
fn table<R: Row>(columns: &[Column<R>], rows: &[R], state: &State, width: usize, page: usize) -> Body {
    let order = state.order[state.view as usize];
    let layout = Layout::new(columns, rows, width);
    let rows = columns::chosen(columns, rows, order, &state.filter);
    let from = state.first[state.view as usize].min(rows.len().saturating_sub(page));
    let mut shown: Vec<Line<'static>> =
        rows.iter().skip(from).take(page + 1).map(|row| layout.row(row)).collect();
    if rows.is_empty() {
        let why = if state.filter.is_empty() { "there is none" } else { "none contains the filter's text" };
        shown.push(Line::styled(format!("   {why}"), DIM));
    }
    Body { head: vec![layout.headings(Some(order))], all: rows.len(), from, rows: shown }
}

fn help(width: usize) -> Body {
    let line = |(keys, what): &(&str, &str)| {
        let text = words::shortened(what, width.saturating_sub(20));
        Line::from(vec![
            Span::styled(format!(" {keys:<17} "), Style::new().add_modifier(Modifier::BOLD)),
            Span::raw(text),
        ])
    };
    Body::of(HELP.iter().map(line).collect())
}

/// Two texts at the ends of a line; if they would overlap, the left one is cut.
fn ends(buffer: &mut Buffer, area: Rect, y: u16, left: Line<'_>, right: Line<'_>) {
    if y >= area.height {
        return;
    }
    let room = usize::from(area.width).saturating_sub(1);
    let fits = right.width() <= room;
    let taken = if fits { right.width() + 2 } else { 0 };
    let left_room = u16::try_from((room + 1).saturating_sub(taken)).unwrap_or(u16::MAX);
    buffer.set_line(area.x, area.y + y, &left, left_room);
    if fits {
        let x = u16::try_from(room - right.width()).unwrap_or(0);
        buffer.set_line(area.x + x, area.y + y, &right, area.width - x);
    }
}

fn when(top: Option<&Top>, state: &State) -> Line<'static> {
    if state.paused {
        return Line::styled("PAUSED", WARN.add_modifier(Modifier::BOLD));
    }
    let every = units::duration(state.interval.as_secs_f64());
    let Some(top) = top else { return Line::raw(format!("every {every}")) };
    let second = top.taken / 1000;
    let clock = format!("{:02}:{:02}:{:02} UTC", second / 3600 % 24, second / 60 % 60, second % 60);
    Line::raw(format!("every {every}  {clock}"))
}

fn tabs(state: &State) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    for (number, view) in (1..).zip(View::ALL) {
        let text = format!("{number} {}", view.name());
        if view == state.view {
            spans.push(Span::styled(format!("[{text}]"), Style::new().add_modifier(Modifier::BOLD)));
        } else {
            spans.push(Span::raw(format!(" {text} ")));
        }
    }
    Line::from(spans)
}

fn right_of_tabs(state: &State) -> Line<'static> {
    let mut spans = Vec::new();
    if state.typing || !state.filter.is_empty() {
        let cursor = if state.typing { "_" } else { "" };
        spans.push(Span::styled(format!("filter: {}{cursor}", words::one_line(&state.filter)), WARN));
        spans.push(Span::raw("  "));
    }
    spans.extend(order_name(state.view, state.order[state.view as usize]).map(Span::raw));
    Line::from(spans)
}

/// The keys, as many as fit whole, the most important first.
fn keys(state: &State, room: usize) -> Line<'static> {
    let mut keys = if state.typing {
        vec!["type a text", "Enter keeps it", "Esc clears it"]
    } else if state.help {
        vec!["any key goes back"]
    } else {
        vec!["? help", "Tab view", "q quit", "/ filter", "Space pause", "< > order", "r reverse"]
    };
    if state.view == View::Overview {
        keys.retain(|key| !matches!(*key, "< > order" | "r reverse"));
    }
    while keys.len() > 1 && keys.iter().map(|key| key.len() + 2).sum::<usize>() > room {
        keys.pop();
    }
    Line::styled(format!(" {}", keys.join("  ")), DIM)
}

fn place(first: usize, extent: Extent, state: &State) -> Line<'static> {
    if state.help || extent.lines <= extent.page {
        return Line::default();
    }
    let last = (first + extent.page).min(extent.lines);
    Line::raw(format!("{}-{last} of {}", first + 1, units::count(extent.lines as u64)))
}
