//! DPDK's testpmd (Debian's `dpdk-dev`) as a baseline: forwards in mode 5tswap, which swaps MAC addresses, IP addresses
//! and ports in place, and so acts as an echo server that inspects nothing else.
//!
//! ```text
//!   CPU 0: main, waits for our lines          CPU 1: forwards between `start` and `stop`, and polls without a rest
//! ```
//! Outside of a run it sleeps, so that it takes no CPU time from the alternating measurement. It runs without huge
//! pages and without PCI, and changes nothing on the machine.

use std::fs;
use std::io::Write;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use udpath_lab::Lab;

use crate::bed::{Running, lines_of};

/// The forwarding CPU; both sides of a comparison use it.
pub(crate) const CPU: usize = 1;
/// Buffers. Lower: fewer than AF_XDP's rings and testpmd's own cache hold, so it does not start. Higher: they do not
/// fit in any cache.
const BUFFERS: &str = "--total-num-mbufs=16384";
/// Longest wait for any answer, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running testpmd that is not forwarding yet.
pub(crate) struct Testpmd {
    running: Running,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Testpmd {
    /// Starts one with the virtual device `device` and bursts of `burst`, on a machine of a lab if one is given.
    pub(crate) fn start(machine: Option<(&Lab, &str)>, device: &str, burst: u32) -> Result<Self> {
        // Line-buffered, otherwise its answers stay in its buffer until it ends.
        let mut command = match machine {
            Some((lab, name)) => lab.machine(name)?.command("stdbuf"),
            None => Command::new("stdbuf"),
        };
        let vdev = format!("--vdev={device}");
        let forwarding = CPU.to_string();
        command.args(["-oL", "dpdk-testpmd", "-l", &format!("0,{forwarding}"), "--main-lcore", "0"]);
        command.args(["--no-huge", "-m", "256", "--no-shconf", "--no-telemetry", "--no-pci", &vdev, "--"]);
        command.args(["-i", "--forward-mode=5tswap", "--no-lsc-interrupt", BUFFERS]);
        command.arg(format!("--burst={burst}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = match machine {
            Some((lab, _)) => lab.spawn(command).context("cannot start stdbuf"),
            None => command.spawn().context("cannot start stdbuf"),
        };
        let mut child = child?;
        let input = child.stdin.take().context("a pipe was asked for")?;
        let lines = lines_of(&mut child);
        let testpmd = Self { running: Running::new(child), input, lines };
        testpmd.until("Done").context(
            "dpdk-testpmd did not start: `scripts/setup.sh bench` installs it (Debian's dpdk-dev)",
        )?;
        Ok(testpmd)
    }

    /// Starts forwarding, until [`end`](Self::end).
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.say("start")?;
        self.until("  nb forwarding cores=1").map(|_| ())
    }

    /// Stops forwarding. Returns the number of packets since [`begin`](Self::begin).
    pub(crate) fn end(&mut self) -> Result<u64> {
        self.say("stop")?;
        self.until("  +++++++++++++++ Accumulated")?;
        let received = self.count("  RX-packets:")?;
        let sent = self.count("  TX-packets:")?;
        self.until("Done.")?;
        Ok(received.min(sent))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.input, "{line}").with_context(|| format!("cannot tell testpmd to {line}: did it end?"))
    }

    /// Waits for a line that starts with `begin`.
    fn until(&self, begin: &str) -> Result<String> {
        let mut last = String::new();
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                // The prompt has no line end, and precedes the next output.
                Ok(line) if line.trim_start_matches("testpmd> ").starts_with(begin) => return Ok(line),
                Ok(line) => last = line,
                Err(_) => bail!("testpmd did not say '{}'; its last line: {last}", begin.trim()),
            }
        }
    }

    fn count(&self, name: &str) -> Result<u64> {
        let line = self.until(name)?;
        let number =
            line.trim_start().strip_prefix(name.trim()).and_then(|rest| rest.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).with_context(|| format!("no number in '{line}'"))
    }
}

/// CPU time of all threads of a process so far; a running thread may be up to a scheduler tick behind.
pub(crate) fn cpu_time_of(pid: u32) -> Result<Duration> {
    let tasks = format!("/proc/{pid}/task");
    let mut total = 0;
    for task in fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}: did it end?"))? {
        let path = task?.path().join("schedstat");
        // A thread may end between the two calls.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let time: Option<u64> = text.split(' ').next().and_then(|time| time.parse().ok());
        total += time.with_context(|| format!("{} has no time", path.display()))?;
    }
    Ok(Duration::from_nanos(total))
}
