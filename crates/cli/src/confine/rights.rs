//! User and capabilities, in all threads.

use std::io;
use std::path::{Path, PathBuf};

use rustix::thread::{CapabilitySet, CapabilitySets};

use super::user::Choice;
use super::{Error, sys};

/// The capabilities of each thread.
const THREADS: &str = "/proc/self/task";
/// Most threads of a process, as PID_MAX_LIMIT allows (proc(5)).
const MAX_THREADS: usize = 1 << 22;

/// Becomes the chosen user, with no capabilities but `kept`, which only the calling thread has from now on.
pub(super) fn give_up(choice: &Choice, kept: CapabilitySet) -> Result<(), Error> {
    let failed = |error: rustix::io::Errno| Error::Capabilities(error.into());
    if let Some(user) = choice.user() {
        // Otherwise they end with the user root.
        rustix::thread::set_keep_capabilities(!kept.is_empty()).map_err(failed)?;
        sys::become_user(user.uid, user.gid).map_err(|source| Error::User {
            name: user.name.clone(),
            uid: user.uid,
            source,
        })?;
        rustix::thread::set_keep_capabilities(false).map_err(failed)?;
    }
    let has = rustix::thread::capabilities(None).map_err(failed)?.permitted;
    let kept = kept & has;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    clear_ambient()?;
    // A filter of system calls around this process, such as its unit's, may forbid this call, which changes nothing
    // then.
    if rustix::thread::capabilities(None).map_err(failed)? != sets {
        rustix::thread::set_capabilities(None, sets).map_err(failed)?;
    }
    rustix::thread::set_no_new_privs(true).map_err(failed)
}

/// From now on, programs that this thread starts as a user other than root get no capability.
pub(super) fn clear_ambient() -> Result<(), Error> {
    rustix::thread::clear_ambient_capability_set().map_err(|error| Error::Capabilities(error.into()))
}

/// Checks that no thread has more than `kept`. Those of a process that was not started by root keep what they had.
pub(super) fn check(kept: CapabilitySet) -> Result<(), Error> {
    let read = |source: io::Error, path: PathBuf| Error::Read { path, source };
    let threads = udpath_files::names(THREADS, MAX_THREADS).map_err(|source| read(source, THREADS.into()))?;
    for thread in threads {
        let path = Path::new(THREADS).join(&thread).join("status");
        let status = match udpath_files::kernel::text(&path) {
            Ok(status) => status,
            // It has ended.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(read(source, path)),
        };
        let left = permitted(&status) & !kept.bits();
        if left != 0 {
            return Err(Error::Left { thread: thread.to_string_lossy().into_owned(), left });
        }
    }
    Ok(())
}

/// `CapPrm` of /proc/PID/status (proc(5)). Without it, all: what is unknown is not given up.
fn permitted(status: &str) -> u64 {
    let field = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    field.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::permitted;

    #[test]
    fn capabilities_of_a_thread_are_read_and_unknown_ones_count() {
        assert_eq!(
            permitted("Name:\tudpath\nCapInh:\t0000000000000000\nCapPrm:\t0000000000081004\n"),
            0x8_1004
        );
        assert_eq!(permitted("CapPrm:\t0000000000000000\n"), 0);
        assert_eq!(permitted("CapEff:\t0\n"), u64::MAX);
        assert_eq!(permitted("CapPrm:\tmany\n"), u64::MAX);
    }
}
