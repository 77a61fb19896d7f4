//! Memory and numbers that cross to the kernel: ring mappings, addresses of chunks, socket options that rustix lacks.
#![allow(unsafe_code, reason = "rings are memory shared with the kernel, which also decides who has a chunk")]

mod frames;
mod ring;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

pub(super) use frames::{pushed, receive, reclaim};
pub(super) use ring::{Entry, Ring};

/// Lets a call of sendto work through more than 32 packets in copy mode (linux/if_xdp.h, Linux 6.17 and later).
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// Has the kernel send what is in the transmit ring, or wakes the driver that does.
#[inline]
pub(super) fn kick_transmit(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no data and no address: the kernel reads nothing of ours.
    let done =
        unsafe { libc::sendto(socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Wakes the driver that waits for entries in the fill ring; with busy polling, polls the device.
#[inline]
pub(super) fn kick_receive(socket: BorrowedFd<'_>) {
    // SAFETY: no buffer and no address: the kernel writes nothing of ours. Its answer is in the rings.
    unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
}

/// How the kernel polls the device on the caller's behalf.
pub(super) fn set_busy_poll(socket: BorrowedFd<'_>, microseconds: u32, budget: u16) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)?;
    let microseconds = libc::c_int::try_from(microseconds).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, microseconds)?;
    set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, budget.into())
}

/// Lets packets that wait in the device's queue take this many bytes of kernel memory; less where that is not allowed.
pub(super) fn set_send_buffer(socket: BorrowedFd<'_>, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    if set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes).is_err() {
        // Without CAP_NET_ADMIN up to net.core.wmem_max.
        let _ = set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes);
    }
}

/// Lets one call send this many packets in copy mode. Older kernels do not know it, and stay at 32.
pub(super) fn set_transmit_budget(socket: BorrowedFd<'_>, packets: u32) {
    let packets = libc::c_int::try_from(packets).unwrap_or(libc::c_int::MAX);
    let _ = set(socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, packets);
}

/// The MAC address of the interface `name`, in the network namespace of `socket`, any socket; zeros if it has another kind.
pub(super) fn hardware_address(socket: BorrowedFd<'_>, name: &str) -> io::Result<[u8; 6]> {
    // SAFETY: a structure of plain numbers, of which zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One place less than there is: the name ends with a zero.
    let places = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name.iter_mut().take(places).zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    // SAFETY: the kernel reads the name and writes the address, within the structure.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the field that this request writes.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let [a, b, c, d, e, f, ..] = address.sa_data.map(|byte| byte as u8);
    Ok(if address.sa_family == libc::ARPHRD_ETHER { [a, b, c, d, e, f] } else { [0; 6] })
}

fn set(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is there for the call and `len` is its size.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
