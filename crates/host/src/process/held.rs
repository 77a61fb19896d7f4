//! A socket of another process, held only for the duration of one call.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};
use serde::{Deserialize, Serialize};

use super::{Error, sys};
use udpath_files::kernel;

/// The capability to duplicate another process's descriptors.
const NEEDS: &str = "CAP_SYS_PTRACE";

/// A socket's identity: the same for all processes that have it, and unique since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketId {
    /// Its inode, as its descriptors name it. Later sockets may reuse it.
    pub inode: u32,
    /// Its kernel cookie. The kernel assigns it on the first request.
    pub cookie: u64,
}

/// A process whose sockets can be duplicated.
pub(super) struct Process {
    pid: u32,
    descriptor: OwnedFd,
}

impl Process {
    pub(super) fn open(pid: u32) -> Result<Self, Error> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Error::NoProcess { pid })?;
        match rustix::process::pidfd_open(number, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Self { pid, descriptor }),
            // EINVAL: the ID of a thread that is not a process.
            Err(Errno::SRCH | Errno::INVAL) => Err(Error::NoProcess { pid }),
            Err(errno) => Err(Error::answered(format!("open process {pid}"), errno, NEEDS)),
        }
    }

    /// The process's socket descriptors, and their inodes.
    pub(super) fn sockets(&self) -> Result<Vec<(u32, u32)>, Error> {
        let folder = format!("/proc/{}/fd", self.pid);
        let fds = match kernel::numbers(&folder) {
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::NoProcess { pid: self.pid });
            }
            fds => fds.map_err(|cause| self.not_listed(cause))?,
        };
        let mut found = Vec::new();
        for fd in fds {
            let target = match fs::read_link(format!("{folder}/{fd}")) {
                // Closed while the list was read.
                Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => continue,
                target => target.map_err(|cause| self.not_listed(cause))?,
            };
            let inode = target.to_str().and_then(socket_inode);
            found.extend(inode.map(|inode| (fd, inode)));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Why its descriptors cannot be listed. Of a process that ends meanwhile, /proc says ESRCH on the way to a file
    /// and EACCES at a link.
    fn not_listed(&self, cause: std::io::Error) -> Error {
        let ended = || matches!(Self::open(self.pid), Err(Error::NoProcess { .. }));
        if cause.raw_os_error() == Some(libc::ESRCH) || ended() {
            return Error::NoProcess { pid: self.pid };
        }
        Error::answered(format!("list the descriptors of process {}", self.pid), cause, NEEDS)
    }

    /// A duplicate of a descriptor. `None` if it has just been closed. Must not be kept: see the module's header.
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

/// Runs `work` on the socket, through a duplicate that is closed when this returns.
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
        // The descriptor, and also the inode, may belong to another socket by now.
        if rustix::net::sockopt::socket_cookie(&duplicate) == Ok(socket.cookie) {
            return work(duplicate.as_fd());
        }
    }
    Err(Error::SocketGone { pid, inode: socket.inode, cookie: socket.cookie })
}

/// The socket that currently has this inode in a process.
///
/// # Errors
/// It has no UDP socket with that inode, or there is no permission to duplicate its descriptors.
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

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// On a busy machine processes end at any moment of a scan.
    #[test]
    fn a_process_that_ends_meanwhile_is_no_process() {
        for _ in 0..300 {
            let mut child = Command::new("true").spawn().unwrap();
            let pid = child.id();
            std::thread::scope(|scope| {
                scope.spawn(move || child.wait().unwrap());
                loop {
                    match Process::open(pid).and_then(|process| process.sockets()) {
                        Ok(_) => {}
                        Err(Error::NoProcess { .. }) => break,
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    }
}
