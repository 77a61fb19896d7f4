//! What a killed supervisor leaves: processes in a cgroup or in units, a policy, a folder. Taken back in this order, so
//! that a kill in between leaves a folder that the next start finds.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use crate::cgroup::Cgroup;
use crate::folder::{self, Claim, Folder};
use crate::{Error, policy, units};

/// How long the lock of a process that has ended may still be held: the kernel closes its files one after the other.
const RELEASED: Duration = Duration::from_secs(2);
/// Pause between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Takes back what supervisors that were killed have left. Returns their names.
///
/// # Errors
/// What could not be taken back.
pub fn take_back() -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for name in folder::names() {
        if let Claim::Ours(folder) = Folder::claim(&name)? {
            end(&folder)?;
            names.push(name);
        }
    }
    Ok(names)
}

/// The guard of a supervisor: waits until its input ends, with the supervisor, and takes back what that has left.
///
/// # Errors
/// What could not be taken back.
pub fn guard(name: &str, mut input: impl Read) -> Result<(), Error> {
    folder::check(name)?;
    io::copy(&mut input, &mut io::sink()).map_err(Error::system("wait for the end of the supervisor"))?;
    let until = Instant::now() + RELEASED;
    while folder::path_of(name).exists() {
        match Folder::claim(name)? {
            Claim::Ours(folder) => return end(&folder),
            // Another one with this name has taken everything back already.
            Claim::Held(_) if Instant::now() >= until => return Ok(()),
            Claim::Held(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
    Ok(())
}

/// Takes back what a folder records, and removes it.
pub(crate) fn end(folder: &Folder) -> Result<(), Error> {
    if let Some(record) = folder.recorded()? {
        match &record.unit {
            Some(unit) => units::take_back(unit, &record.cgroup)?,
            None => Cgroup::recorded(record.path, record.cgroup.clone()).remove()?,
        }
        policy::end(&record.journal, &record.cgroup)?;
    }
    folder.remove()
}
