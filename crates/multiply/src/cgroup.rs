//! The cgroup of the instances, with one child for each: below the supervisor's own, so that limits of its unit hold
//! for them too, and the service manager finds them.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use udpath_files::kernel;
use udpath_host::limits::memberships;
use udpath_host::source::Folder;
use udpath_tune::units::instance_name;

use crate::Error;
use crate::units::Units;

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
    /// The unit of systemd that has it: of all instances, the one that is multiplied. systemd then creates and removes
    /// it.
    unit: Option<String>,
}

impl Cgroup {
    /// Where the cgroup of instances with this name is, or would be.
    pub(crate) fn of(name: &str) -> Result<Self, Error> {
        let root = udpath_tune::policy::root(&Folder::live()).map_err(Error::NoCgroup)?;
        let text = kernel::text("/proc/self/cgroup").map_err(Error::system("read /proc/self/cgroup"))?;
        let own = memberships(&text)
            .ok()
            .and_then(|all| all.into_iter().find(|one| one.controllers.is_none()))
            .ok_or_else(|| Error::NoCgroup("this process is in no cgroup of version 2".to_owned()))?;
        let name = format!("{}/{PREFIX}{name}", own.path.trim_end_matches('/'));
        Ok(Self { path: root.join(name.trim_start_matches('/')), name, unit: None })
    }

    /// That of the instances of a unit.
    pub(crate) fn of_units(unit: &str, units: &Units) -> Result<Self, Error> {
        let root = udpath_tune::policy::root(&Folder::live()).map_err(Error::NoCgroup)?;
        let name = units.cgroup();
        Ok(Self { path: root.join(name.trim_start_matches('/')), name, unit: Some(unit.to_owned()) })
    }

    /// One that was recorded.
    pub(crate) const fn recorded(path: PathBuf, name: String) -> Self {
        Self { path, name, unit: None }
    }

    /// The unit that has it.
    pub(crate) fn unit(&self) -> Option<&str> {
        self.unit.as_deref()
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
        if self.unit.is_some() {
            return Ok(());
        }
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
        let unit = self.unit.as_ref().map(|unit| instance_name(unit, number));
        let last = unit.clone().unwrap_or_else(|| number.to_string());
        Self { path: self.path.join(&last), name: format!("{}/{last}", self.name), unit }
    }

    /// The file that processes are moved by.
    pub(crate) fn procs(&self) -> Result<OwnedFd, Error> {
        let path = self.path.join("cgroup.procs");
        let file = kernel::writing(&path);
        Ok(file.map_err(Error::system(format!("open {}", path.display())))?.into())
    }

    /// Its processes, without those of children.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let text = kernel::text(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Whether it or a child has a process.
    pub(crate) fn has_processes(&self) -> bool {
        let events = kernel::text(self.path.join("cgroup.events")).unwrap_or_default();
        events.lines().any(|line| line == "populated 1")
    }

    /// Kills all processes in it and its children.
    pub(crate) fn kill(&self) -> Result<(), Error> {
        match kernel::write(self.path.join("cgroup.kill"), "1") {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            done => done.map_err(Error::system(format!("kill the processes of {}", self.path.display()))),
        }
    }

    /// Kills what is left in it, waits until that is gone, and removes it with its children.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let until = Instant::now() + KILLED;
        loop {
            self.kill()?;
            for name in udpath_files::names(&self.path, udpath_files::MAX_NAMES).unwrap_or_default() {
                // Fails for what is no folder.
                let _ = fs::remove_dir(self.path.join(name));
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
