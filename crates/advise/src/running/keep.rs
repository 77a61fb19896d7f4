//! Applies what helps, as `udpath apply` does, so that it stays: the server's configuration first, as an apply of its
//! own, since the restart gives the server new sockets and threads. Then everything else in one apply:
//!
//! ```text
//!                         until the server restarts        until the next boot       for good
//! port:53:receive-buffer  the sockets as they are  ──────▸ policy:UNIT:53/...  ────▸ files in /etc
//! port:53:selection, ...  the sockets and threads
//! eth0:rps, sysctls, ...  ────────────────────────────────▸ the machine's  ────────▸ files in /etc
//! ```
//! What gets no further is part of the result, with the reason.

use std::path::Path;

use error_reporter::Report;
use udpath_tune::journal::Lock;
use udpath_tune::persist::{self, Boot};
use udpath_tune::plan::{Change, Consent, PlanError};
use udpath_tune::{Live, Plan, Setting, SettingRequest, Value, apply, policy};

use super::consent;
use super::groups::of_instances;
use crate::result::{Fleeting, Until};

/// Why, for the journal.
const REASON: &str = "shown to help by boost";
/// Why settings of sockets and threads end with the server's process.
const NEW_SOCKETS: &str =
    "a restarted server has new sockets and threads; put ExecStartPost=udpath apply --set ... into its unit";

/// Why instances may end with the server's next restart.
const STARTED_ELSEWHERE: &str = "the restart command was told to start them; put `udpath multiply -n N --` before the server's program where it is started";

/// What is applied.
#[derive(Debug)]
pub(super) struct Kept {
    /// Files and the restart.
    pub(super) configuration: Vec<(Setting, Value)>,
    /// Everything else, as requested: ports are resolved after the restart.
    pub(super) requests: Vec<String>,
    /// The cgroup by which a policy finds the server after a restart, or why none would.
    pub(super) cgroup: Result<String, String>,
}

/// What was applied.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// The numbers of the applies, in order.
    pub(super) applies: Vec<u64>,
    /// What will not stay for good.
    pub(super) fleeting: Vec<Fleeting>,
    /// Notes for the operator.
    pub(super) notes: Vec<String>,
}

/// Where it is applied, and by what again after a boot.
#[derive(Debug)]
pub(super) struct Applier<'a> {
    pub(super) machine: &'a Live,
    pub(super) lock: &'a Lock,
    /// The journal's folder.
    pub(super) journal: &'a Path,
    /// The program that a unit runs at each boot.
    pub(super) program: &'a Path,
}

impl Kept {
    /// Applies it. What was applied before a failure stays, and is named.
    pub(super) fn apply(self, applier: &Applier<'_>) -> Result<Applied, String> {
        let mut kept = Applied::default();
        // A unit's drop-in lasts.
        let by_restart = |value: &&(Setting, Value)| !matches!(value.0, Setting::Instances { .. });
        if self.configuration.iter().filter(by_restart).any(of_instances) {
            kept.fleeting.extend(Fleeting::of(
                vec!["instances".to_owned()],
                Until::ServerRestart,
                STARTED_ELSEWHERE,
            ));
        }
        if !self.configuration.is_empty() {
            let changes = self.configuration.into_iter().map(|(setting, to)| Change {
                setting,
                from: None,
                to,
                irq: None,
                reason: REASON.to_owned(),
            });
            let plan = Plan { changes: changes.collect(), already: Vec::new() };
            let applied = apply(applier.machine, applier.lock, &plan, None, |_| Ok(()));
            kept.applies.push(applied.map_err(|error| said(error, &[]))?.id);
        }
        let Lasting { policies, sockets, buffers } = Lasting::of(&self.requests, self.cgroup.as_deref());
        kept.fleeting.extend(Fleeting::of(sockets, Until::ServerRestart, NEW_SOCKETS));
        let with = [self.requests.clone(), policies].concat();
        let planned = match self.cgroup {
            Ok(_) => applier.plan(&with).map_err(|error| Report::new(error).to_string()),
            Err(why) => Err(why),
        };
        let (mut plan, allowed) = match planned {
            Ok(planned) => planned,
            // A policy needs more than a socket's own setting: a BPF file system, and a limit that can be raised.
            Err(why) => {
                kept.fleeting.extend(Fleeting::of(buffers, Until::ServerRestart, why));
                applier.plan(&self.requests).map_err(|error| said(error, &kept.applies))?
            }
        };
        match applier.files(&plan, &allowed) {
            Ok(files) => {
                plan.changes.extend(files.changes);
                kept.notes.extend(files.notes);
            }
            Err(why) => {
                let lasting = plan.settings().filter(|setting| persist::fleeting(setting).is_none());
                let names = lasting.map(ToString::to_string).collect();
                kept.fleeting.extend(Fleeting::of(names, Until::Boot, why));
            }
        }
        if !plan.is_empty() {
            let applied = apply(applier.machine, applier.lock, &plan, None, |_| Ok(()));
            kept.applies.push(applied.map_err(|error| said(error, &kept.applies))?.id);
        }
        Ok(kept)
    }
}

/// What of the requests outlives the server's process, and what does not.
#[derive(Debug, PartialEq, Eq)]
struct Lasting {
    /// Policies that give the next sockets what these have.
    policies: Vec<String>,
    /// Requests whose settings end with the process.
    sockets: Vec<String>,
    /// Requests that the policies are for.
    buffers: Vec<String>,
}

impl Lasting {
    fn of(requests: &[String], cgroup: Result<&str, &String>) -> Self {
        let mut lasting = Self { policies: Vec::new(), sockets: Vec::new(), buffers: Vec::new() };
        for request in requests {
            let Some((name, value)) = request.strip_prefix("port:").and_then(|rest| rest.split_once('='))
            else {
                continue;
            };
            // `53`, or the address of one of several programs on the port: `127.0.0.1:53`.
            let Some((object, name)) = name.rsplit_once(':') else { continue };
            let port = object.rsplit(':').next().unwrap_or(object);
            if !policy::has_option(name) {
                lasting.sockets.push(request.clone());
                continue;
            }
            lasting.buffers.push(request.clone());
            lasting.policies.extend(cgroup.map(|cgroup| format!("policy:{cgroup}:{port}/{name}={value}")));
        }
        lasting
    }
}

impl Applier<'_> {
    /// A plan of the requests, and the consents that it needs.
    fn plan(&self, requests: &[String]) -> Result<(Plan, Consent), PlanError> {
        let requests = requests.iter().map(|text| SettingRequest::parse(text, REASON));
        let requests: Vec<SettingRequest> = requests.collect::<Result<_, _>>()?;
        // They were allowed when they were tried.
        let mut allowed = consent(Vec::new());
        loop {
            match Plan::resolve(self.machine, requests.clone(), &allowed) {
                Err(PlanError::Insecure { setting, .. }) if allowed.insecure.insert(setting.clone()) => {}
                plan => return Ok((plan?, allowed)),
            }
        }
    }

    /// The files that keep a plan over a boot, or why there are none.
    fn files(&self, plan: &Plan, allowed: &Consent) -> Result<persist::Kept, String> {
        let lasts = |setting: &Setting| persist::fleeting(setting).is_none();
        let lasting = Plan {
            changes: plan.changes.iter().filter(|change| lasts(&change.setting)).cloned().collect(),
            already: plan.already.iter().filter(|(setting, _)| lasts(setting)).cloned().collect(),
        };
        if lasting.changes.is_empty() && lasting.already.is_empty() {
            return Ok(persist::Kept { changes: Vec::new(), notes: Vec::new() });
        }
        let id = self.lock.journal().next_id().map_err(|error| Report::new(error).to_string())?;
        let journal = std::path::absolute(self.journal)
            .map_err(|error| format!("cannot make the journal's path absolute: {error}"))?;
        let boot = Boot { program: self.program, journal: &journal, consent: allowed };
        persist::files(self.machine, &lasting, id, &boot).map_err(|error| Report::new(error).to_string())
    }
}

impl Fleeting {
    /// None of no settings.
    fn of(settings: Vec<String>, until: Until, why: impl Into<String>) -> Option<Self> {
        (!settings.is_empty()).then(|| Self { settings, until, why: why.into() })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_get_a_policy_and_other_options_of_sockets_end_with_them() {
        let requests = ["port:53:receive-buffer=8388608", "eth0:rps/rx-*=0-3", "port:53:selection=by-cpu"]
            .map(str::to_owned);
        let lasting = Lasting::of(&requests, Ok("/system.slice/nsd.service"));
        assert_eq!(lasting.policies, ["policy:/system.slice/nsd.service:53/receive-buffer=8388608"]);
        assert_eq!(
            (lasting.buffers, lasting.sockets),
            (vec![requests[0].clone()], vec![requests[2].clone()])
        );
        let narrow = ["port:[::1]:53:receive-buffer=8388608".to_owned()];
        assert_eq!(Lasting::of(&narrow, Ok("/system.slice/nsd.service")).policies, lasting.policies);
        let none = Lasting::of(&requests, Err(&String::new()));
        assert_eq!((none.policies.len(), none.buffers.len()), (0, 1));
    }
}
