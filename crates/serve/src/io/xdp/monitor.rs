//! Follows changes of this host's addresses and interfaces.
//!
//! ```text
//! addresses    20 times a second  ─▸ groups, address filter: what a wildcard serves
//!              at each change     ─▸ ingress: senders and VLANs to take
//! interfaces   rtnetlink message  ─▸ the program's MAC address, the ports' longest frame; warnings
//!              once a second      ─▸ the same, and the number of queues, which rtnetlink does not report
//! routes, rp_filter, VLANs  once a second ─▸ ingress
//! ```

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use error_reporter::Report;
use udpath_stack::epoch::{Reader, Table};
use udpath_stack::groups::Groups;
use udpath_stack::port::xdp::{InterfaceChange, XdpDevice};
use udpath_stack::tables::{Mirror, Tables};

use super::ingress::Ingress;
use super::state::{FastPathState, locals, lock};

/// How often this host's addresses and interfaces are compared with their last state. A longer interval drops datagrams
/// for a new address of a wildcard bind, and replies longer than a new MTU, for longer; a shorter one takes CPU time
/// from the workers without need.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Polls in a second, after which the interfaces' files are read even without an rtnetlink message.
const POLLS_PER_DEVICE_CHECK: u32 = 20;

/// See the module.
pub(super) struct AddressMonitor {
    pub(super) shared: Arc<FastPathState>,
    pub(super) groups: Arc<Table<Groups>>,
    pub(super) reader: Reader,
    /// Keeps `tables` up to date with the kernel's.
    pub(super) mirror: Mirror,
    pub(super) tables: Arc<Tables>,
    pub(super) locals: BTreeSet<IpAddr>,
    pub(super) binds: Vec<SocketAddr>,
    /// Interfaces named in the configuration.
    pub(super) named: Vec<String>,
    /// By device: the state the workers' ports were opened with.
    pub(super) opened_with: Vec<InterfaceState>,
}

impl AddressMonitor {
    /// Runs until the sender of `stopped` is dropped.
    pub(super) fn run(mut self, stopped: &mpsc::Receiver<()>) {
        let (mut polls, mut generation) = (0_u32, self.generation());
        while stopped.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let now = locals(&mut self.reader, &self.tables);
            let warning = if now == self.locals { None } else { self.publish(now) };
            polls += 1;
            let before = std::mem::replace(&mut generation, self.generation());
            if polls < POLLS_PER_DEVICE_CHECK && before == generation {
                continue;
            }
            polls = 0;
            // Read regularly, so that no counter wraps unnoticed and failures are found even if the status is not read.
            let _ = self.shared.arrivals();
            let mut warnings: Vec<_> = warning.into_iter().collect();
            for (device, opened_with) in lock(&self.shared.filter).devices.iter_mut().zip(&self.opened_with) {
                warnings.extend(follow(device, *opened_with));
            }
            warnings.extend(self.follow_ingress());
            if let udpath_stack::tables::State::Ended(why) = self.mirror.status().state {
                warnings.push(format!("changes of addresses are no longer noticed: {why}"));
            }
            *lock(&self.shared.warnings) = warnings;
        }
    }

    /// Sets what the programs may take in the current state of the host. Returns warnings about what they cannot leave
    /// to the kernel.
    fn follow_ingress(&mut self) -> Vec<String> {
        let mut filter = lock(&self.shared.filter);
        let all: Vec<_> = {
            let guard = self.reader.pin();
            let view = self.tables.load(&guard);
            let of = |device: &XdpDevice| Ingress::of(device, &view, &self.binds, &self.named);
            filter.devices.iter().map(of).collect()
        };
        self.reader.idle();
        let mut warnings = Vec::new();
        for (device, ingress) in filter.devices.iter_mut().zip(all) {
            warnings.extend(ingress.apply(device).err().map(|error| Report::new(error).to_string()));
            warnings.extend(ingress.warnings);
        }
        warnings
    }

    /// A number that changes with each rtnetlink message about an interface.
    fn generation(&mut self) -> u64 {
        let generation = self.tables.load(&self.reader.pin()).interfaces.generation();
        self.reader.idle();
        generation
    }

    /// Serves the addresses `now`. Returns a warning if that failed; the next poll tries again.
    fn publish(&mut self, now: BTreeSet<IpAddr>) -> Option<String> {
        let groups = Groups::new(&self.binds, now.iter().copied()).ok()?;
        // A new address must no longer be accepted as a sender once it is served.
        self.follow_ingress();
        // The programs take nothing the workers do not know: removed addresses go before, new ones come after.
        let mut filter = lock(&self.shared.filter);
        filter.set_locals(now.clone());
        let published = self.groups.publish(groups).map_err(|error| Report::new(error).to_string());
        match published.and_then(|()| filter.add_new().map_err(|error| Report::new(error).to_string())) {
            Ok(()) => {
                self.locals = now;
                None
            }
            Err(error) => Some(format!("new addresses are served over kernel sockets for now: {error}")),
        }
    }
}

/// The properties of an interface that the workers' ports depend on.
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

/// Adapts to the interface as it is now. Returns warnings about differences from the state its ports were opened with.
fn follow(device: &mut XdpDevice, opened_with: InterfaceState) -> Vec<String> {
    let name = device.name().to_owned();
    match device.changed() {
        None => {}
        Some(InterfaceChange::Gone) => {
            return vec![format!(
                "interface {name} is gone; datagrams that arrive elsewhere are served over kernel sockets"
            )];
        }
        Some(_) => {
            if let Err(error) = device.refresh() {
                return vec![Report::new(error).to_string()];
            }
        }
    }
    let InterfaceState { queues, mtu } = opened_with;
    let now = InterfaceState::of(device);
    let mut warnings = Vec::new();
    if now.queues > queues {
        warnings.push(format!(
            "interface {name} has {} queues now, {queues} at the start: the new ones are served over kernel sockets; restart \
             to serve them with xdp",
            now.queues
        ));
    }
    if now.queues < queues {
        warnings.push(format!(
            "interface {name} has {} queues now, {queues} at the start: workers without a queue serve kernel sockets only; \
             restart to run fewer",
            now.queues
        ));
    }
    if now.mtu < mtu {
        warnings.push(format!(
            "interface {name} has an MTU of {} now, {mtu} at the start: the kernel sends longer replies, in fragments",
            now.mtu
        ));
    }
    warnings
}
