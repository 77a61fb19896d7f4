//! A climb from its configuration to its result, in a lab of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use udpath_lab::{Lab, LabBuilder, LinkSpec, NapiGuard, online_cpus};
use udpath_load::Engine;
use udpath_load::template::Protocol;

use crate::climb::{Climb, ClimbResult, FIRST_PORT};
use crate::config::{Config, Event};
use crate::ladder::Step;
use crate::machine::{facts, line_rate_10g, mean_size, wire_bytes};
use crate::result::{BoostResult, Duets, LoadSummary, SCHEMA};
use crate::server_under_test::{CLIENT, FAST, NARROW, RSS_OFF, SERVER};
use crate::{ConfigError, Error, trial};

impl Config {
    /// Checks that the configuration is within its limits.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.ladder.is_empty() {
            return Err(ConfigError::NoRung);
        }
        // Queues before workers, whose default is derived from them.
        self.blueprint().blueprint()?;
        if !(1..=1024).contains(&self.workers) {
            return Err(ConfigError::Workers(self.workers));
        }
        let seconds = self.trial.as_secs_f64();
        if !(0.05..=3600.0).contains(&seconds) {
            return Err(ConfigError::Trial(seconds));
        }
        if let Some([one, other]) = &self.duet {
            let wanted = self.workers.max(self.queues as usize);
            let (has, disjoint) = (one.len().min(other.len()), one.iter().all(|cpu| !other.contains(cpu)));
            if has < wanted || !disjoint {
                return Err(ConfigError::Duet { has, wanted });
            }
        }
        if u64::from(self.flows) * u64::from(self.inflight) > 1 << 20 {
            return Err(ConfigError::InFlight { flows: self.flows, inflight: self.inflight });
        }
        trial::plan(self, ([192, 0, 2, 1], FIRST_PORT).into()).check()?;
        Ok(())
    }

    fn blueprint(&self) -> LabBuilder {
        let link = LinkSpec { moderation: self.moderation, ..LinkSpec::with_queues(self.queues) };
        let narrow_link = LinkSpec { queues: 1, ..link.clone() };
        let needs = |step: fn(Step) -> bool| self.ladder.iter().any(|rung| step(rung.step));
        let fast = FAST.map(|home| (home, &link)).into_iter().filter(|_| needs(Step::needs_xdp));
        let narrow =
            NARROW.map(|home| (home, &narrow_link)).into_iter().filter(|_| needs(Step::needs_one_queue));
        let rss_off = needs(|step| step == Step::RssOff).then_some((RSS_OFF, &narrow_link));
        let homes = std::iter::once((SERVER, &link)).chain(fast).chain(narrow).chain(rss_off);
        let sides = self.duet.as_ref().map_or(1, |sides| sides.len());
        homes
            .flat_map(|(home, link)| home.into_iter().take(sides).map(move |machine| (machine, link)))
            .fold(LabBuilder::new("boost").machine(CLIENT), |builder, (machine, link)| {
                builder.machine(machine).link(CLIENT, machine, link)
            })
    }
}

/// Climbs the ladder in a lab of its own, which is removed afterwards.
///
/// # Errors
/// An invalid configuration, a lab or a load that cannot be run here, or `stop`. If a server does not start, or the
/// machine rejects a setting, the rung fails; that is an error only for the first rung.
pub fn boost(
    config: &Config,
    protocol: &dyn Protocol,
    watch: &mut dyn FnMut(&Event<'_>),
    stop: &AtomicBool,
) -> Result<BoostResult, Error> {
    config.check()?;
    let begin = Instant::now();
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let lab = config.blueprint().up()?;
    if config.xps {
        spread(&lab, config)?;
    }
    let napi = napi(&lab, config)?;
    let climb = Climb { lab: &lab, config, protocol, stop, watch };
    let climbed = climb.run();
    drop(napi);
    let machine = facts(config.queues, link(config));
    let down = lab.down();
    let climbed = match climbed {
        // The signal may have reached a server first, whose end then looks like the cause.
        Err(_) if stop.load(Ordering::Relaxed) => {
            down?;
            return Err(Error::Interrupted);
        }
        climbed => climbed?,
    };
    down?;
    let ClimbResult { rungs, best, gain, profiles, diagnoses, warnings } = climbed;
    let size = mean_size(protocol, config.size);
    Ok(BoostResult {
        schema: SCHEMA.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started,
        seconds: begin.elapsed().as_secs_f64(),
        machine,
        load: LoadSummary {
            protocol: protocol.name().to_owned(),
            engine: config.engine.to_string(),
            flows: config.flows,
            inflight: config.flows * config.inflight,
            size,
            wire_bytes: wire_bytes(size, config.ipv6),
            line_rate_tps: line_rate_10g(size, config.ipv6),
            trial_seconds: config.trial.as_secs_f64(),
        },
        duets: config.duet.as_ref().map(|sides| Duets::new(sides, &rungs)),
        rungs,
        left_out: config.left_out.clone(),
        best,
        gain,
        warnings,
        command: config.command.clone(),
        profiles,
        diagnoses,
        running: None,
        origin: None,
    })
}

/// XPS on both ends of every link that has queues to map, for requests and replies alike; in duets, over the CPUs of
/// its side.
fn spread(lab: &Lab, config: &Config) -> Result<(), Error> {
    let all = online_cpus()?;
    for machine in lab.machines().iter().filter(|machine| machine.name() != CLIENT) {
        let cpus = config.duet.as_ref().map_or(&all, |sides| &sides[side_of(machine.name())]);
        for interface in [machine.towards(CLIENT)?, lab.machine(CLIENT)?.towards(machine.name())?] {
            if interface.queues() > 1 {
                interface.spread_xps_over(cpus)?;
            }
        }
    }
    Ok(())
}

/// The side of a server's machine.
fn side_of(machine: &str) -> usize {
    let homes = [SERVER, RSS_OFF].into_iter().chain(FAST).chain(NARROW);
    usize::from(homes.into_iter().any(|[_, other]| other == machine))
}

/// NAPI on the ends of servers over kernel sockets, so that they accept frames from the in-kernel loop; other engines
/// do not need it.
fn napi(lab: &Lab, config: &Config) -> Result<Vec<NapiGuard>, Error> {
    let sockets = [SERVER, RSS_OFF].concat();
    let servers = lab.machines().iter().filter(|machine| sockets.contains(&machine.name()));
    match config.engine {
        Engine::Kernel => servers.map(|machine| Ok(machine.towards(CLIENT)?.ensure_napi()?)).collect(),
        Engine::Socket | Engine::Xdp | Engine::XdpRings => Ok(Vec::new()),
    }
}

/// Description of the link between generator and server.
fn link(config: &Config) -> String {
    let plural = if config.queues == 1 { "queue" } else { "queues" };
    let moderation = match config.moderation {
        0 => "interrupts not moderated".to_owned(),
        microseconds => format!("interrupts moderated to one in {microseconds} us"),
    };
    let mapped = if config.xps && config.queues > 1 { "each CPU sends on its own (XPS), " } else { "" };
    format!("veth pair, {} {plural} each way, {mapped}{moderation}, two namespaces", config.queues)
}
