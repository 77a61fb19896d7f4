//! The `udpath` program: parses arguments, calls the crates, sets the exit code.
//!
//! Data goes to stdout, messages go to stderr. Exit codes: 0 success, 1 findings, 2 usage, 3 cannot be done, 4 applied
//! but reverted.

#[cfg(test)]
mod documented;
mod exit;
mod terminal;
mod verbs;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use udpath_host::namespace::{self, Place};

/// Finds why a UDP service is slow on this machine, fixes it, and proves the gain.
#[derive(Debug, Parser)]
#[command(name = "udpath", version, max_term_width = 100, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the path of a datagram through this machine, hop by hop, and its problems
    Show(verbs::show::Args),
    /// Watch the path of a datagram live: CPUs, queues, sockets, and findings
    Top(verbs::top::Args),
    /// Export the machine's state and findings as metrics: over HTTP, to a file, or once to stdout
    Export(verbs::export::Args),
    /// Run a UDP service with any of the Ios
    Serve(verbs::serve::Args),
    /// Send transactions to a service; time and check each one
    Load(verbs::load::Args),
    /// Climb the ladder: find the fastest configuration and prove the gain
    Boost(verbs::boost::Args),
    /// Create, use and remove labs: network namespaces joined by links
    Lab(verbs::lab::Args),
    /// Show where CPU time goes: by class of work, lock, CPU and process, with a flame graph
    Profile(verbs::profile::Args),
    /// Predict which queue, CPU and socket a flow reaches, or which source ports reach one
    Predict(verbs::predict::Args),
    /// Show the effect of settings changes as a diff, as shell commands or as JSON
    Plan(verbs::plan::Args),
    /// Change settings: journaled, read back, and reverted if one fails
    Apply(verbs::apply::Args),
    /// Confirm an apply that was started with --confirm
    Confirm(verbs::confirm::Args),
    /// Undo an apply
    Undo(verbs::undo::Args),
    /// Show applied changes, which of them are still in effect, and what may have changed the others
    Status(verbs::status::Args),
    /// Started by `apply --confirm`: waits, and reverts unless confirmed
    #[command(hide = true)]
    Revert(verbs::revert::Args),
    /// Capture this machine for analysis elsewhere with --sysroot; addresses and names are replaced
    Support(verbs::support::Args),
    /// Render a JSON result as HTML or text
    Report(verbs::report::Args),
    /// Print shell completions
    Completions(verbs::completions::Args),
    /// Write man pages
    Man(verbs::man::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::from_clap(&error),
    };
    let done = match cli.verb {
        Verb::Show(args) => verbs::show::run(args),
        Verb::Top(args) => verbs::top::run(&args),
        Verb::Export(args) => verbs::export::run(&args),
        Verb::Serve(args) => here(|| verbs::serve::run(args)),
        Verb::Load(args) => here(|| verbs::load::run(args)),
        Verb::Boost(args) => verbs::boost::run(args),
        Verb::Lab(args) => verbs::lab::run(args),
        Verb::Profile(args) => verbs::profile::run(&args),
        Verb::Predict(args) => verbs::predict::run(args),
        Verb::Plan(args) => verbs::plan::run(&args),
        Verb::Apply(args) => verbs::apply::run(&args),
        Verb::Confirm(args) => verbs::confirm::run(&args),
        Verb::Undo(args) => verbs::undo::run(&args),
        Verb::Status(args) => verbs::status::run(&args),
        Verb::Revert(args) => verbs::revert::run(&args),
        Verb::Support(args) => verbs::support::run(&args),
        Verb::Report(args) => verbs::report::run(args),
        Verb::Completions(args) => verbs::completions::run(&args, &mut Cli::command()),
        Verb::Man(args) => verbs::man::run(&args, Cli::command()),
    };
    exit::code(done)
}

/// Runs in the caller's network namespace, with a /sys that belongs to it.
fn here(work: impl FnOnce() -> exit::Done + Send) -> exit::Done {
    namespace::inside(&Place::Here, work).unwrap_or_else(|error| Err(exit::Failure::Cannot(error.into())))
}
