//! The interfaces of a server: found, and opened with the program attached.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use udpath_stack::epoch::Domain;
use udpath_stack::port::Checksums;
use udpath_stack::port::xdp::XdpDevice;
use udpath_stack::tables::{Mirror, Tables};

use super::state::{is_virtual, serves};
use crate::config::{Steer, XdpConfig};
use crate::error::Error;

/// Readers beside the workers: the keeper, and the one that opens.
const OTHER_READERS: usize = 2;
/// Tables that may wait for a reader that is slow: each change of an address makes one.
const MAX_RETIRED_TABLES: usize = 64;

/// Most queues that workers can be made for: as many readers of the tables there may be. More than any NIC has.
const MAX_QUEUES: usize = 1024;

/// The interfaces of a server, with the program attached and nothing taken yet.
pub(crate) struct Devices {
    pub(super) devices: Vec<XdpDevice>,
    /// Interfaces that were asked for, VLAN devices among them.
    pub(super) named: Vec<String>,
    pub(super) domain: Domain,
    pub(super) mirror: Mirror,
}

impl Devices {
    /// Finds the interfaces and attaches the program to each, for `workers` and as many more as the queues take.
    pub(crate) fn open(binds: &[SocketAddr], config: &XdpConfig, workers: usize) -> Result<Self, Error> {
        let no = |error: &dyn std::fmt::Display| Error::Xdp(error.to_string());
        // Room for workers: each queue may need one.
        let readers = workers.max(MAX_QUEUES) + OTHER_READERS;
        let domain = Domain::new(readers, MAX_RETIRED_TABLES);
        let mirror = Mirror::start(&domain).map_err(|error| no(&error))?;
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
            // Without steering nobody looks at it.
            port.rx_hash |= config.steer != Steer::Off;
            devices.push(XdpDevice::open(&name, port).map_err(|error| no(&error))?);
        }
        Ok(Self { devices, named: config.interfaces.clone(), domain, mirror })
    }

    /// Receive queues of all of them: as many workers are needed at least.
    pub(crate) fn queues(&self) -> usize {
        self.devices.iter().map(|device| device.queues() as usize).sum()
    }

    /// The interfaces, for sentences.
    pub(crate) fn names(&self) -> String {
        self.devices.iter().map(XdpDevice::name).collect::<Vec<_>>().join(", ")
    }
}

/// The same interfaces, with VLAN devices replaced by what they are VLANs of, which has the queues. Its program takes
/// their tags.
fn below_vlans(names: Vec<String>, domain: &Domain, tables: &Tables) -> Result<BTreeSet<String>, Error> {
    let mut reader = domain.register("xdp opener").map_err(|error| Error::Xdp(error.to_string()))?;
    let guard = reader.pin();
    let view = tables.load(&guard);
    let below = |name: String| {
        let vlan = view.interfaces.by_name(&name).and_then(|interface| interface.vlan);
        let lower = vlan.and_then(|vlan| view.interfaces.get(vlan.lower));
        lower.map_or(name, |lower| lower.name.clone())
    };
    Ok(names.into_iter().map(below).collect())
}

/// The interfaces that have the addresses served.
fn interfaces_of(binds: &[SocketAddr], domain: &Domain, tables: &Tables) -> Result<Vec<String>, Error> {
    let mut reader = domain.register("xdp opener").map_err(|error| Error::Xdp(error.to_string()))?;
    let guard = reader.pin();
    let view = tables.load(&guard);
    let mut found = BTreeSet::new();
    for bind in binds {
        let before = found.len();
        let mut loopback = false;
        for local in view.addresses.all().iter().filter(|local| serves(bind, local.address)) {
            match view.interfaces.get(local.interface) {
                // Only what has a MAC address has frames.
                Some(interface) if interface.mac.is_some() && !local.address.is_loopback() => {
                    found.insert(interface.name.clone());
                }
                _ => loopback = true,
            }
        }
        if found.len() == before && loopback && !bind.ip().is_unspecified() {
            return Err(Error::Xdp(format!(
                "{} is no address of a network device; serve one, or use reuseport",
                bind.ip()
            )));
        }
    }
    if found.is_empty() {
        return Err(Error::Xdp(
            "no network device has an address that is served; name one with --interface".into(),
        ));
    }
    Ok(found.into_iter().collect())
}
