//! A flame graph: each function as wide as its CPU time, below the function that called it. The root is at the top, so
//! that a page starts with contexts and processes even if the stacks of one program are deep.
//!
//! The drawing is complete without a script: labels are cut to their width, and a title has the figures. `data-x` and
//! `data-w` are for the page's script, which zooms: position and width in [`WHOLE`]ths of the root, so that it need not
//! use the rounded coordinates.

use std::fmt::Write as _;

use udpath_profile::classes::Class;

use super::escaped;
use crate::flame::Tree;
use crate::{units, words};

/// Width of the drawing; a wider page scales it.
const WIDTH: f64 = 1200.0;
/// Margin at both sides of the frames.
const SIDE: f64 = 6.0;
/// Height of a frame and the gap above it.
const ROW: f64 = 17.0;
/// Width of a character of the frames' labels (monospace of 11.5 units). Wider fonts overflow their frame.
const CHARACTER: f64 = 6.95;
/// Room above the frames: the description and the legend.
const HEAD: f64 = 44.0;
/// Width of the root, in the units of `data-x` and `data-w`.
const WHOLE: f64 = 1e7;
/// Smallest share of the root that is drawn; smaller frames are counted only: they would be a unit wide.
const SMALLEST: f64 = 0.001;
/// Most levels drawn; deeper ones are counted only. Kernel chains have up to 50, and 80 are 1,400 units.
const MOST_LEVELS: usize = 80;

/// A colour of the graph.
pub(crate) struct Family {
    /// Its class in the style sheet.
    pub(crate) look: &'static str,
    /// Its title in the legend.
    pub(crate) title: &'static str,
}

/// The colours by kind of work, in the order of [`udpath_profile::classes::Family`].
pub(crate) const FAMILIES: [Family; 9] = [
    Family { look: "k0", title: "device, NAPI, XDP, transmit" },
    Family { look: "k1", title: "IP, UDP, sockets" },
    Family { look: "k2", title: "locks" },
    Family { look: "k3", title: "memory, copying" },
    Family { look: "k4", title: "filters, packet sockets, security" },
    Family { look: "k5", title: "scheduling, interrupts, timers" },
    Family { look: "k6", title: "system call entry" },
    Family { look: "k7", title: "programs" },
    Family { look: "k8", title: "other" },
];

/// The colour of a class, as an index into [`FAMILIES`].
pub(crate) const fn family(class: Class) -> usize {
    class.family() as usize
}

/// How the frames are coloured and described.
pub(crate) enum Kind<'a> {
    /// By class; costs are nanoseconds: charged to the datagrams, and all.
    Classes {
        /// Converts nanoseconds to nanoseconds per datagram.
        each: &'a dyn Fn(f64) -> Option<f64>,
    },
    /// By change; costs are nanoseconds per unit.
    Change {
        /// `per datagram`.
        unit: &'a str,
    },
}

/// Identifies a graph on a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Graph<'a> {
    /// Prefix of the ids of the graph and its frames: letters, unique on the page.
    pub(crate) id: &'a str,
    /// Its title.
    pub(crate) title: &'a str,
    /// Its name in search results, if there are several.
    pub(crate) name: &'a str,
}

impl Graph<'_> {
    /// For a page with one graph.
    pub(crate) const ONLY: Graph<'static> = Graph { id: "f", title: "Flame graph", name: "" };
}

/// Colour steps on either side of no change.
const STEPS: f64 = 4.0;

/// A frame with its position.
struct Placed {
    node: usize,
    x: f64,
    share: f64,
}

/// Draws the tree; `about` describes it (time, samples, lost samples).
pub(crate) fn draw(tree: &Tree, kind: &Kind<'_>, about: &str, graph: &Graph<'_>) -> String {
    let (id, graph_name, graph_title) = (graph.id, escaped(graph.name), escaped(graph.title));
    let (placed, hidden) = place(tree);
    let levels = placed.iter().map(|frame| tree.nodes[frame.node].level + 1).max().unwrap_or(1);
    let height = HEAD + levels as f64 * ROW + SIDE;
    // Without the root, which changes too: compared with it, every frame would look unchanged.
    let most = tree.nodes.iter().skip(1).map(|node| node.more().abs()).fold(0.0, f64::max);
    let mut body = String::with_capacity(placed.len() * 260);
    let about = match hidden {
        0 => about.to_owned(),
        1 => format!("{about}; one frame is left out: below 0.1 %, or too deep"),
        n => format!("{about}; {} frames are left out: below 0.1 %, or too deep", units::count(n as u64)),
    };
    let _ = writeln!(body, r#"<text class="about" x="{SIDE}" y="14">{}</text>"#, escaped(&about));
    legend(&mut body, kind);
    for (number, frame) in placed.iter().enumerate() {
        let node = &tree.nodes[frame.node];
        let (x, width) = (SIDE + frame.x * (WIDTH - 2.0 * SIDE), frame.share * (WIDTH - 2.0 * SIDE));
        let y = HEAD + node.level as f64 * ROW;
        let look = match kind {
            Kind::Classes { .. } => node.class().map_or("k", |class| FAMILIES[family(class)].look).to_owned(),
            Kind::Change { .. } => change(node.more(), most),
        };
        let title = escaped(&title(node, frame.share, kind));
        let (data_x, data_w) = ((frame.x * WHOLE).round(), (frame.share * WHOLE).round());
        let (name, label) = (escaped(&node.name), escaped(&label(&node.name, width)));
        let _ = writeln!(
            body,
            "<g class=\"f {look}\" id=\"{id}{number}\" data-x=\"{data_x}\" data-w=\"{data_w}\" data-l=\"{}\" \
             data-n=\"{name}\"><title>{title}</title><rect x=\"{x:.2}\" y=\"{y}\" width=\"{:.2}\" height=\"{}\"/>\
             <text x=\"{:.2}\" y=\"{}\">{label}</text></g>",
            node.level,
            (width - 0.4).max(0.2),
            ROW - 1.0,
            x + 3.0,
            y + 12.0,
        );
    }
    let description =
        "Frames lie below their callers; each is as wide as its CPU time. The tables have the figures.";
    format!(
        "<svg class=\"flame\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\" \
         data-name=\"{graph_name}\" data-side=\"{SIDE}\" data-width=\"{}\" data-char=\"{CHARACTER}\">\n\
         <title id=\"{id}-t\">{graph_title}</title>\n<desc id=\"{id}-d\">{description}</desc>\n{body}</svg>\n",
        WIDTH - 2.0 * SIDE,
    )
}

/// Positions of the frames to draw, callers before callees, and the number left out.
fn place(tree: &Tree) -> (Vec<Placed>, usize) {
    let whole = tree.nodes.first().map_or(0.0, |root| root.costs[1]);
    let (mut placed, mut hidden) = (Vec::new(), 0);
    if whole <= 0.0 {
        return (placed, 0);
    }
    let mut left = vec![(0, 0.0)];
    while let Some((at, x)) = left.pop() {
        let node = &tree.nodes[at];
        let share = node.costs[1] / whole;
        if share < SMALLEST || node.level >= MOST_LEVELS {
            // A frame absent from the second profile is not small, but missing.
            hidden += usize::from(share > 0.0);
            continue;
        }
        placed.push(Placed { node: at, x, share });
        let mut from = x;
        let children = node.children.iter().map(|child| {
            let start = from;
            from += tree.nodes[*child].costs[1] / whole;
            (*child, start)
        });
        let children: Vec<_> = children.collect();
        left.extend(children.into_iter().rev());
    }
    (placed, hidden)
}

/// The style sheet's class for a change: `m4` is the largest decrease, `p4` the largest increase, `z` no change. The
/// scale is a square root, so that a tenth of the largest change is still visible.
fn change(more: f64, most: f64) -> String {
    // The root may have changed more than any part of it.
    let part = if most > 0.0 { (more.abs() / most).clamp(0.0, 1.0) } else { 0.0 };
    let step = (part.sqrt() * STEPS).round();
    match step as u8 {
        0 => "z".to_owned(),
        step if more > 0.0 => format!("p{step}"),
        step => format!("m{step}"),
    }
}

fn title(node: &crate::flame::Node, share: f64, kind: &Kind<'_>) -> String {
    let name = words::one_line(&node.name);
    match kind {
        Kind::Classes { each } => {
            let each = each(node.costs[0])
                .map_or_else(String::new, |ns| format!(", {} per datagram", units::time(ns)));
            let class = node.class().map_or_else(String::new, |class| format!("; mostly {}", class.title()));
            format!("{name}: {}, {}{each}{class}", units::share(share), units::time(node.costs[1]))
        }
        Kind::Change { unit } => {
            let sign = if node.more() > 0.0 { "+" } else { "" };
            format!(
                "{name}: {} {unit}, was {} ({sign}{})",
                units::time(node.costs[1]),
                units::time(node.costs[0]),
                units::time(node.more())
            )
        }
    }
}

/// A name cut to a width; empty if not even three characters would fit.
fn label(name: &str, width: f64) -> String {
    let most = ((width - 6.0) / CHARACTER).floor();
    if most < 3.0 { String::new() } else { words::shortened(name, most as usize) }
}

fn legend(body: &mut String, kind: &Kind<'_>) {
    let entries: Vec<(String, &str)> = match kind {
        Kind::Classes { .. } => {
            FAMILIES.iter().map(|family| (family.look.to_owned(), family.title)).collect()
        }
        Kind::Change { .. } => [("m4", "less"), ("m2", ""), ("z", "as before"), ("p2", ""), ("p4", "more")]
            .map(|(look, title)| (look.to_owned(), title))
            .to_vec(),
    };
    let mut x = SIDE;
    for (look, title) in entries {
        let _ = write!(body, r#"<g class="l {look}"><rect x="{x:.1}" y="22" width="12" height="12"/>"#);
        if !title.is_empty() {
            let _ = write!(body, r#"<text x="{:.1}" y="32">{title}</text>"#, x + 16.0);
            x += super::text_width(title, 11.5) + 12.0;
        }
        body.push_str("</g>\n");
        x += 18.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_fit_their_frame_or_are_not_there() {
        assert_eq!(label("udp_rcv", 60.0), "udp_rcv");
        assert_eq!(label("udp_rcv", 40.0), "udp…");
        assert_eq!(label("udp_rcv", 20.0), "");
        assert_eq!(label("udp_rcv", -1.0), "");
    }

    #[test]
    fn changes_are_seen_by_their_size_and_direction() {
        assert_eq!((change(10.0, 10.0), change(-10.0, 10.0)), ("p4".to_owned(), "m4".to_owned()));
        assert_eq!((change(1.0, 10.0), change(0.1, 10.0)), ("p1".to_owned(), "z".to_owned()));
        assert_eq!((change(30.0, 10.0), change(-30.0, 10.0)), ("p4".to_owned(), "m4".to_owned()));
        assert_eq!((change(0.0, 0.0), change(f64::NAN, 1.0)), ("z".to_owned(), "z".to_owned()));
    }

    #[test]
    fn every_class_has_a_colour() {
        assert!(Class::ALL.iter().all(|class| family(*class) < FAMILIES.len()));
    }
}
