//! Labs of other processes, kept labs, and remains of killed ones.
//!
//! Labs are found only through their records (`record.rs`): a namespace that merely looks like a lab's has none and is
//! not touched. Whatever a record names is checked again before removal: the prefix, that it is a namespace, that it is
//! the one that was created, and that it is not the one this process is in.

use std::path::Path;
use std::time::{Duration, Instant};

use error_reporter::Report;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::namespace::{self, Identity, Inside};
use crate::record::{Contents, Record};
use crate::site::Site;
use crate::{Blueprint, Error, MachineBlueprint, Topology, flow_table, processes, sys};

/// How long a lock is waited for that another program's [`list`] or a child of a killed owner holds. Too low: an idle
/// lab is reported as busy. Too high: no harm, because a lab with a running owner is reported at once.
const MOMENT: Duration = Duration::from_secs(2);

/// State of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its process is running, and the lab ends with it.
    Owned,
    /// It exists until [`down`].
    Kept,
    /// Its process was killed; the next lab, or [`sweep_stale`], removes it.
    Stale,
}

impl State {
    /// `owned`, `kept`, `stale`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owned => "owned",
            Self::Kept => "kept",
            Self::Stale => "stale",
        }
    }
}

/// A lab on this machine.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Listed {
    /// Its state.
    pub state: State,
    /// Everything in it.
    #[serde(flatten)]
    pub blueprint: Blueprint,
}

/// Result of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Names of the labs removed.
    pub removed: Vec<String>,
    /// What was left alone or could not be removed, one sentence each.
    pub left: Vec<String>,
}

/// Every lab on this machine, sorted by name.
///
/// # Errors
/// Records cannot be read: they belong to root.
pub fn list() -> Result<Vec<Listed>, Error> {
    let mut labs = Vec::new();
    for mut record in Record::all()? {
        // The sweep reports records that are not valid.
        let Ok(Some(contents)) = record.contents() else { continue };
        // The lock of a kept lab is only ever held for a moment.
        let state = match (contents.kept, record.is_locked()?) {
            (true, _) => State::Kept,
            (false, true) => State::Owned,
            (false, false) => State::Stale,
        };
        // Removed while it was read.
        if record.path().exists() {
            labs.push(Listed { state, blueprint: contents.blueprint });
        }
    }
    labs.sort_by(|one, other| {
        (&one.blueprint.name, one.blueprint.pid).cmp(&(&other.blueprint.name, other.blueprint.pid))
    });
    Ok(labs)
}

/// Removes the remains of killed labs: their processes, links, namespaces and records. Labs with a running owner and
/// kept labs stay, as does everything that is not named in a record.
///
/// # Errors
/// Records cannot be read or locked. A lab that cannot be removed is listed in [`Swept::left`] and is not an error.
pub fn sweep_stale() -> Result<Swept, Error> {
    remove_all(false)
}

/// Like [`sweep_stale`], and also removes kept labs.
///
/// # Errors
/// The same as [`sweep_stale`].
pub fn down_all() -> Result<Swept, Error> {
    remove_all(true)
}

/// Removes a kept or stale lab by name.
///
/// # Errors
/// No lab has that name, its owner is running, or something in it cannot be removed.
pub fn down(name: &str) -> Result<(), Error> {
    let deadline = Instant::now() + MOMENT;
    let mut owned = None;
    for mut record in Record::all()? {
        let Ok(Some(contents)) = record.contents() else { continue };
        if contents.blueprint.name != name {
            continue;
        }
        let locked = loop {
            if record.lock()? {
                break true;
            }
            // Another program has just taken it down.
            if !record.path().exists() {
                break false;
            }
            if !contents.kept || Instant::now() >= deadline {
                owned = Some(contents.blueprint.pid);
                break false;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        if locked {
            take_down(&contents)?;
            return record.remove();
        }
    }
    Err(match owned {
        Some(pid) => Error::Owned { name: name.to_owned(), pid },
        None => unknown(name)?,
    })
}

/// Opens a kept lab by name, or a running program's lab if it is the only one with that name. Using it does not end it.
///
/// # Errors
/// There is no such lab, there are several, or its namespaces no longer exist.
pub fn attach(name: &str) -> Result<Topology, Error> {
    let mut named: Vec<Listed> =
        list()?.into_iter().filter(|lab| lab.blueprint.name == name && lab.state != State::Stale).collect();
    if let Some(kept) = named.iter().position(|lab| lab.state == State::Kept) {
        named.swap(0, kept);
        named.truncate(1);
    }
    match named.len() {
        0 => Err(unknown(name)?),
        1 => open(named.remove(0).blueprint),
        count => Err(Error::Ambiguous { name: name.to_owned(), count }),
    }
}

fn open(blueprint: Blueprint) -> Result<Topology, Error> {
    let open = |machine: &MachineBlueprint| {
        let inside = Inside::open(&machine.name, &machine.namespace)?;
        Ok(Site::new(&blueprint.name, &machine.name, &machine.namespace, inside))
    };
    let sites = blueprint.machines.iter().map(open).collect::<Result<Vec<_>, Error>>()?;
    Ok(Topology::new(blueprint, sites))
}

fn unknown(name: &str) -> Result<Error, Error> {
    let mut names: Vec<String> = list()?.into_iter().map(|lab| lab.blueprint.name).collect();
    names.dedup();
    let known = match names.as_slice() {
        [] => "none is running; create one with `udpath lab up`".to_owned(),
        names => format!("there is {}", names.join(", ")),
    };
    Ok(Error::UnknownLab { name: name.to_owned(), known })
}

fn remove_all(kept_too: bool) -> Result<Swept, Error> {
    let mut swept = Swept::default();
    for mut record in Record::all()? {
        if !lock_unless_owned(&mut record)? {
            continue;
        }
        match record.contents() {
            // Killed before the first line was complete: nothing had been created.
            Ok(None) => record.remove()?,
            Ok(Some(contents)) if contents.kept && !kept_too => {}
            Ok(Some(contents)) => match take_down(&contents).and_then(|()| record.remove()) {
                Ok(()) => swept.removed.push(contents.blueprint.name),
                Err(error) => swept.left.push(Report::new(error).to_string()),
            },
            Err(error) => swept.left.push(Report::new(error).to_string()),
        }
    }
    Ok(swept)
}

/// Takes the lock of a record that no running program owns. A child of an owner that was killed holds it for a moment
/// longer, between fork and exec.
fn lock_unless_owned(record: &mut Record) -> Result<bool, Error> {
    let deadline = Instant::now() + MOMENT;
    loop {
        if record.lock()? {
            return Ok(true);
        }
        let owner = record.contents().ok().flatten().map(|contents| contents.blueprint.pid);
        let ended = owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if !ended || Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Removes everything but the record, last machine first. Links end with their namespaces.
fn take_down(contents: &Contents) -> Result<(), Error> {
    // Checked before anything is removed: this process must not be one of those that end with the lab.
    let own = Identity::of(Path::new("/proc/self/ns/net"))
        .map_err(|source| Error::system("identify this process's network namespace", source))?;
    let is_own = |namespace: &str| Identity::of(&namespace::path(namespace)).is_ok_and(|found| found == own);
    if let Some(machine) = contents.blueprint.machines.iter().find(|machine| is_own(&machine.namespace)) {
        return Err(Error::Inside { machine: machine.name.clone() });
    }
    let mut reasons = Vec::new();
    if let Some(Err(error)) = contents.flow_table.map(flow_table::take_back) {
        reasons.push(error.to_string());
    }
    for machine in contents.blueprint.machines.iter().rev() {
        let made = contents
            .made
            .iter()
            .find(|(namespace, _)| *namespace == machine.namespace)
            .map(|(_, inode)| *inode);
        if let Err(error) = remove_machine(&machine.name, &machine.namespace, made) {
            reasons.push(Report::new(error).to_string());
        }
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Error::Remains { name: contents.blueprint.name.clone(), reasons: reasons.join("; ") })
}

fn remove_machine(name: &str, namespace: &str, made: Option<u64>) -> Result<(), Error> {
    let path = namespace::path(namespace);
    if sys::is_namespace(&path) {
        let identity = Identity::of(&path)
            .map_err(|source| Error::system(format!("identify {}", path.display()), source))?;
        if made.is_some_and(|inode| inode != identity.inode) {
            return Err(Error::Foreign { path });
        }
        processes::end_all_in(identity, name)?;
    }
    namespace::take_name(namespace)
}
