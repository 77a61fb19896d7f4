//! `udpath boost`: climbs the ladder in a lab, or searches for what helps a running server; measures the gain.

mod running;
mod service;

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use udpath_advise::duet::halves;
use udpath_advise::ladder::{Place, ladder, ordered, without_root};
use udpath_advise::result::Sides;
use udpath_advise::result::{BoostResult, LeftOut};
use udpath_advise::statistics::Bound;
use udpath_advise::{Config, ConfigError, Event};
use udpath_history::NewRun;
use udpath_host::cpus;
use udpath_host::source::Folder;
use udpath_load::Engine;
use udpath_report::{Render, boost_text, profiling_line, rung_line, trial_line};
use udpath_serve::Io;

use self::service::Service;

use super::record::{self, Recorder};
use super::{capacity, command, page};
use crate::args::boost::{Args, LoadLine, When};
use crate::args::load;
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};
use crate::terminal::{self, StatusLine};

/// Default requests in flight over all flows. Fewer: fast rungs idle while they wait for the link's moderation. More:
/// the ring of a veth queue (256 frames) overflows where flows drift to one queue.
const IN_FLIGHT: u32 = 384;
/// Default interrupt moderation of the link, microseconds: what 10 Gbit/s NICs have under load (ixgbe and i40e 50 to
/// 125). Less: bursts are a few frames, handling them well makes no difference, and the timers cost more than they
/// save. More: the timer dominates latency.
const MODERATION: u32 = 75;

/// Climbs and prints the result.
pub(crate) fn run(args: &Args) -> Done {
    if let Some(path) = &args.report {
        page::check("--report", path)?;
    }
    let record = Recorder::open(&args.record)?;
    let mut watcher = Watcher::new(args.running.live);
    let mut result = match running::task(args, command())? {
        Some(task) => {
            let stop = signals::watch(Left::Settings(&args.running.state))?.flag();
            let done = task.run(&mut |event| watcher.show(event), stop);
            watcher.line.clear();
            done?
        }
        None => in_lab(args, &mut watcher)?,
    };
    result.origin = Some(record::origin());
    if args.json {
        terminal::print(&result.json())?;
    } else {
        terminal::print(&boost_text(&result, &terminal::style(), args.details))?;
    }
    if let Some(path) = &args.report {
        page::write(path, &result)?;
    }
    record.map_or(Ok(()), |record| record.keep(|name| NewRun::of_boost(&result, name, None)))
}

/// Climbs the ladder in a lab.
fn in_lab(args: &Args, watcher: &mut Watcher) -> Result<BoostResult, Failure> {
    let service = Service::new(args)?;
    let mut config = config(args, &service)?;
    config.check().map_err(Failure::usage)?;
    let mut notices = Vec::new();
    if config.queues == 1 && args.io.contains(&Io::Percpu) {
        config.left_out.push(LeftOut {
            name: Io::Percpu.name().to_owned(),
            reason: "with one queue all datagrams arrive on the same CPU; use --queues 2 or more".to_owned(),
        });
    }
    // Root of a user namespace lacks the same as an ordinary user.
    if !udpath_lab::missing().is_empty() {
        if args.engine == Some(Engine::Kernel) {
            return Err(anyhow!("--engine kernel needs CAP_BPF: run as root, or use --engine socket").into());
        }
        udpath_lab::enter_user_namespace().context("boost without root needs a user namespace")?;
        config.engine = Engine::Socket;
        config.xps = false;
        config.moderation = moderation(args, config.engine);
        let (possible, left_out) = without_root(config.ladder);
        config.ladder = possible;
        config.left_out.extend(left_out);
        notices.push("not root: the socket engine sends the load, in a user namespace".to_owned());
    }
    let stop = signals::watch(Left::Labs)?.flag();
    let done = udpath_advise::boost(&config, &*service.load, &mut |event| watcher.show(event), stop);
    watcher.line.clear();
    let mut result = done?;
    result.warnings.splice(0..0, notices);
    Ok(result)
}

fn config(args: &Args, service: &Service) -> Result<Config, Failure> {
    let cpus = udpath_lab::online_cpus().context("cannot read the online CPUs")?.len() as u32;
    let queues = args.queues.unwrap_or_else(|| cpus.clamp(1, 8));
    let flows = args.flows.max(1);
    let engine = service.engine;
    let workers = args.workers.unwrap_or(queues.clamp(1, 1024) as usize);
    let inflight = args.inflight.unwrap_or_else(|| (IN_FLIGHT / flows).max(1));
    let mut ladder = ladder(&args.io, queues);
    if let Some(costs) = capacity::saved_costs() {
        let place = Place { cpus: cpus as usize, queues, workers, inflight: flows.saturating_mul(inflight) };
        ladder = ordered(ladder, &costs, place);
    }
    Ok(Config {
        program: std::env::current_exe().context("cannot find this program's own file")?,
        service: service.options.arguments().to_vec(),
        queues,
        xps: true,
        moderation: moderation(args, engine),
        ladder,
        left_out: Vec::new(),
        workers,
        size: service.size,
        flows: args.flows,
        inflight,
        trial: args.duration,
        bound: Bound::new(args.bound / 100.0, args.blocks).map_err(Failure::usage)?.for_verdict(),
        duet: sides(args.duet, workers.max(queues as usize))?,
        engine,
        ipv6: args.ipv6,
        profile: !args.no_profile,
        command: Some(command()),
    })
}

/// CPUs of each side from which on rungs are compared in duets by themselves. Fewer: a server and its load share one
/// CPU, and rungs that spread work over CPUs cannot show it.
const DUET: usize = 2;

/// The sides of a duet, for as many workers or queues.
fn sides(when: When, wanted: usize) -> Result<Option<Sides>, Failure> {
    if when == When::Never {
        return Ok(None);
    }
    let allowed = udpath_serve::allowed_cpus().context("cannot read the CPUs that this process may use")?;
    let source = Folder::live();
    let nodes = cpus::nodes(&source, &mut Vec::new());
    let halves = halves(&cpus::read(&source, &nodes, &mut Vec::new()).list, &allowed);
    match (when, halves) {
        (When::Always, None) => Err(Failure::usage(ConfigError::Duet { has: allowed.len() / 2, wanted })),
        (When::Always, halves) => Ok(halves),
        (_, halves) => Ok(halves.filter(|sides| sides[0].len() >= wanted.max(DUET))),
    }
}

/// Off without the kernel engine: some ends then lack NAPI, and rungs would be moderated unequally.
fn moderation(args: &Args, engine: Engine) -> u32 {
    args.moderation.unwrap_or(if engine == Engine::Kernel { MODERATION } else { 0 })
}

/// What follows `option`: a load, as `udpath load` takes it.
fn load_line(option: &str, words: &[OsString]) -> Result<(load::Args, ArgMatches), Failure> {
    // In one line, without clap's prefix and its usage, which names no verb.
    let wrong = |error: clap::Error| {
        let text = error.to_string();
        let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
        let lines: Vec<&str> =
            lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
        Failure::Usage(format!("{option}: {}", lines.join("; ").trim_start_matches("error: ")))
    };
    let matches = LoadLine::command().try_get_matches_from(words).map_err(wrong)?;
    Ok((LoadLine::from_arg_matches(&matches).map_err(wrong)?.args, matches))
}

/// Longest silence of a log. Shorter: a log of a long search is mostly progress. Longer: whoever waits thinks that it
/// hangs.
const SILENCE: Duration = Duration::from_secs(5);

/// Progress on the terminal's last line. If stderr is not a terminal, a line per rung, and one where that takes long.
struct Watcher {
    line: StatusLine,
    /// The rung being measured: its step, its name and what it is compared with.
    title: String,
    /// Figures are of what clients send.
    live: bool,
    /// When the last line was logged.
    logged: Instant,
}

impl Watcher {
    fn new(live: bool) -> Self {
        Self { line: StatusLine::new(), title: String::new(), live, logged: Instant::now() }
    }

    fn show(&mut self, event: &Event<'_>) {
        if self.line.is_live() { self.draw(event) } else { self.log(event) }
    }

    /// On a terminal the result follows at the end.
    fn draw(&mut self, event: &Event<'_>) {
        let state = match event {
            Event::Rung { .. } => {
                self.title = title(event);
                "starting".to_owned()
            }
            Event::Trial { tps, blocks, interval, .. } => trial_line(*tps, *blocks, *interval, self.live),
            Event::Done(_) => return self.line.clear(),
            Event::Profile { name } => {
                (*name).clone_into(&mut self.title);
                "profiling".to_owned()
            }
        };
        self.line.show(&format!("{}: {state}", self.title));
    }

    fn log(&mut self, event: &Event<'_>) {
        let line = match event {
            Event::Rung { .. } => {
                self.title = title(event);
                return;
            }
            Event::Trial { .. } if self.logged.elapsed() < SILENCE => return,
            Event::Trial { tps, blocks, interval, .. } => {
                format!("{}: {}", self.title, trial_line(*tps, *blocks, *interval, self.live))
            }
            Event::Done(rung) => rung_line(rung, self.live),
            Event::Profile { name } => profiling_line(name),
        };
        stderrln!("{line}");
        self.logged = Instant::now();
    }
}

/// What a rung that begins is called.
fn title(event: &Event<'_>) -> String {
    let Event::Rung { step, steps, name, against } = event else { return String::new() };
    let against = against.map_or_else(String::new, |against| format!(" against {against}"));
    format!("[{step}/{steps}] {name}{against}")
}
