//! Charts as inline SVG: drawn once for a wide page and once for a phone, since text that shrinks with the chart
//! becomes unreadable.
//!
//! Colours are classes (see `templates/style.css`), so that one drawing works in light mode, dark mode and print;
//! patterns or dashes repeat every distinction made by colour. Every number is rounded to a tenth and finite, and every
//! text is escaped, here and nowhere else.

pub(crate) mod cpus;
pub(crate) mod experiment;
pub(crate) mod flame;
pub(crate) mod histogram;
pub(crate) mod ladder;
pub(crate) mod latency;
pub(crate) mod time_line;

use std::fmt::{Display, Write};

/// The medium a chart is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paper {
    /// A page or a screen: 900 units wide.
    Wide,
    /// A phone: 360 units wide, labels above instead of beside.
    Narrow,
}

impl Paper {
    pub(crate) const fn width(self) -> f64 {
        match self {
            Self::Wide => 900.0,
            Self::Narrow => 360.0,
        }
    }

    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }

    pub(crate) const fn is_wide(self) -> bool {
        matches!(self, Self::Wide)
    }
}

/// Both drawings of one chart; the style sheet hides one of them.
pub(crate) fn both(draw: impl Fn(Paper) -> String) -> String {
    draw(Paper::Wide) + &draw(Paper::Narrow)
}

/// Position of a text's anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing under construction.
#[derive(Debug)]
pub(crate) struct Drawing {
    body: String,
    paper: Paper,
}

impl Drawing {
    pub(crate) const fn on(paper: Paper) -> Self {
        Self { body: String::new(), paper }
    }

    /// Appends an element; writing to a `String` cannot fail.
    fn element(&mut self, arguments: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(arguments);
        self.body.push('\n');
    }

    pub(crate) fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        let (x, y, w, h) = (n(x), n(y), n(width.max(0.0)), n(height.max(0.0)));
        self.element(format_args!(r#"<rect class="{class}" x="{x}" y="{y}" width="{w}" height="{h}"/>"#));
    }

    /// A rectangle filled with one of the patterns of [`cpus`].
    pub(crate) fn filled(&mut self, pattern: &str, x: f64, y: f64, width: f64, height: f64) {
        let (x, y, w, h) = (n(x), n(y), n(width.max(0.0)), n(height.max(0.0)));
        let (s, kind) = (self.paper.class(), pattern);
        self.element(format_args!(
            r#"<rect class="part {kind}" x="{x}" y="{y}" width="{w}" height="{h}" fill="url(#{kind}-{s})"/>"#
        ));
    }

    pub(crate) fn line(&mut self, class: &str, x1: f64, y1: f64, x2: f64, y2: f64) {
        let (x1, y1, x2, y2) = (n(x1), n(y1), n(x2), n(y2));
        self.element(format_args!(r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#));
    }

    pub(crate) fn text(&mut self, class: &str, anchor: Anchor, x: f64, y: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (n(x), n(y), escaped(text));
        self.element(format_args!(
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    /// An open line through the points.
    pub(crate) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut d = String::with_capacity(points.len() * 12);
        for (i, (x, y)) in points.iter().enumerate() {
            let _ = write!(d, "{}{} {}", if i == 0 { 'M' } else { 'L' }, n(*x), n(*y));
        }
        self.element(format_args!(r#"<path class="{class}" d="{d}"/>"#));
    }

    /// Appends raw elements, such as definitions.
    pub(crate) fn raw(&mut self, elements: &str) {
        self.body += elements;
    }

    /// The complete element, `height` tall, with the title and the description for screen readers.
    pub(crate) fn finish(self, name: &str, height: f64, title: &str, description: &str) -> String {
        let (class, width, height) = (self.paper.class(), n(self.paper.width()), n(height));
        let (title, description, body) = (escaped(title), escaped(description), self.body);
        format!(
            "<svg class=\"chart {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-labelledby=\"{name}-{class}-t {name}-{class}-d\">\n\
             <title id=\"{name}-{class}-t\">{title}</title>\n<desc id=\"{name}-{class}-d\">{description}</desc>\n\
             {body}</svg>\n"
        )
    }
}

/// A coordinate: finite, to a tenth, without a trailing zero.
fn n(value: f64) -> impl Display {
    let value = if value.is_finite() { value.clamp(-1e5, 1e5) } else { 0.0 };
    (value * 10.0).round() / 10.0
}

/// Text escaped for XML, whatever it contains.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in crate::words::one_line(text).chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // Not valid characters in XML, and invisible.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Approximate width of a text at this size in the widest of the likely fonts (DejaVu Sans): precise enough to keep
/// texts apart and inside the chart.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' => 0.32,
        't' | 'f' | 'r' | '(' | ')' | '-' => 0.4,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.95,
        c if c.is_ascii_uppercase() => 0.7,
        c if c.is_ascii() => 0.62,
        '–' | 'µ' => 0.62,
        '×' | '→' => 0.84,
        _ => 1.0,
    };
    text.chars().map(em).sum::<f64>() * size
}

/// `text`, cut with an ellipsis if it would be wider than `width`.
pub(crate) fn fitted(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for c in text.chars() {
        if text_width(&short, size) + text_width(&c.to_string(), size) > width - size {
            break;
        }
        short.push(c);
    }
    short.truncate(short.trim_end().len());
    short + "…"
}

/// Moves positions apart until neighbours are `gap` apart, all within `low..=high` if there is room; keeps the order.
pub(crate) fn spread(places: &mut [f64], gap: f64, low: f64, high: f64) {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|a, b| places[*a].total_cmp(&places[*b]));
    let mut floor = low;
    for i in &order {
        places[*i] = places[*i].max(floor);
        floor = places[*i] + gap;
    }
    let mut ceiling = high;
    for i in order.iter().rev() {
        places[*i] = places[*i].min(ceiling);
        ceiling = places[*i] - gap;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(escaped("<a href='x'>&\"\u{0}\n"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;  ");
    }

    #[test]
    fn coordinates_are_finite_and_short() {
        assert_eq!(n(1.0).to_string(), "1");
        assert_eq!(n(12.345).to_string(), "12.3");
        assert_eq!((n(f64::NAN).to_string(), n(f64::INFINITY).to_string()), ("0".to_owned(), "0".to_owned()));
        assert_eq!(n(1e300).to_string(), "100000");
    }

    #[test]
    fn labels_are_moved_apart_in_order() {
        let mut places = [50.0, 52.0, 10.0, 51.0];
        spread(&mut places, 12.0, 0.0, 80.0);
        assert_eq!(places, [50.0, 74.0, 10.0, 62.0]);
        let mut low = [78.0, 79.0, 80.0];
        spread(&mut low, 12.0, 0.0, 80.0);
        assert_eq!(low, [56.0, 68.0, 80.0]);
    }

    #[test]
    fn long_texts_are_cut_to_fit() {
        let cut = fitted(&"reuseport".repeat(20), 13.0, 120.0);
        assert!(cut.ends_with('…') && text_width(&cut, 13.0) <= 121.0, "{cut}");
        assert_eq!(fitted("xps", 13.0, 120.0), "xps");
        assert_eq!(fitted("anything", 13.0, 0.0), "…");
    }
}
