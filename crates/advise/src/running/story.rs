//! From races to the result that reports render.

use udpath_load::plan::Arrivals;
use udpath_load::result::Counts;

use udpath_host::shell::quoted;
use udpath_tune::Value;
use udpath_tune::settings::Setting;

use super::bed::{AS_FOUND, RunningBed};
use super::groups::Prepared;
use super::{LoadConfig, RunningConfig, Start, Traffic};
use crate::diagnosis::Diagnosis;
use crate::machine::{facts, line_rate_10g, mean_size, wire_bytes};
use crate::result::{
    BoostResult, Helps, LIVE, LoadSummary, Profiles, Ratio, RungDiagnosis, RungResult, Running, SCHEMA,
    Verdict,
};
use crate::search::{Candidate, Found, Purpose, Race, Under};
use crate::trial::Trials;

/// What the last rung is called.
const ALL_KEPT: &str = "all kept";
/// Ratio of what was not measured.
const NOTHING: Ratio = Ratio { ratio: 0.0, low: 0.0, high: 0.0 };
/// Ratio of a set to itself.
const SAME: Ratio = Ratio { ratio: 1.0, low: 1.0, high: 1.0 };

/// The whole result.
pub(super) fn result(
    config: &RunningConfig,
    bed: &RunningBed<'_>,
    found: &Found,
    profiles: Option<Profiles>,
    start: &Start,
) -> BoostResult {
    let mut rungs = vec![base(bed)];
    rungs.extend(found.races.iter().zip(held(&found.races)).map(|(race, held)| {
        let rung = bed.rung(race);
        RungResult { kept: rung.kept && held, ..rung }
    }));
    let helps = |at: &Candidate| {
        let prepared = bed.groups.get(*at);
        let without = |race: &&Race| race.purpose == Purpose::Without(*at);
        Helps {
            name: prepared.group.name.clone(),
            what: prepared.group.what.clone(),
            // As requested: threads and sockets by their port, a configuration by its knobs, so that they hold after a
            // restart.
            settings: prepared.group.requests.clone(),
            shell: shell(prepared, config.restart.as_deref()),
            contribution: found.races.iter().find(without).and_then(|race| race.ratio).map(inverse),
        }
    };
    let interface = bed.interfaces.1.clone();
    let queues = bed.evidence.map.interfaces.iter().find(|found| found.name == interface);
    let queues = queues.map_or(1, |found| found.rx_queues as u32);
    BoostResult {
        schema: SCHEMA.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started: start.started,
        seconds: start.begin.elapsed().as_secs_f64(),
        machine: facts(queues, link(bed, queues)),
        load: summary(&config.traffic),
        rungs,
        left_out: bed.groups.left_out.clone(),
        best: if found.kept.is_empty() { AS_FOUND } else { ALL_KEPT }.to_owned(),
        gain: found.gain.unwrap_or(SAME),
        duets: None,
        warnings: warnings(bed, found),
        command: config.command.clone(),
        profiles,
        origin: None,
        diagnoses: diagnoses(bed),
        running: Some(Running {
            server: bed.target.name(),
            pids: bed.target.pids(),
            port: bed.target.port,
            interface,
            findings: bed.evidence.findings().cloned().collect(),
            kept: found.kept.iter().map(helps).collect(),
            restart: config.restart.clone(),
            applies: Vec::new(),
            fleeting: Vec::new(),
            screened: u32::try_from(found.screened).unwrap_or(u32::MAX),
            out_of_time: found.out_of_time,
            refused_trials: bed.refused.0,
        }),
    }
}

/// What sets a group. Files of a configuration have secrets, and are asked for by their knobs, with the restart.
fn shell(prepared: &Prepared, restart: Option<&str>) -> Vec<String> {
    let is_file = |(setting, _): &&(Setting, Value)| matches!(setting, Setting::Config(_));
    if !prepared.values.iter().any(|value| is_file(&value)) {
        return prepared.values.iter().map(|(setting, value)| setting.shell(value)).collect();
    }
    let set: String = prepared.group.requests.iter().map(|request| format!(" --set {request}")).collect();
    let restart = restart.map_or_else(String::new, |restart| format!(" --restart {}", quoted(restart)));
    vec![format!("udpath apply{set}{restart} --allow config --allow restart")]
}

/// Of each race, whether its second side did not lose under the other load right after it.
fn held(races: &[Race]) -> impl Iterator<Item = bool> {
    let next = races.iter().skip(1).map(Some).chain([None]);
    let lost = |next: Option<&Race>| {
        next.is_some_and(|race| race.purpose.under() == Under::OtherLoad && race.loses())
    };
    next.map(move |next| !lost(next))
}

/// What the server was measured under.
fn summary(traffic: &Traffic) -> LoadSummary {
    match traffic {
        Traffic::Load(load) => {
            let LoadConfig { plan, engine, protocol, .. } = &**load;
            let size = mean_size(&**protocol, plan.size);
            let ipv6 = plan.targets.iter().any(std::net::SocketAddr::is_ipv6);
            LoadSummary {
                protocol: protocol.name().to_owned(),
                engine: engine.to_string(),
                flows: plan.flows,
                inflight: match plan.arrivals {
                    Arrivals::Closed { inflight } => inflight * plan.flows,
                    Arrivals::Open { .. } | Arrivals::Ramp { .. } => 0,
                },
                size,
                wire_bytes: wire_bytes(size, ipv6),
                line_rate_tps: line_rate_10g(size, ipv6),
                trial_seconds: plan.duration.as_secs_f64(),
            }
        }
        Traffic::Live(length) => LoadSummary {
            protocol: String::new(),
            engine: LIVE.into(),
            flows: 0,
            inflight: 0,
            size: 0,
            wire_bytes: 0,
            line_rate_tps: 0.0,
            trial_seconds: length.as_secs_f64(),
        },
    }
}

/// What limited the server as found, and with everything that was kept.
fn diagnoses(bed: &RunningBed<'_>) -> Vec<RungDiagnosis> {
    let found = Some((AS_FOUND, &bed.evidence.diagnosis));
    let last = bed.at_last.as_ref().map(|diagnosis| (ALL_KEPT, diagnosis));
    let of = |(rung, diagnosis): (&str, &Diagnosis)| RungDiagnosis {
        rung: rung.to_owned(),
        diagnosis: diagnosis.clone(),
    };
    found.into_iter().chain(last).map(of).collect()
}

/// What was measured without any change.
fn base(bed: &RunningBed<'_>) -> RungResult {
    let change = format!("{} on port {}, nothing changed", bed.target.name(), bed.target.port);
    filled(bed, (Under::Load, &[]), AS_FOUND.to_owned(), change)
}

impl RunningBed<'_> {
    /// A race as a rung: its second side.
    pub(super) fn rung(&self, race: &Race) -> RungResult {
        let (name, change) = match race.purpose {
            Purpose::Try(at) => {
                let group = &self.groups.get(at).group;
                (group.name.clone(), group.what.clone())
            }
            Purpose::Hold(at) => {
                let other = self.traffic.other_load().map_or(0, |plan| plan.flows);
                (self.name_of_hold(at), format!("the same under another load, {other} flows"))
            }
            Purpose::Without(at) => {
                let name = &self.groups.get(at).group.name;
                (format!("-{name}"), format!("everything kept so far, without {name}"))
            }
            Purpose::Gain => (ALL_KEPT.to_owned(), "everything that was kept, measured again".to_owned()),
        };
        let ratio = race.ratio.unwrap_or(NOTHING);
        let kept = match race.purpose {
            Purpose::Try(_) | Purpose::Gain => race.verdict == Verdict::Better,
            Purpose::Hold(_) => !race.loses(),
            Purpose::Without(_) => race.leaves_out(),
        };
        let mut rung = filled(self, (race.purpose.under(), &race.b), name, change);
        rung.note = race.note.clone().or(rung.note);
        RungResult {
            ratio: ratio.ratio,
            ratio_low: ratio.low,
            ratio_high: ratio.high,
            verdict: race.verdict,
            kept,
            other_load: race.purpose.under() == Under::OtherLoad,
            against: Some(self.name(&race.a)),
            ..rung
        }
    }
}

/// The figures of all trials of a set.
fn filled(
    bed: &RunningBed<'_>,
    (under, on): (Under, &[Candidate]),
    name: String,
    change: String,
) -> RungResult {
    let none = Trials::default();
    let trials = bed.trials.get(&(under, on.to_vec())).unwrap_or(&none);
    let tps = trials.median_tps();
    // Of live traffic the sizes are not known.
    let load = summary(&bed.config.traffic);
    let share = if load.line_rate_tps > 0.0 { tps / load.line_rate_tps } else { 0.0 };
    RungResult {
        name,
        change,
        settings: bed
            .groups
            .values(on)
            .iter()
            .map(|(setting, value)| (setting.to_string(), value.to_string()))
            .collect(),
        tps,
        wire_mbits: tps * f64::from(load.wire_bytes) * 8.0 / 1e6,
        line_share: share,
        ratio: SAME.ratio,
        ratio_low: SAME.low,
        ratio_high: SAME.high,
        verdict: Verdict::Base,
        kept: true,
        other_load: false,
        in_turn: None,
        against: None,
        trials: trials.tps.clone(),
        counts: if trials.tps.is_empty() { Counts::default() } else { trials.counts },
        loss: trials.counts.loss(),
        latency: trials.latency.clone(),
        cpu_ns_per_transaction: trials.cpu_ns_per_transaction(),
        cpus: trials.cpus(),
        note: (!trials.warnings.is_empty()).then(|| trials.warnings.join("; ")),
    }
}

/// The other way round.
fn inverse(ratio: Ratio) -> Ratio {
    Ratio { ratio: 1.0 / ratio.ratio, low: 1.0 / ratio.high, high: 1.0 / ratio.low }
}

/// Where the load arrives.
fn link(bed: &RunningBed<'_>, queues: u32) -> String {
    let (out, there) = &bed.interfaces;
    let live = matches!(bed.config.traffic, Traffic::Live(_));
    let kind = bed.evidence.map.interfaces.iter().find(|found| found.name == *there);
    let kind = kind.map_or_else(String::new, |found| format!(" ({}, {queues} receive queues)", found.kind));
    if live {
        format!("received on {there}{kind}")
    } else {
        format!("sent on {out}, received on {there}{kind}")
    }
}

/// Caveats that apply to all figures.
fn warnings(bed: &RunningBed<'_>, found: &Found) -> Vec<String> {
    let mut warnings = vec![
        match bed.config.traffic {
            Traffic::Load(_) => {
                "load generator and server share this machine's CPUs; compare rungs, not absolute rates"
            }
            Traffic::Live(_) => {
                "CPU time of softirqs and interrupts is all of this machine's; compare rungs, not absolute rates"
            }
        }
        .to_owned(),
    ];
    if found.out_of_time {
        warnings.push(
            "the budget ended the search: not every candidate was tried; --budget gives it more".into(),
        );
    }
    warnings.extend(bed.traffic.unmeasured());
    if let (refused, Some(why)) = &bed.refused {
        let trials = if *refused == 1 { "1 trial was" } else { "some trials were" };
        warnings.push(format!("{trials} refused ({refused} in all): {why}"));
    }
    warnings
}
