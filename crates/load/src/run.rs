//! The entry point for all engines, and one-way runs, whose receivers report the datagrams received.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::plan::{Mode, Plan, PlanError, Transport};
use crate::record::{Arrived, Outcome};
use crate::result::{LoadResult, Share, Slices};
use crate::template::{Protocol, Received};
use crate::{Error, Progress, kernel, socket, xdp};

/// How long a target may take to answer the questions of [`Protocol::prepare`]. Shorter: a server that is still
/// starting, or a lost datagram, ends the run; longer: a run without a server reports that later.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a receiver may take to send its report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two reports of a receiver that is still reading its queue.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of reports read after a run: a receiver with more than 4 s of traffic queued is not waited for.
const MAX_POLLS: usize = 80;

/// The engine that carries out a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Kernel sockets: every plan.
    Socket,
    /// BPF in the driver: closed loop, UDP, `rr`, through one interface; protocols that declare
    /// [`Protocol::in_kernel`].
    Kernel,
    /// AF_XDP ports, bypassing the kernel's UDP: UDP, `rr`, through one interface, requests that fit a frame.
    Xdp,
    /// Like `Xdp`, but never sends live frames.
    XdpRings,
}

impl Engine {
    /// All engines.
    pub const ALL: [Self; 4] = [Self::Socket, Self::Kernel, Self::Xdp, Self::XdpRings];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Kernel => "kernel",
            Self::Xdp => "xdp",
            Self::XdpRings => "xdp-rings",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Carries out this machine's segment of `plan` and returns what was measured. Takes the time until the start, the
/// warm-up, the window and at most two timeouts to drain.
///
/// `progress` is called a few times per second from the calling thread. Setting `stop` ends the window early; the
/// result then covers what was measured until then. Sockets belong to the network namespace of the calling thread.
///
/// # Errors
/// [`Error::Plan`] before anything is opened; otherwise the system call or the event that made the run impossible, or
/// [`Error::Cut`] with what was measured until then.
pub fn run(
    plan: &Plan,
    engine: Engine,
    protocol: &dyn Protocol,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<LoadResult, Error> {
    let fitted;
    let plan = match protocol.lengths() {
        None => plan,
        Some(lengths) => {
            fitted = Plan { size: lengths.longest, ..plan.clone() };
            &fitted
        }
    };
    plan.check()?;
    if engine != Engine::Socket && !plan.sockets.is_default() {
        let what =
            "--congestion, --sndbuf and --rcvbuf are options of kernel sockets: use --engine socket".into();
        return Err(PlanError::Engine { engine: engine.name(), what }.into());
    }
    if plan.size < protocol.min_size() {
        let (protocol, min) = (protocol.name(), protocol.min_size());
        return Err(PlanError::TooSmall { size: plan.size, protocol, min }.into());
    }
    if plan.size > protocol.max_size() {
        let (protocol, max) = (protocol.name(), protocol.max_size());
        return Err(PlanError::TooLarge { size: plan.size, protocol, max }.into());
    }
    let (in_flight, most) = (plan.in_flight_per_flow(), protocol.ids());
    if plan.mode == Mode::Rr && in_flight > most {
        let flows = (in_flight * u64::from(plan.flows)).div_ceil(most);
        return Err(PlanError::TooManyInFlight { protocol: protocol.name(), in_flight, most, flows }.into());
    }
    let prepared = protocol.prepare(plan, PREPARE_TIMEOUT);
    let prepared = prepared.map_err(|source| Error::Unprepared { protocol: protocol.name(), source })?;
    let protocol = prepared.as_deref().unwrap_or(protocol);
    let mut slices = Slices::default();
    let mut watched = |now: &Progress| {
        slices.add(now);
        progress(now);
    };
    let mut done = carry_out(plan, engine, protocol, &mut watched, stop);
    let result = match &mut done {
        Ok(result) => result,
        Err(Error::Cut { result, .. }) => &mut **result,
        Err(_) => return done,
    };
    result.series = slices.series();
    result.segment = plan.start_at.map(|_| Share::of(plan, protocol.name()));
    result.warnings.extend(protocol.hint(result));
    done
}

fn carry_out(
    plan: &Plan,
    engine: Engine,
    protocol: &dyn Protocol,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<LoadResult, Error> {
    match (engine, plan.mode) {
        (Engine::Kernel, _) => kernel::run(plan, protocol, progress, stop),
        (Engine::Xdp, _) => finish(plan, protocol, xdp::run(plan, true, protocol, progress, stop)?),
        (Engine::XdpRings, _) => finish(plan, protocol, xdp::run(plan, false, protocol, progress, stop)?),
        (Engine::Socket, Mode::Rr) => finish(plan, protocol, socket::run(plan, protocol, progress, stop)?),
        (Engine::Socket, Mode::Stream | Mode::Flood) => one_way(plan, protocol, progress, stop),
    }
}

fn finish(
    plan: &Plan,
    protocol: &dyn Protocol,
    (outcome, cut): (Outcome, Option<String>),
) -> Result<LoadResult, Error> {
    let size = protocol.lengths().map_or(plan.size, |lengths| lengths.mean);
    let result = outcome.into_result(&Plan { size, ..plan.clone() });
    match cut {
        None => Ok(result),
        Some(why) => Err(Error::Cut { result: Box::new(result), why }),
    }
}

/// A one-way run; reads the receivers' counters before and after it. The warm-up is a separate run, so that the
/// counters cover the window only; it is the one that starts at the plan's time.
fn one_way(
    plan: &Plan,
    protocol: &dyn Protocol,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<LoadResult, Error> {
    let mut plan = plan.clone();
    if !plan.warmup.is_zero() {
        let warmup = Plan { duration: plan.warmup, warmup: Duration::ZERO, ..plan.clone() };
        finish(&warmup, protocol, socket::run(&warmup, protocol, &mut |_| (), stop)?)?;
        (plan.warmup, plan.start_at) = (Duration::ZERO, None);
        settled(&plan, protocol);
    }
    if protocol.asked_by_caller() {
        return finish(&plan, protocol, socket::run(&plan, protocol, progress, stop)?);
    }
    let before = ask(&plan, protocol);
    let (mut outcome, cut) = socket::run(&plan, protocol, progress, stop)?;
    let asked = before.filter(|_| cut.is_none());
    let at_the_end = asked.and_then(|_| ask(&plan, protocol));
    let after = at_the_end.and_then(|_| settled(&plan, protocol));
    outcome.delivered = match (asked, at_the_end, after) {
        (Some(before), Some(at_the_end), Some(after)) => {
            let all = after.since(before);
            let in_window = match plan.transport {
                Transport::Udp => all.bytes,
                Transport::Tcp => at_the_end.since(before).bytes,
            };
            Some(Arrived { all, in_window })
        }
        _ => {
            let targets = plan.targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            outcome.warnings.push(unreported(protocol.name(), plan.transport, &targets));
            None
        }
    };
    finish(&plan, protocol, (outcome, cut))
}

/// The warning of a one-way run whose receivers do not report what they received. Servers of `udpath serve PROTOCOL`
/// do.
#[must_use]
pub fn unreported(protocol: &str, transport: Transport, targets: &str) -> String {
    match transport {
        Transport::Udp => {
            format!(
                "the number of datagrams received is unknown: {targets} did not report it (`udpath serve {protocol}` does)"
            )
        }
        Transport::Tcp => format!(
            "the number of bytes received is unknown: {targets} did not report it (`udpath serve {protocol} --tcp` does, over \
             UDP); the counts are what the kernel accepted, and the last of it may still be in socket buffers"
        ),
    }
}

/// The total received so far by all targets; none unless all of them report it.
fn ask(plan: &Plan, protocol: &dyn Protocol) -> Option<Received> {
    let mut targets = plan.targets.clone();
    targets.sort_unstable();
    targets.dedup();
    let transport = plan.transport;
    let none = Received { cpu: Some(Duration::ZERO), ..Received::default() };
    targets.into_iter().try_fold(none, |sum, target| {
        let one = protocol.received(target, transport, REPORT_TIMEOUT)?;
        Some(sum.plus(one))
    })
}

/// The total received by all targets once it no longer changes.
fn settled(plan: &Plan, protocol: &dyn Protocol) -> Option<Received> {
    settle(plan.transport, || Ok::<_, std::convert::Infallible>(ask(plan, protocol)))
        .unwrap_or_else(|never| match never {})
}

/// Reads reports until the bytes received no longer change, within bounds; none if the receiver stops reporting.
///
/// # Errors
/// Those of `ask`.
pub fn settle<E>(
    transport: Transport,
    mut ask: impl FnMut() -> Result<Option<Received>, E>,
) -> Result<Option<Received>, E> {
    let mut last = ask()?;
    let mut still = 0;
    for _ in 0..MAX_POLLS {
        let Some(before) = last else { break };
        std::thread::sleep(POLL_INTERVAL);
        last = ask()?;
        still = if last.is_some_and(|now| now.bytes == before.bytes) { still + 1 } else { 0 };
        if still >= still_for(transport) {
            break;
        }
    }
    Ok(last)
}

/// How many times in a row a receiver must report the same bytes. TCP retransmits a loss after 200 ms or more (Linux's
/// TCP_RTO_MIN; RFC 6298 requires a second).
fn still_for(transport: Transport) -> usize {
    match transport {
        Transport::Udp => 1,
        Transport::Tcp => 10,
    }
}
