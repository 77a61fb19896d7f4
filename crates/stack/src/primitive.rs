//! The only module through which atomics, shared cells, locks and sleeping enter this crate.
//!
//! ```text
//!   ring   wake   epoch   socket          never name std::sync::atomic, UnsafeCell, Arc or Mutex themselves
//!      └─────┴──┬───┴────────┘
//!          primitive
//!      ┌────────┴─────────┐
//!   std, core          loom (--cfg loom)
//!   production         the model checker: explores every interleaving and every value a load may return
//! ```
//!
//! Built with `--cfg loom`, the same code runs on loom's types, and `tests/loom` explores the executions that the
//! memory model allows. Two limits of loom shape the code above this module: loom treats a `SeqCst` *access* as
//! acquire-release, so wherever a store must not be reordered after a later load there is an explicit
//! `fence(SeqCst)`, which loom does model; and loom has no clock, so a model never waits with a timeout.

#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
};

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
};

pub(crate) use cell::UnsafeCell;
pub(crate) use event::Event;

/// Takes the lock, even if a thread panicked while holding it.
///
/// The data under locks here is consistent between any two statements that may panic, so the lock of a dead thread is
/// usable. Rejecting it would spread the panic to threads that did nothing wrong.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(loom)]
mod cell {
    pub(crate) use loom::cell::UnsafeCell;
}

#[cfg(not(loom))]
mod cell {
    /// A cell with loom's interface: each access is a closure, so that a model sees where it begins and ends.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// The pointer for reading. Dereferencing it asserts that there is no concurrent write.
        #[inline(always)]
        pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// The pointer for writing. Dereferencing it asserts that there is no other concurrent access.
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

/// How a wait on an [`Event`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(loom, allow(dead_code, reason = "only a signal ends a model's wait"))]
pub(crate) enum Waited {
    /// A signal is pending.
    Signalled,
    /// The timeout expired.
    TimedOut,
    /// This thread handled a Unix signal.
    Interrupted,
}

#[cfg(not(loom))]
mod event {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::time::Duration;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::io::Errno;

    use super::Waited;

    /// An eventfd that a thread sleeps on, so that it can be polled together with sockets. It counts signals.
    #[derive(Debug)]
    pub(crate) struct Event(OwnedFd);

    impl Event {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        /// The only way a write to our own eventfd can fail is a full counter, and then it is readable anyway.
        pub(crate) fn signal(&self) {
            let _ = rustix::io::retry_on_intr(|| rustix::io::write(&self.0, &1_u64.to_ne_bytes()));
        }

        /// Takes all pending signals; does not wait for one.
        pub(crate) fn take(&self) -> u64 {
            let mut count = [0; 8];
            match rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut count)) {
                Ok(8) => u64::from_ne_bytes(count),
                _ => 0,
            }
        }

        /// Sleeps until a signal is pending; without a `timeout`, indefinitely.
        pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<Waited> {
            // A timeout that the kernel's type cannot hold is treated as no timeout.
            let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) => Ok(Waited::TimedOut),
                Ok(_) => Ok(Waited::Signalled),
                Err(Errno::INTR) => Ok(Waited::Interrupted),
                Err(cause) => Err(cause.into()),
            }
        }
    }

    impl AsFd for Event {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(loom)]
mod event {
    use std::fs::File;
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::OnceLock;
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};

    use super::{Waited, lock};

    /// The model of an eventfd: a counter that can be waited on. Time never passes, so only a signal ends a wait; a
    /// signal that never comes is a deadlock, which loom reports.
    #[derive(Debug)]
    pub(crate) struct Event {
        /// Lets code that polls descriptors compile; no model polls it.
        descriptor: &'static File,
        count: Mutex<u64>,
        changed: Condvar,
    }

    impl Event {
        pub(crate) fn new() -> io::Result<Self> {
            static NULL: OnceLock<File> = OnceLock::new();
            let descriptor = match NULL.get() {
                Some(null) => null,
                None => {
                    let null = File::open("/dev/null")?;
                    NULL.get_or_init(|| null)
                }
            };
            Ok(Self { descriptor, count: Mutex::new(0), changed: Condvar::new() })
        }

        pub(crate) fn signal(&self) {
            *lock(&self.count) += 1;
            self.changed.notify_one();
        }

        pub(crate) fn take(&self) -> u64 {
            std::mem::take(&mut *lock(&self.count))
        }

        pub(crate) fn wait(&self, _timeout: Option<Duration>) -> io::Result<Waited> {
            let mut count = lock(&self.count);
            while *count == 0 {
                count = self.changed.wait(count).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            Ok(Waited::Signalled)
        }
    }

    impl AsFd for Event {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.descriptor.as_fd()
        }
    }
}
