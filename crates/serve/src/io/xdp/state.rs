//! State of the interfaces that the server and the address monitor share.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use udpath_stack::epoch::Reader;
use udpath_stack::tables::Tables;

use super::address_filter::AddressFilter;
use super::arrivals::ArrivalCounter;
use crate::status::Arrivals;

pub(super) struct Shared {
    pub(super) filter: Mutex<AddressFilter>,
    pub(super) arrivals: Mutex<ArrivalCounter>,
    pub(super) warnings: Mutex<Vec<String>>,
}

impl Shared {
    /// What came to the ports so far.
    pub(super) fn arrivals(&self) -> Arrivals {
        lock(&self.arrivals).read(|| lock(&self.filter).taken())
    }
}

/// This host's addresses.
pub(super) fn locals(reader: &mut Reader, tables: &Tables) -> BTreeSet<IpAddr> {
    let all = {
        let guard = reader.pin();
        let view = tables.load(&guard);
        view.addresses.all().iter().filter(|local| local.usable).map(|local| local.address).collect()
    };
    reader.idle();
    all
}

/// Is this address served by this bind?
pub(super) fn serves(bind: &SocketAddr, ip: IpAddr) -> bool {
    bind.ip() == ip || bind.ip().is_unspecified() && ip.is_ipv4() == bind.is_ipv4()
}

/// An interface without a device of its own: a local sender at its other end, or on the same bridge, leaves UDP checksums
/// for a device to fill in (`CHECKSUM_PARTIAL`). The kernel takes those unverified as well; all others are verified.
pub(super) fn is_virtual(interface: &str) -> bool {
    !std::path::Path::new("/sys/class/net").join(interface).join("device").exists()
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
