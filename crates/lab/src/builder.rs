//! Description of a lab: machines, links, and their validation. Nothing here touches the machine.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Blueprint, Error, Lab, Offloads, blueprint};

/// Maximum length of a lab's name, in bytes. It is part of a file name and of a line on the terminal.
pub const MAX_LAB_NAME: usize = 32;
/// Maximum length of a machine's name, in bytes: `IFNAMSIZ` without the terminating zero, so that an interface can have
/// it.
pub const MAX_MACHINE_NAME: usize = 15;
/// Most receive or transmit queues of a link's end: the kernel's own limit (`rtnl_create_link`).
pub const MAX_QUEUES: u32 = 4096;
/// Smallest MTU in bytes: the minimum of IPv6 (RFC 8200, section 5).
pub const MIN_MTU: u32 = 1280;
/// Largest MTU in bytes: the maximum of veth (`ETH_MAX_MTU`).
pub const MAX_MTU: u32 = 65_535;
/// Most addresses of each family on a link's end: both ends share a /24, and .0 and .255 are not usable.
pub const MAX_ADDRESSES: u32 = 127;
/// Longest interrupt moderation, in microseconds. NICs go up to 1 to 4 ms; above this a veth's ring of 256 frames
/// overflows at a few ten thousand frames per second.
pub const MAX_MODERATION: u32 = 10_000;
/// Most links of a lab: each uses one /24 of 10.0.0.0/8.
pub const MAX_LINKS: usize = 65_536;

/// One link between two machines: a veth pair with identical ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Receive and transmit queues of each end, set at creation (1 to [`MAX_QUEUES`]). Changing the number of a veth's
    /// queues later can leave its NAPI in a state in which an XDP program receives nothing.
    pub queues: u32,
    /// MTU in bytes ([`MIN_MTU`] to [`MAX_MTU`]). Native XDP needs it to fit a page: about 3,500.
    pub mtu: u32,
    /// Addresses of each family on each end (1 to [`MAX_ADDRESSES`]), for loads with several sources.
    pub addresses: u32,
    /// How long both ends wait for more frames after receiving some, in microseconds (0, not at all, to
    /// [`MAX_MODERATION`]), as a NIC with interrupt moderation does. Only while NAPI is on: with an XDP program or GRO.
    /// A veth without NAPI processes every frame individually, on the sending CPU.
    #[serde(default)]
    pub moderation: u32,
    /// Offloads of both ends.
    pub offloads: Offloads,
}

/// One queue, one address, Ethernet's MTU, no moderation, the driver's default offloads.
impl Default for LinkSpec {
    fn default() -> Self {
        Self { queues: 1, mtu: 1500, addresses: 1, moderation: 0, offloads: Offloads::default() }
    }
}

impl LinkSpec {
    /// The default with this many queues.
    #[must_use]
    pub fn with_queues(queues: u32) -> Self {
        Self { queues, ..Self::default() }
    }

    fn check(&self) -> Result<(), SpecError> {
        if !(1..=MAX_QUEUES).contains(&self.queues) {
            return Err(SpecError::Queues(self.queues));
        }
        if !(MIN_MTU..=MAX_MTU).contains(&self.mtu) {
            return Err(SpecError::Mtu(self.mtu));
        }
        if !(1..=MAX_ADDRESSES).contains(&self.addresses) {
            return Err(SpecError::Addresses(self.addresses));
        }
        if self.moderation > MAX_MODERATION {
            return Err(SpecError::Moderation(self.moderation));
        }
        match self.offloads.unmet() {
            Some((offload, needs)) => Err(SpecError::Offload { offload, needs }),
            None => Ok(()),
        }
    }
}

/// Why a description is invalid. Each error names the value and the valid ones.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SpecError {
    /// An invalid name.
    #[error(
        "\"{name}\" cannot be the name of a {what}; use 1 to {max} of a-z, 0-9 and -, starting with a letter or digit"
    )]
    Name {
        /// `lab` or `machine`.
        what: &'static str,
        /// The requested name.
        name: String,
        /// Maximum length of such a name, in bytes.
        max: usize,
    },
    /// No machines.
    #[error("a lab needs at least one machine")]
    NoMachines,
    /// Two machines with the same name.
    #[error("machine \"{0}\" is there twice; give each its own name")]
    DuplicateMachine(String),
    /// A link to a machine that does not exist.
    #[error("link {from} - {to} names machine \"{unknown}\", which the lab does not have; it has {known}")]
    UnknownMachine {
        /// One end.
        from: String,
        /// The other end.
        to: String,
        /// The missing one.
        unknown: String,
        /// The existing machines.
        known: String,
    },
    /// Both ends on one machine.
    #[error("link {0} - {0} starts and ends on one machine; use its loopback, or a second machine")]
    SelfLink(String),
    /// A pattern over groups of different size.
    #[error("cannot pair {from} ({have}) with {to} ({need}) one to one: the groups differ in size")]
    Pairs {
        /// Name of the first group.
        from: String,
        /// Its size.
        have: usize,
        /// Name of the second group.
        to: String,
        /// Its size.
        need: usize,
    },
    /// A pattern over a group that does not exist.
    #[error("there is no group of machines \"{0}\"; add it with machines(name, count) first")]
    UnknownGroup(String),
    /// More links than addresses.
    #[error("{0} links are too many: a lab has at most {MAX_LINKS}")]
    Links(usize),
    /// A queue count out of range.
    #[error("{0} queues are not possible on a link; use 1 to {MAX_QUEUES}")]
    Queues(u32),
    /// An MTU out of range.
    #[error("an MTU of {0} bytes is not possible on a link; use {MIN_MTU} to {MAX_MTU}")]
    Mtu(u32),
    /// An address count out of range.
    #[error("{0} addresses are not possible on a link's end; use 1 to {MAX_ADDRESSES}")]
    Addresses(u32),
    /// An interrupt moderation out of range.
    #[error("an interrupt moderation of {0} us is not possible on a link; use 0 (none) to {MAX_MODERATION}")]
    Moderation(u32),
    /// An offload without one it depends on.
    #[error("{offload} needs {needs}: switch both on, or both off")]
    Offload {
        /// The requested offload.
        offload: &'static str,
        /// The missing offload.
        needs: &'static str,
    },
}

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

/// Names become part of file names and command lines: no character may have a special meaning there.
pub(crate) fn check_name(what: &'static str, name: &str, max: usize) -> Result<(), SpecError> {
    let fits = (1..=max).contains(&name.len());
    let plain = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    if fits && plain && !name.starts_with('-') {
        return Ok(());
    }
    Err(SpecError::Name { what, name: name.to_owned(), max })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(error.to_string().contains("cannot be the name of a machine; use 1 to 15"), "{error}");
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
            "tcp-segmentation-offload needs tx-checksumming: switch both on, or both off"
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
