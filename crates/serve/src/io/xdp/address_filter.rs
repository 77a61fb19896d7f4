//! The addresses for which the interfaces' programs take datagrams.
//!
//! On a wildcard bind these are this host's addresses, each listed explicitly. Everything else that arrives for the
//! port stays with the kernel, which knows what it is: a subnet's broadcast address, a local route, a datagram to
//! forward.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use udpath_stack::port::xdp::XdpDevice;

use super::error::XdpError;

/// See the module.
pub(super) struct AddressFilter {
    pub(super) devices: Vec<XdpDevice>,
    binds: Vec<SocketAddr>,
    /// Addresses of this host.
    locals: BTreeSet<IpAddr>,
    /// The addresses taken now; `None` before the start and after the stop.
    active: Option<BTreeSet<SocketAddr>>,
}

impl AddressFilter {
    /// Takes nothing yet.
    pub(super) fn new(devices: Vec<XdpDevice>, binds: Vec<SocketAddr>, locals: BTreeSet<IpAddr>) -> Self {
        Self { devices, binds, locals, active: None }
    }

    /// Begins to take datagrams for the served addresses.
    pub(super) fn start(&mut self) -> Result<(), XdpError> {
        self.active = Some(BTreeSet::new());
        self.add_new()
    }

    /// Takes datagrams for new addresses of this host as well, if the filter is started.
    pub(super) fn add_new(&mut self) -> Result<(), XdpError> {
        let Some(active) = &mut self.active else { return Ok(()) };
        for address in served(&self.binds, &self.locals) {
            if active.contains(&address) {
                continue;
            }
            for device in &mut self.devices {
                device.bind(address).map_err(XdpError::address(address, device.name()))?;
            }
            active.insert(address);
        }
        Ok(())
    }

    /// Sets the addresses of this host, and leaves datagrams for all others to the kernel.
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

    /// Frames the programs have taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.devices.iter().map(XdpDevice::taken).sum()
    }

    /// Leaves all further datagrams to the kernel, permanently.
    pub(super) fn stop(&mut self) {
        for address in self.active.take().unwrap_or_default() {
            for device in &mut self.devices {
                device.unbind(address);
            }
        }
    }
}

/// The addresses of `binds`, with each wildcard replaced by the `locals` of its family.
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
