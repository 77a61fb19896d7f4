//! Description of a lab, step by step: machines and links. Nothing here touches the machine.

use std::collections::BTreeSet;

use crate::spec::{LinkSpec, MAX_LAB_NAME, MAX_LINKS, MAX_MACHINE_NAME, SpecError, check_name};
use crate::{Blueprint, Error, Lab, blueprint};

/// Describes a lab, step by step. Errors are stored and reported by [`blueprint`](Self::blueprint) and
/// [`up`](Self::up).
///
/// ```
/// use udpath_lab::{LabBuilder, LinkSpec};
/// let blueprint = LabBuilder::new("incast")
///     .machines("client", 3)
///     .machine("server")
///     .mesh("client", "server", &LinkSpec::with_queues(2))
///     .blueprint()
///     .unwrap();
/// assert_eq!(blueprint.links.len(), 3);
/// assert_eq!(blueprint.machines[0].name, "client-1");
/// ```
#[derive(Debug, Clone)]
#[must_use = "a description does nothing; end it with up()"]
pub struct LabBuilder {
    name: String,
    machines: Vec<String>,
    groups: Vec<(String, Vec<String>)>,
    links: Vec<(String, String, LinkSpec)>,
    mistake: Option<SpecError>,
}

impl LabBuilder {
    /// A lab without machines yet. `name`: 1 to [`MAX_LAB_NAME`] of `a-z`, `0-9`, `-`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), machines: Vec::new(), groups: Vec::new(), links: Vec::new(), mistake: None }
    }

    /// Adds a machine. `name`: 1 to [`MAX_MACHINE_NAME`] of `a-z`, `0-9`, `-`.
    pub fn machine(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.groups.push((name.clone(), vec![name.clone()]));
        self.machines.push(name);
        self
    }

    /// Adds machines `group-1` to `group-count`; [`mesh`](Self::mesh) and [`pairs`](Self::pairs) accept the group's
    /// name.
    pub fn machines(mut self, group: &str, count: usize) -> Self {
        let names: Vec<String> = (1..=count).map(|number| format!("{group}-{number}")).collect();
        self.machines.extend(names.iter().cloned());
        self.groups.push((group.to_owned(), names));
        self
    }

    /// Connects two machines. A machine can have many links, also several to the same peer; its ends are `eth0`,
    /// `eth1`, ... in the order of the calls.
    pub fn link(mut self, from: impl Into<String>, to: impl Into<String>, spec: &LinkSpec) -> Self {
        self.links.push((from.into(), to.into(), spec.clone()));
        self
    }

    /// Connects every machine of one group to every machine of the other: incast (n to 1), outcast (1 to n) and
    /// all-to-all (n to m). A single machine is a group of one.
    pub fn mesh(mut self, from: &str, to: &str, spec: &LinkSpec) -> Self {
        if let (Some(from), Some(to)) = (self.group(from), self.group(to)) {
            for (one, other) in from.iter().flat_map(|one| to.iter().map(move |other| (one, other))) {
                self.links.push((one.clone(), other.clone(), spec.clone()));
            }
        }
        self
    }

    /// Connects the machines of two groups of the same size one to one, in order.
    pub fn pairs(mut self, from: &str, to: &str, spec: &LinkSpec) -> Self {
        if let (Some(ones), Some(others)) = (self.group(from), self.group(to)) {
            if ones.len() == others.len() {
                self.links
                    .extend(ones.into_iter().zip(others).map(|(one, other)| (one, other, spec.clone())));
            } else {
                let (have, need) = (ones.len(), others.len());
                let (from, to) = (from.to_owned(), to.to_owned());
                self.mistake.get_or_insert(SpecError::Pairs { from, have, to, need });
            }
        }
        self
    }

    /// The complete lab: names, addresses, numbers.
    ///
    /// # Errors
    /// The first error in the description.
    pub fn blueprint(&self) -> Result<Blueprint, SpecError> {
        self.check()?;
        Ok(blueprint::draw(&self.name, std::process::id(), &self.machines, &self.links))
    }

    /// Builds the lab and waits until its links carry traffic. Remains of killed labs are removed first.
    ///
    /// # Errors
    /// [`Error::Spec`] for an error in the description; otherwise the kernel's error. Nothing is left behind then.
    pub fn up(&self) -> Result<Lab, Error> {
        Lab::up(self.blueprint()?)
    }

    /// Builds a lab that outlives this process, until [`down`](crate::down) is called with its name.
    ///
    /// # Errors
    /// The same as [`up`](Self::up); also if a kept lab with that name exists, and in a user namespace, which ends with
    /// the process.
    pub fn up_kept(&self) -> Result<Blueprint, Error> {
        Lab::up_kept(self.blueprint()?)
    }

    fn group(&mut self, name: &str) -> Option<Vec<String>> {
        let found = self.groups.iter().find(|(group, _)| group == name).map(|(_, machines)| machines.clone());
        if found.is_none() {
            self.mistake.get_or_insert(SpecError::UnknownGroup(name.to_owned()));
        }
        found
    }

    fn check(&self) -> Result<(), SpecError> {
        check_name("lab", &self.name, MAX_LAB_NAME)?;
        if self.machines.is_empty() {
            return Err(SpecError::NoMachines);
        }
        let mut known = BTreeSet::new();
        for machine in &self.machines {
            check_name("machine", machine, MAX_MACHINE_NAME)?;
            if !known.insert(machine.as_str()) {
                return Err(SpecError::DuplicateMachine(machine.clone()));
            }
        }
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        if self.links.len() > MAX_LINKS {
            return Err(SpecError::Links(self.links.len()));
        }
        for (from, to, spec) in &self.links {
            if let Some(unknown) = [from, to].into_iter().find(|end| !known.contains(end.as_str())) {
                let known = self.machines.join(", ");
                return Err(SpecError::UnknownMachine {
                    from: from.clone(),
                    to: to.clone(),
                    unknown: unknown.clone(),
                    known,
                });
            }
            if from == to {
                return Err(SpecError::SelfLink(from.clone()));
            }
            spec.check()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Offloads;
    use crate::spec::{MAX_ADDRESSES, MAX_MODERATION, MAX_MTU, MAX_QUEUES, MIN_MTU};

    fn pair(spec: LinkSpec) -> Result<Blueprint, SpecError> {
        LabBuilder::new("x").machine("a").machine("b").link("a", "b", &spec).blueprint()
    }

    fn said(error: Result<Blueprint, SpecError>) -> String {
        error.unwrap_err().to_string()
    }

    #[test]
    fn names_are_plain_and_short() {
        for bad in ["", "A", "a b", "a/b", "..", "-a", "ä", "a.b", &"a".repeat(MAX_LAB_NAME + 1)] {
            let error = LabBuilder::new(bad).machine("a").blueprint().unwrap_err();
            assert!(matches!(error, SpecError::Name { what: "lab", .. }), "{bad}: {error}");
        }
        let machine = "a".repeat(MAX_MACHINE_NAME);
        LabBuilder::new("a".repeat(MAX_LAB_NAME)).machine(&machine).blueprint().unwrap();
        let error = LabBuilder::new("a").machine(machine + "a").blueprint().unwrap_err();
        assert!(error.to_string().contains("expected 1 to 15"), "{error}");
    }

    #[test]
    fn machines_must_be_there_and_be_different() {
        let builder = LabBuilder::new("x");
        assert_eq!(builder.blueprint().unwrap_err(), SpecError::NoMachines);
        let builder = builder.machine("a").machine("b");
        let spec = LinkSpec::default();
        assert_eq!(
            said(builder.clone().link("a", "c", &spec).blueprint()),
            "link a - c names machine \"c\", which the lab does not have; it has a, b"
        );
        assert_eq!(
            builder.clone().link("a", "a", &spec).blueprint().unwrap_err(),
            SpecError::SelfLink("a".into())
        );
        assert_eq!(builder.machine("a").blueprint().unwrap_err(), SpecError::DuplicateMachine("a".into()));
    }

    #[test]
    fn numbers_have_bounds() {
        for queues in [0, MAX_QUEUES + 1, u32::MAX] {
            assert_eq!(pair(LinkSpec::with_queues(queues)).unwrap_err(), SpecError::Queues(queues));
        }
        for mtu in [0, MIN_MTU - 1, MAX_MTU + 1] {
            assert_eq!(pair(LinkSpec { mtu, ..LinkSpec::default() }).unwrap_err(), SpecError::Mtu(mtu));
        }
        for addresses in [0, MAX_ADDRESSES + 1] {
            let spec = LinkSpec { addresses, ..LinkSpec::default() };
            assert_eq!(pair(spec).unwrap_err(), SpecError::Addresses(addresses));
        }
        let spec = LinkSpec { moderation: MAX_MODERATION + 1, ..LinkSpec::default() };
        assert_eq!(pair(spec).unwrap_err(), SpecError::Moderation(MAX_MODERATION + 1));
        let offloads = Offloads { tx_checksum: false, ..Offloads::default() };
        assert_eq!(
            said(pair(LinkSpec { offloads, ..LinkSpec::default() })),
            "tcp-segmentation-offload needs tx-checksumming: turn both on, or both off"
        );
        pair(LinkSpec { queues: MAX_QUEUES, mtu: MAX_MTU, addresses: MAX_ADDRESSES, ..LinkSpec::default() })
            .unwrap();
    }

    #[test]
    fn patterns_make_the_links_they_name() {
        let ends = |builder: LabBuilder| -> Vec<String> {
            let links = builder.blueprint().unwrap().links;
            links.iter().map(|link| format!("{}-{}", link.ends[0].machine, link.ends[1].machine)).collect()
        };
        let groups = LabBuilder::new("x").machines("c", 2).machines("s", 2);
        let spec = LinkSpec::default();
        assert_eq!(ends(groups.clone().mesh("c", "s", &spec)), ["c-1-s-1", "c-1-s-2", "c-2-s-1", "c-2-s-2"]);
        assert_eq!(ends(groups.clone().pairs("c", "s", &spec)), ["c-1-s-1", "c-2-s-2"]);
        let uneven = groups.clone().machine("one").pairs("c", "one", &spec).blueprint();
        assert_eq!(said(uneven), "cannot pair c (2) with one (1) one to one: the groups differ in size");
        assert_eq!(
            groups.mesh("c", "d", &spec).blueprint().unwrap_err(),
            SpecError::UnknownGroup("d".into())
        );
    }
}
