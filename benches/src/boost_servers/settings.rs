//! Settings raced against none: those that other tools apply, and those that `boost` found, under another load.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use udpath_advise::result::Ratio;
use udpath_lab::Lab;

use super::daemons::{Daemon, Shape};
use crate::bed::udpath;
use crate::race::race;

/// Sufficient half-width of an interval, and the most blocks of four trials.
const WIDTH: f64 = 0.03;
const BLOCKS: usize = 4;

/// What another tool applies for UDP.
pub(super) struct Peer {
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    /// Of the machine, for all of its network namespaces.
    machine: &'static [&'static str],
    /// Of the server's network namespace.
    server: &'static [&'static str],
}

/// tuned 2.20's profiles and Seastar's perftune.py, without what concerns TCP, memory pages and CPU frequencies.
pub(super) const PEERS: [Peer; 3] = [
    Peer {
        id: "tuned_latency",
        name: "tuned's network-latency",
        machine: &["sysctl:net.core.busy_read=50", "sysctl:net.core.busy_poll=50"],
        server: &[],
    },
    Peer {
        id: "tuned_throughput",
        name: "tuned's network-throughput",
        machine: &["sysctl:net.ipv4.udp_mem=3145728 4194304 16777216"],
        server: &[],
    },
    Peer {
        id: "perftune",
        name: "perftune.py --mode mq",
        machine: &["sysctl:net.core.rps_sock_flow_entries=32768"],
        server: &["eth0:rps/rx-*=0-1", "eth0:rfs/rx-*=16384", "eth0:xps/tx-0=0", "eth0:xps/tx-1=1"],
    },
];

/// A server in its lab.
pub(super) struct Place<'a> {
    pub(super) lab: &'a Lab,
    pub(super) daemon: &'a Daemon,
}

impl Place<'_> {
    /// The rate with a peer's settings, over that as found. Either way the server is restarted, as after a boot: its
    /// sockets take `net.core.busy_read` when they are created.
    pub(super) fn with_peer(&self, peer: &Peer) -> Result<Ratio> {
        let (here, there) = (self.folder("machine"), self.folder("server"));
        let set = |on: bool| -> Result<()> {
            self.set(None, &here, peer.machine, on)?;
            self.set(Some("server"), &there, peer.server, on)?;
            self.daemon.restart(self.lab)
        };
        self.raced(peer.name, Shape::Usual, set)
    }

    /// The rate with `settings`, over that as found, of a server that was restarted, under another load. If its
    /// configuration is among them, it is restarted each time.
    pub(super) fn under_another_load(&self, settings: &[&str]) -> Result<Ratio> {
        self.daemon.restart(self.lab)?;
        let state = self.folder("kept");
        self.raced("what was kept, under another load", Shape::Other, |on| {
            self.set(Some("server"), &state, settings, on)
        })
    }

    fn folder(&self, name: &str) -> String {
        self.daemon.path(name).display().to_string()
    }

    /// With over without, A B B A.
    fn raced(&self, what: &str, shape: Shape, set: impl Fn(bool) -> Result<()>) -> Result<Ratio> {
        let now = std::cell::Cell::new(false);
        let measured = |on: bool| -> Result<f64> {
            if now.replace(on) != on {
                set(on)?;
            }
            self.rate(shape)
        };
        let ratio = race(what, WIDTH, BLOCKS, || measured(false), || measured(true));
        if now.get() {
            set(false)?;
        }
        ratio
    }

    /// Applies settings, or takes them back.
    fn set(&self, machine: Option<&str>, state: &str, settings: &[&str], on: bool) -> Result<()> {
        if settings.is_empty() {
            return Ok(());
        }
        let mut command = Command::new(udpath()?);
        command.arg(if on { "apply" } else { "undo" }).args(["--state", state]);
        if let Some(machine) = machine {
            command.args(["--netns", self.lab.machine(machine)?.namespace()]);
        } else if on {
            // The lab's settings end with it; the machine's must, too, if this benchmark is killed.
            command.args(["--confirm", "10m"]);
        }
        if on {
            command.args(settings.iter().flat_map(|setting| ["--set", setting]));
            command.args(["--allow", "config", "--allow", "restart", "--allow", "security", "--restart"]);
            command.arg(self.daemon.path("restart"));
        }
        let output = command.stdin(Stdio::null()).output().context("cannot start udpath")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} {settings:?}: {said}", if on { "apply" } else { "undo" });
        Ok(())
    }

    /// Transactions per second of one trial, after a short one that does not count.
    fn rate(&self, shape: Shape) -> Result<f64> {
        let load = self.daemon.load(self.lab, shape)?;
        let mut tps = 0.0;
        for length in ["100ms", "500ms"] {
            let mut command = self.lab.machine("client")?.command(udpath()?);
            command.arg("load").args(&load).args(["--duration", length, "--json"]);
            let output = command.stdin(Stdio::null()).output().context("cannot start udpath load")?;
            let result: Value = serde_json::from_slice(&output.stdout)
                .with_context(|| format!("load: {}", String::from_utf8_lossy(&output.stderr)))?;
            tps = result["tps"].as_f64().context("load printed no rate")?;
        }
        Ok(tps)
    }
}
