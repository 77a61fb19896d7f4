//! A socket of another process, held for as long as one call takes.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use serde::{Deserialize, Serialize};

use super::{Error, sys};

/// What lets one process take another's descriptors.
const NEEDS: &str = "CAP_SYS_PTRACE";

/// Which socket: the same for all processes that have it, and never another's in this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketId {
    /// What its descriptors name it by. Later sockets may get the same.
    pub inode: u32,
    /// What the kernel names it by. The kernel gives one to a socket that is asked for it first.
    pub cookie: u64,
}

/// A process that sockets can be taken from.
pub(super) struct Process {
    pid: u32,
    descriptor: OwnedFd,
}

impl Process {
    pub(super) fn open(pid: u32) -> Result<Self, Error> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Error::NoProcess { pid })?;
        match rustix::process::pidfd_open(number, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Self { pid, descriptor }),
            // EINVAL: the number of a thread that is no process.
            Err(Errno::SRCH | Errno::INVAL) => Err(Error::NoProcess { pid }),
            Err(errno) => Err(Error::answered(format!("open process {pid}"), errno, NEEDS)),
        }
    }

    /// The process's descriptors that are sockets, and their inodes.
    pub(super) fn sockets(&self) -> Result<Vec<(u32, u32)>, Error> {
        let folder = format!("/proc/{}/fd", self.pid);
        let what = || format!("list the descriptors of process {}", self.pid);
        let entries = match fs::read_dir(&folder) {
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::NoProcess { pid: self.pid });
            }
            entries => entries.map_err(|cause| Error::answered(what(), cause, NEEDS))?,
        };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let target = match fs::read_link(entry.path()) {
                // Closed while the list is read.
                Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => continue,
                target => target.map_err(|cause| Error::answered(what(), cause, NEEDS))?,
            };
            let inode = target.to_str().and_then(socket_inode);
            let fd = entry.file_name().to_str().and_then(|name| name.parse().ok());
            found.extend(fd.zip(inode));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// A duplicate of a descriptor. None when it has just been closed. Not to be kept: see the module's header.
    pub(super) fn take(&self, fd: u32) -> Result<Option<OwnedFd>, Error> {
        let taken =
            rustix::process::pidfd_getfd(&self.descriptor, fd.cast_signed(), PidfdGetfdFlags::empty());
        match taken {
            Ok(duplicate) => Ok(Some(duplicate)),
            Err(Errno::BADF) => Ok(None),
            Err(Errno::SRCH) => Err(Error::NoProcess { pid: self.pid }),
            Err(errno) => {
                Err(Error::answered(format!("take descriptor {fd} of process {}", self.pid), errno, NEEDS))
            }
        }
    }
}

/// Does `work` on the socket, through a duplicate that is closed when this returns.
pub fn with_socket<T>(
    pid: u32,
    socket: SocketId,
    work: impl FnOnce(BorrowedFd<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let process = Process::open(pid)?;
    for (fd, inode) in process.sockets()? {
        if inode != socket.inode {
            continue;
        }
        let Some(duplicate) = process.take(fd)? else { continue };
        // The descriptor may be another socket's by now, and the inode as well.
        if rustix::net::sockopt::socket_cookie(&duplicate) == Ok(socket.cookie) {
            return work(duplicate.as_fd());
        }
    }
    Err(Error::SocketGone { pid, inode: socket.inode, cookie: socket.cookie })
}

/// Which socket a process has under this inode now.
///
/// # Errors
/// It has no UDP socket of that inode, or its descriptors may not be taken.
pub fn identify(pid: u32, inode: u32) -> Result<SocketId, Error> {
    let process = Process::open(pid)?;
    for (fd, _) in process.sockets()?.into_iter().filter(|(_, found)| *found == inode) {
        let Some(duplicate) = process.take(fd)? else { continue };
        let udp =
            sys::option(duplicate.as_fd(), libc::SO_PROTOCOL).is_ok_and(|found| found == libc::IPPROTO_UDP);
        if let (true, Ok(cookie)) = (udp, rustix::net::sockopt::socket_cookie(&duplicate)) {
            return Ok(SocketId { inode, cookie });
        }
    }
    Err(Error::NoSocket { pid, inode })
}

/// `socket:[4026]`.
pub(super) fn socket_inode(target: &str) -> Option<u32> {
    target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}
