//! What the verbs about settings have in common: what is wanted, where the journal is, and how failures end.

use std::io::Read;
use std::path::PathBuf;

use anyhow::Context;
use udpath_host::namespace::{NamespaceError, Place, inside};
use udpath_tune::apply::ApplyError;
use udpath_tune::journal::{DIRECTORY, JournalError};
use udpath_tune::plan::{Consent, PlanError, lasting};
use udpath_tune::{Journal, Machine, Plan, Setting, SettingRequest};

use crate::exit::{Done, Failure};

/// What is wanted, and what has been allowed.
#[derive(Debug, clap::Args)]
pub(crate) struct Wanted {
    /// A plan as JSON (udpath.plan/2), such as `udpath plan --json` writes; `-` is standard input
    #[arg(value_name = "PLAN.json|-", required_unless_present = "set")]
    file: Option<PathBuf>,
    /// One setting, such as eth0:rps/rx-0=0-3, eth0:channels/combined=8, irq:57:affinity=3,
    /// sysctl:net.core.rmem_max=4194304 or socket:812/4026:receive-buffer=8388608; may be given often; rx-* and tx-* are
    /// all queues; port:53:receive-buffer, port:53:selection=by-cpu, port:53:threads=one-per-cpu are whoever serves the
    /// port now
    #[arg(long, value_name = "SETTING=VALUE")]
    set: Vec<String>,
    /// Why, for the journal; a plan's own reasons stay
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Allow changing SETTING even though it lowers security, or destroys what undo cannot bring back; repeatable
    #[arg(long, value_name = "SETTING")]
    allow: Vec<String>,
    /// Plan in spite of another program that writes the same settings; repeatable
    #[arg(long = "ignore-conflict", value_name = "irqbalance|tuned", value_parser = ["irqbalance", "tuned"])]
    ignore_conflicts: Vec<String>,
}

/// Where the journal is.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct State {
    /// Folder of the journal
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    state: PathBuf,
}

/// Which network namespace.
#[derive(Debug, clap::Args)]
pub(crate) struct Namespace {
    /// A network namespace by its name, as `ip netns` lists it; default: the caller's
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
}

/// What the verbs that know the journal have in common.
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
    /// Does the work there.
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

    /// The folder, whatever the caller's own is.
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

    /// The plan, for the machine as it is now.
    pub(crate) fn plan(&self, machine: &dyn Machine) -> Result<Plan, Failure> {
        let mut requests = match &self.file {
            None => Vec::new(),
            Some(file) => {
                let text = read(file)?;
                SettingRequest::from_json(&text)
                    .map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?
            }
        };
        for text in &self.set {
            requests.push(
                SettingRequest::parse(text, &self.reason)
                    .map_err(|error| Failure::Usage(error.to_string()))?,
            );
        }
        Plan::resolve(machine, requests, &self.consent()).map_err(|error: PlanError| match error.is_usage() {
            true => Failure::Usage(error.to_string()),
            false => Failure::Cannot(error.into()),
        })
    }
}

/// Says what is forgotten before the next boot, and when.
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

/// Names the entries of the journal that cannot be read, which is not a reason to stop.
pub(crate) fn warn_of_unreadable(journal: &Journal) -> Result<(), Failure> {
    let contents = journal.contents().map_err(self::journal)?;
    contents.unreadable.iter().for_each(|bad| eprintln!("udpath: warning: {}", bad.why));
    Ok(())
}

/// An entry that is not there was asked for by a slip of the hand; the rest the machine refuses.
pub(crate) fn journal(error: JournalError) -> Failure {
    match error {
        JournalError::Unknown { .. } => Failure::Usage(error.to_string()),
        error => Failure::Cannot(error.into()),
    }
}

/// Nothing changed is 3; changed and taken back is 4.
pub(crate) fn apply(error: ApplyError) -> Failure {
    match error {
        ApplyError::Journal(error) => journal(error),
        ApplyError::Reverted { .. } | ApplyError::HalfReverted { .. } => Failure::Reverted(error.into()),
        ApplyError::Unfinished { .. } | ApplyError::Awaiting { .. } | ApplyError::Nothing(_) => {
            Failure::Cannot(error.into())
        }
    }
}
