//! From which senders and VLANs an interface's program may take datagrams: those the kernel certainly accepts there.
//!
//! ```text
//! addresses, local networks ─▸ this host's, broadcast and network addresses ─┐
//! routes, rp_filter         ─▸ networks routed by another interface          ├▸ left to the kernel, which decides
//! VLAN devices              ─▸ tags of VLANs that are not served             ┘
//! ```
//! A reply to one of this host's own addresses would leave by the link, and a neighbour that forwards would send it
//! back: the server would answer its own replies endlessly.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use udpath_stack::port::xdp::{Network, Sources, XdpDevice};
use udpath_stack::tables::{Interface, Route, View, Vlan, has_policy_rules};

use super::error::XdpError;
use super::state::{is_virtual, serves};

/// Maximum number of networks left to the kernel because of rp_filter, over all VLANs of an interface. Each costs 100
/// bytes of kernel memory, and comparing more would take too long.
const MAX_NETWORKS: usize = 8192;
/// The range of IPv4 addresses that may be unicast; the end is exclusive. Others are never taken.
const UNICAST_START: u32 = 0x0100_0000;
const UNICAST_END: u32 = 0xe000_0000;

/// What the program of one interface takes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ingress {
    sources: Sources,
    /// VLAN numbers, each with the priority of its replies.
    vlans: Vec<(u16, u8)>,
    /// Names of the served VLAN devices.
    names: Vec<String>,
    /// Warnings about datagrams that the program takes and the kernel would reject.
    pub(super) warnings: Vec<String>,
}

impl Ingress {
    /// The rules for `device` in the state of the host that `view` shows. `named`: interfaces named in the
    /// configuration.
    pub(super) fn of(device: &XdpDevice, view: &View<'_>, binds: &[SocketAddr], named: &[String]) -> Self {
        let mut ingress = Self::default();
        ingress.sources.addresses = special_addresses(view);
        let served = vlans_of(device, view, binds, named);
        let below = view.interfaces.get(device.index()).map(|interface| (0, interface));
        let vlans = served.iter().filter_map(|interface| Some((interface.vlan?.id, *interface)));
        for (vlan, interface) in below.into_iter().chain(vlans) {
            ingress.leave_local_networks(vlan, view);
            ingress.filter_reverse_path(vlan, interface, view);
        }
        ingress.names = served.iter().map(|interface| interface.name.clone()).collect();
        ingress.vlans = served
            .iter()
            .filter_map(|interface| interface.vlan)
            .map(|vlan| (vlan.id, vlan.priority))
            .collect();
        if device.removes_vlan_tags() == Some(true) {
            ingress.without_tags(device);
        }
        ingress
    }

    /// Why the interface cannot serve these VLANs, if it cannot.
    pub(super) fn unusable(&self, device: &XdpDevice) -> Option<XdpError> {
        (!self.names.is_empty() && self.vlans.is_empty()).then(|| XdpError::VlanTagsRemoved {
            interface: device.name().to_owned(),
            vlans: self.names.join(", "),
        })
    }

    /// Sets these rules in the program.
    pub(super) fn apply(&self, device: &mut XdpDevice) -> Result<(), XdpError> {
        device.set_vlans(self.vlans.iter().copied());
        device.set_sources(&self.sources).map_err(XdpError::on("set the source rules of", device.name()))
    }

    /// The device removes tags, so the VLAN of a frame is unknown.
    fn without_tags(&mut self, device: &XdpDevice) {
        self.vlans.clear();
        let name = device.name();
        if let Some(why) = self.unusable(device) {
            self.warnings.push(why.to_string());
        } else if !is_virtual(name) {
            self.warnings.push(format!(
                "{name} removes VLAN tags before xdp sees them (rx-vlan-offload), so frames of every VLAN are answered untagged; \
                 if VLANs reach it, run: ethtool -K {name} rxvlan off"
            ));
        }
    }

    /// Leaves to the kernel the networks that are local as a whole (`ip route add local`). Loopback networks are never
    /// taken.
    fn leave_local_networks(&mut self, vlan: u16, view: &View<'_>) {
        for &(address, len) in view.addresses.networks() {
            if is_single(address, len) || address.is_loopback() {
                continue;
            }
            self.sources.networks.insert(Network { vlan, address, len });
        }
    }

    /// Leaves to the kernel what rp_filter of this interface may reject (it exists for IPv4 only).
    fn filter_reverse_path(&mut self, vlan: u16, interface: &Interface, view: &View<'_>) {
        let mode = rp_filter(&interface.name);
        let accepts: &dyn Fn(&Route) -> bool = match mode {
            0 => return,
            1 => &|route| matches!(route, Route::Hop(hop) if hop.interface == interface.index),
            _ => &|route| matches!(route, Route::Hop(_)),
        };
        if has_policy_rules().unwrap_or(true) {
            self.warnings.push(format!(
                "rp_filter={mode} of {} uses the main routing table only for frames that xdp takes: policy routing rules \
                 (ip rule) are ignored",
                interface.name
            ));
        }
        let refused = refused_v4(view, accepts);
        if self.sources.networks.len() + refused.len() > MAX_NETWORKS {
            self.warnings.push(format!(
                "rp_filter={mode} of {} does not apply to frames that xdp takes: the routes make more than {MAX_NETWORKS} \
                 networks; filter sources elsewhere, or use reuseport",
                interface.name
            ));
            return;
        }
        let networks =
            refused.into_iter().map(|(address, len)| Network { vlan, address: address.into(), len });
        self.sources.networks.extend(networks);
    }
}

/// Addresses that the kernel rejects as a source, or answers over the loopback only: all addresses of this host, and
/// the broadcast and network addresses of its networks.
fn special_addresses(view: &View<'_>) -> BTreeSet<IpAddr> {
    let mut special = BTreeSet::new();
    for local in view.addresses.all() {
        special.insert(local.address);
        special.extend(local.broadcast.map(IpAddr::V4));
        match local.address {
            IpAddr::V4(address) if local.prefix < 31 => {
                let host_bits = u32::MAX >> local.prefix;
                special.insert(IpAddr::V4((address.to_bits() & !host_bits).into()));
                special.insert(IpAddr::V4((address.to_bits() | host_bits).into()));
            }
            // The subnet-router anycast address (RFC 4291, 2.6.1).
            IpAddr::V6(address) if local.prefix < 127 => {
                let host_bits = u128::MAX >> local.prefix;
                special.insert(IpAddr::V6((address.to_bits() & !host_bits).into()));
            }
            _ => {}
        }
    }
    let networks = view.addresses.networks().iter();
    special.extend(networks.filter(|(address, len)| is_single(*address, *len)).map(|(address, _)| *address));
    special
}

fn is_single(address: IpAddr, len: u8) -> bool {
    len >= if address.is_ipv4() { 32 } else { 128 }
}

/// The VLAN devices over `device` whose tags are taken: 802.1Q, up, with its MAC address, and named in the
/// configuration or with a served address.
fn vlans_of<'v>(
    device: &XdpDevice,
    view: &'v View<'_>,
    binds: &[SocketAddr],
    named: &[String],
) -> Vec<&'v Interface> {
    let over = |interface: &&Interface| {
        let of_ours =
            |vlan: Vlan| vlan.lower == device.index() && !vlan.service && (1..4095).contains(&vlan.id);
        interface.vlan.is_some_and(of_ours)
            && interface.up
            && interface.mac.is_some_and(|mac| mac.0 == device.mac())
    };
    let serves = |interface: &Interface| {
        let addresses = view.addresses.of(interface.index).iter().filter(|local| local.usable);
        addresses.map(|local| local.address).any(|ip| binds.iter().any(|bind| serves(bind, ip)))
    };
    let all = view.interfaces.all().iter().filter(over);
    all.filter(|interface| named.contains(&interface.name) || serves(interface)).collect()
}

/// The effective mode of an interface: the larger of its own and that of `all`, as in the kernel (`IN_DEV_MAXCONF`).
fn rp_filter(interface: &str) -> u8 {
    let of = |name: &str| {
        let text = udpath_files::kernel::text(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter")).ok();
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    of("all").max(of(interface))
}

/// Unicast networks without a route, or with one that `accepts` rejects.
fn refused_v4(view: &View<'_>, accepts: &dyn Fn(&Route) -> bool) -> Vec<(Ipv4Addr, u8)> {
    let mut refused = Vec::new();
    let mut changes = view.routes.changes_v4().peekable();
    while let Some((first, route)) = changes.next() {
        let behind = changes.peek().map_or(UNICAST_END, |(next, _)| next.to_bits());
        if !route.is_some_and(accepts) {
            networks(first.to_bits().max(UNICAST_START), behind.min(UNICAST_END), &mut refused);
        }
        if refused.len() > MAX_NETWORKS {
            break;
        }
    }
    refused
}

/// The fewest networks that cover the addresses from `first` up to, not including, `behind`, which is at most
/// [`UNICAST_END`].
fn networks(mut first: u32, behind: u32, into: &mut Vec<(Ipv4Addr, u8)>) {
    while first < behind {
        // As large as the alignment of the address and the rest of the range allow.
        let size = first.trailing_zeros().min((behind - first).ilog2());
        into.push((first.into(), (32 - size) as u8));
        first += 1 << size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_its_networks() {
        let made = |first: &str, behind: &str| {
            let [first, behind] = [first, behind].map(|text| text.parse::<Ipv4Addr>().unwrap().to_bits());
            let mut made = Vec::new();
            networks(first, behind, &mut made);
            made.iter().map(|(address, len)| format!("{address}/{len}")).collect::<Vec<_>>()
        };
        assert_eq!(made("10.0.0.0", "10.1.0.0"), ["10.0.0.0/16"]);
        assert_eq!(made("10.0.0.1", "10.0.0.8"), ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/30"]);
        assert_eq!(made("10.0.0.8", "10.0.0.8"), [""; 0]);
        let all = made("1.0.0.0", "224.0.0.0");
        assert_eq!((all.len(), all[0].as_str(), all[8].as_str()), (9, "1.0.0.0/8", "192.0.0.0/3"));
    }
}
