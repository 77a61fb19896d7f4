//! `udpath boost`: climbs the ladder and measures the gain.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, anyhow};
use udpath_advise::ladder::{ladder, without_root};
use udpath_advise::result::{LeftOut, Ratio, Verdict};
use udpath_advise::statistics::Bound;
use udpath_advise::{Config, Error, Event};
use udpath_load::Engine;
use udpath_protocols::{ProtocolEntry, echo};
use udpath_report::{Render, WriteError, boost_text};
use udpath_serve::Io;

use crate::exit::{Done, Failure};
use crate::terminal;

/// Default requests in flight over all flows. Fewer: fast rungs idle while they wait for the link's moderation. More: the
/// ring of a veth queue (256 frames) overflows where flows drift to one queue.
const IN_FLIGHT: u32 = 384;
/// Default interrupt moderation of the link, microseconds: what 10 Gbit/s NICs have under load (ixgbe and i40e 50 to 125).
/// Less: bursts are a few frames, handling them well makes no difference, and the timers cost more than they save. More:
/// the timer dominates latency.
const MODERATION: u32 = 75;

/// What the servers under test speak: the kernel engine needs an echo server.
const PROTOCOL: &ProtocolEntry = &echo::ENTRY;

/// Arguments of `udpath boost`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Climb in a lab: two network namespaces joined by a veth pair; nothing outside it is changed
    #[arg(long)]
    lab: bool,
    /// Receive and transmit queues of the link [default: one per CPU, at most 8]
    #[arg(long, value_name = "N")]
    queues: Option<u32>,
    /// Interrupt moderation of the link, microseconds: how long an end waits for more frames; 0: off [default: 75 with
    /// the kernel engine, 0 with the socket engine]
    #[arg(long, value_name = "US")]
    moderation: Option<u32>,
    /// Io to try: shared, reuseport, percpu, xdp
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "shared,reuseport,percpu,xdp")]
    io: Vec<String>,
    /// Workers of the server [default: one per queue]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Payload bytes of a request
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    size: usize,
    /// Number of flows (source ports)
    #[arg(long, value_name = "N", default_value_t = 64)]
    flows: u32,
    /// Requests in flight per flow [default: 384 over all flows]
    #[arg(long, value_name = "N")]
    inflight: Option<u32>,
    /// Length of one trial
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    seconds: f64,
    /// Stop comparing once the half-width of the ratio's 95 % interval is below this, per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.5)]
    bound: f64,
    /// Limit of blocks of four trials per rung; a rung undecided by then is "not shown"
    #[arg(long, value_name = "N", default_value_t = 16)]
    blocks: usize,
    /// Load engine: kernel (in-kernel closed loop) or socket [default: kernel as root, otherwise socket]
    #[arg(long, value_name = "ENGINE", value_parser = ["kernel", "socket"])]
    engine: Option<String>,
    /// Use IPv6
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Skip the profiles of the first and the best rung
    #[arg(long)]
    no_profile: bool,
    /// Print everything: notes, latency, costs and CPU time of the rungs, classes of CPU time, load and machine
    #[arg(long, conflicts_with = "json")]
    details: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Also write the result as one self-contained HTML file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// Climbs and prints the result.
pub(crate) fn run(args: Args) -> Done {
    if !args.lab {
        return Err(Failure::Usage("boost needs --lab: it works only in a lab so far".into()));
    }
    let mut config = config(&args)?;
    config.check().map_err(|error| Failure::Usage(error.to_string()))?;
    if let Some(path) = &args.report {
        // Checked first: minutes of work must not end at a file that cannot be written.
        udpath_report::check_writable(path).map_err(|error| match error {
            WriteError::Folder { .. } => Failure::Usage(format!("--report: {error}")),
            error => Failure::Cannot(error.into()),
        })?;
    }
    let mut notices = Vec::new();
    if config.queues == 1 && args.io.iter().any(|io| io == Io::Percpu.name()) {
        config.left_out.push(LeftOut {
            name: Io::Percpu.name().to_owned(),
            reason: "with one queue all datagrams arrive on the same CPU; use --queues 2 or more".to_owned(),
        });
    }
    // Root of a user namespace lacks the same as an ordinary user.
    if !udpath_lab::missing().is_empty() {
        if args.engine.as_deref() == Some("kernel") {
            return Err(anyhow!("--engine kernel needs CAP_BPF: run as root, or use --engine socket").into());
        }
        udpath_lab::enter_user_namespace().context("boost without root needs a user namespace")?;
        config.engine = Engine::Socket;
        config.moderation = moderation(&args, config.engine);
        let (possible, left_out) = without_root(config.ladder);
        config.ladder = possible;
        config.left_out.extend(left_out);
        notices.push("not root: the socket engine sends the load, in a user namespace".to_owned());
    }
    let stop = Arc::new(AtomicBool::new(false));
    terminal::stop_on_signals(&stop)?;
    let mut watcher = Watcher::new();
    let load = (PROTOCOL.load)(u64::from(std::process::id()));
    let done = udpath_advise::boost(&config, &*load, &mut |event| watcher.show(event), &stop);
    watcher.clear();
    let mut result = done.map_err(|error| match error {
        Error::Config(error) => Failure::Usage(error.to_string()),
        other => Failure::Cannot(other.into()),
    })?;
    result.warnings.splice(0..0, notices);
    if args.json {
        terminal::print(&result.json())?;
    } else {
        terminal::print(&boost_text(&result, &terminal::style(), args.details))?;
    }
    if let Some(path) = &args.report {
        udpath_report::write_html(path, &result)
            .context("the result above is complete, but its report was not written")?;
        eprintln!("report: {}", path.display());
    }
    Ok(())
}

fn config(args: &Args) -> Result<Config, Failure> {
    let usage = |text: String| Failure::Usage(text);
    let cpus = udpath_lab::online_cpus().context("cannot count the CPUs")?.len() as u32;
    let queues = args.queues.unwrap_or_else(|| cpus.clamp(1, 8));
    let flows = args.flows.max(1);
    let ios = args.io.iter().map(|name| io(name)).collect::<Result<Vec<_>, _>>().map_err(usage)?;
    if !(0.05..=3600.0).contains(&args.seconds) {
        return Err(usage(format!("--seconds {}: a trial lasts 0.05 to 3600 seconds", args.seconds)));
    }
    let engine = if args.engine.as_deref() == Some("socket") { Engine::Socket } else { Engine::Kernel };
    Ok(Config {
        program: std::env::current_exe().context("cannot find this program's own file")?,
        queues,
        moderation: moderation(args, engine),
        ladder: ladder(&ios, queues),
        left_out: Vec::new(),
        workers: args.workers.unwrap_or(queues.clamp(1, 1024) as usize),
        size: args.size,
        flows: args.flows,
        inflight: args.inflight.unwrap_or_else(|| (IN_FLIGHT / flows).max(1)),
        trial: Duration::from_secs_f64(args.seconds),
        bound: Bound::new(args.bound / 100.0, args.blocks).map_err(|error| usage(error.to_string()))?,
        engine,
        ipv6: args.ipv6,
        profile: !args.no_profile,
        command: Some(command()),
    })
}

/// Off without the kernel engine: some ends then lack NAPI, and rungs would be moderated unequally.
fn moderation(args: &Args, engine: Engine) -> u32 {
    args.moderation.unwrap_or(if engine == Engine::Kernel { MODERATION } else { 0 })
}

fn io(name: &str) -> Result<Io, String> {
    Io::ALL.into_iter().find(|io| io.name() == name).ok_or_else(|| {
        let known: Vec<_> = Io::ALL.iter().map(|io| io.name()).collect();
        format!("unknown --io {name}: expected {}", known.join(", "))
    })
}

/// The command line of this run, quoted where a shell needs it.
fn command() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:".contains(c);
    let quoted = |word: String| {
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    let words = std::env::args_os().skip(1).map(|word| quoted(word.to_string_lossy().into_owned()));
    std::iter::once("udpath".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Progress on the terminal's last line, or a line per rung if stderr is not a terminal.
struct Watcher {
    live: bool,
    step: (usize, usize),
    name: String,
    against: Option<String>,
}

impl Watcher {
    fn new() -> Self {
        let live = std::io::stderr().is_terminal();
        Self { live, step: (0, 0), name: String::new(), against: None }
    }

    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Rung { step, steps, name, against } => {
                self.step = (*step, *steps);
                self.name = (*name).to_owned();
                self.against = against.map(str::to_owned);
                self.line("starting");
            }
            Event::Trial { tps, blocks: (done, most), interval, .. } => {
                let ratio = interval.as_ref().map_or_else(String::new, ratio);
                self.line(&format!("{:>7.0} k/s  block {} of at most {most}{ratio}", tps / 1000.0, done + 1));
            }
            // On a terminal the result follows; a log gets a line per rung.
            Event::Done(_) if self.live => self.clear(),
            Event::Done(rung) => {
                let verdict = match rung.verdict {
                    Verdict::Base => "the first rung",
                    Verdict::Better => "better, kept",
                    Verdict::Worse => "worse, undone",
                    Verdict::NotShown => "no difference shown, undone",
                    Verdict::Failed => "failed",
                };
                eprintln!("{:<10} {:>7.0} k/s  {verdict}", rung.name, rung.tps / 1000.0);
            }
            Event::Profile { name } if self.live => {
                (self.name, self.against) = ((*name).to_owned(), None);
                self.line("profiling");
            }
            Event::Profile { name } => eprintln!("{name:<10} profiling"),
        }
    }

    fn line(&self, state: &str) {
        if self.live {
            let against = self.against.as_ref().map_or_else(String::new, |a| format!(" against {a}"));
            // Fails only if stderr is closed.
            let _ = write!(
                std::io::stderr(),
                "\r\x1b[K[{}/{}] {}{against}: {state}",
                self.step.0,
                self.step.1,
                self.name
            );
        }
    }

    fn clear(&self) {
        if self.live {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn ratio(ratio: &Ratio) -> String {
    format!("  x {:.3} ({:.3}-{:.3})", ratio.ratio, ratio.low, ratio.high)
}
