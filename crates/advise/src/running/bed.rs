//! The bed of a search on a running server: makes a set of candidates effective, and measures the server under it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use error_reporter::Report;
use udpath_host::source::Folder;
use udpath_tune::settings::Setting;
use udpath_tune::undo::Undone;
use udpath_tune::{Live, Temporary, Value, policy};

use super::candidates;
use super::evidence::Evidence;
use super::groups::{self, Groups};
use super::keep::Kept;
use super::target::Target;
use super::traffic::{Measured, Refused, Sent};
use super::{RunningConfig, RunningError};
use crate::config::Event;
use crate::diagnosis::Diagnosis;
use crate::result::Profiles;
use crate::search::{Bed, Candidate, Purpose, Race, Trouble, Under};
use crate::statistics::{Bound, Comparison};
use crate::trial::Trials;

/// Trials in a row that may be refused because the places do not agree. Fewer: one burst of somebody's traffic ends a
/// race. More: a path that loses keeps a race going for long.
const UNTRUE: usize = 3;
/// What the rung without any change is called.
pub(super) const AS_FOUND: &str = "as found";

/// The bed.
pub(super) struct RunningBed<'a> {
    pub(super) config: &'a RunningConfig,
    machine: &'a Live,
    changes: Temporary<'a>,
    watch: &'a mut (dyn FnMut(&Event<'_>) + Send),
    stop: &'a AtomicBool,
    /// When all trials are to be over: the budget's end, but for the last profile.
    deadline: Instant,
    pub(super) traffic: Sent<'a>,
    pub(super) target: Target,
    /// The interfaces that the load leaves by and arrives on.
    pub(super) interfaces: (String, String),
    /// As found.
    pub(super) evidence: Evidence,
    /// What limits it with everything that was kept.
    pub(super) at_last: Option<Diagnosis>,
    pub(super) groups: Groups,
    /// Places in `groups`, in the order in which they are tried.
    order: Vec<Candidate>,
    pub(super) trials: BTreeMap<(Under, Vec<Candidate>), Trials>,
    /// In effect.
    on: Vec<Candidate>,
    /// The part of that which is the server's configuration; `None` after a change of it that failed.
    configured: Option<Vec<(Setting, Value)>>,
    /// How many were kept when evidence was last collected.
    looked: usize,
    /// Trials that were refused, and the last reason.
    pub(super) refused: (u32, Option<String>),
    /// The race under way: its number, its name, what it is against, and its blocks.
    racing: (usize, String, (usize, usize)),
}

impl<'a> RunningBed<'a> {
    /// Finds the server, loads it once, and lists what can be tried.
    pub(super) fn new(
        config: &'a RunningConfig,
        machine: &'a Live,
        changes: Temporary<'a>,
        watch: &'a mut (dyn FnMut(&Event<'_>) + Send),
        stop: &'a AtomicBool,
        begin: Instant,
    ) -> Result<Self, RunningError> {
        let target = Target::find(config)?;
        let mut traffic = Sent::new(config, stop);
        let interfaces = traffic.interfaces(&target)?;
        watch(&Event::Profile { name: AS_FOUND });
        let looks = Instant::now();
        let evidence = traffic.evidence(&target)?;
        let another = if config.profile { looks.elapsed() } else { Duration::ZERO };
        let mut bed = Self {
            config,
            machine,
            changes,
            watch,
            stop,
            deadline: begin + config.budget.saturating_sub(another),
            traffic,
            target,
            interfaces,
            evidence,
            at_last: None,
            groups: Groups::default(),
            order: Vec::new(),
            trials: BTreeMap::new(),
            on: Vec::new(),
            configured: Some(Vec::new()),
            looked: 0,
            refused: (0, None),
            racing: (0, String::new(), (0, 0)),
        };
        let Evidence { snapshot, map, .. } = &bed.evidence;
        let found = candidates::of_findings(bed.evidence.findings());
        let offered = candidates::of_machine(snapshot, map, &bed.interfaces.1, &bed.target);
        bed.groups.configure(&bed.target, &bed.interfaces.1, snapshot, config);
        for group in found.into_iter().chain(offered) {
            bed.groups.add(bed.target.narrowed(group), config, machine);
        }
        bed.order = (0..bed.groups.len()).collect();
        Ok(bed)
    }

    /// What a set of candidates is called.
    pub(super) fn name(&self, on: &[Candidate]) -> String {
        match on {
            [] => AS_FOUND.to_owned(),
            [.., last] => self.groups.get(*last).group.name.clone(),
        }
    }

    /// What the race of a candidate under the other load is called.
    pub(super) fn name_of_hold(&self, candidate: Candidate) -> String {
        let name = self.name(&[candidate]);
        self.traffic.other_load().map_or_else(|| name.clone(), |plan| format!("{name}, {} flows", plan.flows))
    }

    /// Makes exactly these effective.
    fn make(&mut self, on: &[Candidate]) -> Result<(), RunningError> {
        // Until it is done nothing is known to be in effect.
        self.on = vec![Candidate::MAX];
        let wanted = self.groups.values(on);
        let configured: Vec<_> =
            wanted.iter().filter(|value| groups::of_configuration(value)).cloned().collect();
        if self.configured.as_ref() != Some(&configured) {
            // A restart that fails may have ended the old process all the same: the next one is looked for again.
            self.configured = None;
            // The sockets and threads that settings were made for go with the old process.
            self.changes.set(&configured)?;
            self.changes.forget_ended();
            self.target = self.target.again()?;
            self.configured = Some(configured);
            self.groups.resolve_again(self.config, self.machine);
        }
        self.changes.set(&self.groups.values(on))?;
        self.on = on.to_vec();
        Ok(())
    }

    /// The profiles of the server as found and with `kept`.
    pub(super) fn profiles(&mut self, kept: &[Candidate]) -> Result<Option<Profiles>, RunningError> {
        if !self.config.profile {
            return Ok(None);
        }
        let mut profiles = Profiles::default();
        let first = self.evidence.profile.clone();
        match first {
            Ok(profile) => profiles.first = Some(profile),
            Err(reason) => {
                profiles.absent = Some(format!("{AS_FOUND}: {reason}"));
                return Ok(Some(profiles));
            }
        }
        if !kept.is_empty() {
            let name = self.name(kept);
            (self.watch)(&Event::Profile { name: &name });
            self.make(kept)?;
            let evidence = self.traffic.evidence(&self.target)?;
            self.at_last = Some(evidence.diagnosis);
            match evidence.profile {
                Ok(profile) => profiles.best = Some(profile),
                Err(reason) => profiles.absent = Some(format!("{name}: {reason}")),
            }
        }
        Ok(Some(profiles))
    }

    /// What is applied to keep a set of candidates: of each setting the last request.
    pub(super) fn kept(&self, kept: &[Candidate]) -> Kept {
        let values = self.groups.values(kept);
        let configuration: Vec<_> = values.into_iter().filter(groups::of_configuration).collect();
        let mut requests: Vec<String> = Vec::new();
        for at in kept {
            let prepared = self.groups.get(*at);
            if prepared.values.iter().any(groups::of_configuration) {
                continue;
            }
            for request in &prepared.group.requests {
                let name = |text: &String| text.rsplit_once('=').map(|(name, _)| name.to_owned());
                requests.retain(|other| name(other) != name(request));
                requests.push(request.clone());
            }
        }
        let cgroup = match self.target.servers.first() {
            _ if configuration.iter().any(groups::of_instances) => {
                Err("each instance has a control group of its own".to_owned())
            }
            Some(server) => policy::cgroup_of_process(&Folder::live(), server.pid),
            None => Err("the server has no process".to_owned()),
        };
        Kept { configuration, requests, cgroup }
    }

    /// Restores everything.
    pub(super) fn end(self) -> Result<Undone, RunningError> {
        Ok(self.changes.end()?)
    }
}

impl Bed for RunningBed<'_> {
    type Error = RunningError;

    fn offers(
        &mut self,
        kept: &[Candidate],
        raced: &BTreeSet<Candidate>,
    ) -> Result<Vec<Candidate>, RunningError> {
        if kept.len() > self.looked {
            self.looked = kept.len();
            self.make(kept)?;
            let name = self.name(kept);
            (self.watch)(&Event::Profile { name: &name });
            let evidence = self.traffic.evidence(&self.target)?;
            let new: Vec<Candidate> = candidates::of_findings(evidence.findings())
                .into_iter()
                .filter_map(|group| self.groups.add(self.target.narrowed(group), self.config, self.machine))
                .collect();
            self.order.splice(0..0, new);
        }
        let now = self.groups.values(kept);
        let fresh = |at: &&Candidate| {
            let with = [kept, &[**at]].concat();
            !kept.contains(at) && !raced.contains(at) && self.groups.values(&with) != now
        };
        Ok(self.order.iter().filter(fresh).copied().collect())
    }

    fn has_other_load(&self) -> bool {
        self.traffic.other_load().is_some()
    }

    fn trial(&mut self, on: &[Candidate], under: Under) -> Result<f64, Trouble<RunningError>> {
        if self.on != on {
            self.make(on).map_err(|error| Trouble::Candidate(Report::new(error).to_string()))?;
            self.traffic.warm().map_err(Trouble::Fatal)?;
        }
        let mut untrue = 0;
        let result = loop {
            let measured = self.traffic.trial(&self.target, &self.interfaces, on, under);
            if self.stop.load(Ordering::Relaxed) {
                return Err(Trouble::Fatal(RunningError::Interrupted));
            }
            if !self.target.is_there() {
                return Err(Trouble::Fatal(RunningError::Gone(self.target.name())));
            }
            match measured {
                Ok(Ok(result)) => break Some(result),
                Ok(Err(Refused::Change(why))) => return Err(Trouble::Candidate(why)),
                Ok(Err(Refused::Trial(why))) => {
                    untrue += 1;
                    self.refused = (self.refused.0 + 1, Some(why.clone()));
                    if untrue == UNTRUE && on.is_empty() && !self.trials.contains_key(&(under, Vec::new())) {
                        // Not even what was found can be measured: no change will be shown to help.
                        return Err(Trouble::Fatal(RunningError::Untrue(why)));
                    }
                    if untrue == UNTRUE {
                        return Err(Trouble::Candidate(format!(
                            "{UNTRUE} trials in a row were refused: {why}"
                        )));
                    }
                }
                Err(RunningError::Silent(_)) => break None,
                Err(error) => return Err(Trouble::Fatal(error)),
            }
        };
        let tps = result.as_ref().map_or(0.0, Measured::figure);
        let trials = self.trials.entry((under, on.to_vec())).or_default();
        match &result {
            Some(Measured::Live(seen)) => trials.add_seen(seen),
            Some(Measured::Load(result)) => trials.add(Some(result)),
            None => trials.add(None),
        }
        let (_, name, blocks) = &self.racing;
        (self.watch)(&Event::Trial { name, tps, blocks: *blocks, interval: None });
        Ok(tps)
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn screens(&mut self, candidate: Candidate, left: usize) {
        let name = format!("screening {}", self.name(&[candidate]));
        let steps = self.groups.len().max(left);
        (self.watch)(&Event::Rung { step: steps - left + 1, steps, name: &name, against: None });
        (self.racing.1, self.racing.2) = (name, (0, 1));
    }

    fn begins(&mut self, race: &Race) {
        let against = self.name(&race.a);
        let name = match race.purpose {
            Purpose::Try(_) | Purpose::Gain => self.name(&race.b),
            Purpose::Hold(candidate) => self.name_of_hold(candidate),
            Purpose::Without(candidate) => format!("without {}", self.name(&[candidate])),
        };
        let step = self.racing.0 + 1;
        self.racing = (step, name.clone(), (0, self.config.bound.most_blocks()));
        let steps = self.groups.len().max(step);
        (self.watch)(&Event::Rung { step, steps, name: &name, against: Some(&against) });
    }

    fn goes_on(&mut self, race: &Race, comparison: &Comparison, bound: Bound) {
        let blocks = (comparison.blocks(), bound.most_blocks());
        self.racing.2 = blocks;
        let tps = race.trials[1].last().copied().unwrap_or(0.0);
        (self.watch)(&Event::Trial { name: &self.racing.1, tps, blocks, interval: comparison.interval() });
    }

    fn ends(&mut self, race: &Race) {
        let rung = self.rung(race);
        (self.watch)(&Event::Done(&rung));
    }
}
