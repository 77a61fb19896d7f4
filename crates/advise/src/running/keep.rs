//! Applies what helps, as `udpath apply` does: the server's configuration first, as an apply of its own, since the restart gives
//! the server new sockets and threads.

use error_reporter::Report;
use udpath_tune::journal::Lock;
use udpath_tune::plan::{Change, PlanError};
use udpath_tune::{Live, Plan, Setting, SettingRequest, Value, apply};

use super::consent;

/// Why, for the journal.
const REASON: &str = "shown to help by boost";

/// What is applied.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Files and the restart.
    pub(super) configuration: Vec<(Setting, Value)>,
    /// Everything else, as requested: ports are resolved after the restart.
    pub(super) requests: Vec<String>,
}

impl Kept {
    /// Applies it; returns the numbers of the applies, in order. What was applied before a failure stays, and is named.
    pub(super) fn apply(self, machine: &Live, lock: &Lock) -> Result<Vec<u64>, String> {
        let mut applies = Vec::new();
        if !self.configuration.is_empty() {
            let changes = self.configuration.into_iter().map(|(setting, to)| Change {
                setting,
                from: None,
                to,
                irq: None,
                reason: REASON.to_owned(),
            });
            let plan = Plan { changes: changes.collect(), already: Vec::new() };
            let applied = apply(machine, lock, &plan, None, |_| Ok(()));
            applies.push(applied.map_err(|error| said(error, &[]))?.id);
        }
        let parsed = self.requests.iter().map(|text| SettingRequest::parse(text, REASON));
        let requests: Result<Vec<_>, PlanError> = parsed.collect();
        let requests = requests.map_err(|error| said(error, &applies))?;
        // They were allowed when they were tried.
        let mut allowed = consent(Vec::new());
        let plan = loop {
            match Plan::resolve(machine, requests.clone(), &allowed) {
                Err(PlanError::Insecure { setting, .. }) if allowed.insecure.insert(setting.clone()) => {}
                plan => break plan.map_err(|error| said(error, &applies))?,
            }
        };
        if !plan.is_empty() {
            let applied = apply(machine, lock, &plan, None, |_| Ok(()));
            applies.push(applied.map_err(|error| said(error, &applies))?.id);
        }
        Ok(applies)
    }
}

/// The error, and what was applied before it.
fn said(error: impl std::error::Error, applied: &[u64]) -> String {
    let why = Report::new(error).to_string();
    match applied {
        [] => why,
        [id, ..] => format!("{why}; apply {id} is in effect, and `udpath undo {id}` takes it back"),
    }
}
