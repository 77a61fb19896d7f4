//! Instances as units of systemd, of a unit that is multiplied.
//!
//! ```text
//!  ntp.service: the supervisor, in place of the program
//!    ├─ /run/systemd/system/udpath-ntp@1.service    written, started, and watched by its cgroup
//!    └─ /run/systemd/system/udpath-ntp@2.service
//!  cgroup /system.slice/system-udpath\x2dntp.slice: the policy, and a cgroup for each instance
//! ```
//! systemd starts each one as it starts the unit: as its user, in its sandbox, with its limits.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use udpath_files::{own, replace};
use udpath_host::source::Folder;
use udpath_host::unit::WrongUnit;
use udpath_tune::services::account;
use udpath_tune::units::{Instance, Original, instance_name, result, systemctl};

use crate::Error;

/// Where units are that end with the boot.
const UNITS: &str = "/run/systemd/system";

/// Longest unit that is read back, bytes; one that udpath has written has some 2,000.
const MAX_FILE: u64 = 1 << 20;

/// The unit whose instances run.
#[derive(Debug)]
pub(crate) struct Units {
    original: Original,
    /// User and group of the instances; `None` for root.
    owner: Option<(u32, u32)>,
}

impl Units {
    pub(crate) fn of(unit: &str) -> Result<Self, Error> {
        let name = unit.parse().map_err(|wrong: WrongUnit| Error::Unit(wrong.to_string()))?;
        let original = Original::read(&Folder::live(), &name).map_err(Error::Unit)?;
        let owner = match original.user() {
            None => None,
            Some(user) => Some(account(user).ok_or_else(|| {
                Error::Unit(format!("{unit} cannot be multiplied: its user {user} is not in /etc/passwd"))
            })?),
        };
        Ok(Self { original, owner })
    }

    /// The cgroup of all instances, as in /proc/PID/cgroup.
    pub(crate) fn cgroup(&self) -> String {
        self.original.cgroup()
    }

    /// Writes the unit of an instance. Returns the command that starts it, and ends when it has started or failed to.
    pub(crate) fn start(&self, name: &str, instance: &Instance<'_>) -> Result<Command, Error> {
        let folder = instance.folder;
        if let Some((user, group)) = self.owner {
            own::give(folder, user, group)
                .map_err(Error::system(format!("change the owner of {}", folder.display())))?;
        }
        let (path, text) = (file(name), self.original.instance(instance));
        if udpath_files::text(&path, MAX_FILE).ok().as_deref() != Some(&text) {
            let written =
                fs::create_dir_all(UNITS).and_then(|()| replace::whole(&path, text.as_bytes(), 0o644));
            written.map_err(Error::system(format!("write {}", path.display())))?;
            systemctl(&["daemon-reload"], &[]).map_err(Error::Unit)?;
        }
        let mut command = Command::new("systemctl");
        command.args(["--no-ask-password", "start", "--", name]);
        Ok(command)
    }
}

/// How the process of an instance ended.
pub(crate) fn how(name: &str) -> String {
    result(&Folder::live(), name).unwrap_or_else(|why| why)
}

/// Asks an instance to end, and does not wait for that.
pub(crate) fn stop(name: &str) {
    // Fails if it has ended; else it is killed after its time.
    let _ = systemctl(&["stop", "--no-block"], &[name]);
}

/// Ends all instances of a unit that are left, and removes their units and their slice, whose cgroup is given.
pub(crate) fn take_back(unit: &str, cgroup: &str) -> Result<(), Error> {
    let of_unit = |name: &String| {
        let number = name.strip_suffix(".service").and_then(|name| name.rsplit_once('@')?.1.parse().ok());
        number.is_some_and(|number| instance_name(unit, number) == *name)
    };
    let names = udpath_files::names(UNITS, udpath_files::MAX_NAMES).unwrap_or_default().into_iter();
    let names: Vec<String> = names.filter_map(|name| name.into_string().ok()).filter(of_unit).collect();
    if names.is_empty() {
        return Ok(());
    }
    let with_slice: Vec<&str> = names.iter().map(String::as_str).chain(cgroup.rsplit('/').next()).collect();
    systemctl(&["stop"], &with_slice).map_err(Error::Unit)?;
    for name in &names {
        // Or one that failed stays in the list of units. Fails if it did not.
        let _ = systemctl(&["reset-failed"], &[name]);
        match fs::remove_file(file(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::system(format!("remove {}", file(name).display()))(error));
            }
            _ => {}
        }
    }
    systemctl(&["daemon-reload"], &[]).map_err(Error::Unit)
}

fn file(name: &str) -> PathBuf {
    Path::new(UNITS).join(name)
}
