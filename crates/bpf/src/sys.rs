//! The memory mapping behind [`crate::shared_array`], network namespaces, waiting for running programs, the bpf(2)
//! calls that [`crate::rx_hash`], [`crate::Policies`] and [`crate::Selection`] make themselves, and the packet socket
//! of [`crate::Watch`].
#![allow(
    unsafe_code,
    reason = "mmap of a BPF array, the slices over it, unshare, membarrier, bpf(2), packet sockets"
)]

use std::ffi::CStr;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

use aya_obj::generated::{
    BPF_F_QUERY_EFFECTIVE, BPF_F_XDP_DEV_BOUND_ONLY, XDP_FLAGS_DRV_MODE, bpf_attach_type, bpf_attr, bpf_cmd,
    bpf_insn, bpf_prog_type,
};

/// Makes a thread one that no wake-up lets take the CPU from another (`SCHED_BATCH`), with the priority of an ordinary
/// one.
pub(crate) fn make_batch(thread: i32) -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the one structure, which outlives the call.
    match unsafe { libc::sched_setscheduler(thread, libc::SCHED_BATCH, &raw const priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A shared, writable mapping of a BPF array; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<AtomicU64>,
    bytes: usize,
    used: usize,
}

// SAFETY: the mapping is plain memory, accessed only as atomics; it belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; every access goes through `AtomicU64`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of the array behind `fd`, a multiple of eight.
    pub(crate) fn shared(fd: impl AsFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: sysconf reads a system constant.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let mapped = bytes.next_multiple_of(page);
        // SAFETY: a new mapping at an address the kernel chooses; the kernel checks the length against the array.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { start, bytes: mapped, used: bytes })
    }

    /// The mapped words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `start` is page-aligned and valid for `bytes >= used` while `self` lives; AtomicU64 may be shared
        // with the kernel's programs, which access these words whole.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.used / size_of::<AtomicU64>()) }
    }
}

/// A mapping that no program writes, and that programs read only while the process waits for them.
#[derive(Debug)]
pub(crate) struct Quiet(Mapping);

impl Quiet {
    /// The programs of the array must follow the rule above.
    pub(crate) fn new(mapping: Mapping) -> Self {
        Self(mapping)
    }

    /// The mapped bytes.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `start` is valid for `bytes >= used` while `self` lives, and this is the only access to the mapping,
        // held exclusively; no program accesses it during that time, as the type requires.
        unsafe { slice::from_raw_parts_mut(self.0.start.as_ptr().cast(), self.0.used) }
    }
}

/// The index of the interface `name` in the calling thread's network namespace.
pub(crate) fn interface_index(name: &CStr) -> Option<u32> {
    // SAFETY: `name` ends with a zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// `PACKET_IGNORE_OUTGOING` of linux/if_packet.h; libc has no name for it.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// A packet socket that starts at the network header and receives no packets yet; it never sees sent packets if the
/// kernel supports that (Linux 4.20 and later).
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: socket touches no memory of this process.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a newly created descriptor with no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let on: libc::c_int = 1;
    // An older kernel returns an error. The filter skips sent packets, so this only costs time.
    // SAFETY: `on` is valid for the call, with its size.
    let _ = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_PACKET,
            PACKET_IGNORE_OUTGOING,
            ptr::from_ref(&on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    Ok(socket)
}

/// Binds a packet socket to the interface with index `index`, so that it receives packets.
pub(crate) fn bind_packet_socket(socket: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: plain integers, for which zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    // Every protocol: a tap for one protocol runs after bridges and bonds have consumed the packet.
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as libc::c_int;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is valid for the call, with its size.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(&address).cast(), len) };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Moves only the calling thread into a new network namespace.
pub(crate) fn enter_new_network() -> io::Result<()> {
    // SAFETY: unshare touches no memory of this process, and a network namespace is per thread.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Does [`outwait_programs`] work here? Not if CPUs run without a tick (`nohz_full`).
pub(crate) fn can_outwait_programs() -> bool {
    let commands = membarrier(libc::MEMBARRIER_CMD_QUERY);
    commands >= 0 && commands & i64::from(libc::MEMBARRIER_CMD_GLOBAL) != 0
}

/// Returns once every currently running BPF program has ended: XDP programs run inside RCU read-side critical sections,
/// and the global membarrier is an RCU grace period (`kernel/sched/membarrier.c`).
pub(crate) fn outwait_programs() {
    membarrier(libc::MEMBARRIER_CMD_GLOBAL);
}

fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: membarrier takes a command and flags, and touches no memory of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// Loads an XDP program bound to the interface with index `index` in the calling thread's network namespace.
pub(crate) fn load_bound_xdp(
    name: &CStr,
    instructions: &[bpf_insn],
    license: &CStr,
    index: u32,
) -> io::Result<OwnedFd> {
    // SAFETY: plain integers and addresses, for which zero is valid: the kernel reads it as "not given".
    let mut attr: bpf_attr = unsafe { mem::zeroed() };
    // SAFETY: all of the union's variants consist of such integers, and all were set.
    let load = unsafe { &mut attr.__bindgen_anon_3 };
    load.prog_type = bpf_prog_type::BPF_PROG_TYPE_XDP as u32;
    load.expected_attach_type = bpf_attach_type::BPF_XDP as u32;
    load.prog_flags = BPF_F_XDP_DEV_BOUND_ONLY;
    load.prog_ifindex = index;
    load.insns = instructions.as_ptr() as u64;
    load.insn_cnt = instructions.len() as u32;
    load.license = license.as_ptr() as u64;
    // One byte less than the array: the name ends with a NUL.
    let places = load.prog_name.len() - 1;
    for (place, byte) in load.prog_name.iter_mut().take(places).zip(name.to_bytes()) {
        *place = *byte as libc::c_char;
    }
    // SAFETY: instructions and license are valid for the call, with the given length and up to the NUL.
    unsafe { bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr) }
}

/// Attaches an XDP program to the interface with index `index`, in native mode, until the link is closed.
pub(crate) fn attach_xdp(program: &OwnedFd, index: u32) -> io::Result<OwnedFd> {
    // SAFETY: as above.
    let mut attr: bpf_attr = unsafe { mem::zeroed() };
    attr.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd() as u32;
    attr.link_create.__bindgen_anon_2.target_ifindex = index;
    attr.link_create.attach_type = bpf_attach_type::BPF_XDP as u32;
    attr.link_create.flags = XDP_FLAGS_DRV_MODE;
    // SAFETY: the call reads numbers only.
    unsafe { bpf(bpf_cmd::BPF_LINK_CREATE, &mut attr) }
}

/// # Safety
/// Everything `attr` points to is valid for `command`; and the command returns a descriptor.
unsafe fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees it.
    let fd = unsafe { call(command, attr)? };
    // SAFETY: a newly created descriptor, close-on-exec, with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// Everything `attr` points to is valid for `command`.
unsafe fn call(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<libc::c_int> {
    let (attr, len) = (ptr::from_mut(attr), size_of::<bpf_attr>());
    // SAFETY: `attr` is valid for the call and `len` is its size; the caller guarantees the rest.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_int, attr, len) };
    let done = libc::c_int::try_from(done).map_err(io::Error::other)?;
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// A command on one element of a map with keys of four bytes and values of eight.
fn element(command: bpf_cmd, map: BorrowedFd<'_>, key: u32, value: Option<&mut u64>) -> io::Result<()> {
    // SAFETY: as above.
    let mut attr: bpf_attr = unsafe { mem::zeroed() };
    // SAFETY: all of the union's variants consist of integers, and all were set.
    let element = unsafe { &mut attr.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd() as u32;
    element.key = ptr::from_ref(&key) as u64;
    // A command that takes no value rejects one.
    element.__bindgen_anon_1.value = value.map_or(0, |value| ptr::from_mut(value) as u64);
    // SAFETY: key and value are valid for the call, with the map's sizes.
    unsafe { call(command, &mut attr) }.map(drop)
}

/// Puts a socket into an array of sockets.
pub(crate) fn put_socket(array: BorrowedFd<'_>, key: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut descriptor = u64::from(socket.as_raw_fd().cast_unsigned());
    element(bpf_cmd::BPF_MAP_UPDATE_ELEM, array, key, Some(&mut descriptor))
}

/// The cookie of a socket in an array of sockets; `ENOENT` if there is none.
pub(crate) fn cookie_at(array: BorrowedFd<'_>, key: u32) -> io::Result<u64> {
    let mut cookie = 0;
    element(bpf_cmd::BPF_MAP_LOOKUP_ELEM, array, key, Some(&mut cookie)).map(|()| cookie)
}

/// Takes a socket out of an array of sockets; `ENOENT` if there is none.
pub(crate) fn remove_socket(array: BorrowedFd<'_>, key: u32) -> io::Result<()> {
    element(bpf_cmd::BPF_MAP_DELETE_ELEM, array, key, None)
}

/// Opens an object that is pinned at `path`.
pub(crate) fn pinned(path: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: as above.
    let mut attr: bpf_attr = unsafe { mem::zeroed() };
    // SAFETY: all of the union's variants consist of integers, and all were set.
    let get = unsafe { &mut attr.__bindgen_anon_4 };
    get.pathname = path.as_ptr() as u64;
    // SAFETY: `path` is valid for the call, up to its NUL.
    unsafe { bpf(bpf_cmd::BPF_OBJ_GET, &mut attr) }
}

/// Programs that one hook of a cgroup can have at once: `BPF_CGROUP_MAX_PROGS` of include/linux/bpf-cgroup.h.
const MAX_PROGRAMS: usize = 64;

/// IDs of the programs that run at a hook for the sockets of `cgroup`, in the order in which they run: its own, and
/// those of the cgroups above it.
pub(crate) fn effective_programs(cgroup: BorrowedFd<'_>, hook: bpf_attach_type) -> io::Result<Vec<u32>> {
    // Each cgroup above may have as many; a hook with more is an error (ENOSPC).
    let mut ids = vec![0_u32; 4 * MAX_PROGRAMS];
    // SAFETY: as above.
    let mut attr: bpf_attr = unsafe { mem::zeroed() };
    attr.query.__bindgen_anon_1.target_fd = cgroup.as_raw_fd() as u32;
    attr.query.attach_type = hook as u32;
    attr.query.query_flags = BPF_F_QUERY_EFFECTIVE;
    attr.query.prog_ids = ids.as_mut_ptr() as u64;
    attr.query.__bindgen_anon_2.prog_cnt = ids.len() as u32;
    // SAFETY: the kernel writes at most as many words to `ids` as `prog_cnt` gives.
    unsafe { call(bpf_cmd::BPF_PROG_QUERY, &mut attr)? };
    // SAFETY: both variants are the same integer, which the kernel has set.
    ids.truncate(unsafe { attr.query.__bindgen_anon_2.prog_cnt } as usize);
    Ok(ids)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that mmap returned, with no borrow of it left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
