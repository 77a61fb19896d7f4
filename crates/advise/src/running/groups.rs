//! The groups that can be tried, resolved against the machine: which values each sets.
//!
//! A restart gives the server new processes, sockets and threads, so groups that name them by port are resolved again
//! after it. A configuration is a group of whole files; later ones are made of earlier ones, never beside them.

use std::collections::BTreeSet;

use udpath_host::Snapshot;
use udpath_tune::plan::{Change, PlanError};
use udpath_tune::services::{self, Prepared as Reconfigured, Proposal, Service};
use udpath_tune::settings::{Cost, Phase, Setting};
use udpath_tune::{Live, Plan, SettingRequest, Temporary, Value};

use super::group::Group;
use super::target::Target;
use super::{RunningConfig, consent};
use crate::result::LeftOut;
use crate::search::Candidate;

/// What the group of instances is called.
const INSTANCES: &str = "instances";

/// A group, resolved.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) group: Group,
    /// What it sets, in the order in which it is written.
    pub(super) values: Vec<(Setting, Value)>,
}

/// All groups, and those that cannot be tried.
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: Vec<Prepared>,
    pub(super) left_out: Vec<LeftOut>,
}

impl Groups {
    /// A group.
    pub(super) fn get(&self, at: Candidate) -> &Prepared {
        &self.all[at]
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a group, unless it changes nothing, is there already, or cannot be tried.
    pub(super) fn add(&mut self, group: Group, config: &RunningConfig, machine: &Live) -> Option<Candidate> {
        match resolve(&group, config, machine) {
            Ok(values) => self.push(group, values),
            Err(reason) => {
                self.left_out.push(LeftOut { name: group.name, reason });
                None
            }
        }
    }

    fn push(&mut self, group: Group, values: Vec<(Setting, Value)>) -> Option<Candidate> {
        let known = |other: &Prepared| other.values == values || other.group.name == group.name;
        if values.is_empty() || self.all.iter().any(known) {
            return None;
        }
        self.all.push(Prepared { group, values });
        Some(self.all.len() - 1)
    }

    /// Adds what the server's own configuration offers: all that its guide recommends, then that with each change that
    /// is worth a trial.
    pub(super) fn configure(
        &mut self,
        target: &Target,
        interface: &str,
        snapshot: &Snapshot,
        config: &RunningConfig,
    ) {
        for server in &target.servers {
            // A program that is not known has no configuration to offer.
            let Ok(service) = services::recognise(server.pid) else { continue };
            self.multiply(target, &service, config);
            let all = service.proposals(service.cpus.len().max(1), Some(interface));
            let (exposing, all): (Vec<Proposal>, Vec<Proposal>) =
                all.into_iter().partition(|one| !config.allow.security && one.exposes().is_some());
            self.left_out.extend(exposing.iter().map(|one| LeftOut {
                name: one.id(),
                reason: format!("{}; --allow security tries it", one.exposes().unwrap_or_default()),
            }));
            let (uncertain, settled): (Vec<Proposal>, Vec<Proposal>) =
                all.into_iter().partition(|proposal| proposal.uncertain);
            let mut variants = Vec::new();
            if !settled.is_empty() {
                variants.push(("configuration".to_owned(), settled.clone()));
            }
            for one in uncertain {
                variants.push((one.id(), [settled.clone(), vec![one]].concat()));
            }
            for (name, proposals) in variants {
                let ids: Vec<String> = proposals.iter().map(Proposal::id).collect();
                let what = format!("{} configured with {}", service.profile.name, ids.join(", "));
                let requests = ids.iter().map(|id| format!("service:{}:{id}", target.port)).collect();
                let group = Group { name, what, requests };
                if !config.allow.security && proposals.iter().any(|one| bypasses(one, snapshot)) {
                    let reason = "it lowers security: the packet filter here would not see its datagrams; --allow security tries it";
                    self.left_out.push(LeftOut { name: group.name, reason: reason.to_owned() });
                    continue;
                }
                match reconfigured(server.pid, proposals, None, config) {
                    Ok(values) => drop(self.push(group, values)),
                    Err(why) => {
                        let reason = format!("{}: {why}", group.what);
                        self.left_out.push(LeftOut { name: group.name, reason });
                    }
                }
            }
        }
    }

    /// Adds the server in an instance for each CPU, if it reads one socket and can share its port. Those that cannot
    /// have threads or processes of their own, which their configuration offers.
    fn multiply(&mut self, target: &Target, service: &Service, config: &RunningConfig) {
        let count = service.cpus.len();
        let is_one = target.servers.len() == 1 && target.group() == 1;
        if !is_one || count < 2 || service.multiplies().is_err() {
            return;
        }
        let requests = vec![format!("service:{}:instances={count}", target.port)];
        let what = format!("{} in {count} instances, each with a socket of its own", service.profile.name);
        let group = Group::new(INSTANCES, what, requests);
        match reconfigured(service.pid, Vec::new(), Some(count), config) {
            Ok(values) => drop(self.push(group, values)),
            Err(why) => {
                let reason = format!("{}: {why}", group.what);
                self.left_out.push(LeftOut { name: group.name, reason });
            }
        }
    }

    /// Resolves the groups that name sockets or threads again, after a restart. One that cannot be resolved any more
    /// changes nothing.
    pub(super) fn resolve_again(&mut self, config: &RunningConfig, machine: &Live) {
        for prepared in &mut self.all {
            let of_server = |(setting, _): &(Setting, Value)| {
                matches!(setting, Setting::Socket { .. } | Setting::Thread { .. })
            };
            if prepared.values.iter().any(of_server) {
                prepared.values = resolve(&prepared.group, config, machine).unwrap_or_default();
            }
        }
    }

    /// The values of a set of candidates, later ones over earlier ones, in the order in which they are written.
    pub(super) fn values(&self, on: &[Candidate]) -> Vec<(Setting, Value)> {
        let mut values: Vec<(Setting, Value)> = Vec::new();
        for (setting, value) in on.iter().flat_map(|at| &self.all[*at].values) {
            match values.iter_mut().find(|(other, _)| other == setting) {
                Some((_, old)) => *old = value.clone(),
                None => values.push((setting.clone(), value.clone())),
            }
        }
        values.sort_by_key(|(setting, _)| setting.phase());
        values
    }
}

/// Whether it takes datagrams past a packet filter that there is.
fn bypasses(proposal: &Proposal, snapshot: &Snapshot) -> bool {
    proposal.bypasses_packet_filter && snapshot.netfilter.filters_received()
}

/// Whether a value is part of the server's configuration.
pub(super) fn of_configuration((setting, _): &(Setting, Value)) -> bool {
    matches!(setting, Setting::Config(_) | Setting::Instances { .. }) || setting.phase() == Phase::Restart
}

/// Whether a value makes the server run in several instances.
pub(super) fn of_instances((setting, value): &(Setting, Value)) -> bool {
    let by_restart = setting.phase() == Phase::Restart && services::instances(value).is_some();
    matches!(setting, Setting::Instances { .. }) || by_restart
}

/// What a group sets here; an error says why it cannot be tried.
fn resolve(group: &Group, config: &RunningConfig, machine: &Live) -> Result<Vec<(Setting, Value)>, String> {
    let parsed: Result<Vec<SettingRequest>, PlanError> =
        group.requests.iter().map(|text| SettingRequest::parse(text, &group.what)).collect();
    let requests = parsed.map_err(|error| error.to_string())?;
    let mut allowed = BTreeSet::new();
    let plan = loop {
        match Plan::resolve(machine, requests.clone(), &consent(allowed.clone())) {
            Ok(plan) => break plan,
            Err(PlanError::Insecure { setting, .. })
                if config.allow.security && allowed.insert(setting.clone()) => {}
            Err(PlanError::Insecure { why, .. }) => {
                return Err(format!("it lowers security: {why}; --allow security tries it"));
            }
            Err(error) => return Err(error.to_string()),
        }
    };
    let resets = |change: &Change| change.setting.cost() == Cost::ResetsLink;
    if let Some(change) =
        plan.changes.iter().find(|change| resets(change)).filter(|_| !config.allow.link_reset)
    {
        return Err(format!(
            "{} may reset the link in every trial; --allow link-reset tries it",
            change.setting
        ));
    }
    Temporary::check(machine, &plan).map_err(|refusal| refusal.to_string())?;
    let set = plan.changes.into_iter().map(|change| (change.setting, change.to));
    let mut values: Vec<(Setting, Value)> = set.chain(plan.already).collect();
    values.sort_by_key(|(setting, _)| setting.phase());
    Ok(values)
}

/// The files of a changed configuration and the restart, checked by the server's own checker; or the restart in
/// instances.
fn reconfigured(
    pid: u32,
    proposals: Vec<Proposal>,
    instances: Option<usize>,
    config: &RunningConfig,
) -> Result<Vec<(Setting, Value)>, String> {
    match (proposals.is_empty() || config.allow.config, config.allow.restart) {
        (true, true) => {}
        (true, false) => return Err("it needs a restart: --allow restart tries it".to_owned()),
        (false, _) => return Err("it needs a restart: --allow config,restart tries it".to_owned()),
    }
    let service = services::recognise(pid).map_err(|error| error.to_string())?;
    let prepared: Reconfigured =
        service.prepare(proposals, config.restart.as_deref()).map_err(|error| error.to_string())?;
    let prepared = match instances {
        Some(count) => prepared.in_instances(count).map_err(|error| error.to_string())?,
        None => prepared,
    };
    prepared.check().map_err(|error| error.to_string())?;
    Ok(prepared.changes().into_iter().map(|change| (change.setting, change.to)).collect())
}
