//! `udpath confirm`, and the process that reverts when nobody says it.

use std::io::Write;

use anyhow::Context;
use udpath_host::confirm::ConfirmError;
use udpath_host::{Live, confirm};

use super::settings::{self, State};
use super::undo;
use crate::exit::{Done, Failure};

/// What the reverting process says once it stands by.
pub(super) const READY: &str = "ready\n";

/// Arguments of `udpath confirm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of the apply; default: the last that awaits a confirmation
    id: Option<u64>,
    #[command(flatten)]
    state: State,
}

/// Says that it stays.
pub(crate) fn run(args: &Args) -> Done {
    let lock = args.state.journal().lock().map_err(settings::journal)?;
    let entry = confirm::confirm(&lock, args.id).map_err(|error| match error {
        ConfirmError::Journal(error) => settings::journal(error),
        error => Failure::Cannot(error.into()),
    })?;
    eprintln!("apply {} stays", entry.id);
    Ok(())
}

/// Arguments of `udpath revert`, which `udpath apply --confirm` gives.
#[derive(Debug, clap::Args)]
pub(crate) struct RevertArgs {
    /// Number of the apply
    id: u64,
    #[command(flatten)]
    state: State,
}

/// Stands by, and reverts if it must.
pub(crate) fn revert(args: &RevertArgs) -> Done {
    // A session of its own: no terminal's end or ^C reaches it. It fails only for one that leads a group already,
    // which is a shell's job, and then somebody started it by hand.
    let _ = rustix::process::setsid();
    let mut out = std::io::stdout();
    out.write_all(READY.as_bytes()).and_then(|()| out.flush()).context("cannot say that it stands by")?;
    // Whoever waits for this pipe's end waits no longer.
    let null = std::fs::File::options().write(true).open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdout(null).context("cannot close stdout")?;
    confirm::revert(&Live::new(), &args.state.journal(), args.id).map_err(undo::failure)?;
    Ok(())
}
