//! System calls of a port: kicks, socket options that rustix lacks, two ioctls. The submodules hold the mapped rings
//! and the frames made from their entries.
#![allow(unsafe_code, reason = "rings are memory shared with the kernel, which also decides who has a chunk")]

mod frames;
mod ring;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

pub(super) use frames::{pushed, receive, reclaim};
pub(super) use ring::{Entry, Ring};

/// Socket option: maximum packets per sendto call in copy mode (linux/if_xdp.h, Linux 6.17 and later).
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// Makes the kernel send the packets in the transmit ring, or wakes the driver that does.
#[inline]
pub(super) fn kick_transmit(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no data and no address: the kernel reads none of our memory.
    let done =
        unsafe { libc::sendto(socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Wakes a driver that waits for entries in the fill ring; with busy polling, polls the device.
#[inline]
pub(super) fn kick_receive(socket: BorrowedFd<'_>) {
    // SAFETY: no buffer and no address: the kernel writes none of our memory. The result is in the rings.
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

/// Configures busy polling on behalf of the caller.
pub(super) fn set_busy_poll(socket: BorrowedFd<'_>, microseconds: u32, budget: u16) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)?;
    let microseconds = libc::c_int::try_from(microseconds).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, microseconds)?;
    set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, budget.into())
}

/// Sets the limit of kernel memory for packets in the device's queue, bytes; less if not permitted.
pub(super) fn set_send_buffer(socket: BorrowedFd<'_>, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    if set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes).is_err() {
        // Without CAP_NET_ADMIN up to net.core.wmem_max.
        let _ = set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes);
    }
}

/// Sets how many packets one call sends in copy mode. Older kernels do not support it, and stay at 32.
pub(super) fn set_transmit_budget(socket: BorrowedFd<'_>, packets: u32) {
    let packets = libc::c_int::try_from(packets).unwrap_or(libc::c_int::MAX);
    let _ = set(socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, packets);
}

/// The MAC address of the interface `name`, in the network namespace of `socket`, which may be any socket; zeros if
/// it is not an Ethernet address.
pub(super) fn hardware_address(socket: BorrowedFd<'_>, name: &str) -> io::Result<[u8; 6]> {
    // SAFETY: a structure of plain integers, for which all zeros is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte less than the field: the name is null-terminated.
    let places = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name.iter_mut().take(places).zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    // SAFETY: the kernel reads the name and writes the address, within the structure.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR as _, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the field that this request fills in.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let [a, b, c, d, e, f, ..] = address.sa_data.map(|byte| byte as u8);
    Ok(if address.sa_family == libc::ARPHRD_ETHER { [a, b, c, d, e, f] } else { [0; 6] })
}

fn set(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` lives through the call and `len` is its size.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
