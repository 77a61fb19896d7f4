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
/// `CGROUP2_SUPER_MAGIC` of linux/magic.h.
const CGROUP2_MAGIC: i128 = 0x6367_7270;
/// `TMPFS_MAGIC`: where several cgroup hierarchies are mounted.
const TMPFS_MAGIC: i128 = 0x0102_1994;
/// Mounted inside /sys, read for the limits of processes, and hidden by a fresh sysfs.
const CGROUPS: &CStr = c"/sys/fs/cgroup";

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
    let cgroups = clone_cgroups();
    match rustix::mount::mount(c"sysfs", c"/sys", c"sysfs", flags(), None) {
        // The same sysfs is already mounted: /sys shows this namespace anyway.
        Err(rustix::io::Errno::BUSY) => return Ok(()),
        mounted => mounted?,
    }
    if let Some(tree) = cgroups {
        // Without it limits are not shown, and are reported as missing.
        let _ = rustix::mount::move_mount(&tree, c"", CWD, CGROUPS, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH);
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

fn clone_cgroups() -> Option<OwnedFd> {
    let kind = i128::from(rustix::fs::statfs(CGROUPS).ok()?.f_type);
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let mounted = kind == CGROUP2_MAGIC || kind == TMPFS_MAGIC;
    mounted.then(|| rustix::mount::open_tree(CWD, CGROUPS, flags).ok()).flatten()
}

/// A /sys that is read-only outside stays read-only inside.
fn flags() -> MountFlags {
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match rustix::fs::statvfs(c"/sys") {
        Ok(fs) if fs.f_flag.contains(StatVfsMountFlags::RDONLY) => safe | MountFlags::RDONLY,
        _ => safe,
    }
}
