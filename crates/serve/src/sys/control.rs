//! Control messages: the address a datagram was sent to, the source address of its reply, and when it arrived.
//!
//! A socket bound to a wildcard answers from the address that routing prefers. On a host with several addresses this
//! may not be the one the request was sent to, and the peer discards the answer. The kernel reports the destination
//! address in a control message, and accepts the same message when sending.
//!
//! ```text
//! cmsghdr { len, level, type } | in_pktinfo  { ifindex, spec_dst, addr }      IPv4
//!                              | in6_pktinfo { addr, ifindex }                IPv6
//! cmsghdr { len, level, type } | timespec { seconds, nanoseconds }             SO_TIMESTAMPNS, before the packet info
//! ```
//! The time stamp is taken out as soon as it was received: what is left is packet info alone, as a reply sends it.

use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use libc::cmsghdr;

/// Size for one packet info of either family (32 or 40 bytes) and either the time stamp (32) or, when sending, the
/// segment size (24).
const BUFFER_LEN: usize = 72;
const HEADER_LEN: usize = size_of::<cmsghdr>();

/// Length of the control message with the time stamp, padded to the alignment of the next one.
const TIMESTAMP_LEN: usize = (HEADER_LEN + size_of::<libc::timespec>()).next_multiple_of(8);

/// Length of the control message for segmentation, padded to the alignment of the next one.
const SEGMENT_LEN: usize = HEADER_LEN + 8;

/// The control bytes of one datagram.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; BUFFER_LEN],
    len: usize,
    /// When the datagram arrived, since the Unix epoch.
    arrived: Option<Duration>,
}

impl Control {
    /// Empty.
    pub(crate) const fn empty() -> Self {
        Self { bytes: [0; BUFFER_LEN], len: 0, arrived: None }
    }

    /// A control message that makes a reply come from `source`.
    pub(crate) fn of_source(source: IpAddr) -> Self {
        let mut control = Self::empty();
        let (level, kind, len) = match source {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO, size_of::<libc::in_pktinfo>()),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, size_of::<libc::in6_pktinfo>()),
        };
        control.bytes[offset_of!(cmsghdr, cmsg_len)..][..size_of::<usize>()]
            .copy_from_slice(&(HEADER_LEN + len).to_ne_bytes());
        control.bytes[offset_of!(cmsghdr, cmsg_level)..][..4].copy_from_slice(&level.to_ne_bytes());
        control.bytes[offset_of!(cmsghdr, cmsg_type)..][..4].copy_from_slice(&kind.to_ne_bytes());
        let data = &mut control.bytes[HEADER_LEN..];
        match source {
            // The interface stays 0: routing decides. The address is in spec_dst and in addr.
            IpAddr::V4(ip) => {
                data[4..8].copy_from_slice(&ip.octets());
                data[8..12].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => data[..16].copy_from_slice(&ip.octets()),
        }
        control.len = HEADER_LEN + len.next_multiple_of(8);
        control
    }

    /// The number of bytes the kernel may write.
    pub(super) const fn capacity() -> usize {
        BUFFER_LEN
    }

    /// Sets the length the kernel reported in `msg_controllen`.
    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len.min(BUFFER_LEN);
    }

    /// Takes the time stamp, if the kernel wrote one, out of the received messages.
    pub(super) fn take_timestamp(&mut self) {
        self.arrived = None;
        if self.len < TIMESTAMP_LEN
            || self.int(offset_of!(cmsghdr, cmsg_level)) != libc::SOL_SOCKET
            || self.int(offset_of!(cmsghdr, cmsg_type)) != libc::SCM_TIMESTAMPNS
        {
            return;
        }
        // SAFETY: at least TIMESTAMP_LEN bytes are initialised; a timespec is integers, for which every value is valid,
        // and is read without regard to alignment.
        let time = unsafe { self.bytes[HEADER_LEN..].as_ptr().cast::<libc::timespec>().read_unaligned() };
        if let (Ok(seconds), Ok(nanos @ 0..1_000_000_000)) =
            (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec))
        {
            self.arrived = Some(Duration::new(seconds, nanos));
        }
        self.bytes.copy_within(TIMESTAMP_LEN..self.len, 0);
        self.len -= TIMESTAMP_LEN;
    }

    /// When the datagram arrived, as time since the Unix epoch, if the kernel reported it.
    pub(crate) fn arrived(&self) -> Option<Duration> {
        self.arrived
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    /// A pointer to the bytes of the messages at `this`, with the validity of `this`.
    pub(super) fn bytes_at(this: *mut Self) -> *mut libc::c_void {
        // The bytes are the first field (`repr(C)`).
        this.cast()
    }

    /// The address the datagram was sent to, if the kernel reported it.
    pub(crate) fn destination(&self) -> Option<IpAddr> {
        let data = &self.bytes[HEADER_LEN..];
        match self.kind()? {
            Kind::V4 => Some(IpAddr::V4(Ipv4Addr::new(data[8], data[9], data[10], data[11]))),
            Kind::V6 => Some(IpAddr::V6(v6(data))),
        }
    }

    /// Whether the datagram was sent to a broadcast or multicast address.
    pub(crate) fn is_broadcast_or_multicast(&self) -> bool {
        let data = &self.bytes[HEADER_LEN..];
        match self.kind() {
            // For a unicast datagram, spec_dst is the destination address; otherwise it is an address to answer from,
            // if there is one. It comes from the route, which knows the broadcast addresses of subnets.
            Some(Kind::V4) => {
                let answer_from = Ipv4Addr::new(data[4], data[5], data[6], data[7]);
                let destination = Ipv4Addr::new(data[8], data[9], data[10], data[11]);
                if answer_from.is_unspecified() {
                    destination.is_broadcast() || destination.is_multicast()
                } else {
                    answer_from != destination
                }
            }
            Some(Kind::V6) => v6(data).is_multicast(),
            None => false,
        }
    }

    /// Turns the received message into that of a reply, in place: the destination becomes the source, and the interface
    /// is left to routing, except for link-local addresses, which need their interface.
    pub(crate) fn answer_from_destination(&mut self) {
        let kind = self.kind();
        let data = &mut self.bytes[HEADER_LEN..];
        match kind {
            // spec_dst is the kernel's choice of a local unicast address for this datagram, correct for broadcasts as
            // well; only the interface is cleared.
            Some(Kind::V4) => data[..4].fill(0),
            Some(Kind::V6) => {
                let destination = v6(data);
                if destination.is_multicast() {
                    self.len = 0;
                } else if !destination.is_unicast_link_local() {
                    data[16..20].fill(0);
                }
            }
            None => self.len = 0,
        }
    }

    /// Adds a request for segments of `size` bytes, after the packet info if there is one. Returns the total length.
    pub(super) fn with_segment(&mut self, size: usize, packet_info: bool) -> usize {
        let start = if packet_info { self.len } else { 0 };
        let size = u16::try_from(size).unwrap_or(u16::MAX);
        let message = &mut self.bytes[start..start + SEGMENT_LEN];
        let len = HEADER_LEN + size_of_val(&size);
        message[offset_of!(cmsghdr, cmsg_len)..][..size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
        message[offset_of!(cmsghdr, cmsg_level)..][..4].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
        message[offset_of!(cmsghdr, cmsg_type)..][..4].copy_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
        message[HEADER_LEN..len].copy_from_slice(&size.to_ne_bytes());
        start + SEGMENT_LEN
    }

    /// The length of the packet info, given the length from [`Control::with_segment`].
    pub(super) fn info_len(with_segment: usize) -> usize {
        with_segment.saturating_sub(SEGMENT_LEN)
    }

    /// The type of the only control message.
    fn kind(&self) -> Option<Kind> {
        if self.len < HEADER_LEN {
            return None;
        }
        let level = self.int(offset_of!(cmsghdr, cmsg_level));
        let kind = self.int(offset_of!(cmsghdr, cmsg_type));
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO)
                if self.len >= HEADER_LEN + size_of::<libc::in_pktinfo>() =>
            {
                Some(Kind::V4)
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)
                if self.len >= HEADER_LEN + size_of::<libc::in6_pktinfo>() =>
            {
                Some(Kind::V6)
            }
            _ => None,
        }
    }

    fn int(&self, at: usize) -> i32 {
        let b = &self.bytes[at..at + 4];
        i32::from_ne_bytes([b[0], b[1], b[2], b[3]])
    }
}

impl PartialEq for Control {
    fn eq(&self, other: &Self) -> bool {
        self.bytes[..self.len] == other.bytes[..other.len]
    }
}

enum Kind {
    V4,
    V6,
}

fn v6(data: &[u8]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&data[..16]);
    octets.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(level: i32, kind: i32, data: &[u8]) -> Control {
        let mut control = Control::empty();
        control.bytes[..HEADER_LEN - 8].copy_from_slice(&(HEADER_LEN + data.len()).to_ne_bytes());
        control.bytes[HEADER_LEN - 8..HEADER_LEN - 4].copy_from_slice(&level.to_ne_bytes());
        control.bytes[HEADER_LEN - 4..HEADER_LEN].copy_from_slice(&kind.to_ne_bytes());
        control.bytes[HEADER_LEN..HEADER_LEN + data.len()].copy_from_slice(data);
        control.set_len(HEADER_LEN + data.len().next_multiple_of(8));
        control
    }

    #[test]
    fn the_bytes_come_first() {
        assert_eq!(offset_of!(Control, bytes), 0);
    }

    #[test]
    fn an_ipv4_reply_keeps_the_source_and_leaves_the_interface_to_routing() {
        let mut c = control(libc::IPPROTO_IP, libc::IP_PKTINFO, &[3, 0, 0, 0, 10, 0, 0, 1, 10, 0, 0, 255]);
        assert_eq!(c.destination(), Some("10.0.0.255".parse().unwrap()));
        assert!(c.is_broadcast_or_multicast());
        c.answer_from_destination();
        assert_eq!(c.bytes[HEADER_LEN..HEADER_LEN + 8], [0, 0, 0, 0, 10, 0, 0, 1]);
    }

    #[test]
    fn an_ipv6_reply_keeps_the_interface_of_link_local_addresses_only() {
        for (text, index) in [("2001:db8::1", 0_u32), ("fe80::1", 5)] {
            let mut data = text.parse::<Ipv6Addr>().unwrap().octets().to_vec();
            data.extend(5_u32.to_ne_bytes());
            let mut c = control(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data);
            assert_eq!(c.destination(), Some(text.parse().unwrap()));
            assert!(!c.is_broadcast_or_multicast());
            c.answer_from_destination();
            assert_eq!(c.bytes[HEADER_LEN + 16..HEADER_LEN + 20], index.to_ne_bytes(), "{text}");
        }
    }

    #[test]
    fn a_source_that_is_made_up_reads_like_one_that_was_asked() {
        for ip in ["192.0.2.1", "2001:db8::1"] {
            let mut control = Control::of_source(ip.parse().unwrap());
            assert_eq!(control.destination(), Some(ip.parse().unwrap()));
            assert!(!control.is_broadcast_or_multicast());
            let made = control;
            control.answer_from_destination();
            assert!(control == made, "nothing is left to change");
        }
    }

    #[test]
    fn a_time_stamp_is_taken_out_and_leaves_packet_info() {
        let stamp = [1_700_000_000_u64.to_ne_bytes(), 123_456_789_u64.to_ne_bytes()].concat();
        let info = control(libc::IPPROTO_IP, libc::IP_PKTINFO, &[3, 0, 0, 0, 10, 0, 0, 1, 10, 0, 0, 1]);
        let mut both = control(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &stamp);
        let start = both.len();
        assert_eq!(start, TIMESTAMP_LEN);
        both.bytes[start..start + info.len()].copy_from_slice(&info.bytes[..info.len()]);
        both.set_len(start + info.len());
        both.take_timestamp();
        assert_eq!(both.arrived(), Some(Duration::new(1_700_000_000, 123_456_789)));
        assert!(both == info);
        assert_eq!(both.destination(), Some("10.0.0.1".parse().unwrap()));
        // Without one, nothing changes, and the last datagram's is forgotten.
        both.take_timestamp();
        assert!(both == info && both.arrived().is_none());
    }

    #[test]
    fn multicast_and_foreign_messages_leave_the_source_to_routing() {
        let mut data = "ff02::1".parse::<Ipv6Addr>().unwrap().octets().to_vec();
        data.extend(5_u32.to_ne_bytes());
        let mut multicast = control(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data);
        assert!(multicast.is_broadcast_or_multicast());
        multicast.answer_from_destination();
        assert_eq!(multicast.len(), 0);
        let mut foreign = control(libc::SOL_SOCKET, 1, &[0; 12]);
        assert_eq!(foreign.destination(), None);
        foreign.answer_from_destination();
        assert_eq!(foreign.len(), 0);
    }
}
