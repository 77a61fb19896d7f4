//! Namespaces, their mounts, and the ethtool request: operations without a safe wrapper.
#![allow(
    unsafe_code,
    reason = "unshare, fork-time hooks and ioctl have no safe form; this module is their only place"
)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustix::fs::{CWD, StatVfsMountFlags};
use rustix::io::FdFlags;
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// `SYSFS_MAGIC` of linux/magic.h.
const SYSFS_MAGIC: i64 = 0x6265_6572;
/// `NSFS_MAGIC` of linux/magic.h.
const NSFS_MAGIC: i64 = 0x6e73_6673;

/// File systems that hosts mount inside /sys; a fresh sysfs hides them, so they are moved into it.
const INSIDE_SYS: [&CStr; 5] = [
    c"/sys/fs/cgroup",
    c"/sys/fs/bpf",
    c"/sys/kernel/debug",
    c"/sys/kernel/tracing",
    c"/sys/kernel/security",
];

/// Moves the calling thread into a new network namespace.
pub(crate) fn new_network() -> io::Result<OwnedFd> {
    // SAFETY: the flag does not unshare the descriptor table, so all threads keep their descriptors.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    // Not /proc/self: that is the main thread's.
    Ok(udpath_files::kernel::namespace("/proc/thread-self/ns/net")?.into())
}

/// Moves the process into new user, network and mount namespaces. The process must be single-threaded.
pub(crate) fn new_user() -> io::Result<()> {
    // SAFETY: the flags do not unshare the descriptor table.
    unsafe {
        rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWNS)
    }?;
    Ok(())
}

/// Moves the calling thread into a network namespace, without changing its mounts.
pub(crate) fn enter_network(net: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(net, Some(LinkNameSpaceType::Network))?)
}

/// Moves the calling thread into a machine: its network namespace, and a new mount namespace in which /sys shows that
/// network namespace. Like `ip netns exec`, but file systems mounted inside /sys stay.
///
/// Also called between fork and exec, so: system calls only, no allocation, no lock.
pub(crate) fn enter_machine(net: BorrowedFd<'_>) -> io::Result<()> {
    enter_network(net)?;
    // SAFETY: the flag does not unshare the descriptor table.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Slave, not private: a namespace or disk that the host unmounts is unmounted here too, not held.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", slave)?;
    let carried = INSIDE_SYS.map(clone_mount);
    rustix::mount::mount(c"sysfs", c"/sys", c"sysfs", sys_flags(), None)?;
    for (tree, path) in carried.iter().zip(INSIDE_SYS) {
        if let Some(tree) = tree {
            // A fresh sysfs may lack the directory. The mount is a convenience, not part of the machine.
            let _ = rustix::mount::move_mount(tree, c"", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH);
        }
    }
    Ok(())
}

/// A copy of the mount at `path`, or `None` if that is only a sysfs directory.
fn clone_mount(path: &CStr) -> Option<OwnedFd> {
    let mounted = rustix::fs::statfs(path).is_ok_and(|fs| i128::from(fs.f_type) != i128::from(SYSFS_MAGIC));
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    if mounted { rustix::mount::open_tree(CWD, path, flags).ok() } else { None }
}

/// A /sys that is read-only outside stays read-only inside; in a user namespace the kernel requires it.
fn sys_flags() -> MountFlags {
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match rustix::fs::statvfs(c"/sys") {
        Ok(fs) if fs.f_flag.contains(StatVfsMountFlags::RDONLY) => safe | MountFlags::RDONLY,
        _ => safe,
    }
}

/// Whether the file at `path` is a mounted namespace.
pub(crate) fn is_namespace(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|fs| i128::from(fs.f_type) == i128::from(NSFS_MAGIC))
}

/// Makes the child of `command` start inside a machine. With `dies_with`, the PID of this process, the child is killed
/// when the thread that starts it ends, and does not start at all if that has already happened.
pub(crate) fn start_inside(command: &mut Command, net: Arc<OwnedFd>, dies_with: Option<u32>) {
    let hook = move || {
        if let Some(parent) = dies_with {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
            if now != Some(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        enter_machine(net.as_fd())
    };
    // SAFETY: between fork and exec the hook makes system calls on values made before the fork; it neither allocates
    // nor takes a lock (an error is built from a number).
    unsafe { command.pre_exec(hook) };
}

/// Passes these descriptors to the child of `command`, with the same numbers.
pub fn pass_on(command: &mut Command, descriptors: Vec<OwnedFd>) {
    let hook = move || {
        descriptors.iter().try_for_each(|descriptor| {
            Ok::<(), io::Error>(rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?)
        })
    };
    // SAFETY: between fork and exec the hook makes system calls on descriptors opened before the fork; it neither
    // allocates nor takes a lock.
    unsafe { command.pre_exec(hook) };
}
