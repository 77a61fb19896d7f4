//! Labs that are not this process's own: those of others, those that are kept, and what killed ones left behind.
//!
//! The only way in is a record (`record.rs`): a namespace that merely looks like one of ours has none and is not
//! touched. What a record names is checked again before it is removed: the prefix, that it is a namespace, that it is
//! the one that was made, and that it is not the one this process is in.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::lab::{Addresses, address_of, find};
use crate::machine::Site;
use crate::namespace::{self, Identity, Inside};
use crate::record::{Contents, Record};
use crate::{Blueprint, Error, Machine, processes, sys};

/// How long [`down`] waits for a lock that somebody's [`list`] holds for a moment. Too low: a lab is called busy that is
/// not. Too high: nothing, as a lab whose owner lives is told at once.
const MOMENT: Duration = Duration::from_secs(2);

/// Whose a lab is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its process lives, and the lab ends with it.
    Owned,
    /// It stays until [`down`].
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Whose it is.
    pub state: State,
    /// Everything in it.
    #[serde(flatten)]
    pub blueprint: Blueprint,
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Names of the labs removed.
    pub removed: Vec<String>,
    /// What was left alone or could not be removed: a sentence each.
    pub left: Vec<String>,
}

/// Every lab on this machine, sorted by name.
///
/// # Errors
/// Records cannot be read: they are root's.
pub fn list() -> Result<Vec<Listed>, Error> {
    let mut labs = Vec::new();
    for mut record in Record::all()? {
        // One that is not ours is the sweep's to tell.
        let Ok(Some(contents)) = record.contents() else { continue };
        let state = match (record.lock()?, contents.kept) {
            (true, true) => State::Kept,
            (true, false) => State::Stale,
            (false, _) => State::Owned,
        };
        record.unlock();
        // Removed while it was looked at.
        if record.path().exists() {
            labs.push(Listed { state, blueprint: contents.blueprint });
        }
    }
    labs.sort_by(|one, other| {
        (&one.blueprint.name, one.blueprint.pid).cmp(&(&other.blueprint.name, other.blueprint.pid))
    });
    Ok(labs)
}

/// Removes what killed labs left: their processes, links, namespaces and records. Labs whose owner lives and kept ones
/// stay, and so does everything that no record of ours names.
///
/// # Errors
/// Records cannot be read or locked. A lab that cannot be removed is in [`Swept::left`] and no error.
pub fn sweep_stale() -> Result<Swept, Error> {
    remove_all(false)
}

/// As [`sweep_stale`], and kept labs too.
///
/// # Errors
/// As [`sweep_stale`].
pub fn down_all() -> Result<Swept, Error> {
    remove_all(true)
}

/// Removes a kept lab, or a stale one, by its name.
///
/// # Errors
/// There is none of that name, its owner lives, or something in it does not go away.
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
            // Gone: somebody else has just taken it down.
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

/// A lab that somebody else has made, to be used and left as it is.
#[derive(Debug)]
pub struct Attached {
    blueprint: Blueprint,
    machines: Vec<Machine>,
}

impl Attached {
    /// Every name, address and number in it.
    #[must_use]
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// In the order they were asked for.
    #[must_use]
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// The machine of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn machine(&self, name: &str) -> Result<&Machine, Error> {
        find(&self.blueprint.name, &self.machines, name)
    }

    /// As [`Lab::address_of`](crate::Lab::address_of).
    ///
    /// # Errors
    /// No such machines, or no link between them.
    pub fn address_of(&self, of: &str, seen_from: &str) -> Result<Addresses, Error> {
        self.machine(of)?;
        address_of(self.machine(seen_from)?, of)
    }
}

/// Opens a kept lab by its name, or a running program's lab if it is the only one of that name.
///
/// # Errors
/// There is none, there are several, or its namespaces are gone.
pub fn attach(name: &str) -> Result<Attached, Error> {
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

fn open(blueprint: Blueprint) -> Result<Attached, Error> {
    let mut machines = Vec::with_capacity(blueprint.machines.len());
    for machine in &blueprint.machines {
        let inside = Inside::open(&machine.name, &machine.namespace)?;
        let site = Site::new(&blueprint.name, &machine.name, &machine.namespace, inside);
        machines.push(Machine::new(site, &blueprint));
    }
    Ok(Attached { blueprint, machines })
}

fn unknown(name: &str) -> Result<Error, Error> {
    let mut names: Vec<String> = list()?.into_iter().map(|lab| lab.blueprint.name).collect();
    names.dedup();
    let known = match names.as_slice() {
        [] => "none is up; make one with `udpath lab up`".to_owned(),
        names => format!("there is {}", names.join(", ")),
    };
    Ok(Error::UnknownLab { name: name.to_owned(), known })
}

fn remove_all(kept_too: bool) -> Result<Swept, Error> {
    let mut swept = Swept::default();
    for mut record in Record::all()? {
        if !record.lock()? {
            continue;
        }
        match record.contents() {
            // Killed before the first line was whole: nothing had been made.
            Ok(None) => record.remove()?,
            Ok(Some(contents)) if contents.kept && !kept_too => {}
            Ok(Some(contents)) => match take_down(&contents).and_then(|()| record.remove()) {
                Ok(()) => swept.removed.push(contents.blueprint.name),
                Err(error) => swept.left.push(error.to_string()),
            },
            Err(error) => swept.left.push(error.to_string()),
        }
    }
    Ok(swept)
}

/// Everything but the record, the last machine first. Links go with their namespaces.
fn take_down(contents: &Contents) -> Result<(), Error> {
    // Before anything is removed: this process cannot be one of those that end with the lab.
    let own = Identity::of(Path::new("/proc/self/ns/net"))
        .map_err(|source| Error::system("identify this process's network namespace", source))?;
    let is_own = |namespace: &str| Identity::of(&namespace::path(namespace)).is_ok_and(|found| found == own);
    if let Some(machine) = contents.blueprint.machines.iter().find(|machine| is_own(&machine.namespace)) {
        return Err(Error::Inside { machine: machine.name.clone() });
    }
    let mut reasons = Vec::new();
    for machine in contents.blueprint.machines.iter().rev() {
        let made = contents
            .made
            .iter()
            .find(|(namespace, _)| *namespace == machine.namespace)
            .map(|(_, inode)| *inode);
        if let Err(error) = remove_machine(&machine.name, &machine.namespace, made) {
            reasons.push(error.to_string());
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
