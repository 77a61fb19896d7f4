//! Namespaces, the mounts that go with them, and the ethtool request: what no safe call covers.
#![allow(
    unsafe_code,
    reason = "unshare, fork-time hooks and ioctl have no safe form; this module is their only place"
)]

use std::ffi::CStr;
use std::fs::File;
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

/// File systems that hosts mount inside /sys; a fresh sysfs hides them, so they are carried over.
const INSIDE_SYS: [&CStr; 5] = [
    c"/sys/fs/cgroup",
    c"/sys/fs/bpf",
    c"/sys/kernel/debug",
    c"/sys/kernel/tracing",
    c"/sys/kernel/security",
];

/// Gives the calling thread a new network namespace.
pub(crate) fn new_network() -> io::Result<OwnedFd> {
    // SAFETY: the flag does not unshare the descriptor table, so no thread loses sight of a descriptor.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    // Not /proc/self: that is the main thread's.
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

/// Gives the process user, network and mount namespaces of its own. The process must have one thread.
pub(crate) fn new_user() -> io::Result<()> {
    // SAFETY: the flags do not unshare the descriptor table.
    unsafe {
        rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWNS)
    }?;
    Ok(())
}

/// Moves the calling thread into a network namespace, without changing what it sees mounted.
pub(crate) fn enter_network(net: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(net, Some(LinkNameSpaceType::Network))?)
}

/// Moves the calling thread into a machine: its network namespace, and a mount namespace of the thread's own in which
/// /sys shows that network namespace. As `ip netns exec` does it, but file systems mounted inside /sys stay.
///
/// Called between fork and exec too, so: system calls only, no allocation, no lock.
pub(crate) fn enter_machine(net: BorrowedFd<'_>) -> io::Result<()> {
    enter_network(net)?;
    // SAFETY: the flag does not unshare the descriptor table.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Slave, not private: a namespace or disk that the host unmounts goes away here as well instead of being held.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", slave)?;
    let carried = INSIDE_SYS.map(clone_mount);
    rustix::mount::mount(c"sysfs", c"/sys", c"sysfs", sys_flags(), None)?;
    for (tree, path) in carried.iter().zip(INSIDE_SYS) {
        if let Some(tree) = tree {
            // A fresh sysfs may lack the directory. What hung there is a convenience, not part of the machine.
            let _ = rustix::mount::move_mount(tree, c"", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH);
        }
    }
    Ok(())
}

/// A copy of what is mounted at `path`, or nothing when that is only a directory of sysfs.
fn clone_mount(path: &CStr) -> Option<OwnedFd> {
    let mounted = rustix::fs::statfs(path).is_ok_and(|fs| i128::from(fs.f_type) != i128::from(SYSFS_MAGIC));
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    if mounted { rustix::mount::open_tree(CWD, path, flags).ok() } else { None }
}

/// A /sys that is read-only outside stays so inside; in a user namespace the kernel insists on it.
fn sys_flags() -> MountFlags {
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match rustix::fs::statvfs(c"/sys") {
        Ok(fs) if fs.f_flag.contains(StatVfsMountFlags::RDONLY) => safe | MountFlags::RDONLY,
        _ => safe,
    }
}

/// Is the file at `path` a mounted namespace?
pub(crate) fn is_namespace(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|fs| i128::from(fs.f_type) == i128::from(NSFS_MAGIC))
}

/// Makes the child of `command` start inside a machine. With `dies_with`, the number of this process, the child is
/// killed when the thread that starts it ends, and does not start at all when that has happened already.
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

/// Hands these descriptors to the child of `command`, under the numbers they have here.
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
