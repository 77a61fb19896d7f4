//! The addresses that the instances share, and which of their sockets the kernel chooses from: a [`Selection`] for each
//! address, in which an instance has the same slot.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use udpath_bpf::{Selection, SelectionRule as Rule, grace_period};
use udpath_host::process::{self, SocketId, with_socket};

use crate::Error;
use crate::kept::Kept;
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
    /// By slot: the socket, and a process that has it.
    sockets: BTreeMap<u32, (SocketId, u32)>,
    admitted: BTreeSet<u32>,
    /// Those of instances that have left.
    kept: Kept,
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
                kept: Kept::default(),
            });
        }
    }

    /// Puts the sockets of an instance into its slot: they get queries from `query`, a source port, and nothing else.
    /// Sockets at other addresses are left alone, and so is one that is in the slot already.
    pub(crate) fn hold(&mut self, slot: u32, sockets: &[Bound], query: Option<u16>) -> Result<(), Error> {
        for socket in sockets {
            let Some(share) = self.by_address.get_mut(&socket.local) else { continue };
            if share.sockets.get(&slot).is_some_and(|(id, _)| *id == socket.id) {
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
            share.sockets.insert(slot, (socket.id, socket.pid));
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

    /// From now on the slot gets queries only. What it was given before is in its queue when this returns.
    pub(crate) fn retire(&mut self, slot: u32) -> Result<(), Error> {
        for share in self.by_address.values_mut() {
            share.remove_admitted(slot);
            if let Some(selection) = &mut share.selection {
                selection.retire(slot)?;
            }
        }
        grace_period();
        Ok(())
    }

    /// Keeps the slot's sockets open when the process that has them ends, as far as closing them could lose datagrams
    /// of other slots. `started`: when the process was started.
    pub(crate) fn keep_open(&mut self, slot: u32, started: Instant, now: Instant) -> Result<(), Error> {
        for (address, share) in &mut self.by_address {
            let Some((socket, pid)) = share.sockets.get(&slot).copied() else { continue };
            if share.admitted.is_empty() || !share.kept.is_needed(*address, started) {
                continue;
            }
            let duplicate = with_socket(pid, socket, |held| {
                held.try_clone_to_owned().map_err(|cause| {
                    let what = format!("duplicate socket {} of process {pid}", socket.inode);
                    process::Error::System { what, cause }
                })
            });
            match duplicate {
                Ok(duplicate) => share.kept.keep(duplicate, now),
                // Closed already.
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Closes kept sockets that come after those of an instance which has bound its own since: `started` is its start.
    pub(crate) fn close_passed(&mut self, started: Instant) {
        let passed = self.by_address.iter_mut().map(|(address, share)| share.kept.passed(*address, started));
        let passed: Vec<OwnedFd> = passed.flatten().collect();
        if !passed.is_empty() {
            // A lookup may have begun before the other one was bound.
            grace_period();
        }
    }

    /// The slot's sockets are closed, or about to be.
    pub(crate) fn empty(&mut self, slot: u32) -> Result<(), Error> {
        for share in self.by_address.values_mut() {
            share.remove_admitted(slot);
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

impl Share {
    /// Without any admitted one the kernel's hash chooses: not one that is kept, which is not read.
    fn remove_admitted(&mut self, slot: u32) {
        self.admitted.remove(&slot);
        if self.admitted.is_empty() {
            self.kept.clear();
        }
    }
}

#[cfg(test)]
mod tests;
