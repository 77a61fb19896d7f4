//! The cgroup of the instances, with one child for each: below the supervisor's own, so that limits of its unit hold for them
//! too, and the service manager finds them.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use udpath_host::limits::memberships;
use udpath_host::source::Folder;

use crate::Error;

/// What its name begins with.
const PREFIX: &str = "udpath-multiply-";
/// How long killed processes may take to end. They do within milliseconds, unless they wait for a disk.
const KILLED: Duration = Duration::from_secs(5);
/// Pause between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A cgroup of version 2.
#[derive(Debug, Clone)]
pub(crate) struct Cgroup {
    path: PathBuf,
    name: String,
}

impl Cgroup {
    /// Where the cgroup of instances with this name is, or would be.
    pub(crate) fn of(name: &str) -> Result<Self, Error> {
        let root = udpath_tune::policy::root(&Folder::live()).map_err(Error::NoCgroup)?;
        let text =
            fs::read_to_string("/proc/self/cgroup").map_err(Error::system("read /proc/self/cgroup"))?;
        let own = memberships(&text)
            .ok()
            .and_then(|all| all.into_iter().find(|one| one.controllers.is_none()))
            .ok_or_else(|| Error::NoCgroup("this process is in no cgroup of version 2".to_owned()))?;
        let name = format!("{}/{PREFIX}{name}", own.path.trim_end_matches('/'));
        Ok(Self { path: root.join(name.trim_start_matches('/')), name })
    }

    /// One that was recorded.
    pub(crate) const fn recorded(path: PathBuf, name: String) -> Self {
        Self { path, name }
    }

    /// Its name, as in /proc/PID/cgroup.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn create(&self) -> Result<(), Error> {
        match fs::create_dir(&self.path) {
            Err(error)
                if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
            {
                Err(Error::NotRoot)
            }
            made => made.map_err(Error::system(format!("create the cgroup {}", self.path.display()))),
        }
    }

    /// The child of an instance.
    pub(crate) fn child(&self, number: usize) -> Self {
        Self { path: self.path.join(number.to_string()), name: format!("{}/{number}", self.name) }
    }

    /// The file that processes are moved by.
    pub(crate) fn procs(&self) -> Result<OwnedFd, Error> {
        let path = self.path.join("cgroup.procs");
        let file = File::options().write(true).open(&path);
        Ok(file.map_err(Error::system(format!("open {}", path.display())))?.into())
    }

    /// Its processes, without those of children.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Kills all processes in it and its children.
    pub(crate) fn kill(&self) -> Result<(), Error> {
        match fs::write(self.path.join("cgroup.kill"), "1") {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            done => done.map_err(Error::system(format!("kill the processes of {}", self.path.display()))),
        }
    }

    /// Kills what is left in it, waits until that is gone, and removes it with its children.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let until = Instant::now() + KILLED;
        loop {
            self.kill()?;
            let children = fs::read_dir(&self.path).into_iter().flatten().flatten();
            for child in children.filter(|child| child.file_type().is_ok_and(|kind| kind.is_dir())) {
                let _ = fs::remove_dir(child.path());
            }
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                // Busy until its last process has ended.
                Err(_) if Instant::now() < until => std::thread::sleep(POLL_INTERVAL),
                done => return done.map_err(self.not_removed()),
            }
        }
    }

    fn not_removed(&self) -> impl FnOnce(io::Error) -> Error {
        Error::system(format!("remove the cgroup {}", self.path.display()))
    }
}
