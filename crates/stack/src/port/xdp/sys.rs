//! Memory and numbers that cross to the kernel: ring mappings, addresses of chunks, socket options that rustix lacks.
#![allow(unsafe_code, reason = "rings are memory shared with the kernel, which also decides who has a chunk")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
// Not this crate's `primitive`: the other side is the kernel, which no model checker runs.
use std::sync::atomic::AtomicU32;

use rustix::net::xdp::{XdpDesc, XdpRingOffset};

use super::ring::Consumer;
use crate::frame::{Burst, Offloads, Pool};

/// Lets a call of sendto work through more than 32 packets in copy mode (linux/if_xdp.h, Linux 6.17 and later).
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// What may lie in a ring: plain numbers, of which every bit pattern is a value.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for XdpDesc {}

/// A ring of the kernel's, mapped: two indices, flags and a power of two of entries.
#[derive(Debug)]
pub(super) struct Ring<T> {
    mapping: NonNull<libc::c_void>,
    bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<T>,
    mask: u32,
    _entry: PhantomData<T>,
}

// SAFETY: a mapping belongs to the process, not to a thread; the indices are atomics, and entries are reached through
// the one owner of this value only.
unsafe impl<T: Entry> Send for Ring<T> {}
// SAFETY: through a shared reference indices are loaded, atomically, and entries copied that the kernel wrote; writing
// entries takes the one owner.
unsafe impl<T: Entry> Sync for Ring<T> {}

impl<T: Entry> Ring<T> {
    /// Maps the ring at `place` of the socket's file; `size` is the number of entries it was given, a power of two.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        place: u64,
        offsets: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let wrong = || io::Error::other("the kernel's layout of a ring makes no sense");
        let offset = |at: u64| usize::try_from(at).map_err(|_| wrong());
        let bytes = offset(offsets.desc)? + size as usize * size_of::<T>();
        let index_fits = |at: u64| at.is_multiple_of(4) && at < offsets.desc;
        let fits = index_fits(offsets.producer)
            && index_fits(offsets.consumer)
            && offsets.flags.is_none_or(index_fits)
            && offsets.desc.is_multiple_of(8);
        if !fits || !size.is_power_of_two() {
            return Err(wrong());
        }
        let place = libc::off_t::try_from(place).map_err(|_| wrong())?;
        // SAFETY: a new mapping at an address of the kernel's choice; the kernel checks its length against the ring.
        let mapping = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                place,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = NonNull::new(mapping).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        // SAFETY: within the mapping, as checked above, for this and the next three.
        let at = |offset: usize| unsafe { mapping.byte_add(offset) };
        Ok(Self {
            mapping,
            bytes,
            producer: at(offset(offsets.producer)?).cast(),
            consumer: at(offset(offsets.consumer)?).cast(),
            flags: offsets.flags.map(|flags| at(flags as usize).cast()),
            entries: at(offset(offsets.desc)?).cast(),
            mask: size - 1,
            _entry: PhantomData,
        })
    }

    /// Entries there are.
    #[inline]
    pub(super) fn size(&self) -> u32 {
        self.mask + 1
    }

    #[inline]
    pub(super) fn producer(&self) -> &AtomicU32 {
        // SAFETY: aligned, within the mapping, which lives as long as `self`; the kernel writes it whole.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    pub(super) fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    pub(super) fn flags(&self) -> Option<&AtomicU32> {
        // SAFETY: as above.
        self.flags.map(|flags| unsafe { flags.as_ref() })
    }

    /// The entry at `index`, which wraps round.
    #[inline]
    pub(super) fn read(&self, index: u32) -> T {
        // SAFETY: masked, so within the mapping; every bit pattern is a `T`. Volatile: the kernel wrote it.
        unsafe { self.entries.add((index & self.mask) as usize).read_volatile() }
    }

    /// Writes the entry at `index`, which wraps round.
    #[inline]
    pub(super) fn write(&mut self, index: u32, entry: T) {
        // SAFETY: as above. What the kernel makes of it is checked there.
        unsafe { self.entries.add((index & self.mask) as usize).write_volatile(entry) }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap returned, and no reference into it is left.
        unsafe { libc::munmap(self.mapping.as_ptr(), self.bytes) };
    }
}

/// Appends the packets that are in `rx` to `into`, as far as that has room. How many entries were taken, and how many
/// of those had an address or a length that they cannot have.
#[inline]
pub(super) fn receive(rx: &mut Consumer<XdpDesc>, pool: &mut Pool, into: &mut Burst) -> (u32, u32) {
    let room = into.remaining_capacity() as u32;
    let (mut taken, mut unfit) = (0, 0);
    if rx.available(room) == 0 {
        return (0, 0);
    }
    while taken < room
        && let Some(entry) = rx.take()
    {
        taken += 1;
        // SAFETY: only the kernel writes this ring, and each entry is read once: the kernel has given the chunk up.
        match unsafe { pool.receive(entry.addr, entry.len, Offloads::default()) } {
            Some(frame) => into.push(frame),
            None => unfit += 1,
        }
    }
    rx.release();
    (taken, unfit)
}

/// Takes back the chunks whose packets were sent. How many entries there were, and how many of them were foreign.
#[inline]
pub(super) fn reclaim(completion: &mut Consumer<u64>, pool: &mut Pool) -> (u32, u32) {
    let (mut taken, mut unfit) = (0, 0);
    if completion.available(1) == 0 {
        return (0, 0);
    }
    while let Some(address) = completion.take() {
        taken += 1;
        // SAFETY: only the kernel writes this ring, and each entry is read once: the kernel has given the chunk up.
        if !unsafe { pool.reclaim(address) } {
            unfit += 1;
        }
    }
    completion.release();
    (taken, unfit)
}

/// The bytes of a packet that was put into the transmit ring, in copy mode, before its chunk was taken back.
pub(super) fn pushed(pool: &Pool, entry: XdpDesc) -> Option<&[u8]> {
    // SAFETY: the pool lent this packet out for the ring, only the completion ring brings it back, which is read after this
    // by the caller, who has the port for itself; and the kernel reads packets that it sends.
    unsafe { pool.lent_packet(entry.addr, entry.len) }
}

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

/// `struct ethtool_value` (linux/ethtool.h).
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Asks for an interface's flags (`ETHTOOL_GFLAGS`), and the one for VLAN tags that it removes (`ETH_FLAG_RXVLAN`).
const GET_FLAGS: u32 = 0x25;
const RX_VLAN: u32 = 1 << 8;

/// Whether an interface of the calling thread's network namespace removes VLAN tags from frames that it receives.
pub(super) fn removes_vlan_tags(name: &str) -> io::Result<bool> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    let mut value = EthtoolValue { command: GET_FLAGS, data: 0 };
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0, so that the name has an end.
    let room = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the kernel reads the name and the command, and writes the data, within the two structures.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(value.data & RX_VLAN != 0) }
}

/// linux/sockios.h.
const SIOCETHTOOL: libc::c_ulong = 0x8946;

fn set(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is there for the call and `len` is its size.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
