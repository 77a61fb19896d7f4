//! The bed of a search on a running server: makes a set of candidates effective, and measures the server under it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use error_reporter::Report;
use udpath_host::namespace::{Place, inside};
use udpath_load::Progress;
use udpath_load::plan::Plan as LoadPlan;
use udpath_load::result::LoadResult;
use udpath_load::template::Protocol;
use udpath_profile::facts::Focus;
use udpath_tune::plan::PlanError;
use udpath_tune::settings::Setting;
use udpath_tune::temporary::TemporaryError;
use udpath_tune::undo::Undone;
use udpath_tune::{Live, Plan, SettingRequest, Temporary, Value};

use super::candidates::{self, Group};
use super::evidence::{self, Evidence};
use super::target::Target;
use super::truth::{Counters, Packets, Places};
use super::{RunningConfig, RunningError, consent};
use crate::config::Event;
use crate::result::{LeftOut, Profiles};
use crate::search::{Bed, Candidate, Purpose, Race, Trouble};
use crate::statistics::{Bound, Comparison};
use crate::trial::Trials;

/// Load before a trial that follows a change, as a share of the trial's length, and its bounds. Shorter: the trial measures the
/// change itself. Longer: time that could go into more trials.
const WARMUP_SHARE: f64 = 0.2;
const WARMUP: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Limit of the load during which evidence is collected; it normally ends with the sampling. Shorter: on a large machine
/// reading the kernel's symbols takes seconds.
const EVIDENCE: Duration = Duration::from_secs(30);
/// Trials in a row that may be refused because the places do not agree. Fewer: one burst of somebody's traffic ends a race.
/// More: a path that loses keeps a race going for long.
const UNTRUE: usize = 3;
/// What the rung without any change is called.
pub(super) const AS_FOUND: &str = "as found";

/// A group, resolved against the machine.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) group: Group,
    /// What it sets, in the order in which it is written.
    pub(super) values: Vec<(Setting, Value)>,
}

/// The bed.
pub(super) struct RunningBed<'a> {
    pub(super) config: &'a RunningConfig,
    protocol: &'a dyn Protocol,
    machine: &'a Live,
    changes: Temporary<'a>,
    watch: &'a mut (dyn FnMut(&Event<'_>) + Send),
    stop: &'a AtomicBool,
    deadline: Instant,
    from: Place,
    pub(super) target: Target,
    /// The interfaces that the load leaves by and arrives on.
    pub(super) interfaces: (String, String),
    /// As found.
    pub(super) evidence: Evidence,
    pub(super) groups: Vec<Prepared>,
    /// Places in `groups`, in the order in which they are tried.
    order: Vec<Candidate>,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) trials: BTreeMap<Vec<Candidate>, Trials>,
    /// In effect.
    on: Vec<Candidate>,
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
        protocol: &'a dyn Protocol,
        machine: &'a Live,
        changes: Temporary<'a>,
        watch: &'a mut (dyn FnMut(&Event<'_>) + Send),
        stop: &'a AtomicBool,
    ) -> Result<Self, RunningError> {
        // `Here` is where the caller was before it entered the server's namespace.
        let from = match (&config.from, &config.place) {
            (Place::Here, Place::Here) => Place::Here,
            (Place::Here, _) => Place::Process(std::process::id()),
            (from, _) => from.clone(),
        };
        let target = Target::find(config.served)?;
        let load = Load { config, protocol, from: &from, stop };
        let (there, here) = (Counters::read(), inside(&from, Counters::read)?);
        load.run(&LoadPlan { duration: warmup(&config.plan), ..config.plan.clone() })?;
        let (there_now, here_now) = (Counters::read(), inside(&from, Counters::read)?);
        let silent = || RunningError::Silent(target.name());
        let interfaces = (
            here_now.busiest(&here, |packets| packets.sent).ok_or_else(silent)?,
            there_now.busiest(&there, |packets| packets.received).ok_or_else(silent)?,
        );
        watch(&Event::Profile { name: AS_FOUND });
        let evidence = load.evidence(&target)?;
        let mut bed = Self {
            config,
            protocol,
            machine,
            changes,
            watch,
            stop,
            deadline: Instant::now(),
            from: from.clone(),
            target,
            interfaces,
            evidence,
            groups: Vec::new(),
            order: Vec::new(),
            left_out: Vec::new(),
            trials: BTreeMap::new(),
            on: Vec::new(),
            looked: 0,
            refused: (0, None),
            racing: (0, String::new(), (0, 0)),
        };
        let Evidence { snapshot, map, findings, .. } = &bed.evidence;
        let found = candidates::of_findings(findings);
        let offered = candidates::of_machine(snapshot, map, &bed.interfaces.1, &bed.target);
        for group in found.into_iter().chain(offered) {
            bed.add(group);
        }
        bed.order = (0..bed.groups.len()).collect();
        bed.deadline = Instant::now() + config.budget;
        Ok(bed)
    }

    /// Adds a group, unless it changes nothing, is there already, or cannot be tried.
    fn add(&mut self, group: Group) -> Option<Candidate> {
        let plan = match self.resolve(&group) {
            Ok(plan) => plan,
            Err(reason) => {
                self.left_out.push(LeftOut { name: group.name, reason });
                return None;
            }
        };
        let set = plan.changes.into_iter().map(|change| (change.setting, change.to));
        let mut values: Vec<(Setting, Value)> = set.chain(plan.already).collect();
        values.sort_by_key(|(setting, _)| setting.phase());
        let known = self.groups.iter().any(|other| other.values == values || other.group.name == group.name);
        if known {
            return None;
        }
        self.groups.push(Prepared { group, values });
        Some(self.groups.len() - 1)
    }

    /// What a group changes here; an error says why it cannot be tried.
    fn resolve(&self, group: &Group) -> Result<Plan, String> {
        let parsed: Result<Vec<SettingRequest>, PlanError> =
            group.requests.iter().map(|text| SettingRequest::parse(text, &group.what)).collect();
        let requests = parsed.map_err(|error| error.to_string())?;
        let mut allowed = BTreeSet::new();
        let plan = loop {
            match Plan::resolve(self.machine, requests.clone(), &consent(allowed.clone())) {
                Ok(plan) => break plan,
                Err(PlanError::Insecure { setting, .. })
                    if self.config.insecure && allowed.insert(setting.clone()) => {}
                Err(PlanError::Insecure { why, .. }) => {
                    return Err(format!("it lowers security: {why}; --allow security tries it"));
                }
                Err(error) => return Err(error.to_string()),
            }
        };
        Temporary::check(self.machine, &plan).map_err(|refusal| refusal.to_string())?;
        Ok(plan)
    }

    /// The values of a set of candidates, later ones over earlier ones.
    pub(super) fn values(&self, on: &[Candidate]) -> Vec<(Setting, Value)> {
        let mut values: Vec<(Setting, Value)> = Vec::new();
        for (setting, value) in on.iter().flat_map(|at| &self.groups[*at].values) {
            match values.iter_mut().find(|(other, _)| other == setting) {
                Some((_, old)) => *old = value.clone(),
                None => values.push((setting.clone(), value.clone())),
            }
        }
        values.sort_by_key(|(setting, _)| setting.phase());
        values
    }

    /// What a set of candidates is called.
    pub(super) fn name(&self, on: &[Candidate]) -> String {
        match on {
            [] => AS_FOUND.to_owned(),
            [.., last] => self.groups[*last].group.name.clone(),
        }
    }

    /// Makes exactly these effective.
    fn make(&mut self, on: &[Candidate]) -> Result<(), TemporaryError> {
        let values = self.values(on);
        let made = self.changes.set(&values);
        // After a failure nothing is known to be in effect.
        self.on = if made.is_ok() { on.to_vec() } else { vec![Candidate::MAX] };
        made
    }

    fn load(&self) -> Load<'_> {
        Load { config: self.config, protocol: self.protocol, from: &self.from, stop: self.stop }
    }

    /// One trial of what is in effect, refused if the counts of the places do not agree.
    fn measured(&self) -> Result<Result<LoadResult, String>, RunningError> {
        let (out, there) = (&self.interfaces.0, &self.interfaces.1);
        let (before, sender) = (Counters::read(), inside(&self.from, Counters::read)?);
        let result = self.load().run(&self.config.plan)?;
        let (after, sent) = (Counters::read(), inside(&self.from, Counters::read)?);
        let places = Places {
            generator: Packets { received: result.counts.received, sent: result.counts.sent },
            sender: (out.clone(), sent.since(&sender, out)),
            server: (there.clone(), after.since(&before, there)),
        };
        Ok(places.check().map(|()| result))
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
            match self.load().evidence(&self.target)?.profile {
                Ok(profile) => profiles.best = Some(profile),
                Err(reason) => profiles.absent = Some(format!("{name}: {reason}")),
            }
        }
        Ok(Some(profiles))
    }

    /// Restores everything.
    pub(super) fn end(self) -> Result<Undone, RunningError> {
        Ok(self.changes.end()?)
    }
}

impl Bed for RunningBed<'_> {
    type Error = RunningError;

    fn propose(
        &mut self,
        kept: &[Candidate],
        raced: &BTreeSet<Candidate>,
    ) -> Result<Option<Candidate>, RunningError> {
        if kept.len() > self.looked {
            self.looked = kept.len();
            self.make(kept)?;
            let name = self.name(kept);
            (self.watch)(&Event::Profile { name: &name });
            let evidence = self.load().evidence(&self.target)?;
            let new: Vec<Candidate> = candidates::of_findings(&evidence.findings)
                .into_iter()
                .filter_map(|group| self.add(group))
                .collect();
            self.order.splice(0..0, new);
        }
        let now = self.values(kept);
        let fresh = |at: &&Candidate| {
            let with = [kept, &[**at]].concat();
            !kept.contains(at) && !raced.contains(at) && self.values(&with) != now
        };
        Ok(self.order.iter().find(fresh).copied())
    }

    fn trial(&mut self, on: &[Candidate]) -> Result<f64, Trouble<RunningError>> {
        if self.on != on {
            self.make(on).map_err(|error| Trouble::Candidate(Report::new(error).to_string()))?;
            let warm = LoadPlan { duration: warmup(&self.config.plan), ..self.config.plan.clone() };
            // Not scored: a server that answers nothing shows in the trial.
            match self.load().run(&warm) {
                Ok(_) | Err(RunningError::Silent(_)) => {}
                Err(error) => return Err(Trouble::Fatal(error)),
            }
        }
        let mut untrue = 0;
        let result = loop {
            let measured = self.measured();
            if self.stop.load(Ordering::Relaxed) {
                return Err(Trouble::Fatal(RunningError::Interrupted));
            }
            if !self.target.is_there() {
                return Err(Trouble::Fatal(RunningError::Gone(self.target.name())));
            }
            match measured {
                Ok(Ok(result)) => break Some(result),
                Ok(Err(why)) => {
                    untrue += 1;
                    self.refused = (self.refused.0 + 1, Some(why.clone()));
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
        let tps = result.as_ref().map_or(0.0, |result| result.tps);
        self.trials.entry(on.to_vec()).or_default().add(result.as_ref());
        let (_, name, blocks) = &self.racing;
        (self.watch)(&Event::Trial { name, tps, blocks: *blocks, interval: None });
        Ok(tps)
    }

    fn has_time(&self) -> bool {
        Instant::now() < self.deadline
    }

    fn begins(&mut self, race: &Race) {
        let against = self.name(&race.a);
        let name = match race.purpose {
            Purpose::Try(_) | Purpose::Gain => self.name(&race.b),
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
        let rung = super::story::rung(self, race);
        (self.watch)(&Event::Done(&rung));
    }
}

/// Length of the load before a trial that follows a change.
fn warmup(plan: &LoadPlan) -> Duration {
    plan.duration.mul_f64(WARMUP_SHARE).clamp(WARMUP.0, WARMUP.1)
}

/// Runs the load where it is sent from.
struct Load<'a> {
    config: &'a RunningConfig,
    protocol: &'a dyn Protocol,
    from: &'a Place,
    stop: &'a AtomicBool,
}

impl Load<'_> {
    fn run(&self, plan: &LoadPlan) -> Result<LoadResult, RunningError> {
        self.run_until(plan, &mut |_| (), self.stop)
    }

    fn run_until(
        &self,
        plan: &LoadPlan,
        watch: &mut (dyn FnMut(&Progress) + Send),
        stop: &AtomicBool,
    ) -> Result<LoadResult, RunningError> {
        let engine = self.config.engine;
        match inside(self.from, || udpath_load::run(plan, engine, self.protocol, watch, stop))? {
            Ok(result) if result.unanswered() => Err(RunningError::Silent(result.targets.join(", "))),
            Ok(result) => Ok(result),
            Err(udpath_load::Error::Cut { result, .. }) => Ok(*result),
            Err(udpath_load::Error::NoAnswer { .. }) => {
                let targets = plan.targets.iter().map(ToString::to_string).collect::<Vec<_>>();
                Err(RunningError::Silent(targets.join(", ")))
            }
            Err(error) => Err(RunningError::Load(error)),
        }
    }

    fn evidence(&self, target: &Target) -> Result<Evidence, RunningError> {
        let focus = Focus { port: Some(target.port), pids: target.pids() };
        let plan = LoadPlan { duration: EVIDENCE, ..self.config.plan.clone() };
        evidence::under_load(focus, self.stop, |watch, over| self.run_until(&plan, watch, over).map(drop))
    }
}
