//! What the datapath must know of the kernel's control plane: interfaces, local addresses, neighbours and routes, as
//! immutable tables under epochs. The kernel stays the control plane; nothing here is ever told to it but questions.
//!
//! ```text
//!             Mirror (a thread; rtnetlink)                  Resolver (asks the kernel for neighbours)
//!               | publishes, at most every 20 ms              ^ Resolver::ask
//!   Tables      v                                             |
//!   ├─ Interfaces      mac, mtu, up, running                  |
//!   ├─ LocalAddresses  is_local, is_broadcast, source_for     |       each is a value that never changes; a change is
//!   ├─ Neighbours      (interface, IP) -> MAC, state          |       a new value in its place
//!   └─ Routes          longest prefix -> interface, gateway   |
//!               | Tables::load(guard), once per burst         |
//!               v                                             |
//!             View --path(destination)--> Path or NoPath -----┘
//! ```
//! A server that answers needs little of it: replies reflect the addresses of their requests, and all it asks is
//! [`LocalAddresses::is_local`]. An application that sends first asks for the whole [`Path`].
//!
//! # What the kernel would do and this does not
//! - Policy routing: the main table is all there is, whatever rules (`ip rule`) say; VRFs are rules as well. Routes for
//!   one traffic class or one source prefix do not count.
//! - Several hops of one route: the first that lives takes all; the kernel spreads flows over them.
//! - Path MTUs learned from ICMP, redirects, and IPv6 router preferences.
//!
//! Who needs these sends by a kernel socket.

mod addresses;
mod hash;
mod interfaces;
#[cfg(not(loom))]
mod mirror;
mod neighbours;
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
pub use path::{NoPath, Path, View};
#[cfg(not(loom))]
pub use resolve::Resolver;
pub use routes::{Hop, Route, Routes};
#[cfg(not(loom))]
pub use rules::has_policy_rules;

/// The tables as they are now. A [`Mirror`] publishes them; tests and models publish their own.
pub struct Tables {
    /// The interfaces.
    pub interfaces: Table<Interfaces>,
    /// The machine's addresses.
    pub addresses: Table<LocalAddresses>,
    /// Who is on the links.
    pub neighbours: Table<Neighbours>,
    /// Which way to go.
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

    /// All of them, as they are now, for as long as the guard lives: four loads.
    ///
    /// # Panics
    /// If the guard is of a reader of another domain.
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
        // What is in them can be seen only by a reader.
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}
