//! The machines of a running lab, whichever process owns it.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::site::Site;
use crate::{Blueprint, Error, Machine};

/// What a running lab consists of.
#[derive(Debug)]
pub struct Topology {
    blueprint: Blueprint,
    machines: Vec<Machine>,
}

/// Addresses of one machine on the link that reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The IPv4 address.
    pub ipv4: Ipv4Addr,
    /// The IPv6 address.
    pub ipv6: Ipv6Addr,
}

impl Topology {
    pub(crate) fn new(blueprint: Blueprint, sites: Vec<Arc<Site>>) -> Self {
        let machines = sites.into_iter().map(|site| Machine::new(site, &blueprint)).collect();
        Self { blueprint, machines }
    }

    /// The lab's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.blueprint.name
    }

    /// Every name, address and number in it.
    #[must_use]
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// In the order in which they were added.
    #[must_use]
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// The machine with this name.
    ///
    /// # Errors
    /// It does not exist.
    pub fn machine(&self, name: &str) -> Result<&Machine, Error> {
        self.machines.iter().find(|machine| machine.name() == name).ok_or_else(|| Error::UnknownMachine {
            lab: self.name().to_owned(),
            machine: name.to_owned(),
            known: self.machines.iter().map(Machine::name).collect::<Vec<_>>().join(", "),
        })
    }

    /// The addresses of `of` as seen from `seen_from`: those of its end of their first link.
    ///
    /// # Errors
    /// No such machines, or no link between them.
    pub fn address_of(&self, of: &str, seen_from: &str) -> Result<Addresses, Error> {
        self.machine(of)?;
        let peer = self.machine(seen_from)?.towards(of)?.peer();
        Ok(Addresses { ipv4: peer.ipv4[0], ipv6: peer.ipv6[0] })
    }
}
