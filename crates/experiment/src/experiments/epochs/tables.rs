//! What a send looks up, each table under the protection that is measured.
//!
//! ```text
//!   port ─▸ sockets (pcb hash) ─▸ interface list ─▸ address of the interface ─▸ neighbours (link-layer table) ─▸ transmit ring
//! ```
//! A table is replaced as a whole by the writer, as routes and sockets change. Under a read lock the lock is held while
//! the entry is used; with a reference count the table's lock is held only until the entry is counted; under an epoch
//! nothing shared is written.

use std::hint::black_box;
use std::sync::{Arc, PoisonError, RwLock};

use udpath_stack::epoch::{Domain, Guard, Table};

/// How readers are protected from the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protection {
    /// A read lock, held during the use.
    ReadLock,
    /// A read lock to find, a reference count during the use.
    Count,
    /// An epoch.
    Epoch,
}

impl Protection {
    pub(super) const ALL: [Self; 3] = [Self::ReadLock, Self::Count, Self::Epoch];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ReadLock => "read lock",
            Self::Count => "reference count",
            Self::Epoch => "epoch",
        }
    }
}

/// A table that is read for every packet and replaced now and then.
pub(super) struct Protected<T> {
    by: Protection,
    locked: RwLock<Arc<T>>,
    table: Table<T>,
}

impl<T: Send + Sync + 'static> Protected<T> {
    pub(super) fn new(by: Protection, domain: &Domain, value: impl Fn() -> T) -> Self {
        Self { by, locked: RwLock::new(Arc::new(value())), table: Table::new(domain, value()) }
    }

    /// Uses the table for one packet. `guard` is that of the packet, whatever protects this table.
    #[inline]
    pub(super) fn with<R>(&self, guard: &Guard<'_>, work: impl FnOnce(&T) -> R) -> R {
        match self.by {
            Protection::Epoch => work(self.table.load(guard)),
            Protection::ReadLock => work(&self.locked.read().unwrap_or_else(PoisonError::into_inner)),
            Protection::Count => {
                let counted = Arc::clone(&self.locked.read().unwrap_or_else(PoisonError::into_inner));
                work(&counted)
            }
        }
    }

    /// Replaces it. With an epoch, waits while as many old tables as the domain holds are still in use.
    pub(super) fn replace(&self, value: T) {
        match self.by {
            Protection::Epoch => {
                let mut next = value;
                while let Err(refused) = self.table.publish(next) {
                    next = refused.value;
                    std::thread::yield_now();
                }
            }
            Protection::ReadLock | Protection::Count => {
                let next = Arc::new(value);
                let old = {
                    let mut current = self.locked.write().unwrap_or_else(PoisonError::into_inner);
                    std::mem::replace(&mut *current, next)
                };
                drop(old);
            }
        }
    }
}

/// Interfaces of the machine: the list is short, and every send walks it.
const INTERFACES: u16 = 4;
/// Neighbours on its links.
const NEIGHBOURS: usize = 256;
/// Bound ports: `readers::read` sends from these.
const SOCKETS: usize = 1024;

/// An interface's address: what a send refers to until it is done.
pub(super) struct Address(u32);

impl Address {
    pub(super) fn new(version: u32) -> Self {
        Self(version)
    }

    #[inline]
    pub(super) fn value(&self) -> u32 {
        self.0
    }
}

/// The interface list.
pub(super) struct Interfaces(Vec<(u16, Arc<Address>)>);

impl Interfaces {
    pub(super) fn new(version: u32) -> Self {
        let address = |number: u16| Arc::new(Address(version.wrapping_add(number.into())));
        Self((0..INTERFACES).map(|number| (number, address(number))).collect())
    }

    /// The address of the interface that a port sends by.
    #[inline]
    pub(super) fn address(&self, port: u16) -> &Arc<Address> {
        let wanted = port % INTERFACES;
        // Not indexed: a list is walked.
        let found = self.0.iter().find(|(number, _)| black_box(*number) == wanted);
        &found.unwrap_or(&self.0[0]).1
    }
}

/// The link-layer table.
pub(super) struct Neighbours(Box<[u64; NEIGHBOURS]>);

impl Neighbours {
    pub(super) fn new(version: u32) -> Self {
        let mut table = Box::new([0; NEIGHBOURS]);
        table.iter_mut().zip(u64::from(version)..).for_each(|(neighbour, mac)| *neighbour = mac);
        Self(table)
    }

    #[inline]
    pub(super) fn look_up(&self, address: u32) -> u32 {
        self.0[address as usize % NEIGHBOURS] as u32
    }
}

/// The pcb hash.
pub(super) struct Sockets(Box<[u32; SOCKETS]>);

impl Sockets {
    pub(super) fn new(version: u32) -> Self {
        let mut table = Box::new([0; SOCKETS]);
        table.iter_mut().zip(0..).for_each(|(socket, port)| *socket = version.wrapping_add(port));
        Self(table)
    }

    #[inline]
    pub(super) fn look_up(&self, port: u16) -> u32 {
        self.0[usize::from(port) % SOCKETS]
    }
}
