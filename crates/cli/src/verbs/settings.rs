//! Common parts of the verbs that change settings: the requested changes, the journal, and errors.

use std::io::Read;
use std::path::PathBuf;

use anyhow::Context;
use udpath_host::namespace::{NamespaceError, Place, inside};
use udpath_tune::apply::ApplyError;
use udpath_tune::journal::{DIRECTORY, JournalError};
use udpath_tune::plan::{Consent, PlanError, lasting};
use udpath_tune::{Journal, Machine, Plan, Setting, SettingRequest};

use crate::exit::{Done, Failure};

/// The requested changes, and what is allowed.
#[derive(Debug, clap::Args)]
pub(crate) struct Wanted {
    /// A plan as JSON (udpath.plan/2), as written by `udpath plan --json`; `-` is standard input
    #[arg(value_name = "PLAN.json|-", required_unless_present = "set")]
    file: Option<PathBuf>,
    /// A setting, such as eth0:rps/rx-0=0-3, eth0:channels/combined=8, irq:57:affinity=3,
    /// sysctl:net.core.rmem_max=4194304 or socket:812/4026:receive-buffer=8388608; repeatable; rx-* and tx-* are all
    /// queues; port:53:receive-buffer, port:53:selection=by-cpu and port:53:threads=one-per-cpu apply to the process
    /// that serves the port now
    #[arg(long, value_name = "SETTING=VALUE")]
    set: Vec<String>,
    /// Reason, for the journal; reasons in a plan are kept
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Allow changing SETTING even though it lowers security, or destroys something that undo cannot restore;
    /// repeatable
    #[arg(long, value_name = "SETTING")]
    allow: Vec<String>,
    /// Ignore a conflict with another program that changes the same settings; repeatable
    #[arg(long = "ignore-conflict", value_name = "irqbalance|tuned", value_parser = ["irqbalance", "tuned"])]
    ignore_conflicts: Vec<String>,
}

/// The location of the journal.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct State {
    /// Journal folder
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    state: PathBuf,
}

/// The network namespace to use.
#[derive(Debug, clap::Args)]
pub(crate) struct Namespace {
    /// Network namespace, as listed by `ip netns` [default: the caller's]
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
}

/// Common options of the verbs that use the journal.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) state: State,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
}

impl Namespace {
    /// Runs `work` in the namespace.
    pub(crate) fn run(&self, work: impl FnOnce() -> Done + Send) -> Done {
        let place = self.netns.clone().map_or(Place::Here, Place::Named);
        match inside(&place, work) {
            Ok(done) => done,
            Err(error @ NamespaceError::NotThere { .. }) => Err(Failure::Usage(error.to_string())),
            Err(error) => Err(Failure::Cannot(error.into())),
        }
    }
}

impl State {
    pub(crate) fn journal(&self) -> Journal {
        Journal::at(&self.state)
    }

    /// The folder as an absolute path, independent of the working directory.
    pub(crate) fn absolute(&self) -> anyhow::Result<PathBuf> {
        std::path::absolute(&self.state).context("cannot tell where the journal is")
    }
}

impl Wanted {
    pub(crate) fn consent(&self) -> Consent {
        Consent {
            insecure: self.allow.iter().cloned().collect(),
            ignore_conflicts: self.ignore_conflicts.iter().cloned().collect(),
        }
    }

    /// The plan for the machine's current state.
    pub(crate) fn plan(&self, machine: &dyn Machine) -> Result<Plan, Failure> {
        let mut requests = match &self.file {
            None => Vec::new(),
            Some(file) => {
                let text = read(file)?;
                SettingRequest::from_json(&text).map_err(|error| {
                    Failure::usage(anyhow::Error::from(error).context(file.display().to_string()))
                })?
            }
        };
        for text in &self.set {
            requests.push(SettingRequest::parse(text, &self.reason).map_err(Failure::usage)?);
        }
        Plan::resolve(machine, requests, &self.consent()).map_err(|error: PlanError| match error.is_usage() {
            true => Failure::usage(error),
            false => Failure::Cannot(error.into()),
        })
    }
}

/// Prints which settings do not last until the next boot, and what resets them.
pub(crate) fn tell_lasting<'a>(settings: impl Iterator<Item = &'a Setting>) {
    for line in lasting(settings) {
        eprintln!("note: {line}");
    }
}

fn read(file: &PathBuf) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    Ok(read.with_context(|| format!("cannot read the plan {}", file.display()))?)
}

/// Warns of journal entries that cannot be read; this is not an error.
pub(crate) fn warn_of_unreadable(journal: &Journal) -> Result<(), Failure> {
    let contents = journal.contents().map_err(self::journal)?;
    for bad in contents.unreadable {
        eprintln!("udpath: warning: {:#}", anyhow::Error::from(bad.why));
    }
    Ok(())
}

/// A missing entry is a usage error; other errors are the machine's.
pub(crate) fn journal(error: JournalError) -> Failure {
    match error {
        JournalError::Unknown { .. } => Failure::Usage(error.to_string()),
        error => Failure::Cannot(error.into()),
    }
}

/// Exit 3 if nothing was changed; 4 if changes were reverted.
pub(crate) fn apply(error: ApplyError) -> Failure {
    match error {
        ApplyError::Journal(error) => journal(error),
        ApplyError::Reverted { .. } | ApplyError::HalfReverted { .. } => Failure::Reverted(error.into()),
        ApplyError::Unfinished { .. } | ApplyError::Awaiting { .. } | ApplyError::Nothing(_) => {
            Failure::Cannot(error.into())
        }
    }
}
