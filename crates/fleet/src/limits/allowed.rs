//! Where an agent may send to.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use udpath_load::ends;

/// Targets that an agent may send to: addresses, and ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    network: IpAddr,
    /// The interface of link-local addresses; 0: any.
    scope: u32,
    prefix: u8,
    ports: RangeInclusive<u16>,
}

impl Allowed {
    pub(super) fn has(&self, target: SocketAddr) -> bool {
        let bits = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
            IpAddr::V6(v6) => (v6.to_bits(), 128),
        };
        let ((network, length), (address, other)) = (bits(self.network), bits(target.ip()));
        let host_bits = length - u32::from(self.prefix);
        let same = network.checked_shr(host_bits).unwrap_or(0) == address.checked_shr(host_bits).unwrap_or(0);
        let scope = if let SocketAddr::V6(v6) = target { v6.scope_id() } else { 0 };
        let on_it = self.scope == 0 || self.scope == scope;
        length == other && same && on_it && self.ports.contains(&target.port())
    }
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (address, ports) = match text.strip_prefix('[') {
                Some(rest) => {
                    let (address, rest) = rest.split_once(']')?;
                    (address, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
                }
                None => match text.split_once(':') {
                    // More than one colon: an IPv6 address without a port.
                    Some((_, rest)) if rest.contains(':') => (text, None),
                    Some((address, ports)) => (address, Some(ports)),
                    None => (text, None),
                },
            };
            let (network, prefix) = match address.split_once('/') {
                Some((network, prefix)) => (network, Some(prefix.parse::<u8>().ok()?)),
                None => (address, None),
            };
            let (network, zone) = match network.split_once('%') {
                Some((network, zone)) => (network, Some(zone)),
                None => (network, None),
            };
            let network: IpAddr = network.parse().ok()?;
            let scope = match zone {
                Some(zone) if network.is_ipv6() => ends::interface(zone)?,
                Some(_) => return None,
                None => 0,
            };
            let longest = if network.is_ipv4() { 32 } else { 128 };
            let ports = match ports {
                None => 1..=u16::MAX,
                Some(ports) => {
                    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
                    first.parse().ok()?..=last.parse().ok()?
                }
            };
            let prefix = prefix.unwrap_or(longest);
            let valid = prefix <= longest && *ports.start() > 0 && ports.start() <= ports.end();
            valid.then_some(Self { network, scope, prefix, ports })
        };
        parsed().ok_or_else(|| {
            format!(
                "invalid target `{text}`: expected ADDR[/PREFIX][:PORTS], such as 10.0.0.0/8:53, 192.0.2.1:5000-5099 or \
                 [2001:db8::/32]:53, and [fe80::1%eth0]:53 with an interface of this machine"
            )
        })
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { network, scope, prefix, ports } = self;
        let (first, last) = (ports.start(), ports.end());
        match network {
            IpAddr::V4(v4) => write!(f, "{v4}/{prefix}:{first}-{last}"),
            IpAddr::V6(v6) if *scope != 0 => write!(f, "[{v6}%{scope}/{prefix}]:{first}-{last}"),
            IpAddr::V6(v6) => write!(f, "[{v6}/{prefix}]:{first}-{last}"),
        }
    }
}
