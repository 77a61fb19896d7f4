//! Socket options and the one scheduling call that no safe crate covers.
#![allow(unsafe_code, reason = "setsockopt and sched_setaffinity with values of our own")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use udpath_steer::CpuSet;

/// `SKF_AD_OFF` and `SKF_AD_CPU` of linux/filter.h: a load from this offset returns the number of the current CPU.
const CURRENT_CPU: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;
/// Bits per word of a scheduler CPU mask.
const WORD: u32 = libc::c_ulong::BITS;

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an integer option of `SOL_SOCKET`.
pub(super) fn set_option(socket: BorrowedFd<'_>, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set(socket, name, &value)
}

/// The program that returns `CPU mod members`: opcodes and operands, without jumps.
const fn by_cpu(members: u32) -> [(u16, u32); 3] {
    [
        ((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, CURRENT_CPU),
        ((libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K) as u16, members),
        ((libc::BPF_RET | libc::BPF_A) as u16, 0),
    ]
}

/// Makes the socket's reuseport group select by the CPU a datagram arrives on: member `CPU mod members`, in the order
/// in which they joined the group. Replaces the previous selection.
pub(super) fn choose_by_cpu(socket: BorrowedFd<'_>, members: u32) -> io::Result<()> {
    let mut steps = by_cpu(members).map(|(code, k)| libc::sock_filter { code, jt: 0, jf: 0, k });
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // The kernel copies the instructions; they live until this returns.
    set(socket, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

fn set<T>(socket: BorrowedFd<'_>, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is a live value of that many bytes, what it points to lives as long, and the kernel only reads
    // it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(result)
}

/// Restricts a thread to these CPUs. No CPU limit: `cpu_set_t` would end at 1,024.
pub(super) fn set_affinity(tid: u32, cpus: &CpuSet) -> io::Result<()> {
    let mut mask: Vec<libc::c_ulong> = vec![0; cpus.last().map_or(1, |last| last / WORD + 1) as usize];
    for cpu in cpus.iter() {
        mask[(cpu / WORD) as usize] |= 1 << (cpu % WORD);
    }
    // SAFETY: the mask is `size` readable bytes; the kernel accepts masks of any size and only reads.
    let result = unsafe {
        libc::sched_setaffinity(tid.cast_signed(), size_of_val(mask.as_slice()), mask.as_ptr().cast())
    };
    check(result)
}
