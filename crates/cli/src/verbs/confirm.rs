//! `udpath confirm`: keeps an apply's changes.

use udpath_tune::confirm;
use udpath_tune::confirm::ConfirmError;

use super::settings::{self, State};
use crate::exit::{Done, Failure};

/// Arguments of `udpath confirm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of the apply [default: the last that awaits confirmation]
    id: Option<u64>,
    #[command(flatten)]
    state: State,
}

/// Confirms the apply.
pub(crate) fn run(args: &Args) -> Done {
    let lock = args.state.journal().lock().map_err(settings::journal)?;
    let entry = confirm::confirm(&lock, args.id).map_err(|error| match error {
        ConfirmError::Journal(error) => settings::journal(error),
        error => Failure::Cannot(error.into()),
    })?;
    eprintln!("apply {} stays", entry.id);
    Ok(())
}
