//! Enters a network namespace, with a private mount of /sys.
#![allow(unsafe_code, reason = "unshare has no safe form; this module is its only place")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, StatVfsMountFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// `SYSFS_MAGIC` of linux/magic.h.
const SYSFS_MAGIC: i128 = 0x6265_6572;
/// Mounted inside /sys, and hidden by a fresh sysfs: the limits of processes, and what is pinned.
const CARRIED: [&CStr; 2] = [c"/sys/fs/cgroup", c"/sys/fs/bpf"];

/// Moves the calling thread into a network namespace, and into a new mount namespace in which /sys shows that
/// namespace's devices.
pub(super) fn enter(net: impl AsFd) -> io::Result<()> {
    rustix::thread::move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))?;
    mount_own_sys()
}

/// Moves the calling thread into a new mount namespace in which /sys shows the devices of its network namespace.
pub(super) fn mount_own_sys() -> io::Result<()> {
    // SAFETY: the flag does not unshare the descriptor table, so all threads keep their descriptors.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Slave, not private: what the host unmounts is unmounted here too, not held.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", slave)?;
    let carried = CARRIED.map(clone_mount);
    match rustix::mount::mount(c"sysfs", c"/sys", c"sysfs", flags(), None) {
        // The same sysfs is already mounted: /sys shows this namespace anyway.
        Err(rustix::io::Errno::BUSY) => return Ok(()),
        mounted => mounted?,
    }
    for (tree, path) in carried.iter().zip(CARRIED) {
        if let Some(tree) = tree {
            // Without it limits and policies are not shown, and are reported as missing.
            let _ = rustix::mount::move_mount(tree, c"", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH);
        }
    }
    Ok(())
}

/// The device number of the sysfs at /sys; `None` if something else is mounted.
pub(super) fn mounted_sysfs() -> Option<u64> {
    let kind = i128::from(rustix::fs::statfs(c"/sys").ok()?.f_type);
    let device = || rustix::fs::stat(c"/sys").ok().map(|root| root.st_dev);
    (kind == SYSFS_MAGIC).then(device).flatten()
}

/// The device number of the sysfs of the calling thread's network namespace, from a detached mount that ends with its
/// descriptor.
///
/// # Errors
/// No permission to mount it (CAP_SYS_ADMIN), or the kernel is older than 5.2.
pub(super) fn own_sysfs() -> io::Result<u64> {
    let context = rustix::mount::fsopen(c"sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let mount =
        rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    Ok(rustix::fs::fstat(&mount)?.st_dev)
}

/// A copy of the mount at `path`; `None` if it is a directory of sysfs.
fn clone_mount(path: &CStr) -> Option<OwnedFd> {
    let kind = i128::from(rustix::fs::statfs(path).ok()?.f_type);
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    (kind != SYSFS_MAGIC).then(|| rustix::mount::open_tree(CWD, path, flags).ok()).flatten()
}

/// A /sys that is read-only outside stays read-only inside.
fn flags() -> MountFlags {
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match rustix::fs::statvfs(c"/sys") {
        Ok(fs) if fs.f_flag.contains(StatVfsMountFlags::RDONLY) => safe | MountFlags::RDONLY,
        _ => safe,
    }
}
