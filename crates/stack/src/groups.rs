//! Which binding serves a datagram, by destination address and UDP port.
//!
//! ```text
//! destination port ──▸ any binding?
//!                        to specific addresses: one of them?                        one hash table lookup
//!                        to a wildcard: is it one of this host's addresses?         another
//! ```
//! A binding is served by the workers' handler, or its datagrams go to its [socket](crate::socket).
//!
//! The table is rebuilt for every change and read under an epoch guard. More specific bindings win, as in the kernel
//! (`udp4_lib_lookup2`, `net/ipv4/udp.c`).

use std::net::{IpAddr, SocketAddr};

use crate::socket::SocketHandle;
use crate::wire::{Headers, Words, words};

/// A binding's number: its position in the list that the table was built from.
pub type BindingId = u16;

/// The maximum number of bindings in a table.
pub const MAX_BINDINGS: usize = u16::MAX as usize;

/// The place in `ports` of every UDP port without a binding. Zero, so that a table of none costs no write.
const NONE: u16 = 0;

/// Why a table could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// UDP port 0.
    #[error("cannot serve {0}: port 0 cannot receive datagrams; use the port that the kernel assigned")]
    PortZero(SocketAddr),
    /// The same binding twice.
    #[error("cannot serve {0} twice: a binding serves all workers")]
    Twice(SocketAddr),
    /// Too many bindings.
    #[error("cannot serve {0} addresses: at most {MAX_BINDINGS}")]
    TooMany(usize),
    /// A socket whose address is not served.
    #[error(
        "cannot deliver to the socket of {0}: the table has no such binding; add it to the addresses served"
    )]
    NoBinding(SocketAddr),
    /// A second socket for one binding.
    #[error(
        "cannot deliver to two sockets of {0}: a binding has one socket, filled by all workers; pass only one"
    )]
    TwoSockets(SocketAddr),
}

/// The bindings, and this host's addresses.
#[derive(Debug, Clone)]
pub struct Groups {
    /// By UDP port: its index in `ports`.
    by_port: Box<[u16]>,
    /// The bindings of each bound port; the first entry, `NONE`, has none.
    ports: Vec<PortBindings>,
    /// Bindings to specific addresses.
    specific: AddressMap,
    /// This host's addresses.
    locals: AddressMap,
    /// By binding: the socket that its datagrams go to. Empty if no binding has one.
    sockets: Box<[Option<SocketHandle>]>,
}

/// The bindings of one UDP port.
#[derive(Debug, Clone, Copy, Default)]
struct PortBindings {
    /// Whether it is bound to specific addresses.
    specific: bool,
    /// The wildcard binding of each family.
    wildcard_v4: Option<BindingId>,
    wildcard_v6: Option<BindingId>,
}

/// The result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// Served by this binding.
    Binding(BindingId),
    /// No binding for this address and port.
    Unbound,
    /// The address is not one of this host's: the packet would be forwarded, or should not be here.
    NotLocal,
}

impl Groups {
    /// A table of `binds`, whose positions are their [`BindingId`]s. A wildcard serves every address in `locals`.
    ///
    /// # Errors
    /// Port 0, a duplicate binding, too many bindings.
    pub fn new(binds: &[SocketAddr], locals: impl IntoIterator<Item = IpAddr>) -> Result<Self, Error> {
        if binds.len() > MAX_BINDINGS {
            return Err(Error::TooMany(binds.len()));
        }
        let mut by_port = vec![NONE; 1 << 16].into_boxed_slice();
        let mut ports = vec![PortBindings::default()];
        let mut specific = Vec::new();
        for (id, bind) in (0..).zip(binds) {
            if bind.port() == 0 {
                return Err(Error::PortZero(*bind));
            }
            if binds[..usize::from(id)].contains(bind) {
                return Err(Error::Twice(*bind));
            }
            let place = &mut by_port[usize::from(bind.port())];
            if *place == NONE {
                *place = ports.len() as u16;
                ports.push(PortBindings::default());
            }
            let port = &mut ports[usize::from(*place)];
            match bind.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => port.wildcard_v4 = Some(id),
                IpAddr::V6(ip) if ip.is_unspecified() => port.wildcard_v6 = Some(id),
                ip => {
                    port.specific = true;
                    specific.push((Key::new(ip, bind.port()), id));
                }
            }
        }
        let locals = locals.into_iter().map(|ip| (Key::new(ip, 0), 0)).collect();
        Ok(Self {
            by_port,
            ports,
            specific: AddressMap::new(specific),
            locals: AddressMap::new(locals),
            sockets: Box::default(),
        })
    }

    /// Delivers the datagrams of these sockets' bindings to the sockets; all others stay with the workers' handler.
    /// `binds` is the list that the table was built from.
    ///
    /// # Errors
    /// A socket whose address is not in `binds`, or the second socket of an address.
    pub fn delivering<'a>(
        mut self,
        binds: &[SocketAddr],
        handles: impl IntoIterator<Item = &'a SocketHandle>,
    ) -> Result<Self, Error> {
        let mut sockets = vec![None; binds.len()];
        for handle in handles {
            let bind = handle.local_addr();
            let place = binds.iter().position(|other| *other == bind).ok_or(Error::NoBinding(bind))?;
            if sockets[place].replace(handle.clone()).is_some() {
                return Err(Error::TwoSockets(bind));
            }
        }
        if sockets.iter().any(Option::is_some) {
            self.sockets = sockets.into();
        }
        Ok(self)
    }

    /// The socket that the datagrams of a binding go to, if it has one.
    #[inline]
    pub(crate) fn socket(&self, binding: BindingId) -> Option<&SocketHandle> {
        self.sockets.get(usize::from(binding))?.as_ref()
    }

    /// The binding that serves a datagram with these headers.
    #[inline]
    #[must_use]
    pub fn find(&self, headers: &Headers) -> Lookup {
        let place = self.by_port[usize::from(headers.destination_port())];
        let Some(port) = self.ports.get(usize::from(place)) else { return Lookup::Unbound };
        let ipv4 = headers.is_ipv4();
        let key = Key { words: headers.destination_words(), port: headers.destination_port(), ipv4 };
        if port.specific
            && let Some(id) = self.specific.get(key)
        {
            return Lookup::Binding(id);
        }
        let Some(id) = (if ipv4 { port.wildcard_v4 } else { port.wildcard_v6 }) else {
            return Lookup::Unbound;
        };
        if self.locals.get(Key { port: 0, ..key }).is_some() { Lookup::Binding(id) } else { Lookup::NotLocal }
    }
}

/// An IP address of either version, and a UDP port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    words: Words,
    port: u16,
    ipv4: bool,
}

impl Key {
    fn new(address: IpAddr, port: u16) -> Self {
        Self { words: words(address), port, ipv4: address.is_ipv4() }
    }
}

/// An immutable map: open addressing, at most half full, so that a lookup takes one or two comparisons.
#[derive(Debug, Clone)]
struct AddressMap {
    slots: Box<[Option<(Key, BindingId)>]>,
}

impl AddressMap {
    fn new(entries: Vec<(Key, BindingId)>) -> Self {
        let mut table = Self { slots: vec![None; (2 * entries.len()).next_power_of_two().max(2)].into() };
        for (key, id) in entries {
            let mut at = table.start(key);
            while table.slots[at].is_some_and(|(other, _)| other != key) {
                at = (at + 1) & (table.slots.len() - 1);
            }
            table.slots[at] = Some((key, id));
        }
        table
    }

    #[inline]
    fn get(&self, key: Key) -> Option<BindingId> {
        let mut at = self.start(key);
        while let Some((other, id)) = self.slots[at] {
            if other == key {
                return Some(id);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        None
    }

    #[inline]
    fn start(&self, key: Key) -> usize {
        // Fibonacci hashing: addresses of one network differ in few bits, and the upper half of the product depends
        // on all of them.
        let folded = key.words[0] ^ key.words[1].rotate_left(32) ^ u64::from(key.port) << 48;
        (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.slots.len() - 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::wire::{Flow, LinkHeader, Mac, Packet, Tags, UdpChecksum, build};

    fn found(groups: &Groups, to: &str) -> Lookup {
        let destination: SocketAddr = to.parse().unwrap();
        let source = if destination.is_ipv4() { "192.0.2.9:5000" } else { "[2001:db8::9]:5000" };
        let link = LinkHeader {
            source: Mac([2, 0, 0, 0, 0, 1]),
            destination: Mac([2, 0, 0, 0, 0, 2]),
            tags: Tags::NONE,
        };
        let flow = Flow::new(link, source.parse().unwrap(), destination).unwrap();
        let mut frame = [0; 128];
        let headers = build(&mut frame, &flow, b"x", UdpChecksum::Computed).unwrap();
        let frame = &frame[..headers.frame_end()];
        groups.find(&Packet::parse(frame).unwrap())
    }

    fn groups(binds: &[&str]) -> Groups {
        let binds: Vec<_> = binds.iter().map(|bind| bind.parse().unwrap()).collect();
        let locals = ["192.0.2.1", "192.0.2.2", "2001:db8::1"];
        Groups::new(&binds, locals.map(|ip| ip.parse().unwrap())).unwrap()
    }

    #[test]
    fn the_most_specific_binding_serves() {
        let groups = groups(&["0.0.0.0:53", "192.0.2.2:53", "[2001:db8::1]:53", "192.0.2.1:123"]);
        for (to, expected) in [
            ("192.0.2.1:53", Lookup::Binding(0)),
            ("192.0.2.2:53", Lookup::Binding(1)),
            ("[2001:db8::1]:53", Lookup::Binding(2)),
            ("192.0.2.1:123", Lookup::Binding(3)),
            ("192.0.2.2:123", Lookup::Unbound),
            ("192.0.2.3:53", Lookup::NotLocal),
            ("[2001:db8::2]:53", Lookup::Unbound),
            ("192.0.2.1:54", Lookup::Unbound),
        ] {
            assert_eq!(found(&groups, to), expected, "{to}");
        }
    }

    #[test]
    fn a_wildcard_serves_its_own_family_only() {
        let groups = groups(&["[::]:7"]);
        assert_eq!(found(&groups, "192.0.2.1:7"), Lookup::Unbound);
        assert_eq!(found(&groups, "[2001:db8::1]:7"), Lookup::Binding(0));
    }

    #[test]
    fn an_ipv6_address_that_begins_like_an_ipv4_one_is_another() {
        let groups = Groups::new(&["192.0.2.1:7".parse().unwrap()], []).unwrap();
        assert_eq!(found(&groups, "192.0.2.1:7"), Lookup::Binding(0));
        assert_eq!(found(&groups, "[c000:201::]:7"), Lookup::Unbound);
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        let make = |binds: &[&str]| {
            let binds: Vec<_> = binds.iter().map(|bind| bind.parse().unwrap()).collect();
            Groups::new(&binds, []).map(|_| ())
        };
        assert!(matches!(make(&["192.0.2.1:0"]), Err(Error::PortZero(_))));
        assert!(matches!(make(&["192.0.2.1:7", "192.0.2.1:7"]), Err(Error::Twice(_))));
        assert_eq!(make(&["0.0.0.0:7", "[::]:7", "192.0.2.1:7"]), Ok(()));
    }

    #[test]
    fn many_locals_are_all_found() {
        let locals = |i: u16| IpAddr::from([10, 0, (i >> 8) as u8, i as u8]);
        let groups = Groups::new(&["0.0.0.0:7".parse().unwrap()], (1..1000).map(locals)).unwrap();
        for i in 1..1000 {
            assert_eq!(found(&groups, &format!("{}:7", locals(i))), Lookup::Binding(0));
        }
        assert_eq!(found(&groups, "10.0.4.0:7"), Lookup::NotLocal);
    }
}
