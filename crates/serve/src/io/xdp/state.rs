//! The state of the fast path that the server and the address monitor share, and facts about this host.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use udpath_stack::epoch::Reader;
use udpath_stack::tables::Tables;

use super::address_filter::AddressFilter;
use super::arrivals::ArrivalCounter;
use crate::status::Arrivals;

/// See the module.
pub(super) struct FastPathState {
    pub(super) filter: Mutex<AddressFilter>,
    pub(super) arrivals: Mutex<ArrivalCounter>,
    /// Warnings of the last look at the interfaces.
    pub(super) warnings: Mutex<Vec<String>>,
}

impl FastPathState {
    /// What has arrived at the ports so far.
    pub(super) fn arrivals(&self) -> Arrivals {
        lock(&self.arrivals).read(|| lock(&self.filter).taken())
    }
}

/// The usable addresses of this host.
pub(super) fn locals(reader: &mut Reader, tables: &Tables) -> BTreeSet<IpAddr> {
    let all = {
        let guard = reader.pin();
        let view = tables.load(&guard);
        view.addresses.all().iter().filter(|local| local.usable).map(|local| local.address).collect()
    };
    reader.idle();
    all
}

/// Whether `bind` serves `ip`.
pub(super) fn serves(bind: &SocketAddr, ip: IpAddr) -> bool {
    bind.ip() == ip || bind.ip().is_unspecified() && ip.is_ipv4() == bind.is_ipv4()
}

/// Whether an interface has no device of its own. A local sender at its other end, or on the same bridge, leaves UDP
/// checksums to be filled in by a device (`CHECKSUM_PARTIAL`); the kernel accepts those unverified as well. All others
/// are verified.
pub(super) fn is_virtual(interface: &str) -> bool {
    !std::path::Path::new("/sys/class/net").join(interface).join("device").exists()
}

/// Locks a mutex that another thread may have poisoned: none of these states is left half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
