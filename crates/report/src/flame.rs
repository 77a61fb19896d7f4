//! The tree behind a flame graph: stacks with the same beginning share it.
//!
//! ```text
//! stacks  context;process;f;g  30        all ─┬─ softirq ── net_rx_action ── udp_rcv
//!         context;process;f;h  10   ──▸       └─ system call ── knotd ── f ─┬─ g
//!                                                                          └─ h
//! ```
//! Every node has two costs, so that one tree serves both the difference graph (first and second profile) and the plain
//! graph (charged to the datagrams, and all). A node's class is the one with most of its time.

use std::collections::{BTreeMap, HashMap};

use udpath_profile::classes::Class;
use udpath_profile::difference::{Unit, leaves_out};
use udpath_profile::folded;
use udpath_profile::profile::{Profile, Stack};

/// Deepest node. The kernel cuts chains at 127 frames on each side; a file may contain anything.
const DEEPEST: usize = 300;

/// Nodes, each after its parent; the first is the root.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
}

/// A function at a place in the call tree.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// The caller, by index; the first node is its own parent.
    pub(crate) parent: usize,
    /// Its depth below the root.
    pub(crate) level: usize,
    /// In the first and the second profile, or charged and all; callees included.
    pub(crate) costs: [f64; 2],
    /// Callees, by name.
    pub(crate) children: Vec<usize>,
    classes: BTreeMap<Class, f64>,
}

impl Node {
    /// The class with most of its time; `None` for frames that are not functions.
    pub(crate) fn class(&self) -> Option<Class> {
        self.classes.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(class, _)| *class)
    }

    /// The increase from the first to the second profile.
    pub(crate) fn more(&self) -> f64 {
        self.costs[1] - self.costs[0]
    }
}

impl Tree {
    /// Builds the tree of one profile, in nanoseconds.
    pub(crate) fn of(profile: &Profile) -> Self {
        let mut builder = Builder::default();
        for stack in &profile.stacks {
            let ns = stack.ns as f64;
            builder.add(stack, [if profile.charges(stack) { ns } else { 0.0 }, ns]);
        }
        builder.tree()
    }

    /// Builds the tree of one profile, in nanoseconds, with only the time charged to the datagrams.
    pub(crate) fn charged(profile: &Profile) -> Self {
        let mut builder = Builder::default();
        for stack in profile.stacks.iter().filter(|stack| profile.charges(stack)) {
            builder.add(stack, [stack.ns as f64; 2]);
        }
        builder.tree()
    }

    /// Builds the tree of two profiles, in nanoseconds per unit; without other programs' time if both have a focus.
    pub(crate) fn difference(a: &Profile, b: &Profile, unit: Unit) -> Self {
        let charged = leaves_out(a, b);
        let mut builder = Builder::default();
        for stack in a.stacks.iter().filter(|stack| !charged || a.charges(stack)) {
            builder.add(stack, [unit.cost(a, stack.ns), 0.0]);
        }
        for stack in b.stacks.iter().filter(|stack| !charged || b.charges(stack)) {
            builder.add(stack, [0.0, unit.cost(b, stack.ns)]);
        }
        builder.tree()
    }

    /// Nodes of the first profile that are absent from the second, without their callees; largest first.
    pub(crate) fn gone(&self) -> Vec<&Node> {
        let gone = |node: &Node| node.costs[1] <= 0.0 && node.costs[0] > 0.0;
        let mut list: Vec<&Node> =
            self.nodes.iter().filter(|node| gone(node) && !gone(&self.nodes[node.parent])).collect();
        list.sort_by(|a, b| b.costs[0].total_cmp(&a.costs[0]));
        list
    }

    /// The names from the root to a node, both included.
    pub(crate) fn path<'a>(&'a self, node: &'a Node) -> Vec<&'a str> {
        let mut path = vec![node.name.as_str()];
        let (mut level, mut at) = (node.level, node.parent);
        while level > 0 {
            path.push(&self.nodes[at].name);
            (level, at) = (self.nodes[at].level, self.nodes[at].parent);
        }
        path.reverse();
        path
    }
}

/// A tree under construction.
struct Builder {
    nodes: Vec<Node>,
    /// Maps parent and name to a node.
    known: HashMap<(usize, String), usize>,
}

impl Default for Builder {
    fn default() -> Self {
        Self { nodes: vec![node("all", 0, 0)], known: HashMap::new() }
    }
}

impl Builder {
    fn add(&mut self, stack: &Stack, costs: [f64; 2]) {
        let costs = costs.map(|cost| if cost.is_finite() { cost } else { 0.0 });
        let add = |node: &mut Node| node.costs.iter_mut().zip(costs).for_each(|(sum, cost)| *sum += cost);
        let mut at = 0;
        add(&mut self.nodes[0]);
        // Contexts and processes contain work of every class: they have no class themselves.
        let roots = folded::roots(stack).map(|name| (name, false));
        let functions = folded::functions(stack).map(|name| (name, true));
        for (name, function) in roots.chain(functions).take(DEEPEST) {
            at = self.child(at, name);
            let node = &mut self.nodes[at];
            add(node);
            if function {
                *node.classes.entry(stack.class).or_default() += costs[0].max(costs[1]);
            }
        }
    }

    fn child(&mut self, parent: usize, name: &str) -> usize {
        let next = self.nodes.len();
        let at = *self.known.entry((parent, name.to_owned())).or_insert(next);
        if at == next {
            let level = self.nodes[parent].level + 1;
            self.nodes.push(node(name, parent, level));
            self.nodes[parent].children.push(at);
        }
        at
    }

    fn tree(mut self) -> Tree {
        // By name, so that two graphs of one program look alike.
        for at in 0..self.nodes.len() {
            let mut children = std::mem::take(&mut self.nodes[at].children);
            children.sort_by(|a, b| self.nodes[*a].name.cmp(&self.nodes[*b].name));
            self.nodes[at].children = children;
        }
        Tree { nodes: self.nodes }
    }
}

fn node(name: &str, parent: usize, level: usize) -> Node {
    let (name, costs, children, classes) = (name.to_owned(), [0.0; 2], Vec::new(), BTreeMap::new());
    Node { name, parent, level, costs, children, classes }
}
