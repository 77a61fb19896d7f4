//! The cost of observation: CPU time of `udpath top` and `udpath export`, updating once per second.
//!
//! `top` draws on a terminal (tmux); `export` is queried over HTTP. The baseline reads the same files without parsing
//! them. CPU time is the scheduler's own accounting of each thread, in nanoseconds.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::time::{ClockId, clock_gettime};
use udpath_host::source::Folder;
use udpath_host::{Snapshot, Watch};

use crate::bed::udpath;
use crate::claim::{Bound, Claim, Unit};
use crate::results::Results;
use crate::snapshot::open_sockets;
use crate::testpmd::cpu_time_of;

/// Duration of each measurement: long enough for some complete updates. And the time before it starts.
const RUN: Duration = Duration::from_secs(15);
const FIRST: Duration = Duration::from_secs(2);
/// Most CPU time, per cent of one CPU, however many sockets there are.
const MOST: f64 = 1.0;
/// Updates of each kind that are compared, alternating; the cheapest counts.
const LOOKS: usize = 9;
/// Highest cost of an update, relative to reading everything.
const PART: f64 = 0.5;
/// The files that an update reads.
const FILES: [&str; 7] = [
    "/proc/stat",
    "/proc/interrupts",
    "/proc/net/softnet_stat",
    "/proc/net/snmp",
    "/proc/net/snmp6",
    "/proc/net/sockstat",
    "/proc/sys/net/ipv4/udp_mem",
];

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let udpath = udpath()?;
    let mut claim = |id: &str, what: &str, share: f64| {
        let id = format!("looking.{id}");
        results.add(&Claim::new(&id, what, share, Unit::PerCent, Bound::Below(MOST)));
    };
    claim("top", "top, a look each second, of a CPU", top(&udpath)?);
    claim("export", "export, asked each second, of a CPU", export(&udpath)?);
    let open = open_sockets()?;
    claim("top_crowded", "top with 10,000 sockets of one process, of a CPU", top(&udpath)?);
    claim("export_crowded", "export with 10,000 sockets of one process, of a CPU", export(&udpath)?);
    drop(open);
    let [files, look, whole] = looks();
    let what = "a look / reading everything";
    let claim = Claim::new("looking.part", what, look / whole, Unit::Ratio, Bound::Below(PART));
    results.add(&claim.with(format!("{look:.2} ms; its files alone {files:.2} ms")));
    Ok(())
}

/// CPU time of reading only the files, of an update, and of reading everything, milliseconds.
fn looks() -> [f64; 3] {
    let source = Folder::live();
    let mut watch = Watch::default();
    watch.look(&source);
    let mut best = [f64::MAX; 3];
    for _ in 0..LOOKS {
        let times = [
            cost(|| FILES.map(|file| fs::read(file).map_or(0, |text| text.len()))),
            cost(|| watch.look(&source).taken),
            cost(|| Snapshot::read(&source)),
        ];
        for (best, time) in best.iter_mut().zip(times) {
            *best = best.min(time);
        }
    }
    best
}

/// CPU time of this thread that `work` takes, milliseconds.
fn cost<T>(work: impl FnOnce() -> T) -> f64 {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
    };
    let begin = now();
    std::hint::black_box(work());
    now() - begin
}

/// `top` on its own terminal. Share of a CPU, per cent.
fn top(udpath: &str) -> Result<f64> {
    let terminal = Terminal { server: format!("udpath-bench-{}", std::process::id()) };
    terminal.tmux(&["new-session", "-d", "-x", "120", "-y", "40", &format!("{udpath} top -i 1")])?;
    let pid = terminal.tmux(&["display-message", "-p", "#{pane_pid}"])?.trim().parse()?;
    let share = share(pid, || Ok(()))?;
    let screen = terminal.tmux(&["capture-pane", "-p"])?;
    if !screen.contains("UDP/s") {
        bail!("top does not show anything: {screen}");
    }
    Ok(share)
}

/// tmux's server; killed when this is dropped.
pub(crate) struct Terminal {
    pub(crate) server: String,
}

impl Terminal {
    pub(crate) fn tmux(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new("tmux")
            .args(["-u", "-L", &self.server, "-f", "/dev/null"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .context("cannot start tmux: scripts/setup.sh installs it")?;
        if !output.status.success() {
            bail!("tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

/// `export`, queried once per second. Share of a CPU, per cent.
fn export(udpath: &str) -> Result<f64> {
    let (child, address) = exporting(udpath)?;
    share(child.0.id(), || scrape(&address))
}

/// A running `export`, and the address where it answers.
pub(crate) fn exporting(udpath: &str) -> Result<(Ended, String)> {
    let child = Command::new(udpath)
        .args(["export", "--queues", "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start udpath export")?;
    let mut child = Ended(child);
    let mut said = std::io::BufReader::new(child.0.stderr.take().context("stderr is piped")?);
    let mut ready = String::new();
    std::io::BufRead::read_line(&mut said, &mut ready)?;
    let address = ready.trim().strip_prefix("ready http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.with_context(|| format!("export said: {ready}"))?.to_owned();
    Ok((child, address))
}

/// One query, to its last byte.
pub(crate) fn scrape(address: &str) -> Result<()> {
    let mut client = TcpStream::connect(address)?;
    client.write_all(b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n")?;
    let mut answer = String::new();
    client.read_to_string(&mut answer)?;
    if !answer.contains("# EOF") {
        bail!("export answered: {answer}");
    }
    Ok(())
}

/// A process that is killed when this is dropped.
pub(crate) struct Ended(pub(crate) std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The share of one CPU that the process, and those it has started, use while `ask` is called once per second, per
/// cent.
fn share(pid: u32, mut ask: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut watch = |run: Duration| -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < run {
            ask()?;
            thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    };
    watch(FIRST)?;
    let (then, begin) = (cpu_time(pid)?, Instant::now());
    watch(RUN)?;
    let used = cpu_time(pid)?.saturating_sub(then);
    Ok(100.0 * used.as_secs_f64() / begin.elapsed().as_secs_f64())
}

/// CPU time of a process and of those it has started, as `export` has.
fn cpu_time(pid: u32) -> Result<Duration> {
    let mut time = cpu_time_of(pid)?;
    for process in fs::read_dir("/proc").context("cannot read /proc")?.flatten() {
        let Some(process) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Others may end at any moment.
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        if parent.and_then(|parent| parent.trim().parse().ok()) == Some(pid) {
            time += cpu_time_of(process)?;
        }
    }
    Ok(time)
}
