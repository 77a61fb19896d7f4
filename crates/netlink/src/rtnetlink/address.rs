//! Addresses of interfaces.
//!
//! ```text
//! ifaddrmsg   0 family  1 prefix length  2 flags, the lower eight  3 scope  4 interface (4)   then attributes
//! ```

use std::net::IpAddr;

use super::{family, ip, octets, word};
use crate::attribute::{Attributes, Writer};
use crate::numbers::{IFA_ADDRESS, IFA_BROADCAST, IFA_FLAGS, IFA_LOCAL};

/// Bytes of `struct ifaddrmsg` of linux/if_addr.h.
const FIXED: usize = 8;

/// `IFA_F_*` of linux/if_addr.h: [`Address::flags`].
pub mod flags {
    /// `IFA_F_SECONDARY`: another IPv4 address of its network is preferred. For IPv6: temporary.
    pub const SECONDARY: u32 = 0x01;
    /// `IFA_F_NODAD`: no duplicate address detection.
    pub const NODAD: u32 = 0x02;
    /// `IFA_F_OPTIMISTIC`: usable before duplicate address detection completes.
    pub const OPTIMISTIC: u32 = 0x04;
    /// `IFA_F_DADFAILED`: another host has it.
    pub const DADFAILED: u32 = 0x08;
    /// `IFA_F_DEPRECATED`: not used for new connections.
    pub const DEPRECATED: u32 = 0x20;
    /// `IFA_F_TENTATIVE`: duplicate address detection has not completed.
    pub const TENTATIVE: u32 = 0x40;
}

/// An address of an interface. Fields missing from a message are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Address {
    /// `AF_INET` or `AF_INET6`.
    pub family: u8,
    /// Length of the network's prefix, bits.
    pub prefix_len: u8,
    /// Its [`flags`].
    pub flags: u32,
    /// `RT_SCOPE_*` of linux/rtnetlink.h: 0 everywhere, 253 on the link, 254 on this host.
    pub scope: u8,
    /// The interface's index.
    pub interface: u32,
    /// The interface's own address. IPv6 leaves it out, unless there is a peer.
    pub local: Option<IpAddr>,
    /// The peer's address on a point-to-point link; otherwise the interface's own.
    pub address: Option<IpAddr>,
    /// The broadcast address.
    pub broadcast: Option<IpAddr>,
}

impl Address {
    /// An interface's own address, for a request to add it.
    #[must_use]
    pub fn new(interface: u32, address: IpAddr, prefix_len: u8) -> Self {
        Self {
            family: family(address),
            prefix_len,
            interface,
            local: Some(address),
            address: Some(address),
            ..Self::default()
        }
    }

    /// Reads the body of an address message; `None` if it is malformed.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (fixed, rest) = body.split_at_checked(FIXED)?;
        let is = Attributes::new(rest);
        let address = |kind| is.bytes(kind).map_or(Some(None), |bytes| ip(fixed[0], bytes).map(Some));
        Some(Self {
            family: fixed[0],
            prefix_len: fixed[1],
            flags: is.u32(IFA_FLAGS).unwrap_or_else(|| fixed[2].into()),
            scope: fixed[3],
            interface: word(fixed, 4)?,
            local: address(IFA_LOCAL)?,
            address: address(IFA_ADDRESS)?,
            broadcast: address(IFA_BROADCAST)?,
        })
    }

    /// The body of a message about this address.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut fixed = [self.family, self.prefix_len, (self.flags & 0xff) as u8, self.scope, 0, 0, 0, 0];
        fixed[4..].copy_from_slice(&self.interface.to_ne_bytes());
        let mut body = Writer::after(&fixed);
        let addresses =
            [(IFA_LOCAL, self.local), (IFA_ADDRESS, self.address), (IFA_BROADCAST, self.broadcast)];
        for (kind, address) in addresses {
            if let Some(address) = address {
                body.bytes(kind, &octets(address));
            }
        }
        body.u32(IFA_FLAGS, self.flags);
        body.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_old_message_has_its_flags_in_the_header() {
        let mut body = Writer::after(&[2, 24, flags::SECONDARY as u8, 0, 3, 0, 0, 0]);
        body.bytes(IFA_LOCAL, &[10, 0, 0, 1]);
        let bytes = body.finish();
        let read = Address::parse(&bytes).unwrap();
        assert_eq!((read.flags, read.local), (flags::SECONDARY, Some([10, 0, 0, 1].into())));
        body = Writer::after(&bytes);
        body.bytes(IFA_BROADCAST, &[1, 2, 3]);
        assert_eq!(Address::parse(&body.finish()), None, "an address of three bytes");
    }

    prop_compose! {
        fn address()(
            v6 in any::<bool>(),
            four in any::<[[u8; 4]; 3]>(),
            sixteen in any::<[[u8; 16]; 3]>(),
        )(
            [local, address, broadcast] in if v6 {
                sixteen.map(|octets| option::of(Just(IpAddr::from(octets))))
            } else {
                four.map(|octets| option::of(Just(IpAddr::from(octets))))
            },
            family in Just(if v6 { 10_u8 } else { 2 }),
            (prefix_len, flags, scope, interface) in any::<(u8, u32, u8, u32)>(),
        ) -> Address {
            Address { family, prefix_len, flags, scope, interface, local, address, broadcast }
        }
    }

    proptest! {
        #[test]
        fn an_address_is_read_as_written(address in address()) {
            prop_assert_eq!(Address::parse(&address.body()), Some(address));
        }

        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Address::parse(&bytes);
        }
    }
}
