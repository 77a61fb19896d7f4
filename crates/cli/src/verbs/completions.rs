//! `udpath completions`: shell completions, generated from the argument table.

use crate::args::completions::Args;
use crate::exit::Done;

/// Prints the completions to stdout.
pub(crate) fn run(args: &Args, command: &mut clap::Command) -> Done {
    clap_complete::generate(args.shell, command, "udpath", &mut std::io::stdout());
    Ok(())
}
