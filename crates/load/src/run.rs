//! One way in for all engines.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::plan::{Mode, Plan, PlanError, Transport};
use crate::record::Outcome;
use crate::result::{Delivered, LoadResult};
use crate::template::{Protocol, Received};
use crate::{Error, Progress, kernel, socket, xdp};

/// How long a receiver may take to answer what it has received.
const ASK: Duration = Duration::from_secs(1);
/// Time between two questions to a receiver that is still reading what was queued.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Most questions after a run: a receiver with 4 s of traffic queued is no longer waited for.
const QUESTIONS: usize = 80;

/// What carries a plan out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Kernel sockets: every plan.
    Socket,
    /// BPF in the driver: closed loop, UDP, `rr`, one target; an echo server at the other end.
    Kernel,
    /// AF_XDP ports, past the kernel's UDP: UDP, `rr`, by one interface, requests that fit a frame.
    Xdp,
    /// The same, but what is sent goes through AF_XDP alone, however much is due at once.
    XdpRings,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Socket => "socket",
            Self::Kernel => "kernel",
            Self::Xdp => "xdp",
            Self::XdpRings => "xdp-rings",
        })
    }
}

/// Carries out `plan` and reports what happened. Takes the warm-up, the window and at most two timeouts to drain.
///
/// `progress` is called a few times per second from the calling thread. Setting `stop` ends the window early; the
/// result then covers what was measured until then. Sockets belong to the network namespace of the calling thread.
///
/// # Errors
/// [`Error::Plan`] before anything is opened; otherwise the system call or the event that made the run impossible, or
/// [`Error::Cut`] with what was measured before.
pub fn run(
    plan: &Plan,
    engine: Engine,
    protocol: &dyn Protocol,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<LoadResult, Error> {
    plan.check()?;
    if plan.size < protocol.min_size() {
        let (protocol, min) = (protocol.name(), protocol.min_size());
        return Err(PlanError::TooSmall { size: plan.size, protocol, min }.into());
    }
    match (engine, plan.mode) {
        (Engine::Kernel, _) => kernel::run(plan, progress, stop),
        (Engine::Xdp, _) => finish(plan, xdp::run(plan, true, protocol, progress, stop)?),
        (Engine::XdpRings, _) => finish(plan, xdp::run(plan, false, protocol, progress, stop)?),
        (Engine::Socket, Mode::Rr) => finish(plan, socket::run(plan, protocol, progress, stop)?),
        (Engine::Socket, Mode::Stream | Mode::Flood) => one_way(plan, protocol, progress, stop),
    }
}

fn finish(plan: &Plan, (outcome, cut): (Outcome, Option<String>)) -> Result<LoadResult, Error> {
    let result = outcome.into_result(plan);
    match cut {
        None => Ok(result),
        Some(why) => Err(Error::Cut { result: Box::new(result), why }),
    }
}

/// A one-way run, with the receiver asked before and after. The warm-up is a run of its own, so that the receiver's
/// counts are those of the window.
fn one_way(
    plan: &Plan,
    protocol: &dyn Protocol,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<LoadResult, Error> {
    let mut plan = plan.clone();
    if !plan.warmup.is_zero() {
        let warmup = Plan { duration: plan.warmup, warmup: Duration::ZERO, ..plan.clone() };
        finish(&warmup, socket::run(&warmup, protocol, &mut |_| (), stop)?)?;
        plan.warmup = Duration::ZERO;
        settled(&plan, protocol);
    }
    let before = ask(&plan, protocol);
    let (mut outcome, cut) = socket::run(&plan, protocol, progress, stop)?;
    let after = if before.is_some() && cut.is_none() { settled(&plan, protocol) } else { None };
    outcome.delivered = match (before, after) {
        (Some(before), Some(after)) => {
            let datagrams = after.datagrams.saturating_sub(before.datagrams);
            let bytes = after.bytes.saturating_sub(before.bytes);
            let per_second = datagrams as f64 / outcome.seconds.max(f64::MIN_POSITIVE);
            Some(Delivered { datagrams, bytes, per_second })
        }
        _ => {
            outcome.warnings.push(match plan.transport {
                Transport::Udp => format!(
                    "what arrived is unknown: {} did not report it (a sink of this program would)",
                    plan.targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
                ),
                Transport::Tcp => {
                    "what arrived is unknown: counted is what the kernel took, and the last of it may \
                                   still be in socket buffers"
                        .into()
                }
            });
            None
        }
    };
    finish(&plan, (outcome, cut))
}

/// What all targets have received so far; none unless all answer.
fn ask(plan: &Plan, protocol: &dyn Protocol) -> Option<Received> {
    let mut targets = plan.targets.clone();
    targets.sort_unstable();
    targets.dedup();
    let transport = plan.transport;
    targets.into_iter().try_fold(Received::default(), |sum, target| {
        let one = protocol.received(target, transport, ASK)?;
        Some(Received { datagrams: sum.datagrams + one.datagrams, bytes: sum.bytes + one.bytes })
    })
}

/// What all targets have received once that stands still.
fn settled(plan: &Plan, protocol: &dyn Protocol) -> Option<Received> {
    let mut last = ask(plan, protocol)?;
    for _ in 0..QUESTIONS {
        std::thread::sleep(ASK_AGAIN);
        let now = ask(plan, protocol)?;
        if now.bytes == last.bytes {
            return Some(now);
        }
        last = now;
    }
    Some(last)
}
