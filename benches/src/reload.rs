//! Requests lost while a server reads its files anew.
//!
//! ```text
//!   client, CPU 0: 100,000/s, open loop ══ veth ══▸ udpath serve dns (a million names), serve radius (100,000 users)
//!                                                        ▴ SIGHUP every 5 s; each begins when the last has ended
//! ```
//! The server has its own number of workers and both CPUs, of which the reload takes one for seconds. What the
//! generator itself loses counts, too: nothing is left out. Beside each run stands what the same one loses without
//! reloads.
//!
//! On two CPUs that is more than nothing: a worker shares its CPU with the generator. The same runs with a CPU for
//! each, and buffers for a tenth of a second, tell what the reload itself costs. They have no bound.

use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use udpath_lab::Lab;
use udpath_load::Engine;
use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_load::template::Protocol;
use udpath_protocols::radius::{LoadConfig, RadiusLoad, Secret, Users};

use crate::bed::{Running, lines_of, udpath};
use crate::claim::{Bound, Claim, Unit};
use crate::dns;
use crate::race::pin;
use crate::results::Results;
use crate::versus::{self, UDPATH, address};

/// Names in the zone, and users in the file.
const NAMES: u32 = 1_000_000;
const USERS: u32 = 100_000;
/// Flows: RADIUS has 256 identifiers for each, and requests may be in flight for [`EVERY`].
const FLOWS: u32 = 2048;
/// Requests per second.
const RATE: f64 = 100_000.0;
/// From one reload to the next, and how many of them there must be.
const EVERY: Duration = Duration::from_secs(5);
const RELOADS: usize = 4;
/// Length of a run, in which they fit.
const LENGTH: Duration = Duration::from_secs(22);
/// Longest time until a server is ready.
const START: Duration = Duration::from_secs(60);
/// Ways of a server's datagrams.
const IOS: [&str; 3] = ["shared", "reuseport", "xdp"];
const SECRET: &str = "a secret of the lab";
/// The generator's nice value where it has a CPU: a reload may run there, too, and must not hold it up.
const FIRST: i32 = -20;

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot create a folder for the servers' files")?;
    let lab = versus::lab("bench-reload", &[UDPATH])?;
    of_dns(results, &lab, folder.path())?;
    of_radius(results, &lab, folder.path())?;
    lab.down()?;
    Ok(())
}

fn of_dns(results: &mut Results, lab: &Lab, folder: &Path) -> Result<()> {
    let zone = dns::servers::write_zone(folder, NAMES)?.display().to_string();
    let load = dns::load(&[("name", "h{}.example.org"), ("names", &NAMES.to_string())])?;
    let words = ["dns", "--zone", &zone, "--responses-per-second", "off"];
    for (io, cpus) in runs() {
        let lost = |reloads| lost(lab, (io, 53), &words, &load, reloads, cpus);
        let [without, lost] = [lost(Reloads::None)?, lost(Reloads::Regular)?];
        results.add(&lost.claim(&without, "dns", io, cpus, "a zone of a million names"));
    }
    Ok(())
}

fn of_radius(results: &mut Results, lab: &Lab, folder: &Path) -> Result<()> {
    let file = |name: &str| folder.join(name);
    let text: String =
        (0..USERS).map(|n| format!("user{n}  Cleartext-Password := \"password {n}\"\n")).collect();
    std::fs::write(file("users"), &text).context("cannot write the file of users")?;
    std::fs::write(file("clients"), format!("0.0.0.0/0 \"{SECRET}\"\n"))
        .context("cannot write the file of clients")?;
    let users = Users::parse(text.as_bytes()).map_err(anyhow::Error::msg)?;
    let config = LoadConfig { secret: Secret::new(SECRET.as_bytes()), users, ..LoadConfig::default() };
    let [clients, users] = ["clients", "users"].map(|name| file(name).display().to_string());
    let words = ["radius", "--clients", &clients, "--users", &users];
    for (number, (io, cpus)) in (0..).zip(runs()) {
        // Each run has its own number, so that no request is a repetition.
        let load = |number| RadiusLoad::new((u64::from(std::process::id()) << 32) + number, config.clone());
        let lost = |reloads, number| lost(lab, (io, 1812), &words, &load(number), reloads, cpus);
        let [without, lost] = [lost(Reloads::None, 2 * number)?, lost(Reloads::Regular, 2 * number + 1)?];
        results.add(&lost.claim(&without, "radius", io, cpus, "a file of 100,000 users"));
    }
    Ok(())
}

/// Each Io: as it is asked for, then with a CPU for the worker.
fn runs() -> impl Iterator<Item = (&'static str, Cpus)> {
    IOS.into_iter().flat_map(|io| [(io, Cpus::Shared), (io, Cpus::Apart)])
}

/// Who has which CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cpus {
    /// The server has both, and its default buffers.
    Shared,
    /// Its worker has CPU 1, and large buffers; the generator comes first on CPU 0.
    Apart,
}

impl Cpus {
    /// The server's options. 8 MiB, as the kernel counts them, or 32,768 frames a queue are a tenth of a second of
    /// requests. Less: what the machine holds up for that long is lost, with reloads and without.
    fn options(self, io: &str) -> &'static [&'static str] {
        match self {
            Self::Shared => &[],
            Self::Apart if io == "xdp" => &["--cpus", "1", "--frames", "32768"],
            Self::Apart => &["--cpus", "1", "--rcvbuf", "4MiB"],
        }
    }
}

/// Whether the server reads its files anew.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reloads {
    None,
    /// One [`EVERY`] so often.
    Regular,
}

/// What a run lost.
struct Lost {
    lost: u64,
    sent: u64,
    reloads: usize,
}

impl Lost {
    fn claim(&self, without: &Self, protocol: &str, io: &str, cpus: Cpus, of: &str) -> Claim {
        let Self { lost, sent, reloads } = self;
        let (id, how, bound) = match cpus {
            Cpus::Shared => ("", "", Bound::Below(1.0)),
            Cpus::Apart => ("_apart", ", a CPU for the worker and larger buffers", Bound::Shown),
        };
        let id = format!("reload.{protocol}.{io}{id}");
        let what =
            format!("serve {protocol} --io {io}{how}, requests lost while {of} is read anew, 100,000/s");
        let claim = Claim::new(&id, what, *lost as f64, Unit::Count, bound);
        let (sent, beside) = (*sent as f64 / 1e6, without.lost);
        claim.with(format!("of {sent:.1} M, {reloads} reloads; without reloads {beside} of as many"))
    }
}

/// Loads the server of these words on a port, over an Io, while it reads its files anew or does not.
fn lost(
    lab: &Lab,
    (io, port): (&str, u16),
    words: &[&str],
    protocol: &dyn Protocol,
    how: Reloads,
    cpus: Cpus,
) -> Result<Lost> {
    let target = address(lab, UDPATH, port)?;
    let reloads = AtomicUsize::new(0);
    let server = Reloading::start(lab, io, &target.to_string(), &[words, cpus.options(io)].concat())?;
    let plan = Plan {
        flows: FLOWS,
        arrivals: Arrivals::Open { rate: RATE, process: Process::Constant },
        size: protocol.min_size(),
        duration: LENGTH,
        warmup: Duration::from_millis(500),
        timeout: EVERY,
        ..Plan::new(target)
    };
    let ended = AtomicBool::new(false);
    let never = AtomicBool::new(false);
    let (result, hups) = std::thread::scope(|scope| {
        let (ended, reloads) = (&ended, &reloads);
        let hups = scope.spawn(move || server.reload_until(how, ended, reloads));
        let result = lab.machine("client").map_err(anyhow::Error::from).and_then(|client| {
            client.run(|| {
                pin(0)?;
                if cpus == Cpus::Apart {
                    setpriority_process(None, FIRST).context("cannot put the generator first")?;
                }
                udpath_load::run(&plan, Engine::Xdp, protocol, &mut |_| (), &never).context("the load")
            })?
        });
        ended.store(true, Ordering::Relaxed);
        (result, hups.join())
    });
    hups.map_err(|_| anyhow!("the reloads panicked"))??;
    let counts = result?.counts;
    let wrong = counts.corrupt + counts.wrong_flow + counts.duplicate + counts.refused;
    ensure!(wrong == 0, "wrong replies: {counts:?}");
    let reloads = reloads.into_inner();
    ensure!(how == Reloads::None || reloads >= RELOADS, "{reloads} reloads in {} s", LENGTH.as_secs());
    Ok(Lost { lost: counts.lost + counts.late, sent: counts.sent, reloads })
}

/// A server that is told to read its files anew.
struct Reloading {
    running: Running,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Reloading {
    fn start(lab: &Lab, io: &str, bind: &str, words: &[&str]) -> Result<Self> {
        let mut command = lab.machine(UDPATH)?.command(udpath()?);
        command.arg("serve").args(words).args(["--bind", bind, "--io", io]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child: Child = lab.spawn(command).context("cannot start the server")?;
        let lines = lines_of(&mut child);
        let server = Self { running: Running::new(child), lines };
        server.says("ready", START)?;
        Ok(server)
    }

    /// Waits for a line that begins with this.
    fn says(&self, beginning: &str, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if line.starts_with(beginning) {
                return Ok(());
            }
            ensure!(!line.contains("not reloaded"), "{line}");
        }
        bail!("the server did not print '{beginning}' within {} s", within.as_secs())
    }

    /// One reload after the other, or none, until the load has ended; counts those that ended before.
    fn reload_until(&self, how: Reloads, ended: &AtomicBool, reloads: &AtomicUsize) -> Result<()> {
        let pid = Pid::from_raw(self.running.pid() as i32).context("a process has a pid")?;
        while !ended.load(Ordering::Relaxed) {
            let began = Instant::now();
            if how == Reloads::Regular {
                kill_process(pid, Signal::HUP).context("cannot signal the server")?;
                self.says("reloaded", START)?;
                reloads.fetch_add(1, Ordering::Relaxed);
            }
            while began.elapsed() < EVERY && !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }
}
