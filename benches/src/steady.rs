//! A server under continuous load, and its rate over short periods: for features that are switched on and off during
//! the load. Trials with separate loads start and end at different rates each time, which hides a difference of one per
//! cent; two consecutive periods of one load hardly differ.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::bed::{Bed, Running, udpath};

/// Longest duration of a load; it ends when the value is dropped.
const MAX_DURATION: &str = "10m";
/// Time until the load has reached its rate.
const SETTLE: Duration = Duration::from_secs(2);

/// A shared socket with two workers, under the in-kernel closed loop at full rate.
pub(crate) struct Steady {
    // Fields are dropped in this order.
    _load: Running,
    server: Running,
    _bed: Bed,
}

impl Steady {
    pub(crate) fn start(port: u16) -> Result<Self> {
        let bed = Bed::new(true)?;
        let target = bed.server(port)?.to_string();
        let program = udpath()?;
        let server =
            bed.serve(&program, &["serve", "echo", "--io", "shared", "--workers", "2", "--bind", &target])?;
        let mut load = bed.lab.machine("client")?.command(&program);
        load.args(["load", "echo", &target, "--engine", "kernel", "--flows", "64", "--inflight", "4"]);
        load.args(["-d", MAX_DURATION]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let load = Running::new(bed.lab.spawn(load)?);
        let steady = Self { _load: load, server, _bed: bed };
        std::thread::sleep(SETTLE);
        Ok(steady)
    }

    /// The server's process.
    pub(crate) fn server(&self) -> u32 {
        self.server.pid()
    }

    /// Transactions per second while `work` runs, by the receive counter of the server's namespace.
    pub(crate) fn tps_while(&self, work: impl FnOnce() -> Result<()>) -> Result<f64> {
        let (begin, before) = (Instant::now(), self.received()?);
        work()?;
        let (received, seconds) = (self.received()? - before, begin.elapsed().as_secs_f64());
        if received == 0 {
            bail!("the server received nothing");
        }
        Ok(received as f64 / seconds)
    }

    fn received(&self) -> Result<u64> {
        let path = format!("/proc/{}/net/snmp", self.server.pid());
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let counted = text.lines().filter_map(|line| line.strip_prefix("Udp: ")).nth(1);
        let received = counted.and_then(|line| line.split(' ').next()?.parse().ok());
        received.with_context(|| format!("{path} has no count of datagrams"))
    }
}
