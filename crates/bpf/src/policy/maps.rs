//! Keys and values of the maps of `bpf/policy.bpf.c`, and cgroups as nodes of a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use super::{Policy, PolicyOption};

/// Bytes of a cgroup's name in a key, with the terminating NUL.
const NAME: usize = 256;
/// Levels below the root in which policies are found.
const DEPTH: usize = 16;
const OPTIONS: usize = PolicyOption::ALL.len();

/// `struct node`.
pub(super) type NodeBytes = [u8; 4 + NAME];
/// `struct place`.
pub(super) type PlaceBytes = [u32; 2];
/// `struct outcome`.
pub(super) type OutcomeBytes = [u32; 2 + OPTIONS];
/// `struct policy`.
pub(super) type PolicyBytes = [u32; 1 + OPTIONS];

/// The node of the root cgroup. It is in no map.
const ROOT: u32 = 0;

/// A cgroup by its parent's node and its own name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Node {
    parent: u32,
    name: String,
}

pub(super) fn node_bytes(node: &Node) -> NodeBytes {
    let mut bytes = [0; 4 + NAME];
    bytes[..4].copy_from_slice(&node.parent.to_ne_bytes());
    // `Tree::grow` accepts no longer name.
    for (place, byte) in bytes[4..].iter_mut().zip(node.name.bytes()) {
        *place = byte;
    }
    bytes
}

pub(super) fn node(bytes: &NodeBytes) -> Node {
    let (parent, name) = bytes.split_first_chunk().unwrap_or((&[0; 4], &[]));
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Node { parent: u32::from_ne_bytes(*parent), name: String::from_utf8_lossy(name).into_owned() }
}

pub(super) fn place_bytes(node: u32, port: Option<NonZeroU16>) -> PlaceBytes {
    [node, port.map_or(0, |port| port.get().into())]
}

pub(super) fn place(bytes: &PlaceBytes) -> (u32, Option<NonZeroU16>) {
    (bytes[0], u16::try_from(bytes[1]).ok().and_then(NonZeroU16::new))
}

pub(super) fn policy_bytes(policy: &Policy) -> PolicyBytes {
    let mut bytes = [0; 1 + OPTIONS];
    for (at, option) in PolicyOption::ALL.into_iter().enumerate() {
        if let Some(value) = policy.get(option) {
            bytes[0] |= 1 << at;
            bytes[1 + at] = if is_doubled(option) { value / 2 } else { value };
        }
    }
    bytes
}

pub(super) fn policy(bytes: &PolicyBytes) -> Policy {
    let mut policy = Policy::default();
    for (at, option) in PolicyOption::ALL.into_iter().enumerate() {
        if bytes[0] & 1 << at != 0 {
            let value = bytes[1 + at];
            policy.set(option, Some(if is_doubled(option) { value.saturating_mul(2) } else { value }));
        }
    }
    policy
}

/// Does the kernel store twice what setsockopt(2) asks for?
fn is_doubled(option: PolicyOption) -> bool {
    matches!(option, PolicyOption::ReceiveBuffer | PolicyOption::SendBuffer)
}

/// All nodes, by ID.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: BTreeMap<u32, Node>,
}

impl Tree {
    pub(super) fn of(nodes: Vec<(u32, Node)>) -> Self {
        Self { nodes: nodes.into_iter().collect() }
    }

    /// The node of a cgroup.
    pub(super) fn find(&self, cgroup: &str) -> Option<u32> {
        names(cgroup).try_fold(ROOT, |parent, name| self.child(parent, name))
    }

    fn child(&self, parent: u32, name: &str) -> Option<u32> {
        self.nodes.iter().find(|(_, node)| node.parent == parent && node.name == name).map(|(id, _)| *id)
    }

    /// The path of a node's cgroup.
    pub(super) fn path(&self, node: u32) -> Option<String> {
        let (mut at, mut path) = (node, String::new());
        // Bounded, whatever the map contains.
        for _ in 0..=DEPTH {
            if at == ROOT {
                return Some(if path.is_empty() { "/".to_owned() } else { path });
            }
            let Node { parent, name } = self.nodes.get(&at)?;
            (at, path) = (*parent, format!("/{name}{path}"));
        }
        None
    }

    /// The node of a cgroup, and the nodes that have to be added to the map.
    ///
    /// # Errors
    /// The path cannot be one of a cgroup in which policies are found.
    pub(super) fn grow(&mut self, cgroup: &str) -> Result<(u32, Vec<(u32, Node)>), String> {
        if names(cgroup).count() > DEPTH {
            return Err(format!("a policy's cgroup is at most {DEPTH} levels below the root"));
        }
        if names(cgroup).any(|name| name.len() >= NAME || name.contains('\0')) {
            return Err(format!("the name of a cgroup has at most {} bytes", NAME - 1));
        }
        let (mut at, mut new) = (ROOT, Vec::new());
        for name in names(cgroup) {
            at = match self.child(at, name) {
                Some(child) => child,
                None => {
                    let id = (1..).find(|id| !self.nodes.contains_key(id)).unwrap_or(u32::MAX);
                    let node = Node { parent: at, name: name.to_owned() };
                    self.nodes.insert(id, node.clone());
                    new.push((id, node));
                    id
                }
            };
        }
        Ok((at, new))
    }

    /// The nodes on the way to none of the `used` ones.
    pub(super) fn unused(self, used: &[u32]) -> Vec<Node> {
        let mut needed = BTreeSet::new();
        for node in used {
            let mut at = *node;
            while at != ROOT && needed.insert(at) {
                at = self.nodes.get(&at).map_or(ROOT, |node| node.parent);
            }
        }
        self.nodes.into_iter().filter(|(id, _)| !needed.contains(id)).map(|(_, node)| node).collect()
    }
}

fn names(cgroup: &str) -> impl Iterator<Item = &str> {
    cgroup.split('/').filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_round_trip_and_buffers_are_halved_for_setsockopt() {
        let mut one = Policy::default();
        one.set(PolicyOption::ReceiveBuffer, Some(8 << 20));
        one.set(PolicyOption::Reuseport, Some(0));
        one.set(PolicyOption::Mark, Some(u32::MAX));
        let bytes = policy_bytes(&one);
        assert_eq!(bytes, [0b10101, 4 << 20, 0, 0, 0, u32::MAX]);
        assert_eq!(policy(&bytes), one);
    }

    #[test]
    fn nodes_round_trip() {
        for name in ["a", "system.slice", &"x".repeat(NAME - 1)] {
            let one = Node { parent: 7, name: name.to_owned() };
            assert_eq!(node(&node_bytes(&one)), one);
        }
    }

    #[test]
    fn a_tree_grows_by_what_is_missing_and_loses_what_is_unused() {
        let mut tree = Tree::default();
        let (nsd, new) = tree.grow("/system.slice/nsd.service").unwrap();
        assert_eq!((nsd, new.len()), (2, 2));
        let (knot, new) = tree.grow("/system.slice/knot.service").unwrap();
        assert_eq!((knot, new.len()), (3, 1));
        // The same name elsewhere is another cgroup.
        let (other, _) = tree.grow("/user.slice/nsd.service").unwrap();
        assert!(other != nsd);
        assert_eq!(tree.path(other).as_deref(), Some("/user.slice/nsd.service"));
        assert_eq!((tree.find("/system.slice/nsd.service"), tree.find("/")), (Some(nsd), Some(ROOT)));
        assert_eq!((tree.find("/nsd.service"), tree.path(ROOT).as_deref()), (None, Some("/")));
        let unused = tree.unused(&[knot, ROOT]);
        let names: Vec<&str> = unused.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["nsd.service", "user.slice", "nsd.service"]);
    }

    #[test]
    fn paths_that_the_program_cannot_find_are_rejected() {
        let mut tree = Tree::default();
        assert!(tree.grow(&"/x".repeat(DEPTH)).is_ok());
        assert!(tree.grow(&"/x".repeat(DEPTH + 1)).unwrap_err().contains("16 levels"));
        assert!(tree.grow(&format!("/{}", "x".repeat(NAME))).unwrap_err().contains("255 bytes"));
        // A circle in the map.
        let circle = |id, parent| (id, Node { parent, name: "x".to_owned() });
        assert_eq!(Tree::of(vec![circle(1, 2), circle(2, 1)]).path(1), None);
    }
}
