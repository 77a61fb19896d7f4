//! The one door through which atomics, shared cells, locks and sleeping enter this crate.
//!
//! ```text
//!   ring   wake   epoch   socket          never name std::sync::atomic, UnsafeCell, Arc, Mutex themselves
//!      └─────┴──┬───┴────────┘
//!          primitive
//!      ┌────────┴─────────┐
//!   std, core          loom (--cfg loom)
//!   what runs          what the model checker explores: every interleaving and every value a load may return
//! ```
//!
//! Built with `--cfg loom`, the same code runs on loom's types, and `tests/loom.rs` walks through the executions the
//! memory model allows. Two limits of loom shape the code above this module: it takes a `SeqCst` *access* for
//! acquire-release, so wherever a store must not be overtaken by a later load stands an explicit `fence(SeqCst)`,
//! which it does model; and it knows no clock, so a model never waits with a time limit.

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

/// Takes the lock, also when a thread panicked in it.
///
/// What is kept under locks here is consistent between any two statements that may panic, so that a dead thread's
/// lock is as good as any; refusing it would spread the panic over threads that did nothing wrong.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(loom)]
mod cell {
    pub(crate) use loom::cell::UnsafeCell;
}

#[cfg(not(loom))]
mod cell {
    /// A cell of loom's shape: access is bracketed by a closure, so that a model sees where it begins and ends.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// The pointer for reading; following it is the caller's claim that nobody writes meanwhile.
        #[inline(always)]
        pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// The pointer for writing; following it is the caller's claim that nobody else reads or writes meanwhile.
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

/// How a wait on an [`Event`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(loom, allow(dead_code, reason = "a model's wait ends by a signal alone"))]
pub(crate) enum Waited {
    /// There is a signal to take.
    Signalled,
    /// The time was over first.
    TimedOut,
    /// A Unix signal was handled by this thread.
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

    /// What a thread sleeps on: an eventfd, so that it can be polled together with sockets. It counts signals.
    #[derive(Debug)]
    pub(crate) struct Event(OwnedFd);

    impl Event {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        /// Adds one signal.
        ///
        /// The only failure an eventfd of our own can have is a full counter, at which it is readable anyway.
        pub(crate) fn signal(&self) {
            let _ = rustix::io::retry_on_intr(|| rustix::io::write(&self.0, &1_u64.to_ne_bytes()));
        }

        /// Takes all signals there are; does not wait for one.
        pub(crate) fn take(&self) -> u64 {
            let mut count = [0; 8];
            match rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut count)) {
                Ok(8) => u64::from_ne_bytes(count),
                _ => 0,
            }
        }

        /// Sleeps until there is a signal to take; for ever without a `timeout`.
        pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<Waited> {
            // A time beyond what the kernel's type can hold is as good as for ever.
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

    /// The model of an eventfd: a counter that can be waited on. Time never passes: a wait ends by a signal alone,
    /// and a signal that never comes is a deadlock, which loom reports.
    #[derive(Debug)]
    pub(crate) struct Event {
        /// Only so that code that polls descriptors compiles; no model runs it.
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
