//! `udpath completions`: shell completions, generated from the argument table.

use clap_complete::Shell;

use crate::exit::Done;

/// Arguments of `udpath completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell to complete for
    shell: Shell,
}

/// Prints the completions to stdout.
pub(crate) fn run(args: &Args, command: &mut clap::Command) -> Done {
    clap_complete::generate(args.shell, command, "udpath", &mut std::io::stdout());
    Ok(())
}
