//! Giving up privileges that are no longer needed: what reads from the network must not be able to change the machine.
//!
//! ```text
//!  serve    sockets, devices, files, threads, probe ─▸ gives up ─▸ answers clients, "ready"
//!  agent    gives up ─▸ connects to its NATS server
//!  export   listens ─▸ a process that answers clients gives up everything; the other reads the machine, and keeps three capabilities
//! ```
//! Four measures, each of which holds where another fails:
//!
//! | measure | file | afterwards |
//! |---|---|---|
//! | user | `user.rs` | the files and processes of one user without a login |
//! | capabilities | `rights.rs` | none, or those named |
//! | Landlock | `files.rs` | no file is written or run, except below the folders named |
//! | seccomp | `calls.rs` | other system calls than those of a server do not exist |
//!
//! Landlock holds for one thread and those that it starts, so it comes before the threads; the others hold for all
//! threads. If the kernel refuses Landlock or seccomp, a warning names it, as each is a second line of defence; with
//! `--require-confinement` it is an error.

mod calls;
mod files;
mod rights;
mod sys;
mod user;

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::{Signal, parent_process_death_signal, set_parent_process_death_signal};
use rustix::thread::CapabilitySet;

pub(crate) use files::Connections;
pub(crate) use user::Choice;

/// Why privileges are not given up. The program ends then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("no user `{0}` in /etc/passwd: expected the name of a user, a number, or `root` to stay root")]
    NoUser(String),
    #[error(
        "cannot become user `{0}`: only root can (CAP_SETUID, CAP_SETGID); leave --user away to stay the user that started it"
    )]
    NotRoot(String),
    #[error("cannot become user {name} ({uid})")]
    User { name: String, uid: u32, source: io::Error },
    #[error("cannot read or drop capabilities")]
    Capabilities(#[source] io::Error),
    #[error("cannot ask for a signal when the parent ends")]
    DeathSignal(#[source] io::Error),
    #[error("cannot restrict access to files (Landlock)")]
    Files(#[source] landlock::RulesetError),
    #[error("cannot restrict system calls (seccomp)")]
    Calls(#[source] seccompiler::Error),
    #[error("capabilities are left in thread {thread}: {left:#x}")]
    Left { thread: String, left: u64 },
    #[error("no free user number in {}-{}: make a user `udpath`, or name one with --user", .0.start(), .0.end())]
    NoFreeUser(RangeInclusive<u32>),
    #[error("the kernel refuses {measure} ({why}), which --require-confinement needs")]
    Refused { measure: &'static str, why: String },
    #[error(
        "--user root keeps all privileges, and --require-confinement wants them given up: leave one of them away"
    )]
    Contradiction,
}

/// What a process needs once it is set up.
#[derive(Debug, Clone)]
pub(crate) struct Needs<'a> {
    /// Folders in which it writes.
    pub(crate) writes: &'a [&'a Path],
    pub(crate) connections: Connections,
    pub(crate) capabilities: CapabilitySet,
    /// Whether it must not run where the kernel refuses Landlock or seccomp.
    pub(crate) required: bool,
}

impl Needs<'_> {
    /// A server that answers clients: nothing.
    pub(crate) const SERVER: Self = Self {
        writes: &[],
        connections: Connections::Accepted,
        capabilities: CapabilitySet::empty(),
        required: false,
    };

    /// The same with `required`: the argument --require-confinement.
    pub(crate) fn require(self, required: bool) -> Self {
        Self { required, ..self }
    }

    /// The kernel refuses a measure: an error, or a warning that says what is left.
    fn refused(&self, measure: &'static str, why: String, left: &str) -> Result<(), Error> {
        if self.required {
            return Err(Error::Refused { measure, why });
        }
        stderrln!(
            "warning: the kernel refuses {measure} ({why}): {left}; --require-confinement makes this an error"
        );
        Ok(())
    }
}

/// The part that only holds for the calling thread and those that it starts from now on.
pub(crate) fn before_threads(choice: &Choice, needs: &Needs<'_>) -> Result<(), Error> {
    match choice.stays_root() {
        true if needs.required => Err(Error::Contradiction),
        true => Ok(()),
        false => files::restrict(needs),
    }
}

/// The signal that this process gets when its parent ends (PR_SET_PDEATHSIG). The kernel forgets it when the user
/// changes, and only the first thread can ask for it.
static DEATH_SIGNAL: OnceLock<Option<Signal>> = OnceLock::new();

/// Called by the first thread, before others start.
pub(crate) fn remember_death_signal() {
    // Only a kernel that lacks the call, which none does, would fail.
    let _ = DEATH_SIGNAL.set(parent_process_death_signal().unwrap_or_default());
}

/// Programs that this thread starts from now on have no capability, unless it is root's.
pub(crate) fn before_programs() -> Result<(), Error> {
    rights::clear_ambient()
}

/// Gives up what the process does not need, in all its threads.
///
/// # Errors
/// It is not certain that everything was given up: the caller must end.
pub(crate) fn give_up(choice: &Choice, needs: &Needs<'_>) -> Result<(), Error> {
    if choice.stays_root() {
        return if needs.required { Err(Error::Contradiction) } else { Ok(()) };
    }
    rights::give_up(choice, needs.capabilities)?;
    if let Some(signal) = DEATH_SIGNAL.get().copied().flatten() {
        set_parent_process_death_signal(Some(signal)).map_err(|error| Error::DeathSignal(error.into()))?;
    }
    calls::restrict(needs)?;
    match rights::check(needs.capabilities) {
        // Capabilities that were given to a user other than root are each thread's own.
        Err(error @ Error::Left { .. }) if choice.becomes().is_none() => {
            stderrln!("warning: {error}; start it as root to drop them everywhere");
            Ok(())
        }
        checked => checked,
    }
}

#[cfg(test)]
mod tests;
