//! Two instances of a server that reads with one thread against one of it, by `udpath multiply`.
//!
//! ```text
//!   client ══ veth, a queue for each CPU ══▸ server: udpath multiply NAME -n 1, then -n 2, each on a CPU of its own
//!     └ kernel engine: a closed loop of 64 flows, 2 requests in flight in each
//! ```
//! **What shares what.** There are two CPUs, and generator, kernel and server share them. A reply is turned into the
//! next request on the CPU of the instance that sent it (NAPI of a veth runs where the frame was sent), so each
//! instance's CPU does all of the work of its transactions: sending, receiving, serving, and some 100 ns of the
//! generator's. With one instance the other CPU idles. So the ratio compares one CPU that does everything with two that
//! do. The load is a closed loop: a slower server gets fewer requests, and none is dropped by a full queue.
//!
//! A run with a wrong, lost or duplicate reply is an error and not a result.
//!
//! Then instances are added and removed while requests arrive at random times, at 80 % of what one instance has
//! answered. Here the socket engine sends, from threads that share CPUs with the instances, so bursts wait in the
//! sockets: a policy gives them 8 MiB.

mod collector;

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use udpath_advise::result::Ratio;
use udpath_load::Engine;
use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_load::result::{Counts, LoadResult};
use udpath_load::template::Protocol;
use udpath_protocols::echo::EchoLoad;
use udpath_protocols::ntp::NtpLoad;
use udpath_protocols::radius::{LoadConfig, RadiusLoad, Secret, Users};
use udpath_rig::freeradius;

use crate::bed::{Bed, FLOWS, Running, udpath};
use crate::claim::{Bound, Claim, Unit};
use crate::race::{quantile, race};
use crate::results::Results;

/// Two instances over one.
const AT_LEAST: f64 = 1.8;
/// Load while instances are added and removed, of what one has answered.
const LOAD: f64 = 0.8;
/// Bytes of payload that the kernel engine needs to identify replies. A protocol's own requests may be longer.
const KERNEL_SIZE: usize = 32;
/// Requests in flight per flow: 128 together, which fit the default receive buffer.
const INFLIGHT: u32 = 2;
/// Length of one run, and of the load before it. The number of instances changes before the latter.
const RUN: Duration = Duration::from_secs(1);
const WARMUP: Duration = Duration::from_millis(300);
/// Flows of the load during which instances are added and removed. Fewer: at a rate of tens of thousands, RADIUS has
/// not enough identifiers in a flow for the time that a reply may take.
const CHANGED_FLOWS: u32 = 4 * FLOWS;
/// Length of the load during which instances are added and removed, and the time between two changes.
const CHANGED: Duration = Duration::from_secs(8);
const CHANGE: Duration = Duration::from_millis(700);
/// Sufficient half-width of a comparison's interval, and most blocks of it.
const WIDTH: f64 = 0.03;
const BLOCKS: usize = 10;
/// The name of the instances.
const NAME: &str = "bench";
/// Extracted by scripts/setup.sh.
const CHRONYD: &str = "/var/cache/udpath/chronyd";
const SECRET: &str = "a secret of the lab";
/// Users in the file of FreeRADIUS.
const USERS: usize = 1000;
const ECHO: &str = "import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', int(sys.argv[1])))
while True:
    payload, peer = s.recvfrom(2048)
    s.sendto(payload, peer)
";

/// A server, and a load for it.
struct Server<'a> {
    id: &'static str,
    what: &'static str,
    command: Vec<String>,
    port: u16,
    /// A run's load, by the number of the run.
    load: &'a dyn Fn(u64) -> Box<dyn Protocol>,
}

pub(crate) fn run(results: &mut Results) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot create a folder for the servers' files")?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write = |name: &str, text: &str| {
        std::fs::write(path(name), text).with_context(|| format!("cannot write {}", path(name)))
    };
    ensure!(Path::new(CHRONYD).exists(), "no {CHRONYD}: `scripts/setup.sh test` extracts it");
    write("chrony.conf", "local stratum 10\nallow\n")?;
    write("echo.py", ECHO)?;
    let users: String =
        (0..USERS).map(|n| format!("user{n}  Cleartext-Password := \"password {n}\"\n")).collect();
    write("users", &users)?;
    let users = Users::parse(users.as_bytes()).map_err(anyhow::Error::msg)?;
    let raddb = folder.path().join("raddb");
    std::fs::create_dir(&raddb).with_context(|| format!("cannot create {}", raddb.display()))?;
    // Without the shell that redirects its output: udpath multiply recognises the server by its program.
    let radiusd = freeradius(&raddb, SECRET, Path::new(&path("users")))
        .context("cannot write FreeRADIUS's configuration")?
        .split_off(4);
    let config = LoadConfig { secret: Secret::new(SECRET.as_bytes()), users, ..LoadConfig::default() };
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let servers = [
        Server {
            id: "chrony",
            what: "chronyd",
            command: words(&[CHRONYD, "-u", "root", "-x", "-d", "-f", &path("chrony.conf")]),
            port: 123,
            load: &|run| Box::new(NtpLoad::new(run)),
        },
        Server {
            id: "freeradius",
            what: "FreeRADIUS, PAP",
            command: radiusd,
            port: 1812,
            load: &|run| Box::new(RadiusLoad::new(run, config.clone())),
        },
        Server {
            id: "echo",
            what: "echo in Python",
            command: words(&["python3", &path("echo.py"), "7"]),
            port: 7,
            load: &|run| Box::new(EchoLoad::new(run)),
        },
    ];
    for server in servers {
        measure(results, &server, folder.path()).with_context(|| format!("multiply {}", server.what))?;
    }
    collector::measure(results, folder.path()).context("multiply nfcapd")
}

/// A supervisor with two instances, and the machines around it.
struct Instances<'a> {
    // The machines last.
    _running: Running,
    _policy: Policy<'a>,
    bed: Bed,
}

impl<'a> Instances<'a> {
    fn start(state: &'a str, port: u16, command: &[String]) -> Result<Self> {
        let bed = Bed::new(true)?;
        let policy = Policy::set(state)?;
        let port = port.to_string();
        let options = ["multiply", NAME, "-n", "2", "--port", &port, "--state", state, "--"];
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let running = bed.serve(&udpath()?, &[&options[..], &command].concat())?;
        Ok(Self { _running: running, _policy: policy, bed })
    }

    /// Ends them in order.
    fn end(self) -> Result<()> {
        command(&["multiply", NAME, "--stop"])
    }
}

fn measure(results: &mut Results, server: &Server<'_>, folder: &Path) -> Result<()> {
    let state = folder.join(format!("journal-{}", server.id)).display().to_string();
    let instances = Instances::start(&state, server.port, &server.command)?;
    let bed = &instances.bed;
    let target = bed.server(server.port)?;
    let runs = Cell::new(u64::from(std::process::id()) << 32);
    let protocol = || {
        runs.set(runs.get() + 1);
        (server.load)(runs.get())
    };
    let (mut one, mut two) = (Vec::new(), Vec::new());
    let rate = |count: usize, rates: &mut Vec<f64>| -> Result<f64> {
        set_count(count)?;
        let result = closed_loop(bed, target, &*protocol())?;
        rates.push(result.tps);
        Ok(result.tps)
    };
    let ratio = race(server.what, WIDTH, BLOCKS, || rate(1, &mut one), || rate(2, &mut two))?;
    let (one, two) = (quantile(one, 0.5), quantile(two, 0.5));
    results.add(&scaling(server.id, server.what, &ratio, (one, two), "every request answered once"));

    let (counts, changes) = while_changing(bed, target, LOAD * one, &*protocol())?;
    let what = format!("{}, instances added and removed at 80 % load: answered once / sent", server.what);
    let answered = (counts.ok + counts.late).saturating_sub(counts.duplicate) as f64 / counts.sent as f64;
    let detail = format!("{} sent, {} lost, {} duplicate", counts.sent, counts.lost, counts.duplicate);
    results.add(&kept(server.id, &what, answered, &detail, changes));
    instances.end()
}

fn scaling(id: &str, what: &str, ratio: &Ratio, (one, two): (f64, f64), detail: &str) -> Claim {
    let what = format!("{what}, two instances / one");
    let (two, one) = (two / 1e3, one / 1e3);
    Claim::ratio(&format!("multiply.{id}"), what, ratio, Bound::AtLeast(AT_LEAST))
        .with(format!("{two:.0} and {one:.0} k/s, {detail}"))
}

/// The claim that nothing is lost while instances change; `share`: of what was sent.
fn kept(id: &str, what: &str, share: f64, detail: &str, changes: usize) -> Claim {
    let id = format!("multiply.{id}_changed");
    Claim::new(&id, what.to_owned(), share, Unit::Ratio, Bound::AtLeast(1.0))
        .with(format!("{detail}, {changes} changes"))
}

/// A run in which every request had exactly one right reply.
fn closed_loop(bed: &Bed, target: SocketAddr, protocol: &dyn Protocol) -> Result<LoadResult> {
    let plan = Plan {
        flows: FLOWS,
        arrivals: Arrivals::Closed { inflight: INFLIGHT },
        size: protocol.min_size().max(KERNEL_SIZE),
        duration: RUN,
        warmup: WARMUP,
        timeout: WARMUP,
        ..Plan::new(target)
    };
    let result = load(bed, &plan, Engine::Kernel, protocol)?;
    let counts = &result.counts;
    let wrong = counts.corrupt + counts.wrong_flow + counts.duplicate + counts.refused + counts.lost;
    ensure!(counts.ok > 0 && wrong == 0, "not every request was answered once: {counts:?}");
    Ok(result)
}

fn load(bed: &Bed, plan: &Plan, engine: Engine, protocol: &dyn Protocol) -> Result<LoadResult> {
    let never = AtomicBool::new(false);
    bed.lab
        .machine("client")?
        .run(|| udpath_load::run(plan, engine, protocol, &mut |_| (), &never).context("the load"))?
}

/// Random arrivals at a rate, while the number of instances changes between one and two.
fn while_changing(
    bed: &Bed,
    target: SocketAddr,
    rate: f64,
    protocol: &dyn Protocol,
) -> Result<(Counts, usize)> {
    let plan = Plan {
        flows: CHANGED_FLOWS,
        arrivals: Arrivals::Open { rate, process: Process::Poisson },
        size: protocol.min_size().max(KERNEL_SIZE),
        duration: CHANGED,
        timeout: Duration::from_secs(2),
        ..Plan::new(target)
    };
    let (result, changes) = changing(|| load(bed, &plan, Engine::Socket, protocol))?;
    Ok((result.counts, changes))
}

/// Does `work` while the number of instances changes between one and two; with how often it changed.
fn changing<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, usize)> {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let changes = scope.spawn(|| -> Result<usize> {
            let mut changes = 0;
            for count in [1, 2].into_iter().cycle() {
                thread::sleep(CHANGE);
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                set_count(count)?;
                changes += 1;
            }
            Ok(changes)
        });
        let result = work();
        ended.store(true, Ordering::Relaxed);
        let changes = changes.join().ok().context("the changes panicked")??;
        ensure!(changes > 0, "the work ended before the number of instances changed");
        Ok((result?, changes))
    })
}

fn set_count(count: usize) -> Result<()> {
    command(&["multiply", NAME, "-n", &count.to_string()])
}

fn command(arguments: &[&str]) -> Result<()> {
    let output = Command::new(udpath()?).args(arguments).output().context("cannot run udpath")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "udpath {}: {}", arguments.join(" "), said.trim());
    Ok(())
}

/// 8 MiB for what the instances bind; undone when dropped.
struct Policy<'a> {
    group: String,
    state: &'a str,
}

impl<'a> Policy<'a> {
    fn set(state: &'a str) -> Result<Self> {
        // The instances' cgroup is below that of their supervisor, which is this one.
        let own = std::fs::read_to_string("/proc/self/cgroup").context("cannot read /proc/self/cgroup")?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::")).context("no cgroup of version 2")?;
        let group = format!("{}/udpath-multiply-{NAME}", own.trim_end_matches('/'));
        command(&["policy", "set", &group, "receive-buffer=8M", "--state", state])?;
        Ok(Self { group, state })
    }
}

impl Drop for Policy<'_> {
    fn drop(&mut self) {
        let _ = command(&["policy", "remove", &self.group, "--state", self.state]);
    }
}
