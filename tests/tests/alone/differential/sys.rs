//! Packet sockets (packet(7)): send and receive whole frames on an interface.
#![allow(unsafe_code, reason = "packet sockets are beyond what safe wrappers offer")]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Receive buffer for all replies of a run, so that none is lost while the test is busy.
static BUFFER: i32 = 64 << 20;

pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a socket on an interface of this network namespace. It sees incoming and outgoing frames.
    pub(crate) fn bound(ifindex: u32) -> io::Result<Self> {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: plain numbers in, a descriptor out.
        let fd = unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol))
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: the option's value is an int of the length given.
        let done = unsafe {
            libc::setsockopt(
                socket.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVBUFFORCE,
                (&raw const BUFFER).cast(),
                size_of::<i32>() as u32,
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        let yes: libc::c_int = 1;
        // SAFETY: the option's value is an int of the length given.
        let done = unsafe {
            libc::setsockopt(
                socket.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_AUXDATA,
                (&raw const yes).cast(),
                size_of::<libc::c_int>() as u32,
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = ifindex as i32;
        // SAFETY: the address is a sockaddr_ll of the length given.
        let done = unsafe {
            libc::bind(
                socket.0.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if done == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
    }

    /// The next frame that has arrived or arrives within `wait`.
    pub(crate) fn receive(&self, wait: Duration) -> io::Result<Option<Vec<u8>>> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let wait = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one pollfd.
        match unsafe { libc::poll(&raw mut poll, 1, wait) } {
            0 => return Ok(None),
            n if n < 0 => return Err(io::Error::last_os_error()),
            _ => {}
        }
        let mut frame = vec![0; 2048];
        let mut control = [0_u64; 16];
        let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        // SAFETY: all zeros is a valid msghdr.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the message names buffers of the given lengths, which live as long as the call.
        let len = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0) };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        frame.truncate(len);
        if let Some(tag) = tag(&message) {
            frame.splice(12..12, tag);
        }
        Ok(Some(frame))
    }

    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the buffer has the given length.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The VLAN tag that the kernel removed from a frame before packet sockets saw it.
fn tag(message: &libc::msghdr) -> Option<[u8; 4]> {
    // SAFETY: the kernel filled the message; the header it points to lies in the control buffer, if there is one.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref()? };
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
        return None;
    }
    // SAFETY: data of this type is a tpacket_auxdata, which may lie anywhere.
    let data = unsafe { libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned() };
    let [a, b] = data.tp_vlan_tpid.to_be_bytes();
    let [c, d] = data.tp_vlan_tci.to_be_bytes();
    (data.tp_status & libc::TP_STATUS_VLAN_VALID != 0).then_some([a, b, c, d])
}
