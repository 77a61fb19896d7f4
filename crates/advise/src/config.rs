//! The configuration of a climb, and the progress it reports.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use udpath_load::Engine;

use crate::ladder::Rung;
use crate::result::{LeftOut, Ratio, RungResult, Sides};
use crate::statistics::Bound;

/// Configuration of a climb.
#[derive(Debug, Clone)]
pub struct Config {
    /// The program whose `serve` runs the servers: this one.
    pub program: PathBuf,
    /// Options of the servers' service, such as its zone.
    pub service: Vec<OsString>,
    /// Receive and transmit queues of the link.
    pub queues: u32,
    /// Each CPU sends on its own queue of the link, at both ends (XPS): this stands for RSS. Needs root in the initial
    /// user namespace.
    pub xps: bool,
    /// Interrupt moderation of the link's ends, microseconds ([`udpath_lab::LinkSpec::moderation`]).
    pub moderation: u32,
    /// The rungs, in order, beginning with the base. See [`crate::ladder::ladder`].
    pub ladder: Vec<Rung>,
    /// Rungs left out of `ladder`, for the result.
    pub left_out: Vec<LeftOut>,
    /// Workers of each server.
    pub workers: usize,
    /// Payload bytes.
    pub size: usize,
    /// Flows.
    pub flows: u32,
    /// Requests in flight per flow.
    pub inflight: u32,
    /// Length of a trial without its warm-up.
    pub trial: Duration,
    /// When a comparison ends.
    pub bound: Bound,
    /// Trials in duets: the CPUs of each side, at least as many as there are workers and queues. None: trials in turn.
    pub duet: Option<Sides>,
    /// The load's engine.
    pub engine: Engine,
    /// IPv6 rather than IPv4.
    pub ipv6: bool,
    /// Profile the first and the best rung at the end, in an extra trial each.
    pub profile: bool,
    /// The command line that repeats this climb, for the report.
    pub command: Option<String>,
}

/// How a server under test is started, besides its settings.
pub(crate) struct Launch<'a> {
    /// The program whose `serve` runs it.
    pub(crate) program: &'a Path,
    /// Options of its service.
    pub(crate) service: &'a [OsString],
    /// Its address is of IPv6.
    pub(crate) ipv6: bool,
}

impl Config {
    pub(crate) fn launch(&self) -> Launch<'_> {
        Launch { program: &self.program, service: &self.service, ipv6: self.ipv6 }
    }
}

/// Progress of a climb.
#[derive(Debug)]
pub enum Event<'a> {
    /// A rung begins: `step` of `steps`. The last step compares the best rung with the first.
    Rung {
        /// Which step, from 1.
        step: usize,
        /// Number of steps.
        steps: usize,
        /// The rung's name.
        name: &'a str,
        /// The rung it is compared with; none for the first.
        against: Option<&'a str>,
    },
    /// A trial is done.
    Trial {
        /// The rung's name.
        name: &'a str,
        /// Transactions per second of the trial.
        tps: f64,
        /// Blocks of four trials done so far, and the limit.
        blocks: (usize, usize),
        /// Ratio so far.
        interval: Option<Ratio>,
    },
    /// A rung is done.
    Done(&'a RungResult),
    /// The ladder is decided; a rung is being profiled.
    Profile {
        /// The rung's name.
        name: &'a str,
    },
}
