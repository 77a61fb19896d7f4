//! A result as a row of the history: what it is a run of, where it was measured, and its three metrics.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use udpath_advise::ProfileResult;
use udpath_advise::result::{BoostResult, Verdict};
use udpath_load::origin::Origin;
use udpath_load::result::LoadResult;

/// Longest name of a run, characters. Longer: the tables have no room for figures.
const MAX_NAME: usize = 64;

/// A run of the history.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Run {
    /// Its number, which is never given again.
    pub id: i64,
    /// `boost`, `load` or `profile`.
    pub kind: String,
    /// Its name; empty if it was given none. Runs of different names are of different series.
    pub name: String,
    /// What was measured, in words: two runs of one load have the same.
    pub load: String,
    /// When and where.
    pub origin: Origin,
    /// Transactions per second; of one-way loads datagrams, of profiles datagrams received and sent.
    pub tps: Option<f64>,
    /// 99th percentile of latency, nanoseconds.
    pub p99: Option<f64>,
    /// CPU time of the whole machine per transaction, nanoseconds; of profiles per datagram.
    pub cpu: Option<f64>,
}

/// A result to add.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    /// The row; its id is not used.
    pub(crate) run: Run,
    /// The result as JSON.
    pub(crate) json: String,
}

/// Why a result cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// It does not say when and where it was measured.
    #[error(
        "it does not say when and on which machine it was measured: measure again, or give its date with --at to keep \
         it as measured here"
    )]
    NoOrigin,
    /// Its name is not one.
    #[error("invalid name '{}': expected at most {MAX_NAME} characters, without control characters", name.escape_debug())]
    Name {
        /// The name.
        name: String,
    },
}

impl NewRun {
    /// A run of a load. `origin`: where it was measured if the result does not say.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn of_load(result: &LoadResult, name: &str, origin: Option<Origin>) -> Result<Self, RunError> {
        // Without the interface that the kernel engine names: labs make up new ones.
        let arrivals =
            result.arrivals.split_once(", XDP on ").map_or(&*result.arrivals, |(process, _)| process);
        let load = format!(
            "{} {} over {} to {}, {} engine, {arrivals}, {} flows, {} bytes",
            result.protocol,
            result.mode,
            result.transport,
            result.targets.join(", "),
            result.engine,
            result.flows,
            result.size
        );
        let latency = result.intended_latency.as_ref().or(result.sent_latency.as_ref());
        let busy = result.busy_cpus();
        let cpu = (busy > 0.0 && result.tps > 0.0).then(|| busy * 1e9 / result.tps);
        let figures = Figures { tps: Some(result.tps), p99: latency.map(|latency| latency.p99 as f64), cpu };
        Self::new("load", name, load, result.origin.clone().or(origin), figures, result)
    }

    /// A climb: the figures of its best rung.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn of_boost(result: &BoostResult, name: &str, origin: Option<Origin>) -> Result<Self, RunError> {
        let load = &result.load;
        // Older results have none, and keep their series.
        let protocol = match load.protocol.as_str() {
            "" | "echo" => String::new(),
            other => format!(" {other},"),
        };
        let load = format!(
            "best rung,{} {} engine, {} flows, {} in flight, {} bytes, trials of {} s; {}",
            protocol,
            load.engine,
            load.flows,
            load.inflight,
            load.size,
            load.trial_seconds,
            result.machine.link
        );
        let ran = |verdict| verdict != Verdict::Failed;
        let best = result.rungs.iter().rev().find(|rung| rung.name == result.best && ran(rung.verdict));
        let figures = Figures {
            tps: best.map(|rung| rung.tps),
            p99: best.and_then(|rung| rung.latency.as_ref()).map(|latency| latency.p99 as f64),
            cpu: best.map(|rung| rung.cpu_ns_per_transaction),
        };
        // A climb says when and where since before origins.
        let known = || Origin {
            at: result.started,
            version: result.version.clone(),
            cpu_model: result.machine.cpu_model.clone(),
            cpus: result.machine.cpus,
            kernel: result.machine.kernel.clone(),
            ..Origin::default()
        };
        let origin = result.origin.clone().or(origin).unwrap_or_else(known);
        Self::new("boost", name, load, Some(origin), figures, result)
    }

    /// A profile: its CPU time per datagram.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn of_profile(result: &ProfileResult, name: &str, origin: Option<Origin>) -> Result<Self, RunError> {
        let profile = &result.profile;
        let load = match profile.facts.focus.port {
            Some(port) => format!("the server of port {port}"),
            None if profile.facts.focus.pids.is_empty() => "the whole machine".to_owned(),
            None => "one process".to_owned(),
        };
        let handled = profile.datagrams.map(|counted| counted.handled() as f64 / profile.seconds.max(1e-9));
        let figures = Figures { tps: handled, p99: None, cpu: profile.per_datagram(profile.charged()) };
        Self::new("profile", name, load, result.origin.clone().or(origin), figures, result)
    }

    fn new(
        kind: &str,
        name: &str,
        load: String,
        origin: Option<Origin>,
        figures: Figures,
        result: &impl Serialize,
    ) -> Result<Self, RunError> {
        check_name(name)?;
        let origin = origin.ok_or(RunError::NoOrigin)?;
        let sane = |figure: Option<f64>| figure.filter(|value| value.is_finite() && *value >= 0.0);
        let Figures { tps, p99, cpu } = figures;
        let run = Run {
            id: 0,
            kind: kind.to_owned(),
            name: name.to_owned(),
            load,
            origin,
            tps: sane(tps),
            p99: sane(p99),
            cpu: sane(cpu),
        };
        // Result types contain only strings, numbers, lists and options; none of those can fail.
        let json = serde_json::to_string(result).unwrap_or_default();
        Ok(Self { run, json })
    }

    /// Keeps the text that the result was read from instead, if it is one line, as written by `--json`: so it is known
    /// again, and loses no digit.
    #[must_use]
    pub fn with_text(self, text: String) -> Self {
        if text.contains(['\n', '\r']) { self } else { Self { json: text, ..self } }
    }
}

/// Checks the name of a series; the empty one is valid.
///
/// # Errors
/// It is long, or has control characters.
pub fn check_name(name: &str) -> Result<(), RunError> {
    if name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(RunError::Name { name: name.chars().take(2 * MAX_NAME).collect() });
    }
    Ok(())
}

struct Figures {
    tps: Option<f64>,
    p99: Option<f64>,
    cpu: Option<f64>,
}

/// Settings as six hexadecimal digits, so that a table can show whether they changed; empty without any.
#[must_use]
pub fn fingerprint(settings: &BTreeMap<String, String>) -> String {
    if settings.is_empty() {
        return String::new();
    }
    let mut hash = Sha256::new();
    for (name, value) in settings {
        // Lengths first: no two different maps are the same text.
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update((value.len() as u64).to_le_bytes());
        hash.update(value);
    }
    hash.finalize().iter().take(3).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_differ_in_their_fingerprints() {
        let of = |pairs: &[(&str, &str)]| {
            fingerprint(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
        };
        assert_eq!(of(&[("a", "1"), ("b", "2")]), of(&[("b", "2"), ("a", "1")]));
        assert_ne!(of(&[("a", "1")]), of(&[("a", "2")]));
        assert_ne!(of(&[("a", "1b")]), of(&[("a1", "b")]));
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[("a", "1")]).len(), 6);
    }
}
