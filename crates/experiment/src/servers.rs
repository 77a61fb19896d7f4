//! Arms that are servers of udpath in a lab: each on one of its machines, with a load of its own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_advise::Error as AdviseError;
use udpath_advise::ladder::Settings;
use udpath_advise::test_bed::{Profiled, ServerUnderTest, TestBed};
use udpath_lab::{Lab, LabBuilder, LinkSpec, NapiGuard, online_cpus};
use udpath_load::Engine;
use udpath_load::plan::Plan;
use udpath_load::result::{Counts, LoadResult};
use udpath_protocols::echo::EchoLoad;
use udpath_steer::CpuSet;

pub(crate) use udpath_advise::test_bed::CLIENT;

use crate::arms::{Arms, Trial};
use crate::description::Description;
use crate::entry::{Context, Effort, Error};

/// First port of the servers: above the well-known ones, below the ephemeral range, and the lab has nothing else.
const FIRST_PORT: u16 = 7000;

/// Length of a trial in a test, and its warm-up: enough for some replies.
const LEAST: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(50)];

/// A server, where it runs, and the load that it gets.
pub(crate) struct ServerArm {
    /// Unique in the experiment.
    pub(crate) name: &'static str,
    /// The machine that it runs on.
    pub(crate) machine: &'static str,
    /// Its settings and those of its link's receive steering.
    pub(crate) settings: Settings,
    /// The CPUs of its RPS masks, instead of all.
    pub(crate) rps_cpus: Option<CpuSet>,
    /// Options of its service.
    pub(crate) service: &'static [&'static str],
    /// What sends its load.
    pub(crate) engine: Engine,
    /// Its load. The target is filled in.
    pub(crate) plan: Plan,
}

/// A target that each trial replaces.
pub(crate) const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);

/// Removes the arms of a machine that cannot be had; their names, which are those of their cases, with the reason.
pub(crate) fn without(arms: &mut Vec<ServerArm>, machine: &str, reason: &str) -> Vec<(String, String)> {
    let gone = arms.extract_if(.., |arm| arm.machine == machine);
    gone.map(|arm| (arm.name.to_owned(), reason.to_owned())).collect()
}

/// The machines of an experiment: the client, and one for each kind of link.
pub(crate) struct Bed {
    pub(crate) lab: Lab,
    _napi: Vec<NapiGuard>,
}

impl Bed {
    /// A lab with the client and these machines, each on a link of its own. Each CPU sends on its own queue (XPS),
    /// which on a veth selects the receiver's queue: it takes the place of RSS. Servers' ends have NAPI, so that they
    /// accept frames sent by XDP; `fast` machines turn it on themselves, by AF_XDP.
    pub(crate) fn up(
        name: &str,
        machines: &[(&'static str, LinkSpec)],
        fast: &[&'static str],
    ) -> Result<Self, udpath_lab::Error> {
        let builder =
            machines.iter().fold(LabBuilder::new(name).machine(CLIENT), |builder, (machine, link)| {
                builder.machine(*machine).link(CLIENT, *machine, link)
            });
        let lab = builder.up()?;
        let mut napi = Vec::new();
        for (machine, link) in machines {
            let server = lab.machine(machine)?.towards(CLIENT)?;
            if link.queues > 1 {
                server.spread_xps()?;
                lab.machine(CLIENT)?.towards(machine)?.spread_xps()?;
            }
            if !fast.contains(machine) {
                napi.push(server.ensure_napi()?);
            }
        }
        Ok(Self { lab, _napi: napi })
    }

    /// Queues of a link with a queue for each CPU, up to eight.
    pub(crate) fn queues() -> Result<u32, udpath_lab::Error> {
        Ok((online_cpus()?.len() as u32).clamp(1, 8))
    }
}

/// Where and how much is measured.
struct Place<'a> {
    lab: &'a Lab,
    program: &'a Path,
    effort: Effort,
    stop: &'a AtomicBool,
}

/// Servers that are started when they are first measured, and run to the end.
pub(crate) struct Servers<'a> {
    description: &'a Description,
    place: Place<'a>,
    protocol: EchoLoad,
    arms: Vec<ServerArm>,
    /// The arm that stands for a case, where it has another name.
    alias: fn(&str) -> &str,
    running: BTreeMap<&'static str, ServerUnderTest>,
    counts: BTreeMap<&'static str, Counts>,
}

impl<'a> Servers<'a> {
    pub(crate) fn new(
        description: &'a Description,
        context: &'a Context<'_>,
        lab: &'a Lab,
        arms: Vec<ServerArm>,
        alias: fn(&str) -> &str,
    ) -> Self {
        let (running, counts) = (BTreeMap::new(), BTreeMap::new());
        let place = Place { lab, program: &context.program, effort: context.effort, stop: context.stop };
        Self { description, place, protocol: EchoLoad::new(1), arms, alias, running, counts }
    }

    /// Requests and replies of all trials of an arm.
    pub(crate) fn counts(&self, arm: &str) -> Counts {
        self.counts.get(arm).copied().unwrap_or_default()
    }

    /// One trial of an arm; none if nothing was answered.
    pub(crate) fn run(&mut self, arm: &'static str) -> Result<Option<LoadResult>, Error> {
        let at = self.position(arm);
        self.start(at)?;
        let Some(server) = self.running.get_mut(arm) else { return Ok(None) };
        let spec = &self.arms[at];
        let bed = bed(&self.place, &self.protocol, spec);
        let result = bed.trial(server).map_err(|error| failed(self.description, arm, error))?;
        if let Some(result) = &result {
            self.counts.entry(arm).or_default().add(&result.counts);
        }
        Ok(result)
    }

    fn position(&self, arm: &str) -> usize {
        self.arms.iter().position(|spec| spec.name == arm).expect("arms are those of arm_of")
    }

    fn start(&mut self, at: usize) -> Result<(), Error> {
        let spec = &self.arms[at];
        if !self.running.contains_key(spec.name) {
            let service: Vec<OsString> = spec.service.iter().map(Into::into).collect();
            let port = FIRST_PORT + at as u16;
            let bed = bed(&self.place, &self.protocol, spec);
            let started = bed.start(spec.machine, port, spec.name, spec.settings, &service);
            let mut server = started.map_err(|error| failed(self.description, spec.name, error))?;
            if let Some(cpus) = &spec.rps_cpus {
                server.set_rps_cpus(cpus.clone());
            }
            self.running.insert(spec.name, server);
        }
        Ok(())
    }
}

/// The bed of one arm.
fn bed<'a>(place: &Place<'a>, protocol: &'a EchoLoad, spec: &ServerArm) -> TestBed<'a> {
    let &Place { lab, program, effort, stop } = place;
    let mut plan = spec.plan.clone();
    if effort == Effort::Least {
        [plan.duration, plan.warmup] = LEAST;
    }
    TestBed { lab, program, protocol, engine: spec.engine, plan, stop }
}

fn failed(description: &Description, arm: &str, error: AdviseError) -> Error {
    match error {
        AdviseError::Interrupted => Error::Interrupted,
        error => Error::measuring(description, arm, error),
    }
}

impl Arms for Servers<'_> {
    fn arm_of(&self, case: &str) -> Option<&'static str> {
        let name = (self.alias)(case);
        self.arms.iter().find(|arm| arm.name == name).map(|arm| arm.name)
    }

    fn trial(&mut self, arm: &'static str) -> Result<Trial, Error> {
        Ok(self.run(arm)?.map_or(Trial { figure: 0.0, cpu: None }, |result| Trial {
            figure: result.tps,
            cpu: busy(&result),
        }))
    }

    fn profile(&mut self, arm: &'static str) -> Result<Result<Profiled, String>, Error> {
        let at = self.position(arm);
        self.start(at)?;
        let Some(server) = self.running.get(arm) else { return Ok(Err("it does not run".to_owned())) };
        let bed = bed(&self.place, &self.protocol, &self.arms[at]);
        bed.profile(server).map_err(|error| failed(self.description, arm, error))
    }
}

/// Share of the machine's CPU time that was busy during a trial.
fn busy(result: &LoadResult) -> Option<f64> {
    let (idle, cpus) = (result.cpus.iter().map(|cpu| cpu.idle).sum::<f64>(), result.cpus.len());
    (cpus > 0).then(|| 1.0 - idle / cpus as f64)
}
