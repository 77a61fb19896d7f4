//! Landlock: which files are written and run, and who is connected to. What may be read is the user's matter.

use landlock::{
    ABI, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus,
};

use super::{Error, Needs};

/// The newest rights that are asked for. Kernels that lack some of them enforce the others (landlock(7)).
const NEWEST: ABI = ABI::V5;

/// TCP connections of a confined process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connections {
    /// Accepts connections, and makes none.
    Accepted,
    /// Makes connections.
    Made,
}

/// Restricts the calling thread, and those that it starts from now on.
pub(super) fn restrict(needs: &Needs<'_>) -> Result<(), Error> {
    match apply(needs).map_err(Error::Files)? {
        // Or partially: a kernel that lacks newer rights enforces the others.
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => {
            let why = "not in this kernel, not enabled, or forbidden by a filter around this process";
            needs.refused("Landlock", why.to_owned(), "all that its user may write and run, it can")
        }
    }
}

fn apply(needs: &Needs<'_>) -> Result<RulesetStatus, RulesetError> {
    let writing: BitFlags<AccessFs> = AccessFs::from_write(NEWEST);
    let mut rules = Ruleset::default().handle_access(writing | AccessFs::Execute)?;
    if needs.connections == Connections::Accepted {
        rules = rules.handle_access(AccessNet::ConnectTcp)?;
    }
    let mut rules = rules.create()?;
    for folder in needs.writes {
        // A folder that is not there is reported by whoever writes into it.
        if let Ok(folder) = PathFd::new(folder) {
            rules = rules.add_rule(PathBeneath::new(folder, writing))?;
        }
    }
    Ok(rules.restrict_self()?.ruleset)
}
