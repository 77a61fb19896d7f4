//! Neighbours: link-layer addresses of hosts on the link.
//!
//! ```text
//! ndmsg   0 family  4 interface (4)  8 state (2)  10 flags  11 type   then attributes
//! ```

use std::net::IpAddr;

use super::{family, ip, octets, word};
use crate::attribute::{Attributes, Writer};
use crate::numbers::{NDA_DST, NDA_LLADDR};

/// Bytes of `struct ndmsg` of linux/neighbour.h.
const FIXED: usize = 12;

/// `NUD_*` of linux/neighbour.h: [`Neighbour::state`].
pub mod state {
    /// `NUD_INCOMPLETE`: the kernel waits for the first answer.
    pub const INCOMPLETE: u16 = 0x01;
    /// `NUD_REACHABLE`: recently confirmed.
    pub const REACHABLE: u16 = 0x02;
    /// `NUD_STALE`: to be confirmed on next use.
    pub const STALE: u16 = 0x04;
    /// `NUD_DELAY`: used, and about to be confirmed.
    pub const DELAY: u16 = 0x08;
    /// `NUD_PROBE`: the kernel waits for a confirmation.
    pub const PROBE: u16 = 0x10;
    /// `NUD_FAILED`: there was no answer.
    pub const FAILED: u16 = 0x20;
    /// `NUD_NOARP`: needs no resolution.
    pub const NOARP: u16 = 0x40;
    /// `NUD_PERMANENT`: set by an administrator.
    pub const PERMANENT: u16 = 0x80;
}

/// `NTF_*` of linux/neighbour.h: [`Neighbour::flags`].
pub mod flags {
    /// `NTF_USE`: resolve it now, as if there were a packet for it.
    pub const USE: u8 = 0x01;
    /// `NTF_PROXY`: an address that this host answers for.
    pub const PROXY: u8 = 0x08;
}

/// A neighbour. Fields missing from a message are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// `AF_INET` or `AF_INET6`; `AF_BRIDGE` for a bridge's forwarding entry.
    pub family: u8,
    /// The interface's index.
    pub interface: u32,
    /// Its [`state`].
    pub state: u16,
    /// Its [`flags`].
    pub flags: u8,
    /// Its IP address.
    pub destination: Option<IpAddr>,
    /// Its link-layer address.
    pub address: Option<Vec<u8>>,
}

impl Neighbour {
    /// A neighbour by its IP address, for a request about it.
    #[must_use]
    pub fn new(interface: u32, destination: IpAddr) -> Self {
        Self { family: family(destination), interface, destination: Some(destination), ..Self::default() }
    }

    /// Reads the body of a neighbour message; `None` if it is malformed.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (fixed, rest) = body.split_at_checked(FIXED)?;
        let is = Attributes::new(rest);
        let inet = matches!(i32::from(fixed[0]), libc::AF_INET | libc::AF_INET6);
        let destination = is.bytes(NDA_DST).filter(|_| inet);
        Some(Self {
            family: fixed[0],
            interface: word(fixed, 4)?,
            state: u16::from_ne_bytes([fixed[8], fixed[9]]),
            flags: fixed[10],
            destination: destination.map_or(Some(None), |bytes| ip(fixed[0], bytes).map(Some))?,
            address: is.bytes(NDA_LLADDR).map(<[u8]>::to_vec),
        })
    }

    /// The body of a message about this neighbour.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut fixed = [0; FIXED];
        fixed[0] = self.family;
        fixed[4..8].copy_from_slice(&self.interface.to_ne_bytes());
        fixed[8..10].copy_from_slice(&self.state.to_ne_bytes());
        fixed[10] = self.flags;
        let mut body = Writer::after(&fixed);
        if let Some(destination) = self.destination {
            body.bytes(NDA_DST, &octets(destination));
        }
        if let Some(address) = &self.address {
            body.bytes(NDA_LLADDR, address);
        }
        body.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bridges_entry_has_no_ip_address() {
        let mut body = Writer::after(&[7, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0]);
        // For a VXLAN device: the tunnel's remote end, in any family.
        body.bytes(NDA_DST, &[10, 0, 0, 1]).bytes(NDA_LLADDR, &[2, 0, 0, 0, 0, 1]);
        let read = Neighbour::parse(&body.finish()).unwrap();
        assert_eq!((read.family, read.destination, read.address.map(|mac| mac.len())), (7, None, Some(6)));
    }

    proptest! {
        #[test]
        fn a_neighbour_is_read_as_written(
            destination in prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)],
            (interface, state, flags) in any::<(u32, u16, u8)>(),
            address in option::of(prop::collection::vec(any::<u8>(), 0..32)),
        ) {
            let neighbour = Neighbour { state, flags, address, ..Neighbour::new(interface, destination) };
            prop_assert_eq!(Neighbour::parse(&neighbour.body()), Some(neighbour));
        }

        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Neighbour::parse(&bytes);
        }
    }
}
