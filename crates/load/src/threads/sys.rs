#![allow(unsafe_code, reason = "epoll_pwait2, which rustix lacks")]
//! Waiting for several descriptors behind a safe type.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

/// Waits for sockets of one thread, with nanosecond precision (rustix rounds epoll's timeout up to milliseconds).
pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Box<[libc::epoll_event]>,
}

/// Most sockets reported by one wait. Higher: replies of the last ones wait while the first are handled. Lower: more
/// system calls with many flows.
const EVENTS: usize = 64;

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS].into() })
    }

    /// Watches `socket` for replies, and for room to send if `writable`; it is reported as `name`.
    pub(crate) fn watch(&self, socket: BorrowedFd<'_>, name: usize, writable: bool) -> io::Result<()> {
        use rustix::event::epoll;
        Ok(epoll::add(&self.epoll, socket, epoll::EventData::new_u64(name as u64), flags(writable))?)
    }

    /// Changes the events of a watched socket.
    pub(crate) fn rewatch(&self, socket: BorrowedFd<'_>, name: usize, writable: bool) -> io::Result<()> {
        use rustix::event::epoll;
        Ok(epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(name as u64), flags(writable))?)
    }

    /// Stops watching.
    pub(crate) fn forget(&self, socket: BorrowedFd<'_>) {
        // It fails only for a socket that is not watched; then there is nothing to do.
        let _ = rustix::event::epoll::delete(&self.epoll, socket);
    }

    /// Waits at most `nanos` for a socket to be ready; returns how many are. An interrupted wait returns none.
    pub(crate) fn wait(&mut self, nanos: u64) -> usize {
        let timeout = libc::timespec {
            tv_sec: (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as i64,
        };
        // SAFETY: the array has room for EVENTS events, the timeout lives across the call, no signal mask is given.
        let n = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS as libc::c_int,
                &raw const timeout,
                ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        usize::try_from(n).unwrap_or(0)
    }

    /// The name of the `i`-th ready socket.
    pub(crate) fn ready(&self, i: usize) -> usize {
        self.events[i].u64 as usize
    }

    /// Whether the `i`-th ready socket is ready to send. (Errors count: sending reports them.)
    pub(crate) fn writable(&self, i: usize) -> bool {
        self.events[i].events & (libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0
    }
}

fn flags(writable: bool) -> rustix::event::epoll::EventFlags {
    use rustix::event::epoll::EventFlags;
    if writable { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN }
}
