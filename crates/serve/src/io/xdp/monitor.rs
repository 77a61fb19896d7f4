//! Follows what changes around the workers: this host's addresses, and the interfaces.
//!
//! ```text
//! addresses    20 times a second ─▸ groups, doors: what a wildcard serves
//!                  at each change ─▸ ingress: senders and VLANs that are taken
//! interfaces   as rtnetlink says  ─▸ the program's MAC address, the ports' longest frame; warnings
//!              once a second     ─▸ the same, and queues, of which rtnetlink does not say how many are in use
//! routes, rp_filter, VLANs  once a second ─▸ ingress
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

use super::ingress::Ingress;
use super::state::{Shared, locals, lock};

/// How often this host's addresses and interfaces are compared with what they were. Longer: what comes for a new address,
/// to a wildcard, is dropped for that much longer, and so are replies longer than a new MTU. Shorter: it takes CPU from
/// the workers for nothing.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How many of these make a second, after which the interfaces' files are read although rtnetlink said nothing.
const POLLS_PER_DEVICE_CHECK: u32 = 20;

/// Follows what changes around the workers.
pub(super) struct AddressMonitor {
    pub(super) shared: Arc<Shared>,
    pub(super) groups: Arc<Table<Groups>>,
    pub(super) reader: Reader,
    /// Kept, so that the tables follow the kernel's.
    pub(super) mirror: Mirror,
    pub(super) tables: Arc<Tables>,
    pub(super) locals: BTreeSet<IpAddr>,
    pub(super) binds: Vec<SocketAddr>,
    /// Interfaces that were asked for.
    pub(super) named: Vec<String>,
    /// By device.
    pub(super) held: Vec<InterfaceState>,
}

impl AddressMonitor {
    /// Until `stopped` is hung up.
    pub(super) fn run(mut self, stopped: &mpsc::Receiver<()>) {
        let (mut polls, mut generation) = (0_u32, self.generation());
        while stopped.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let now = locals(&mut self.reader, &self.tables);
            let held = if now == self.locals { None } else { self.publish(now) };
            polls += 1;
            let before = std::mem::replace(&mut generation, self.generation());
            if polls < POLLS_PER_DEVICE_CHECK && before == generation {
                continue;
            }
            polls = 0;
            // So that no counter wraps unseen, and what goes wrong is found without anyone asking.
            let _ = self.shared.arrivals();
            let mut warnings: Vec<_> = held.into_iter().collect();
            for (device, held) in lock(&self.shared.filter).devices.iter_mut().zip(&self.held) {
                warnings.extend(follow(device, *held));
            }
            warnings.extend(self.follow_ingress());
            if let udpath_stack::tables::State::Ended(why) = self.mirror.status().state {
                warnings.push(format!("addresses that change are not noticed any more: {why}"));
            }
            *lock(&self.shared.warnings) = warnings;
        }
    }

    /// Has the programs take what they may as the machine is now. What they cannot leave to the kernel, in sentences.
    fn follow_ingress(&mut self) -> Vec<String> {
        let mut filter = lock(&self.shared.filter);
        let all: Vec<_> = {
            let guard = self.reader.pin();
            let view = self.tables.load(&guard);
            let of = |device: &XdpDevice| Ingress::of(device, &view, &self.binds, &self.named);
            filter.devices.iter().map(of).collect()
        };
        self.reader.idle();
        let mut sentences = Vec::new();
        for (device, ingress) in filter.devices.iter_mut().zip(all) {
            sentences.extend(ingress.apply(device).err());
            sentences.extend(ingress.sentences);
        }
        sentences
    }

    /// Another one each time that rtnetlink told of an interface.
    fn generation(&mut self) -> u64 {
        let generation = self.tables.load(&self.reader.pin()).interfaces.generation();
        self.reader.idle();
        generation
    }

    fn publish(&mut self, now: BTreeSet<IpAddr>) -> Option<String> {
        let groups = Groups::new(&self.binds, now.iter().copied()).ok()?;
        // A new address is no longer a sender's before it is served.
        self.follow_ingress();
        // Nothing is taken that the workers do not know: what goes is left before, what is new is entered after.
        let mut filter = lock(&self.shared.filter);
        filter.set_locals(now.clone());
        let published = self.groups.publish(groups).map_err(|error| error.to_string());
        match published.and_then(|()| filter.add_new().map_err(|error| error.to_string())) {
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
pub(super) struct InterfaceState {
    queues: u32,
    mtu: u32,
}

impl InterfaceState {
    pub(super) fn of(device: &XdpDevice) -> Self {
        Self { queues: device.queues(), mtu: device.mtu() }
    }
}

/// Takes the interface as it is now. What is no longer as its ports are, in sentences.
fn follow(device: &mut XdpDevice, held: InterfaceState) -> Vec<String> {
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
    let InterfaceState { queues, mtu } = held;
    let now = InterfaceState::of(device);
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
            "interface {name} has an MTU of {} now, it had {mtu}: the kernel sends longer replies, in fragments",
            now.mtu
        ));
    }
    sentences
}
