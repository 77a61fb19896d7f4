//! How the program ends: one sentence on stderr and a documented exit code for scripts.
//!
//! A crate's error becomes a [`Failure`] here, so that `?` in a verb ends with the right code everywhere: 2 if the
//! arguments are wrong, 3 if the machine cannot do it.

use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use udpath_fleet::machines::FolderError;
use udpath_history::{RunError, StoreError};
use udpath_host::namespace::NamespaceError;
use udpath_protocols::{OptionError, StartError};
use udpath_report::{InputError, ReadError, WriteError};
use udpath_steer::predict::TablesError;
use udpath_support::PackageError;
use udpath_tune::apply::ApplyError;
use udpath_tune::confirm::ConfirmError;
use udpath_tune::journal::JournalError;
use udpath_tune::plan::PlanError;
use udpath_tune::services::ServiceError;
use udpath_tune::undo::UndoError;

use crate::{args, confine};

/// Why a verb failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit 1: it ran, and found something that the caller asked to be notified of.
    Findings(String),
    /// Exit 1: it ran, and its output says what it found.
    Found,
    /// Exit 2: invalid arguments. Names the argument and a valid alternative.
    Usage(String),
    /// Exit 3: it cannot be done here. States what, why, and the fix.
    Cannot(anyhow::Error),
    /// Exit 4: it was started, failed, and was reverted. States what failed, and what could not be restored.
    Reverted(anyhow::Error),
}

impl Failure {
    /// Invalid arguments, as reported by a library: the error and its sources.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(format!("{:#}", error.into()))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Cannot(error)
    }
}

/// Conversions of error types: a usage error if it matches the pattern, otherwise the machine's.
macro_rules! usage_if {
    ($($error:ty: $usage:pat,)*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                match error {
                    $usage => Self::usage(error),
                    error => Self::Cannot(error.into()),
                }
            }
        }
    )*};
}

usage_if! {
    udpath_advise::Error: udpath_advise::Error::Config(_),
    udpath_lab::Error: udpath_lab::Error::Spec(_),
    udpath_load::Error: udpath_load::Error::Plan(_),
    udpath_serve::Error: udpath_serve::Error::Config(_),
    JournalError: JournalError::Unknown { .. } | JournalError::NotOne { .. },
    NamespaceError: NamespaceError::NotThere { .. },
    confine::Error: confine::Error::NoUser(_) | confine::Error::NotRoot(_) | confine::Error::Contradiction,
    StoreError: StoreError::Unknown { .. } | StoreError::NotAFile { .. },
    PackageError: PackageError::Exists { .. } | PackageError::NotOurs { .. },
    ServiceError: ServiceError::Request(_)
        | ServiceError::NoKnob { .. }
        | ServiceError::Value { .. }
        | ServiceError::Twice { .. }
        | ServiceError::Consent { .. },
    WriteError: WriteError::Folder { .. },
}

impl From<udpath_multiply::Error> for Failure {
    fn from(error: udpath_multiply::Error) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::Cannot(error.into()) }
    }
}

impl From<udpath_fleet::LinkError> for Failure {
    fn from(error: udpath_fleet::LinkError) -> Self {
        match error {
            udpath_fleet::LinkError::Server(_) => Self::usage(error),
            error => Self::Cannot(error.into()),
        }
    }
}

impl From<udpath_fleet::caller::Error> for Failure {
    fn from(error: udpath_fleet::caller::Error) -> Self {
        match error {
            udpath_fleet::caller::Error::Link(error) => error.into(),
            udpath_fleet::caller::Error::Plan(_) => Self::usage(error),
            error => Self::Cannot(error.into()),
        }
    }
}

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Io { .. } => Self::Cannot(error.into()),
            error => Self::usage(error),
        }
    }
}

impl From<udpath_experiment::Error> for Failure {
    fn from(error: udpath_experiment::Error) -> Self {
        Self::Cannot(error.into())
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self::Cannot(error.into())
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Cannot(error.into())
    }
}

impl From<OptionError> for Failure {
    fn from(error: OptionError) -> Self {
        Self::usage(error)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Option(error) => error.into(),
            StartError::Server(error) => error.into(),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self::usage(error)
    }
}

impl From<TablesError> for Failure {
    fn from(error: TablesError) -> Self {
        Self::usage(error)
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::Cannot(error.into()) }
    }
}

impl From<ConfirmError> for Failure {
    fn from(error: ConfirmError) -> Self {
        match error {
            ConfirmError::Journal(error) => error.into(),
            error => Self::Cannot(error.into()),
        }
    }
}

impl From<UndoError> for Failure {
    fn from(error: UndoError) -> Self {
        match error {
            UndoError::Journal(error) => error.into(),
            error => Self::Cannot(error.into()),
        }
    }
}

impl From<ApplyError> for Failure {
    fn from(error: ApplyError) -> Self {
        match error {
            ApplyError::Journal(error) => error.into(),
            ApplyError::Reverted { .. } | ApplyError::HalfReverted { .. } => Self::Reverted(error.into()),
            ApplyError::Unfinished { .. } | ApplyError::Awaiting { .. } | ApplyError::Nothing(_) => {
                Self::Cannot(error.into())
            }
        }
    }
}

/// The result of every verb.
pub(crate) type Done = Result<(), Failure>;

/// The exit code of a verb's result; prints the error.
pub(crate) fn code(done: Done) -> ExitCode {
    let (code, what) = outcome(done);
    if let Some(what) = what {
        stderrln!("udpath: {what}");
    }
    ExitCode::from(code)
}

/// The exit code, and what is wrong.
fn outcome(done: Done) -> (u8, Option<String>) {
    match done {
        Ok(()) => (0, None),
        Err(Failure::Findings(what)) => (1, Some(what)),
        Err(Failure::Found) => (1, None),
        Err(Failure::Usage(what)) => (2, Some(what)),
        Err(Failure::Reverted(error)) => (4, Some(format!("{error:#}"))),
        // A closed reader (head, less) is not an error.
        Err(Failure::Cannot(error)) if is_broken_pipe(&error) => (0, None),
        Err(Failure::Cannot(error)) => (3, Some(format!("{error:#}"))),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Handles clap's results: help and version succeed, anything else is a usage error, printed like every other error.
pub(crate) fn from_clap(error: &clap::Error) -> ExitCode {
    let help = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !error.use_stderr() || error.kind() == help {
        // If stderr is closed, there is nothing left to do.
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
    }
    let mut said = sentence(&error.render().to_string());
    if error.kind() == ErrorKind::InvalidSubcommand && !said.contains("tip:") {
        let arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
        said += &format!(" [subcommands: {}]", args::verbs_instead(arguments).join(", "));
    }
    code(Err(Failure::Usage(said)))
}

/// clap's error and its tips on one line; the usage is in `--help`.
fn sentence(text: &str) -> String {
    let paragraphs = text.trim_start_matches("error: ").split("\n\n");
    let wanted = paragraphs.enumerate().filter(|(at, p)| *at == 0 || p.trim_start().starts_with("tip:"));
    let lines: Vec<String> =
        wanted.map(|(_, p)| p.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use proptest::prelude::*;
    use udpath_host::visible;

    use super::*;
    use crate::terminal::line_of;

    proptest! {
        /// Whatever a process, a path, an agent or an argument is called.
        #[test]
        fn errors_are_one_line_that_no_text_of_others_breaks(text in "(\\PC|[\\x00-\\x9f]|[\u{2000}-\u{206f}]){0,40}") {
            let io = || io::Error::other(text.clone());
            let failures = [
                Failure::Findings(format!("agent {text} was lost: {text}")),
                Failure::Usage(text.clone()),
                Failure::usage(anyhow::Error::from(io()).context(text.clone())),
                Failure::Cannot(anyhow::Error::from(io()).context(text.clone())),
                Failure::Reverted(io().into()),
                udpath_fleet::LinkError::Server(text.clone()).into(),
                udpath_fleet::caller::Error::NoResult(format!("a: {text}")).into(),
                InputError::Io { name: text.clone(), cause: io() }.into(),
            ];
            for failure in failures {
                let (_, what) = outcome(Err(failure));
                let line = line_of(&what.unwrap());
                prop_assert!(line.ends_with('\n') && !line.trim_end_matches('\n').chars().any(visible::drives), "{line:?}");
            }
            let clap = args::Cli::try_parse_from(["udpath", &text.replace('\0', " ")]);
            if let Err(error) = clap {
                let line = line_of(&sentence(&error.render().to_string()));
                prop_assert!(!line.trim_end_matches('\n').chars().any(visible::drives), "{line:?}");
            }
        }
    }

    #[test]
    fn a_clap_error_becomes_one_line() {
        let text = "error: unexpected argument '--sze' found\n\n  tip: a similar argument exists: '--size'\n\n\
                    Usage: udpath boost [OPTIONS]\n\nFor more information, try '--help'.\n";
        assert_eq!(
            sentence(text),
            "unexpected argument '--sze' found; tip: a similar argument exists: '--size'"
        );
        let text =
            "error: invalid value 'x' for '--engine <E>'\n  [possible values: a, b]\n\nFor more, ...\n";
        assert_eq!(sentence(text), "invalid value 'x' for '--engine <E>' [possible values: a, b]");
    }
}
