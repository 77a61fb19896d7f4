//! Packet sockets (packet(7)).
#![allow(unsafe_code, reason = "packet sockets are beyond what safe wrappers offer")]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

const ETH_P_IP: u16 = 0x0800;

pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Receives the IPv4 frames that arrive at an interface of this network namespace.
    pub(crate) fn bound(ifindex: u32) -> io::Result<Self> {
        Self::new(ifindex, ETH_P_IP)
    }

    /// Sends frames out of an interface, with a mark.
    pub(crate) fn marked(ifindex: u32, mark: u32) -> io::Result<Self> {
        // Protocol 0: it receives nothing.
        let socket = Self::new(ifindex, 0)?;
        // SAFETY: the option's value is a u32 of the length given.
        let done = unsafe {
            libc::setsockopt(
                socket.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MARK,
                (&raw const mark).cast(),
                size_of::<u32>() as u32,
            )
        };
        if done == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
    }

    fn new(ifindex: u32, protocol: u16) -> io::Result<Self> {
        // SAFETY: plain numbers in, a descriptor out.
        let fd = unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol.to_be()))
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
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

    /// The next frame; `None` if none arrives within `wait`.
    pub(crate) fn receive(&self, wait: Duration) -> io::Result<Option<Vec<u8>>> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let time = libc::timespec { tv_sec: 0, tv_nsec: wait.as_nanos().min(999_999_999) as i64 };
        // SAFETY: one pollfd, one timespec, no signal mask.
        match unsafe { libc::ppoll(&raw mut poll, 1, &raw const time, std::ptr::null()) } {
            0 => return Ok(None),
            n if n < 0 => return Err(io::Error::last_os_error()),
            _ => {}
        }
        let mut frame = vec![0; 2048];
        // SAFETY: the buffer has the given length.
        let len = unsafe { libc::recv(self.0.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        frame.truncate(len);
        Ok(Some(frame))
    }

    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the buffer has the given length.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
