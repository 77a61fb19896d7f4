//! The array of sockets behind the slots.

use std::io;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use super::refused;
use crate::{Error, sys};

/// How long a socket is waited for that a detached program still has: the kernel frees the program's array a grace
/// period of RCU later, some 10 ms. Shorter: on a busy machine setting a slot fails right after a detach. Longer: so
/// does, later, one that another program keeps.
const RELEASE: Duration = Duration::from_secs(2);
/// Time between two attempts. Shorter: more system calls. Longer: the slot is set later.
const ATTEMPT: Duration = Duration::from_millis(5);

/// Puts a socket into a slot; one that a detached program still has, as soon as the kernel has freed that one.
pub(super) fn put(array: BorrowedFd<'_>, slot: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let end = Instant::now() + RELEASE;
    loop {
        match sys::put_socket(array, slot, socket) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                thread::sleep(ATTEMPT);
            }
            done => return done,
        }
    }
}

pub(super) fn empty(array: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
    match sys::remove_socket(array, slot) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        done => done,
    }
}

pub(super) fn cookies(array: BorrowedFd<'_>, slots: u32) -> Result<Vec<Option<u64>>, Error> {
    let cookie = |slot| match sys::cookie_at(array, slot) {
        Ok(cookie) => Ok(Some(cookie)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(refused("read the slots of a reuseport group", error.into())),
    };
    (0..slots).map(cookie).collect()
}
