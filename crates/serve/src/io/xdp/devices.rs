//! The interfaces of a server: which ones they are, and opening them with the program attached.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use udpath_stack::epoch::Domain;
use udpath_stack::port::Checksums;
use udpath_stack::port::xdp::XdpDevice;
use udpath_stack::tables::{Mirror, Tables};

use super::error::XdpError;
use super::state::{is_virtual, serves};
use crate::config::{Steer, XdpConfig};

/// Readers of the tables besides the workers: the address monitor, and the code that opens the interfaces.
const OTHER_READERS: usize = 2;
/// Replaced tables that may wait for a slow reader: each change of an address replaces one.
const MAX_RETIRED_TABLES: usize = 64;

/// Maximum number of queues, and so of workers that read the tables. No NIC has more.
const MAX_QUEUES: usize = 1024;

/// The interfaces of a server, with the program attached and taking nothing yet.
pub(crate) struct Devices {
    pub(super) devices: Vec<XdpDevice>,
    /// Interfaces named in the configuration, including VLAN devices.
    pub(super) named: Vec<String>,
    pub(super) domain: Domain,
    pub(super) mirror: Mirror,
}

impl Devices {
    /// Finds the interfaces and attaches the program to each. There may be more than `workers` workers: one per queue.
    pub(crate) fn open(binds: &[SocketAddr], config: &XdpConfig, workers: usize) -> Result<Self, XdpError> {
        let readers = workers.max(MAX_QUEUES) + OTHER_READERS;
        let domain = Domain::new(readers, MAX_RETIRED_TABLES);
        let mirror = Mirror::start(&domain).map_err(XdpError::Mirror)?;
        let names = match config.interfaces.as_slice() {
            [] => interfaces_of(binds, &domain, &mirror.tables())?,
            named => named.to_vec(),
        };
        let mut devices = Vec::with_capacity(names.len());
        for name in below_vlans(names, &domain, &mirror.tables())? {
            let mut port = config.port.clone();
            if port.checksums == Checksums::Unverified && is_virtual(&name) {
                port.checksums = Checksums::Partial;
            }
            // Used by steering only.
            port.rx_hash |= config.steer != Steer::Off;
            devices.push(XdpDevice::open(&name, port).map_err(XdpError::on("open", &name))?);
        }
        Ok(Self { devices, named: config.interfaces.clone(), domain, mirror })
    }

    /// Receive queues of all interfaces. There must be at least as many workers.
    pub(crate) fn queues(&self) -> usize {
        self.devices.iter().map(|device| device.queues() as usize).sum()
    }

    /// The names of the interfaces, for messages.
    pub(crate) fn names(&self) -> String {
        self.devices.iter().map(XdpDevice::name).collect::<Vec<_>>().join(", ")
    }
}

/// The interfaces, with each VLAN device replaced by the interface below it, which has the queues and whose program
/// takes the VLAN's tag.
fn below_vlans(names: Vec<String>, domain: &Domain, tables: &Tables) -> Result<BTreeSet<String>, XdpError> {
    let mut reader = domain.register("xdp opener")?;
    let guard = reader.pin();
    let view = tables.load(&guard);
    let below = |name: String| {
        let vlan = view.interfaces.by_name(&name).and_then(|interface| interface.vlan);
        let lower = vlan.and_then(|vlan| view.interfaces.get(vlan.lower));
        lower.map_or(name, |lower| lower.name.clone())
    };
    Ok(names.into_iter().map(below).collect())
}

/// The interfaces that have the served addresses.
fn interfaces_of(binds: &[SocketAddr], domain: &Domain, tables: &Tables) -> Result<Vec<String>, XdpError> {
    let mut reader = domain.register("xdp opener")?;
    let guard = reader.pin();
    let view = tables.load(&guard);
    let mut found = BTreeSet::new();
    for bind in binds {
        let before = found.len();
        let mut loopback = false;
        for local in view.addresses.all().iter().filter(|local| serves(bind, local.address)) {
            match view.interfaces.get(local.interface) {
                // Only an interface with a MAC address has frames.
                Some(interface) if interface.mac.is_some() && !local.address.is_loopback() => {
                    found.insert(interface.name.clone());
                }
                _ => loopback = true,
            }
        }
        if found.len() == before && loopback && !bind.ip().is_unspecified() {
            return Err(XdpError::NotOnDevice(bind.ip()));
        }
    }
    if found.is_empty() {
        return Err(XdpError::NoDevice);
    }
    Ok(found.into_iter().collect())
}
