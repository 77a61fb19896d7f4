//! `udpath completions`: shell completions, generated from the argument table.

use crate::args::completions::Args;
use crate::exit::Done;
use crate::terminal;

/// Prints the completions to stdout.
pub(crate) fn run(args: &Args, command: &mut clap::Command) -> Done {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, command, "udpath", &mut text);
    terminal::print_exact(&String::from_utf8_lossy(&text))
}
