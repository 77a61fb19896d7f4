//! How the program ends: one sentence on stderr and a documented exit code for scripts.

use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;

/// Why a verb failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit 1: it ran, and found something that the caller asked to be notified of.
    Findings(String),
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

/// The result of every verb.
pub(crate) type Done = Result<(), Failure>;

/// The exit code of a verb's result; prints the error.
pub(crate) fn code(done: Done) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Findings(what)) => {
            eprintln!("udpath: {what}");
            ExitCode::from(1)
        }
        Err(Failure::Usage(what)) => {
            eprintln!("udpath: {what}");
            ExitCode::from(2)
        }
        Err(Failure::Reverted(error)) => {
            eprintln!("udpath: {error:#}");
            ExitCode::from(4)
        }
        Err(Failure::Cannot(error)) => {
            // A closed reader (head, less) is not an error.
            let broken_pipe =
                error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe);
            if broken_pipe {
                return ExitCode::SUCCESS;
            }
            eprintln!("udpath: {error:#}");
            ExitCode::from(3)
        }
    }
}

/// Handles clap's results: help and version succeed, anything else is a usage error, printed like every other error.
pub(crate) fn from_clap(error: &clap::Error) -> ExitCode {
    let help = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !error.use_stderr() || error.kind() == help {
        // If stderr is closed, there is nothing left to do.
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
    }
    code(Err(Failure::Usage(sentence(&error.render().to_string()))))
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
    use super::*;

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
