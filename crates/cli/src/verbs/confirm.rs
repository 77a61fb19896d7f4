//! `udpath confirm`: keeps an apply's changes.

use udpath_tune::{Journal, confirm};

use crate::args::confirm::Args;
use crate::exit::Done;

/// Confirms the apply.
pub(crate) fn run(args: &Args) -> Done {
    let lock = Journal::at(&args.journal.state).lock_existing()?.ok_or(confirm::ConfirmError::Nothing)?;
    let entry = confirm::confirm(&lock, args.id)?;
    stderrln!("confirmed apply {}: it stays in effect", entry.id);
    Ok(())
}
