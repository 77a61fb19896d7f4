//! The two ends of a flow as they are written: a target with its port, a source, and the interface of link-local ones.
//!
//! ```text
//! 192.0.2.1:53   [2001:db8::1]:53   [fe80::1%eth0]:53   [fe80::1%2]:53      a target (RFC 4007, 11.2: ADDRESS%ZONE)
//! 192.0.2.1      2001:db8::1        fe80::1%eth0                           a source
//! ```
//! Every file and argument with targets is read by these functions, so that all accept the same.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rustix::net::{AddressFamily, SocketType};

/// A source address of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The address.
    pub ip: IpAddr,
    /// The number of its interface; 0: none named.
    pub scope: u32,
}

/// A target: an address with its port, and the interface of a link-local address by name or number.
///
/// # Errors
/// What was expected instead.
pub fn target(text: &str) -> Result<SocketAddr, String> {
    let shown = text.escape_debug();
    let (address, zone) = without_zone(text).ok_or_else(|| {
        format!(
            "invalid address `{shown}`: expected ADDR:PORT, such as 192.0.2.1:53, [2001:db8::1]:53 or [fe80::1%eth0]:53"
        )
    })?;
    let SocketAddr::V6(mut scoped) = address else { return Ok(address) };
    match zone {
        None if is_unscoped(&address) => Err(needs_interface(&address)),
        None => Ok(address),
        // The kernel would not look at it.
        Some(zone) if !has_scope(scoped.ip()) => Err(format!(
            "invalid address `{shown}`: only link-local addresses have an interface: remove `%{}`",
            zone.escape_debug()
        )),
        Some(zone) => {
            scoped.set_scope_id(interface(zone).ok_or_else(|| no_interface(text, zone))?);
            Ok(scoped.into())
        }
    }
}

/// A source: an address, and the interface of a link-local one. Without it, it is that of the target.
///
/// # Errors
/// What was expected instead.
pub fn source(text: &str) -> Result<Source, String> {
    let Some((address, zone)) = text.split_once('%') else {
        let ip = text.parse().map_err(|_| expected_source(text))?;
        return Ok(Source { ip, scope: 0 });
    };
    let ip: Ipv6Addr = address.parse().map_err(|_| expected_source(text))?;
    if zone.is_empty() || !has_scope(&ip) {
        return Err(expected_source(text));
    }
    Ok(Source { ip: ip.into(), scope: interface(zone).ok_or_else(|| no_interface(text, zone))? })
}

/// A target, and the interface after `%` as it is written, which may be another machine's.
#[must_use]
pub fn without_zone(text: &str) -> Option<(SocketAddr, Option<&str>)> {
    let Some((address, rest)) = text.split_once('%') else {
        return text.parse().ok().map(|address| (address, None));
    };
    let (zone, port) = rest.split_once("]:")?;
    let address: Ipv6Addr = address.strip_prefix('[')?.parse().ok()?;
    let port = Some(port).filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))?;
    (!zone.is_empty()).then_some(())?;
    Some((SocketAddr::new(address.into(), port.parse().ok()?), Some(zone)))
}

/// The number of the interface with this name or number in this network namespace.
#[must_use]
pub fn interface(zone: &str) -> Option<u32> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    let by_name = || rustix::net::netdevice::name_to_index(&socket, zone).ok();
    let by_number = || {
        let number = zone.parse().ok()?;
        rustix::net::netdevice::index_to_name(&socket, number).ok().map(|_| number)
    };
    by_name().or_else(by_number)
}

/// Whether there may be the same address at each interface.
fn has_scope(ip: &Ipv6Addr) -> bool {
    let [first, second, ..] = ip.octets();
    // Multicast of an interface or a link (RFC 4291, 2.7).
    ip.is_unicast_link_local() || first == 0xff && matches!(second & 0xf, 1 | 2)
}

/// Whether nothing says by which interface the address is reached: each has addresses of this kind.
pub(crate) fn is_unscoped(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

/// What is wrong with such a target.
pub(crate) fn needs_interface(address: &SocketAddr) -> String {
    let (ip, port) = (address.ip(), address.port());
    format!("`{address}` is link-local: add its interface, such as [{ip}%eth0]:{port}")
}

fn no_interface(text: &str, zone: &str) -> String {
    let (text, zone) = (text.escape_debug(), zone.escape_debug());
    format!("invalid address `{text}`: this machine has no interface `{zone}` (`ip link` lists them)")
}

fn expected_source(text: &str) -> String {
    let text = text.escape_debug();
    format!(
        "invalid address `{text}`: expected an address without a port, such as 192.0.2.1, 2001:db8::1 or fe80::1%eth0"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_of_an_address_is_an_interface_by_name_or_number() {
        let scope = |text: &str| match target(text) {
            Ok(SocketAddr::V6(address)) => Ok((address.to_string(), address.scope_id())),
            Ok(other) => panic!("{other}"),
            Err(why) => Err(why),
        };
        // Every network namespace has a loopback, and it is number 1.
        let by_number = scope("[fe80::1%1]:53").unwrap();
        assert_eq!(by_number, ("[fe80::1%1]:53".into(), 1));
        assert_eq!(scope("[fe80::1%lo]:53").unwrap(), by_number);
        assert_eq!(scope("[ff02::1%lo]:53").unwrap().1, 1);
        assert_eq!(scope("[2001:db8::1]:53").unwrap().1, 0);
        for (text, words) in [
            ("[fe80::1]:53", "add its interface, such as [fe80::1%eth0]:53"),
            ("[fe80::1%nothing]:53", "no interface `nothing`"),
            ("[fe80::1%4294967295]:53", "no interface `4294967295`"),
            ("[fe80::1%99999999999]:53", "no interface"),
            ("[fe80::1%a-name-that-is-far-too-long]:53", "no interface"),
            ("[::%lo]:53", "only link-local addresses have an interface: remove `%lo`"),
            ("[2001:db8::1%lo]:53", "only link-local addresses"),
            ("[ff0e::1%lo]:53", "only link-local addresses"),
            ("[fe80::1%]:53", "expected ADDR:PORT"),
            ("[fe80::1%lo]:", "expected ADDR:PORT"),
            ("[fe80::1%lo]:+53", "expected ADDR:PORT"),
            ("[fe80::1%lo]:65536", "expected ADDR:PORT"),
            ("[192.0.2.1%lo]:53", "expected ADDR:PORT"),
            ("192.0.2.1%lo:53", "expected ADDR:PORT"),
            ("fe80::1%lo", "expected ADDR:PORT"),
        ] {
            assert!(scope(text).is_err_and(|why| why.contains(words)), "{text}: {:?}", scope(text));
        }
    }

    #[test]
    fn a_source_has_no_port_and_may_have_an_interface() {
        let read = |text| source(text).map(|Source { ip, scope }| (ip.to_string(), scope));
        assert_eq!(read("192.0.2.1"), Ok(("192.0.2.1".into(), 0)));
        assert_eq!(read("fe80::1"), Ok(("fe80::1".into(), 0)));
        for text in ["fe80::1%lo", "fe80::1%1"] {
            assert_eq!(read(text), Ok(("fe80::1".into(), 1)));
        }
        for (text, words) in [
            ("fe80::1%", "expected an address without a port"),
            ("[fe80::1%lo]:53", "expected an address without a port"),
            ("2001:db8::1%lo", "expected an address without a port"),
            ("192.0.2.1:53", "expected an address without a port"),
            ("192.0.2.1%lo", "expected an address without a port"),
            ("fe80::1%nothing", "no interface `nothing`"),
        ] {
            assert!(read(text).is_err_and(|why| why.contains(words)), "{text}: {:?}", read(text));
        }
    }
}
