//! The `udpath` program: parses arguments, calls the crates, sets the exit code.
//!
//! ```text
//! args ─▸ verbs ─▸ the crates ─▸ report (text, JSON, HTML) ─▸ terminal
//!   └───────┴─▸ exit: an error, as one sentence and an exit code
//! ```
//! Data goes to stdout, messages go to stderr. Exit codes: 0 success, 1 findings, 2 usage, 3 cannot be done, 4 applied
//! but reverted.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

#[macro_use]
mod terminal;

mod args;
mod confine;
#[cfg(test)]
mod documented;
mod exit;
#[cfg(test)]
mod schemas;
mod signals;
mod verbs;

use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ErrorKind;
use udpath_host::namespace::Place;

use args::{Cli, Verb};
use verbs::machine::inside;

fn main() -> ExitCode {
    confine::remember_death_signal();
    let cli = match Cli::of_this_process() {
        Ok(cli) => cli,
        Err(error) if error.kind() == ErrorKind::DisplayVersion && args::wants_verbose_version() => {
            verbs::version::print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return exit::from_clap(&error),
    };
    let done = match cli.verb {
        Verb::Show(args) => verbs::show::run(&args),
        Verb::Diagnose(args) => verbs::diagnose::run(&args),
        Verb::Top(args) => verbs::top::run(&args),
        Verb::Export(args) => verbs::export::run(&args),
        Verb::ExportAnswer(args) => verbs::export::answer(&args),
        Verb::Serve(args) => inside(&Place::Here, || verbs::serve::run(args)),
        Verb::Load(args) => inside(&Place::Here, || verbs::load::run(&args)),
        Verb::Agent(args) => inside(&Place::Here, || verbs::agent::run(&args)),
        Verb::Boost(args) => verbs::boost::run(&args),
        Verb::Experiment(args) => verbs::experiment::run(&args),
        Verb::Capacity(args) => verbs::capacity::run(&args),
        Verb::Lab(args) => verbs::lab::run(args),
        Verb::Profile(args) => verbs::profile::run(&args),
        Verb::Predict(args) => verbs::predict::run(&args),
        Verb::Plan(args) => verbs::plan::run(&args),
        Verb::Apply(args) => verbs::apply::run(&args),
        Verb::Confirm(args) => verbs::confirm::run(&args),
        Verb::Undo(args) => verbs::undo::run(&args),
        Verb::Status(args) => verbs::status::run(&args),
        Verb::Policy(args) => verbs::policy::run(args),
        Verb::Multiply(args) => verbs::multiply::run(args),
        Verb::MultiplyGuard(args) => verbs::multiply::guard(&args),
        Verb::Revert(args) => verbs::revert::run(&args),
        Verb::Support(args) => verbs::support::run(&args),
        Verb::Report(args) => verbs::report::run(&args),
        Verb::Compare(args) => verbs::compare::run(&args),
        Verb::Merge(args) => verbs::merge::run(&args),
        Verb::Fleet(args) => verbs::fleet::run(&args),
        Verb::History(args) => verbs::history::run(&args),
        Verb::Completions(args) => verbs::completions::run(&args, &mut Cli::command()),
        Verb::Man(args) => verbs::man::run(&args, Cli::command()),
    };
    exit::code(done)
}
