//! Results that are kept: where they were measured, and `--record`.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use udpath_history::{NewRun, RunError, Store};
use udpath_host::source::Folder;
use udpath_load::origin::Origin;

use crate::args::history::RecordArgs;
use crate::exit::{Done, Failure};

/// The history of the machine, and the folder and name of a user's in its state folder.
const OF_THE_MACHINE: &str = "/var/lib/udpath/history.db";
const OF_A_USER: &str = "udpath/history.db";

/// This machine, now.
pub(crate) fn origin() -> Origin {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    udpath_history::origin(&Folder::live(), now)
}

/// The file of the history: as given, or the default of this user.
pub(crate) fn path(given: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return Ok(path.clone());
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(OF_THE_MACHINE));
    }
    // A relative path is invalid (XDG Base Directory Specification).
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_STATE_HOME")
        .or_else(|| Some(folder("HOME")?.join(".local/state")))
        .map(|state| state.join(OF_A_USER))
        .ok_or_else(|| {
            Failure::Usage("neither $XDG_STATE_HOME nor $HOME is set: name the history with --store".into())
        })
}

/// The history, open for a result to come.
pub(crate) struct Recorder {
    name: String,
    store: Store,
}

impl Recorder {
    /// Opens the history if the result is to be kept: before the measurement, so that it is not made for nothing, and
    /// before a user namespace makes this user root.
    pub(crate) fn open(args: &RecordArgs) -> Result<Option<Self>, Failure> {
        let Some(name) = &args.record else { return Ok(None) };
        udpath_history::check_name(name)?;
        let store = Store::write(&path(args.store.as_ref())?)?;
        Ok(Some(Self { name: name.clone(), store }))
    }

    /// Keeps the result that `run` makes a row of, under this name.
    pub(crate) fn keep(mut self, run: impl FnOnce(&str) -> Result<NewRun, RunError>) -> Done {
        let id = self.store.add(&run(&self.name)?)?;
        stderrln!("kept as run {id} in {}", self.store.path().display());
        Ok(())
    }
}
