//! A BPF file system that no other program sees.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// A BPF file system without a place in the file tree: what is pinned there is gone with its descriptor, also if the
/// process is killed.
#[derive(Debug)]
pub struct Bpffs(OwnedFd);

impl Bpffs {
    /// Makes one.
    ///
    /// # Errors
    /// Root is required.
    pub fn new() -> std::io::Result<Self> {
        let context = fsopen(c"bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        Ok(Self(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?))
    }

    /// Where this process finds it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}
