//! Related interfaces on one path: members and bonds, bridges and ports, VLANs and devices, both ends of a veth.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::client::route::Link;

/// A related interface on the same path.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Carries this one's packets: member of this bond, port of this bridge, device of this VLAN, virtual function of
    /// this synthetic device.
    Lower(String),
    /// Sends its packets through this one.
    Upper(String),
    /// The peer of this veth, in this namespace.
    Peer(String),
    /// The peer of this veth, or the device below, in another namespace: its index there, and this namespace's ID for
    /// the other (`ip netns list-id`).
    Elsewhere {
        /// Its index there.
        index: u32,
        /// The namespace's ID here; -1: it has none.
        namespace: i32,
    },
}

/// Interfaces below, above and beside.
pub(super) fn relations(link: &Link, links: &[Link]) -> Vec<Relation> {
    let name = |index: u32| links.iter().find(|other| other.index == index).map(|other| other.name.clone());
    let mut relations = Vec::new();
    match (link.link, link.link_namespace) {
        (Some(index), Some(namespace)) => relations.push(Relation::Elsewhere { index, namespace }),
        (Some(index), None) if index != link.index => {
            let related = if link.kind.as_deref() == Some("veth") { Relation::Peer } else { Relation::Lower };
            relations.extend(name(index).map(related));
        }
        _ => {}
    }
    relations.extend(link.master.and_then(name).map(Relation::Upper));
    for other in links.iter().filter(|other| other.index != link.index) {
        if other.master == Some(link.index) {
            relations.push(Relation::Lower(other.name.clone()));
        }
        let on_this = other.link == Some(link.index) && other.link_namespace.is_none();
        if on_this && other.kind.as_deref() != Some("veth") {
            relations.push(Relation::Upper(other.name.clone()));
        }
    }
    relations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, kind: Option<&str>) -> Link {
        Link { index, name: name.into(), kind: kind.map(str::to_owned), ..Link::default() }
    }

    #[test]
    fn a_vlan_on_a_bond_of_two_is_related_throughout() {
        let mut members = [link(2, "eth0", None), link(3, "eth1", None)];
        for member in &mut members {
            member.master = Some(4);
        }
        let [eth0, eth1] = members;
        let bond = link(4, "bond0", Some("bond"));
        let mut vlan = link(5, "bond0.7", Some("vlan"));
        vlan.link = Some(4);
        let links = [eth0, eth1, bond, vlan];
        let names = |of: usize| relations(&links[of], &links);
        assert_eq!(names(0), [Relation::Upper("bond0".into())]);
        let of_bond = [
            Relation::Lower("eth0".into()),
            Relation::Lower("eth1".into()),
            Relation::Upper("bond0.7".into()),
        ];
        assert_eq!(names(2), of_bond);
        assert_eq!(names(3), [Relation::Lower("bond0".into())]);
    }

    #[test]
    fn the_other_end_of_a_veth_is_here_or_elsewhere() {
        let (mut near, mut far) = (link(2, "a", Some("veth")), link(3, "b", Some("veth")));
        (near.link, far.link) = (Some(3), Some(2));
        let links = [near.clone(), far];
        assert_eq!(relations(&links[0], &links), [Relation::Peer("b".into())]);
        // The same index in another namespace is a different interface.
        near.link_namespace = Some(0);
        let links = [near, link(3, "other", None)];
        assert_eq!(relations(&links[0], &links), [Relation::Elsewhere { index: 3, namespace: 0 }]);
        assert_eq!(relations(&links[1], &links), []);
    }
}
