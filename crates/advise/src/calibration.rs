//! Calibration: the costs of this machine, for predictions about it and about others.
//!
//! ```text
//!   micro.rs   single operations: a line, a lock, a call, a wake-up, copies, TCP over loopback
//!   rungs.rs   a few rungs of the ladder in a lab, and the profile of one
//!   shares.rs  its classes of CPU time as costs of the model
//!      └─▸ fit.rs: what is left to find, so that the model carries what those rungs carried ─▸ Costs
//! ```
//! Four rungs on all CPUs that it uses are calibrated on, and one on a single CPU is predicted: its deviation is the
//! error that the costs report. Nothing published is used.

mod fit;
mod micro;
mod rungs;
mod shares;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use udpath_load::template::Protocol;
use udpath_model::Costs;
use udpath_serve::Io;

use crate::Error;
pub(crate) use rungs::in_lab;
pub use rungs::{LabRung, Measured, Measurer};

/// Most CPUs that are calibrated on. More: queues and workers beyond it add nothing to what a few show, and take time.
const MOST_CPUS: usize = 8;
/// Datagrams per call of the batched rung.
const BATCH: usize = 32;

/// How to calibrate.
#[derive(Debug, Clone)]
pub struct CalibrationConfig {
    /// The program whose `serve` runs the servers: this one.
    pub program: PathBuf,
    /// Length of a trial.
    pub trial: Duration,
    /// Trials of each rung, of which the median counts.
    pub trials: usize,
}

/// Costs, and how well they reproduce the rungs that they come from.
#[derive(Debug, Clone)]
pub struct Calibrated {
    /// The costs.
    pub costs: Costs,
    /// Each rung, what it carried, and what the model says.
    pub checks: Vec<Check>,
}

/// A rung measured, and modelled with the costs found.
#[derive(Debug, Clone)]
pub struct Check {
    /// The rung, and its trials.
    pub measured: Measured,
    /// Transactions per second.
    pub modelled: f64,
}

impl Check {
    /// How far the model is off, as a share.
    #[must_use]
    pub fn off(&self) -> f64 {
        self.modelled / self.measured.tps.max(1.0) - 1.0
    }
}

/// The rungs that costs are fitted to, the profiled one first; and the one that they then predict.
#[must_use]
pub fn calibration_rungs(cpus: usize) -> Vec<LabRung> {
    let queues = cpus as u32;
    let base = LabRung { io: Io::Reuseport, cpus, queues, rps: false, batch: 1 };
    let alone = LabRung { cpus: 1, queues: 1, ..base };
    let batched = LabRung { batch: BATCH, ..base };
    match cpus {
        0 | 1 => vec![base, batched],
        _ => vec![base, batched, LabRung { io: Io::Shared, ..base }, LabRung { rps: true, ..base }, alone],
    }
}

/// Calibrates on this machine. `watch` gets what is being done, in a few words.
///
/// # Errors
/// A lab, a load or a profile that is not possible here (it needs root), or `stop`.
pub fn calibrate(
    config: &CalibrationConfig,
    protocol: &dyn Protocol,
    watch: &mut dyn FnMut(&str),
    stop: &AtomicBool,
) -> Result<Calibrated, Error> {
    let online = udpath_lab::online_cpus()?;
    let cpus = online.len().min(MOST_CPUS);
    watch("single operations");
    let micro = micro::Micro::measure(&online).map_err(|cause| Error::Operation { cause })?;
    let rungs = calibration_rungs(cpus);
    let mut measured = Vec::with_capacity(rungs.len());
    let mut shares = None;
    // One lab for each number of CPUs and queues.
    for group in rungs.chunk_by(|a, b| (a.cpus, a.queues) == (b.cpus, b.queues)) {
        let measurer = Measurer::new(config, protocol, group[0].cpus, group[0].queues)?;
        measured.extend(measurer.measure(group, watch, stop)?);
        if shares.is_none() {
            watch(&format!("profile of {}", group[0].name()));
            shares = Some(measurer.profile(&group[0], stop)?);
        }
    }
    let shares = shares.ok_or(Error::NothingSampled)?;
    watch("fitting");
    Ok(fit::fit(&micro, &shares, &measured))
}
