//! The addresses that the instances share, and which of their sockets the kernel chooses from: a [`Selection`] for each
//! address, in which an instance has the same slot.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use udpath_bpf::{Selection, SelectionRule as Rule};
use udpath_host::process::{SocketId, with_socket};

use crate::Error;
use crate::sockets::Bound;

/// The shared addresses.
#[derive(Debug)]
pub(crate) struct Shares {
    rule: Rule,
    slots: u32,
    by_address: BTreeMap<SocketAddr, Share>,
}

/// One address.
#[derive(Debug)]
struct Share {
    /// `None` until the first socket is known.
    selection: Option<Selection>,
    sockets: BTreeMap<u32, SocketId>,
    admitted: BTreeSet<u32>,
}

impl Shares {
    pub(crate) const fn new(rule: Rule, slots: u32) -> Self {
        Self { rule, slots, by_address: BTreeMap::new() }
    }

    /// The addresses; empty until the first instance has bound them.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.by_address.keys().copied().collect()
    }

    /// These are the addresses from now on.
    pub(crate) fn share(&mut self, addresses: impl IntoIterator<Item = SocketAddr>) {
        for address in addresses {
            self.by_address.entry(address).or_insert_with(|| Share {
                selection: None,
                sockets: BTreeMap::new(),
                admitted: BTreeSet::new(),
            });
        }
    }

    /// Puts the sockets of an instance into its slot: they get queries from `query`, a source port, and nothing else.
    /// Sockets at other addresses are left alone, and so is one that is in the slot already.
    pub(crate) fn hold(&mut self, slot: u32, sockets: &[Bound], query: Option<u16>) -> Result<(), Error> {
        for socket in sockets {
            let Some(share) = self.by_address.get_mut(&socket.local) else { continue };
            if share.sockets.get(&slot) == Some(&socket.id) {
                continue;
            }
            let (rule, slots) = (self.rule, self.slots);
            let mut put = |held: BorrowedFd<'_>| -> Result<(), udpath_bpf::Error> {
                let selection = match &mut share.selection {
                    Some(selection) => selection,
                    None => {
                        let selection = Selection::load_for_queries(rule, slots)?;
                        share.selection.insert(selection)
                    }
                };
                selection.hold(slot, held)?;
                // Again for each socket: the group of earlier ones is gone if all of them were closed.
                selection.attach_to(held)?;
                if let Some(port) = query {
                    selection.ask(slot, port)?;
                }
                Ok(())
            };
            with_socket(socket.pid, socket.id, |held| Ok(put(held)))??;
            share.sockets.insert(slot, socket.id);
            if share.admitted.contains(&slot) {
                share.selection.as_mut().map_or(Ok(()), |selection| selection.admit(slot))?;
            }
        }
        Ok(())
    }

    /// From now on the slot gets datagrams.
    pub(crate) fn admit(&mut self, slot: u32) -> Result<(), Error> {
        for share in self.by_address.values_mut() {
            share.admitted.insert(slot);
            if let Some(selection) = &mut share.selection {
                selection.admit(slot)?;
            }
        }
        Ok(())
    }

    /// From now on the slot gets queries only.
    pub(crate) fn retire(&mut self, slot: u32) -> Result<(), Error> {
        for share in self.by_address.values_mut() {
            share.admitted.remove(&slot);
            if let Some(selection) = &mut share.selection {
                selection.retire(slot)?;
            }
        }
        Ok(())
    }

    /// The slot's sockets are closed, or about to be.
    pub(crate) fn empty(&mut self, slot: u32) -> Result<(), Error> {
        for share in self.by_address.values_mut() {
            share.admitted.remove(&slot);
            if share.sockets.remove(&slot).is_some()
                && let Some(selection) = &mut share.selection
            {
                selection.set(slot, None)?;
            }
        }
        Ok(())
    }

    /// Datagrams given to a slot, over all addresses.
    pub(crate) fn datagrams(&self, slot: u32) -> Result<u64, Error> {
        let mut sum = 0;
        for selection in self.by_address.values().filter_map(|share| share.selection.as_ref()) {
            sum += selection.datagrams()?.get(slot as usize).copied().unwrap_or(0);
        }
        Ok(sum)
    }
}
