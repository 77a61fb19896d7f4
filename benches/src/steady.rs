//! A server under a load that does not pause, and how much it answers in a moment: for what is switched on and off beside
//! it. Trials with loads of their own begin and end at other rates each time, which hides a hundredth; two moments of one
//! load that follow each other hardly differ.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::bed::{Bed, Running, udpath};

/// How long a load lasts at most; it ends with the value.
const MAX_DURATION: &str = "10m";
/// Until the load has come to its rate.
const SETTLE: Duration = Duration::from_secs(2);

/// A shared socket with two workers, and transactions in the kernel's loop as fast as they are answered.
pub(crate) struct Steady {
    // In the order of ending.
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

    /// Transactions a second while `work` goes on, as the server's namespace counts what it receives.
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
