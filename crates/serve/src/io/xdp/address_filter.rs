//! The interfaces, and for which addresses their programs take datagrams.
//!
//! Of a wildcard these are this host's addresses, one by one. Everything else that comes to the port stays with the
//! kernel, which knows what it is: a subnet's broadcast address, a route to the host itself, a datagram to be forwarded.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use udpath_stack::port::xdp::XdpDevice;

use crate::error::Error;

/// See the module.
pub(super) struct AddressFilter {
    pub(super) devices: Vec<XdpDevice>,
    binds: Vec<SocketAddr>,
    /// This host's addresses.
    locals: BTreeSet<IpAddr>,
    /// What is taken now; `None` before and after.
    active: Option<BTreeSet<SocketAddr>>,
}

impl AddressFilter {
    /// Nothing is taken yet.
    pub(super) fn new(devices: Vec<XdpDevice>, binds: Vec<SocketAddr>, locals: BTreeSet<IpAddr>) -> Self {
        Self { devices, binds, locals, active: None }
    }

    /// Begins to take what is for the addresses served.
    pub(super) fn start(&mut self) -> Result<(), Error> {
        self.active = Some(BTreeSet::new());
        self.add_new()
    }

    /// Takes also what is for new addresses of this host, unless the doors are closed.
    pub(super) fn add_new(&mut self) -> Result<(), Error> {
        let Some(active) = &mut self.active else { return Ok(()) };
        for address in served(&self.binds, &self.locals) {
            if active.contains(&address) {
                continue;
            }
            for device in &mut self.devices {
                device.bind(address).map_err(|error| Error::Xdp(error.to_string()))?;
            }
            active.insert(address);
        }
        Ok(())
    }

    /// This host's addresses are `locals` from now on: leaves to the kernel what is for others.
    pub(super) fn set_locals(&mut self, locals: BTreeSet<IpAddr>) {
        self.locals = locals;
        let Some(active) = &mut self.active else { return };
        let served = served(&self.binds, &self.locals);
        for address in active.difference(&served) {
            for device in &mut self.devices {
                device.unbind(*address);
            }
        }
        active.retain(|address| served.contains(address));
    }

    /// Frames that the programs took so far.
    pub(super) fn taken(&self) -> u64 {
        self.devices.iter().map(XdpDevice::taken).sum()
    }

    /// Leaves everything that comes from now on to the kernel, for good.
    pub(super) fn stop(&mut self) {
        for address in self.active.take().unwrap_or_default() {
            for device in &mut self.devices {
                device.unbind(address);
            }
        }
    }
}

/// The addresses of `binds`, wildcards as those of `locals` of their family.
fn served(binds: &[SocketAddr], locals: &BTreeSet<IpAddr>) -> BTreeSet<SocketAddr> {
    let of = |bind: &SocketAddr| {
        let (wildcard, ipv4, port) = (bind.ip().is_unspecified(), bind.is_ipv4(), bind.port());
        let locals =
            locals.iter().filter(move |local| wildcard && local.is_ipv4() == ipv4 && !local.is_loopback());
        locals.map(move |local| SocketAddr::new(*local, port)).chain((!wildcard).then_some(*bind))
    };
    binds.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_wildcard_is_the_addresses_of_its_family() {
        let locals = ["127.0.0.1", "10.0.0.2", "10.0.1.2", "::1", "fd00::2"].map(|ip| ip.parse().unwrap());
        let served = |binds: &[&str]| -> Vec<String> {
            let binds: Vec<_> = binds.iter().map(|bind| bind.parse().unwrap()).collect();
            super::served(&binds, &locals.into()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(served(&["0.0.0.0:53"]), ["10.0.0.2:53", "10.0.1.2:53"]);
        assert_eq!(served(&["[::]:53", "192.0.2.1:7"]), ["192.0.2.1:7", "[fd00::2]:53"]);
        assert_eq!(served(&["0.0.0.0:53", "10.0.0.2:53"]), ["10.0.0.2:53", "10.0.1.2:53"]);
    }
}
