//! Follows what changes around the workers: this host's addresses, and the interfaces.
//!
//! ```text
//! addresses    20 times a second ─▸ groups, doors: what a wildcard serves
//! interfaces   once a second     ─▸ the program's MAC address; queues, MTU ─▸ warnings
//! ```

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use udpath_stack::epoch::{Reader, Table};
use udpath_stack::groups::Groups;
use udpath_stack::port::xdp::{Change, XdpDevice};
use udpath_stack::tables::{Mirror, Tables};

use super::{Shared, locals, lock};

/// How often the keeper looks at this host's addresses. More seldom: what comes for a new address, to a wildcard, is
/// dropped for that much longer. More often: it takes CPU from the workers for nothing.
const LOOK: Duration = Duration::from_millis(50);
/// Looks at addresses for one at the interfaces, for which files are read: once a second.
const LOOKS_PER_DEVICE: u32 = 20;

/// Follows what changes around the workers.
pub(super) struct Keeper {
    pub(super) shared: Arc<Shared>,
    pub(super) groups: Arc<Table<Groups>>,
    pub(super) reader: Reader,
    /// Kept, so that the tables follow the kernel's.
    pub(super) mirror: Mirror,
    pub(super) tables: Arc<Tables>,
    pub(super) locals: BTreeSet<IpAddr>,
    pub(super) binds: Vec<SocketAddr>,
    /// By device.
    pub(super) held: Vec<Held>,
}

impl Keeper {
    /// Until `stopped` is hung up.
    pub(super) fn run(mut self, stopped: &mpsc::Receiver<()>) {
        let mut looks = 0_u32;
        while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            let now = locals(&mut self.reader, &self.tables);
            let held = if now == self.locals { None } else { self.publish(now) };
            looks += 1;
            if looks < LOOKS_PER_DEVICE {
                continue;
            }
            looks = 0;
            let mut warnings: Vec<_> = held.into_iter().collect();
            for (device, held) in lock(&self.shared.doors).devices.iter_mut().zip(&self.held) {
                warnings.extend(follow(device, *held));
            }
            if let udpath_stack::tables::State::Ended(why) = self.mirror.status().state {
                warnings.push(format!("addresses that change are not noticed any more: {why}"));
            }
            *lock(&self.shared.warnings) = warnings;
        }
    }

    fn publish(&mut self, now: BTreeSet<IpAddr>) -> Option<String> {
        let groups = Groups::new(&self.binds, now.iter().copied()).ok()?;
        // Nothing is taken that the workers do not know: what goes is left before, what is new is entered after.
        let mut doors = lock(&self.shared.doors);
        doors.leave(now.clone());
        let published = self.groups.publish(groups).map_err(|error| error.to_string());
        match published.and_then(|()| doors.enter().map_err(|error| error.to_string())) {
            Ok(()) => {
                self.locals = now;
                None
            }
            // Tried again at the next look.
            Err(error) => Some(format!("new addresses are served by the kernel for now: {error}")),
        }
    }
}

/// What of an interface the workers' ports were made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    queues: u32,
    mtu: u32,
}

impl Held {
    pub(super) fn of(device: &XdpDevice) -> Self {
        Self { queues: device.queues(), mtu: device.mtu() }
    }
}

/// Takes the interface as it is now. What is no longer as its ports are, in sentences.
fn follow(device: &mut XdpDevice, held: Held) -> Vec<String> {
    let name = device.name().to_owned();
    match device.changed() {
        None => {}
        Some(Change::Gone) => {
            return vec![format!("interface {name} is gone: what comes elsewhere is served by the kernel")];
        }
        Some(_) => {
            if let Err(error) = device.follow() {
                return vec![error.to_string()];
            }
        }
    }
    let Held { queues, mtu } = held;
    let now = Held::of(device);
    let mut sentences = Vec::new();
    if now.queues > queues {
        sentences.push(format!(
            "interface {name} has {} queues now, it had {queues}: what comes on the new ones is served over kernel \
             sockets; restart to take it",
            now.queues
        ));
    }
    if now.queues < queues {
        sentences.push(format!(
            "interface {name} has {} queues now, it had {queues}: the workers of those that are gone serve kernel \
             sockets; restart to have fewer",
            now.queues
        ));
    }
    if now.mtu < mtu {
        sentences.push(format!(
            "interface {name} has an MTU of {} now, it had {mtu}: longer replies are lost until a restart",
            now.mtu
        ));
    }
    sentences
}
