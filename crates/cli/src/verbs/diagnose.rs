//! `udpath diagnose`: which link of a datagram's way is saturated first, what is wrong, and what to do.
//!
//! ```text
//!            ┌─ sampling ─┐
//! snapshot ──┴────────────┴── snapshot ─▸ Diagnosis ─▸ text or JSON, exit code 1 with findings
//!                                           └─ --watch: changes from one to the next, until interrupted
//! ```
//! What can be told to the server that reads is in `levers.rs`. It reads and changes nothing. Where the CPUs may not be
//! sampled, it goes on without and says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use udpath_advise::diagnosis::{Counted, Diagnosis, changes, only_own};
use udpath_host::map::{Map, Selection};
use udpath_host::namespace::{self, Place};
use udpath_host::sockets::looks::{Asked, Looks};
use udpath_host::source::Folder;
use udpath_host::{Snapshot, Source};
use udpath_profile::Profile;
use udpath_profile::facts::Focus;
use udpath_profile::recorder::{Moment, RATE, Wanted};
use udpath_profile::trace::{self, Sampling, ServedMeter};
use udpath_report::{change_json, change_text, diagnosis_text, to_json};
use udpath_support::Capture;

use super::levers::{self, Arguments};
use super::{machine, show};
use crate::args::diagnose::Args;
use crate::args::place::of_process;
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};
use crate::terminal::{self, StatusLine};

/// Interval at which an interruption is looked for while nothing is sampled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs the verb.
pub(crate) fn run(args: &Args) -> Done {
    if let Some(path) = &args.place.sysroot {
        let diagnosis = of_capture(&machine::open_capture(path)?, args.what.as_deref())?;
        return finish(&diagnosis, args.json);
    }
    let stop = signals::watch(Left::Nothing)?.flag();
    namespace::inside(&place(args), || {
        let source = Folder::live();
        if args.watch {
            return watch(args, &source, stop);
        }
        finish(&look(args, &source, stop)?, args.json)
    })?
}

/// The namespace to look at: the one requested, or that of the process asked for.
fn place(args: &Args) -> Place {
    let pid = args.what.as_deref().and_then(|what| what.strip_prefix("pid:")?.parse().ok());
    match (args.place.namespace.place(), pid) {
        (Place::Here, Some(pid)) => of_process(pid).unwrap_or(Place::Here),
        (place, _) => place,
    }
}

/// Prints a diagnosis; findings are the exit code.
fn finish(diagnosis: &Diagnosis, json: bool) -> Done {
    if json {
        terminal::print(&to_json(diagnosis))?;
    } else {
        terminal::print(&diagnosis_text(diagnosis, &terminal::style()))?;
    }
    if diagnosis.has_findings() { Err(Failure::Found) } else { Ok(()) }
}

fn of_capture(captured: &Capture, what: Option<&str>) -> Result<Diagnosis, Failure> {
    let now = Snapshot::read(&*captured.now());
    let earlier = captured.earlier().map(|earlier| Snapshot::read(&*earlier));
    let selection = selected(&now, what)?;
    let profile = Err("a capture has no samples");
    Diagnosis::new(&now, earlier.as_ref(), &selection, profile).map_err(Failure::usage)
}

/// What is selected, which must exist. A bare number is a port if a socket is bound to it, otherwise a process.
fn selected(now: &Snapshot, what: Option<&str>) -> Result<Selection, Failure> {
    let (selection, otherwise) = show::select(now, what)?;
    match (Map::new(now, None, &selection), otherwise) {
        (Ok(_), _) => Ok(selection),
        (Err(_), Some(other)) if Map::new(now, None, &other).is_ok() => Ok(other),
        (Err(error), _) => Err(Failure::usage(error)),
    }
}

/// Watches one interval.
fn look(args: &Args, source: &dyn Source, stop: &AtomicBool) -> Result<Diagnosis, Failure> {
    let before = Snapshot::read(source);
    // A missing object is reported before the interval, not after it.
    let selection = selected(&before, args.what.as_deref())?;
    let mut line = StatusLine::new();
    line.show(&format!("watching for {} s; ^C ends it now", args.duration.as_secs_f64()));
    let mut watched = Watched::new(args, source, before, &selection, stop);
    line.clear();
    show::look_closer(&mut watched.now, args.what.as_deref(), false)?;
    let Watched { earlier, now, looks, profile, counted } = &mut watched;
    let not_counted =
        profile.as_mut().ok().and_then(|profile| only_own(profile, (earlier, now), &selection, counted));
    let profile = profile.as_ref().map_err(String::as_str);
    let mut diagnosis =
        Diagnosis::watched(now, Some(earlier), looks, &selection, profile).map_err(Failure::usage)?;
    diagnosis.no_capacity = not_counted.or(diagnosis.no_capacity);
    levers::offer(now, &mut diagnosis, &place(args), Arguments::Shown);
    Ok(diagnosis)
}

/// An interval: the snapshots at its ends, looks at the sockets' queues in between, and a profile of it, or why there
/// is none.
struct Watched {
    earlier: Snapshot,
    now: Snapshot,
    looks: Looks,
    profile: Result<Profile, String>,
    /// What the selected sockets received and sent.
    counted: Counted,
}

impl Watched {
    fn new(
        args: &Args,
        source: &dyn Source,
        before: Snapshot,
        selection: &Selection,
        stop: &AtomicBool,
    ) -> Self {
        let mut meter = Meter::start(&before, selection);
        let profile = match args.no_profile {
            true => Err("--no-profile was given".to_owned()),
            false => Self::sampled(args, source, before, selection, stop, &mut meter),
        };
        let (earlier, now, mut looks, profile) = match profile {
            Ok(((earlier, now), looks, profile)) => (earlier, now, looks, Ok(profile)),
            Err(why) => {
                let earlier = Snapshot::read(source);
                meter.begins(args.duration);
                let looking = Looking::start();
                let began = Instant::now();
                while began.elapsed() < args.duration && !stop.load(Ordering::Relaxed) {
                    thread::sleep(POLL_INTERVAL.min(args.duration.saturating_sub(began.elapsed())));
                }
                let looks = looking.end();
                meter.ends();
                (earlier, Snapshot::read(source), looks, Err(why))
            }
        };
        meter.tell(&mut looks);
        Self { earlier, now, looks, profile, counted: meter.counted }
    }

    /// With the snapshots taken when sampling begins and ends, so that both cover the same time.
    fn sampled(
        args: &Args,
        source: &dyn Source,
        before: Snapshot,
        selection: &Selection,
        stop: &AtomicBool,
        meter: &mut Meter,
    ) -> Result<((Snapshot, Snapshot), Looks, Profile), String> {
        let focus = focus(&before, selection);
        let wanted =
            Wanted { cpus: before.cpus.online.clone(), pid: None, length: args.duration, rate: RATE };
        let traced = [trace::Source::Locks, trace::Source::Drops].into();
        let (mut first, mut last, mut looking, mut looks) = (None, None, None, Looks::default());
        let measured =
            udpath_profile::measure(&wanted, &traced, source, before, stop, |moment| match moment {
                Moment::Begin => {
                    first = Some(Snapshot::read(source));
                    meter.begins(args.duration);
                    looking = Some(Looking::start());
                }
                Moment::End => {
                    looks = looking.take().map(Looking::end).unwrap_or_default();
                    meter.ends();
                    last = Some(Snapshot::read(source));
                }
            });
        let profile = measured.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
        let snapshots = first.zip(last).ok_or("sampling did not end")?;
        Ok((snapshots, looks, profile.about(focus)))
    }
}

/// Samples what the selected sockets receive and send.
struct Meter {
    port: u16,
    /// Or why it does not count. Taken when sampling begins.
    meter: Option<Result<ServedMeter, String>>,
    sampling: Option<Result<Sampling, String>>,
    counted: Counted,
}

impl Meter {
    fn start(before: &Snapshot, selection: &Selection) -> Self {
        let of =
            || before.sockets.list.iter().filter(|socket| socket.peer.is_none() && selection.takes(socket));
        let mut ports: Vec<u16> = of().map(|socket| socket.local.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        let (port, meter) = match (selection, &ports[..]) {
            (Selection::All | Selection::Interface(_), _) => {
                (0, Err("no port was named, so what each socket receives was not counted".to_owned()))
            }
            // One that is bound to an address answers from that.
            (_, [port]) => {
                (*port, ServedMeter::start(*port, of().any(|socket| socket.local.ip().is_unspecified())))
            }
            _ => (0, Err("the process has several ports: name one".to_owned())),
        };
        Self { port, meter: Some(meter), sampling: None, counted: Err("sampling did not end".to_owned()) }
    }

    /// `interval`: how long it is to be.
    fn begins(&mut self, interval: Duration) {
        self.sampling = self.meter.take().map(|meter| meter.map(|meter| meter.sample(interval)));
    }

    fn ends(&mut self) {
        self.counted = match self.sampling.take() {
            Some(Ok(sampling)) => {
                sampling.end().ok_or_else(|| "the counts of the sockets cannot be read".to_owned())
            }
            Some(Err(why)) => Err(why),
            None => Err("sampling did not begin".to_owned()),
        };
    }

    /// Adds which addresses were asked, and which answered.
    fn tell(&self, looks: &mut Looks) {
        let seen = self.counted.iter().flat_map(|sample| &sample.own.addresses);
        let asked = |&(address, asked, answered): &_| Asked { address, asked, answered };
        looks.add_addresses(self.port, seen.map(asked).collect());
    }
}

/// A thread that looks at the sockets' queues until it is told to end. It is in the network namespace of the thread
/// that starts it.
struct Looking {
    over: Sender<()>,
    thread: JoinHandle<Looks>,
}

impl Looking {
    fn start() -> Self {
        let (over, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            let (source, mut looks) = (Folder::live(), Looks::default());
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(looks.look(&source)) {}
            looks
        });
        Self { over, thread }
    }

    fn end(self) -> Looks {
        // Without its sender it ends.
        drop(self.over);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The processes whose datagrams these are; none for everything.
fn focus(now: &Snapshot, selection: &Selection) -> Focus {
    let port = match selection {
        Selection::Port(port) => Some(*port),
        Selection::Process(_) => None,
        Selection::All | Selection::Interface(_) => return Focus::default(),
    };
    let sockets = now.sockets.list.iter().filter(|socket| selection.takes(socket));
    let mut pids: Vec<u32> = sockets.flat_map(|socket| &socket.owners).map(|owner| owner.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    Focus { port, pids }
}

/// Repeats until interrupted, and prints what changes. What was selected may go and come back.
fn watch(args: &Args, source: &dyn Source, stop: &AtomicBool) -> Done {
    let style = terminal::style();
    // What was last reported, not what was last seen: slow growth adds up.
    let mut reported: Option<Diagnosis> = None;
    let mut gone = false;
    while !stop.load(Ordering::Relaxed) {
        let now = match look(args, source, stop) {
            Ok(now) => now,
            Err(Failure::Usage(why)) if reported.is_some() => {
                if !std::mem::replace(&mut gone, true) {
                    stderrln!("udpath: {why}");
                }
                thread::sleep(POLL_INTERVAL);
                continue;
            }
            Err(error) => return Err(error),
        };
        gone = false;
        // An interval that was cut short says less than the one before.
        if stop.load(Ordering::Relaxed) && reported.is_some() {
            break;
        }
        let changed = changes(reported.as_ref(), &now);
        for change in &changed {
            let line = if args.json {
                change_json(change, now.taken)
            } else {
                change_text(change, now.taken, &style)
            };
            terminal::print(&line)?;
        }
        reported = Some(match reported.take() {
            Some(then) => then.updated(now),
            None => now,
        });
    }
    Ok(())
}
