//! A peer's address as the kernel writes it: kept raw on the packet path, decoded only on request.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Size of `sockaddr_in6`, the longer of the two forms.
const MAX_LEN: u32 = size_of::<libc::sockaddr_in6>() as u32;

/// A `sockaddr_in` or `sockaddr_in6` and its length. `len` 0: the kernel wrote none.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct RawAddr {
    bytes: [u8; MAX_LEN as usize],
    len: u32,
}

impl PartialEq for RawAddr {
    /// The same bytes: what the kernel writes for a peer is always the same.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.bytes[..self.len as usize] == other.bytes[..self.len as usize]
    }
}

impl RawAddr {
    /// Empty, with the full length available to the kernel.
    pub(crate) const fn empty() -> Self {
        Self { bytes: [0; MAX_LEN as usize], len: MAX_LEN }
    }

    /// Makes the full length available again; the kernel shortened it on the last call.
    #[inline]
    pub(super) fn reopen(&mut self) -> &mut Self {
        self.len = MAX_LEN;
        self
    }

    /// Sets the length the kernel reported in `msg_namelen`.
    #[inline]
    pub(super) fn set_len(&mut self, len: u32) {
        self.len = len.min(MAX_LEN);
    }

    /// Whether the kernel wrote an address. It does for every datagram, even an empty one.
    #[inline]
    pub(crate) fn is_some(&self) -> bool {
        self.len > 0
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        self.bytes.as_ptr().cast()
    }

    /// Pointers to the bytes and their length, for the kernel to fill in.
    #[inline]
    pub(super) fn as_mut_ptrs(&mut self) -> (*mut libc::sockaddr, *mut u32) {
        (self.bytes.as_mut_ptr().cast(), &raw mut self.len)
    }

    /// A pointer to the bytes of the address at `this`, with the validity of `this`.
    #[inline]
    pub(super) fn bytes_at(this: *mut Self) -> *mut libc::c_void {
        // The bytes are the first field (`repr(C)`).
        this.cast()
    }

    /// The port, which both forms have in the same place. The kernel writes an address for every datagram.
    #[inline]
    pub(crate) fn port(&self) -> u16 {
        u16::from_be_bytes([self.bytes[2], self.bytes[3]])
    }

    /// The address in the standard library's form; the unspecified one if the kernel wrote none.
    pub(crate) fn decode(&self) -> SocketAddr {
        let b = &self.bytes;
        let family = i32::from(u16::from_ne_bytes([b[0], b[1]]));
        let port = u16::from_be_bytes([b[2], b[3]]);
        match family {
            libc::AF_INET if self.len >= 8 => {
                SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(b[4], b[5], b[6], b[7]), port))
            }
            libc::AF_INET6 if self.len >= MAX_LEN => {
                let mut octets = [0; 16];
                octets.copy_from_slice(&b[8..24]);
                let flow = u32::from_be_bytes([b[4], b[5], b[6], b[7]]);
                let scope = u32::from_ne_bytes([b[24], b[25], b[26], b[27]]);
                SocketAddr::V6(SocketAddrV6::new(octets.into(), port, flow, scope))
            }
            _ => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
        }
    }

    /// The kernel's form of an address.
    pub(crate) fn encode(address: SocketAddr) -> Self {
        let mut raw = Self::empty();
        let b = &mut raw.bytes;
        b[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                b[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                b[4..8].copy_from_slice(&v4.ip().octets());
                raw.len = size_of::<libc::sockaddr_in>() as u32;
            }
            SocketAddr::V6(v6) => {
                b[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                b[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                b[8..24].copy_from_slice(&v6.ip().octets());
                b[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            }
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernels_form() {
        for text in ["192.0.2.7:53", "[2001:db8::7]:65535", "[fe80::1%3]:1", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddr::encode(address).decode(), address);
        }
    }

    #[test]
    fn the_bytes_come_first() {
        assert_eq!(std::mem::offset_of!(RawAddr, bytes), 0);
    }

    #[test]
    fn nothing_written_is_the_unspecified_address() {
        let mut raw = RawAddr::empty();
        raw.set_len(0);
        assert!(!raw.is_some());
        assert!(raw.decode().ip().is_unspecified());
    }
}
