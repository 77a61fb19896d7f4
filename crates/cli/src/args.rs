//! The command line: every argument of every verb, and how its text becomes a value.
//!
//! ```text
//! Cli ─▸ Verb ─▸ show, top, ...    a file per verb: its arguments, their defaults and help
//!                  │
//!                  ├─ place, settings, nats, history::StoreArgs   arguments that several verbs share
//!                  ├─ value             duration, rate, count, size, share, ports, address
//!                  ├─ choice            one of several words
//!                  └─ protocol_options  what protocols add to serve and load, from the registry
//! ```
//! Nothing here reads the machine or prints: `verbs` does, with these values. A mistake that one argument shows is
//! reported by its parser, one in a combination by clap or, for `load`, by `load/task.rs`.

pub(crate) mod agent;
pub(crate) mod apply;
pub(crate) mod boost;
pub(crate) mod capacity;
mod choice;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod confine;
pub(crate) mod confirm;
pub(crate) mod diagnose;
pub(crate) mod experiment;
pub(crate) mod export;
pub(crate) mod fleet;
pub(crate) mod history;
pub(crate) mod lab;
pub(crate) mod load;
pub(crate) mod man;
pub(crate) mod merge;
pub(crate) mod multiply;
pub(crate) mod nats;
pub(crate) mod place;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod predict;
pub(crate) mod profile;
mod protocol_options;
pub(crate) mod report;
pub(crate) mod revert;
pub(crate) mod serve;
pub(crate) mod settings;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod support;
pub(crate) mod top;
pub(crate) mod undo;
pub(crate) mod value;

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};

/// Finds why a UDP service is slow on this machine, fixes it, and proves the gain.
#[derive(Debug, Parser)]
#[command(
    name = "udpath",
    // Otherwise usage lines contain whatever this process was started as.
    bin_name = "udpath",
    version,
    max_term_width = 100,
    propagate_version = true,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Cli {
    /// With --version: also what it was built from, and what this kernel lacks
    #[arg(long)]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show the path of a datagram through this machine, stage by stage, and its problems
    Show(show::Args),
    /// Watch real traffic and name the first saturated link, what is wrong, and the command that fixes it
    Diagnose(diagnose::Args),
    /// Watch the path of a datagram live: CPUs, queues, sockets, and findings
    Top(top::Args),
    /// Export the machine's state and findings as metrics: over HTTP, to a file, or once to stdout
    Export(export::Args),
    /// Run a UDP service over kernel sockets or AF_XDP
    Serve(serve::Args),
    /// Send transactions to a service; time and check each one
    Load(Box<load::Args>),
    /// Carry out shares of loads that `load --fleet` announces over NATS, within this machine's own limits
    Agent(agent::Args),
    /// Climb the ladder: find the fastest configuration and prove the gain
    Boost(boost::Args),
    /// Repeat the published experiments that udpath comes from, and show published, measured and modelled figures
    Experiment(experiment::Args),
    /// Predict what this or another machine would carry, what limits it, and what would help next
    Capacity(capacity::Args),
    /// Create, use and remove labs: network namespaces joined by links
    Lab(lab::Args),
    /// Show where CPU time goes: by class of work, lock, CPU and process, with a flame graph
    Profile(profile::Args),
    /// Predict which queue, CPU and socket a flow reaches, or which source ports reach one
    Predict(predict::Args),
    /// Show what changes of settings would do: as a diff, shell commands or JSON
    Plan(plan::Args),
    /// Change settings: journaled, read back, and reverted if one fails
    Apply(apply::Args),
    /// Confirm an apply that was started with --confirm
    Confirm(confirm::Args),
    /// Undo an apply
    Undo(undo::Args),
    /// Show applied changes, which of them are still in effect, and what may have changed the others
    Status(status::Args),
    /// Set socket options for programs that cannot be changed, at each of their binds: by unit, cgroup or port
    Policy(policy::Args),
    /// Run several instances of a server that reads with one thread on one port, and change their number without loss
    Multiply(multiply::Args),
    /// Started by `multiply`: waits for its end, and takes back what a killed one has left
    #[command(hide = true)]
    MultiplyGuard(multiply::GuardArgs),
    /// Started by `export`: answers its clients, without privileges
    #[command(hide = true)]
    ExportAnswer(export::AnswerArgs),
    /// Started by `apply --confirm`: waits, and reverts unless confirmed
    #[command(hide = true)]
    Revert(revert::Args),
    /// Capture this machine for analysis elsewhere with --sysroot; addresses and names are replaced
    Support(support::Args),
    /// Render a JSON result as HTML or text
    Report(report::Args),
    /// Compare two results of boost, load or profile: is the second one better?
    Compare(compare::Args),
    /// Add up the results of load segments that ran on several machines
    Merge(merge::Args),
    /// Many machines: what their captures have in common, and what differs
    Fleet(fleet::Args),
    /// Show the results that were kept, and the dates at which a figure changed
    History(history::Args),
    /// Print shell completions
    Completions(completions::Args),
    /// Write man pages
    Man(man::Args),
}

impl Cli {
    /// The arguments of this process. A number below 0 is an option's value, so that its parser says what is valid;
    /// clap alone takes it for an unknown option.
    ///
    /// # Errors
    /// Arguments that the program does not take, or a request for help or the version.
    pub(crate) fn of_this_process() -> Result<Self, clap::Error> {
        let matches = with_negative_numbers(Self::command()).try_get_matches()?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut Self::command()))
    }
}

fn with_negative_numbers(command: Command) -> Command {
    let options = command.mut_args(|arg| {
        let option = !arg.is_positional() && arg.get_action().takes_values();
        if option { arg.allow_negative_numbers(true) } else { arg }
    });
    options.mut_subcommands(with_negative_numbers)
}

/// Whether the arguments of this process ask for all there is about the version. clap stops at `--version`.
pub(crate) fn wants_verbose_version() -> bool {
    std::env::args_os().any(|argument| argument == "--verbose")
}

/// The verbs at the place of the first unknown one: those of `udpath lab` for `udpath lab frob`.
pub(crate) fn verbs_instead(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut command = Cli::command();
    for argument in arguments.skip(1) {
        match command.find_subcommand(&argument) {
            Some(verb) => command = verb.clone(),
            None => break,
        }
    }
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    shown.map(|verb| verb.get_name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_those_of_the_place_of_the_unknown_one() {
        let instead =
            |line: &str| verbs_instead(["udpath"].into_iter().chain(line.split(' ')).map(Into::into));
        assert_eq!(instead("lab frob up"), ["up", "exec", "list", "down"]);
        let all = instead("frob");
        assert!(all.contains(&"show".into()) && !all.contains(&"revert".into()), "{all:?}");
    }

    #[test]
    fn a_negative_number_is_the_value_of_its_option() {
        let said = |line: &str| {
            let words = ["udpath"].into_iter().chain(line.split(' '));
            with_negative_numbers(Cli::command()).try_get_matches_from(words).unwrap_err().to_string()
        };
        let size = said("boost --lab --size -5");
        assert!(
            size.contains("invalid value '-5' for '--size <BYTES>'") && size.contains("expected"),
            "{size}"
        );
        let stray = said("boost --lab -5");
        assert!(stray.contains("unexpected argument '-5'"), "{stray}");
    }
}
