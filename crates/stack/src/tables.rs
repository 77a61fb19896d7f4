//! The parts of the kernel's control plane that the datapath needs: interfaces, local addresses, neighbours and
//! routes, as immutable tables under epochs. The kernel stays the control plane; this module only queries it.
//!
//! ```text
//!             Mirror (a thread; rtnetlink)                  Resolver (has the kernel resolve neighbours)
//!               | publishes, at most every 20 ms              ^ Resolver::ask
//!   Tables      v                                             |
//!   ├─ Interfaces      mac, mtu, up, running                  |
//!   ├─ LocalAddresses  is_local, is_broadcast, source_for     |       each is an immutable value; a change replaces
//!   ├─ Neighbours      (interface, IP) -> MAC, state          |       the value
//!   └─ Routes          longest prefix -> interface, gateway   |
//!               | Tables::load(guard), once per burst         |
//!               v                                             |
//!             View --path(destination)--> Path or NoPath -----┘
//! ```
//! A server that only replies needs little of this: replies reverse the addresses of their requests, and the only
//! lookup is [`LocalAddresses::is_local`]. An application that sends first needs the whole [`Path`].
//!
//! # What the kernel does and this does not
//! - Policy routing: only the main table is used, whatever the rules (`ip rule`) say; VRFs are rules as well. Routes
//!   for one traffic class or one source prefix are ignored.
//! - Multipath routes: the first live hop takes all traffic; the kernel spreads flows over them.
//! - Path MTUs learned from ICMP, redirects, and IPv6 router preferences.
//!
//! Applications that need these use a kernel socket.

mod addresses;
mod hash;
mod interfaces;
#[cfg(not(loom))]
mod mirror;
mod neighbours;
#[cfg(not(loom))]
mod next_hop;
mod path;
mod prefixes;
#[cfg(not(loom))]
mod resolve;
mod routes;
#[cfg(not(loom))]
mod rules;

use std::fmt;

use crate::epoch::{Domain, Guard, Table};

pub use addresses::{LocalAddress, LocalAddresses};
pub use interfaces::{Interface, Interfaces, Vlan};
#[cfg(not(loom))]
pub use mirror::{Mirror, MirrorError, State, Status};
pub use neighbours::{Neighbour, Neighbours};
#[cfg(not(loom))]
pub use next_hop::{NextHop, NextHops};
pub use path::{NoPath, Path, View};
#[cfg(not(loom))]
pub use resolve::Resolver;
pub use routes::{Hop, Route, Routes};
#[cfg(not(loom))]
pub use rules::has_policy_rules;

/// The current tables. A [`Mirror`] publishes them; tests and models publish their own.
pub struct Tables {
    /// The interfaces.
    pub interfaces: Table<Interfaces>,
    /// The host's addresses.
    pub addresses: Table<LocalAddresses>,
    /// The neighbours on the links.
    pub neighbours: Table<Neighbours>,
    /// The routes.
    pub routes: Table<Routes>,
}

impl Tables {
    /// Empty tables for readers of `domain`.
    #[must_use]
    pub fn new(domain: &Domain) -> Self {
        Self {
            interfaces: Table::new(domain, Interfaces::default()),
            addresses: Table::new(domain, LocalAddresses::default()),
            neighbours: Table::new(domain, Neighbours::default()),
            routes: Table::new(domain, Routes::default()),
        }
    }

    /// The current values of all tables, valid while the guard lives: four loads.
    ///
    /// # Panics
    /// If the guard is from a reader of another domain.
    #[must_use]
    #[inline]
    pub fn load<'g>(&'g self, guard: &'g Guard<'_>) -> View<'g> {
        View {
            interfaces: self.interfaces.load(guard),
            addresses: self.addresses.load(guard),
            neighbours: self.neighbours.load(guard),
            routes: self.routes.load(guard),
        }
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The contents are accessible to readers only.
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}
