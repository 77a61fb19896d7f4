//! The socket engine: carries out a plan with threads over kernel sockets.
//!
//! With T threads, the machine's own flow `i` belongs to thread `i mod T`, which has one epoll instance for all of its
//! flows.

mod sys;
mod tcp;
mod udp;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::clock::Clock;
use crate::flows::Granted;
use crate::plan::{Mode, Plan, Transport};
use crate::record::Outcome;
use crate::template::Protocol;
use crate::threads::{self, Poller, Report, Shared};
use crate::transmit::{self, Ledger};
use crate::{Error, Progress, elsewhere, start};

/// The input of one thread.
struct Task<'a> {
    ledger: Ledger<'a>,
    sockets: Vec<OwnedFd>,
    poller: Poller,
    /// Longest reply, bytes.
    max_reply: usize,
}

/// Carries out `plan`; returns the outcome, and why the run ended early if it did.
pub(crate) fn run(
    plan: &Plan,
    protocol: &dyn Protocol,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<(Outcome, Option<String>), Error> {
    let mut parts: Vec<Vec<OwnedFd>> = (0..plan.threads).map(|_| Vec::new()).collect();
    let sockets = crate::flows::open(plan)?;
    let granted = Granted::read(&plan.sockets, sockets.first());
    for (flow, socket) in sockets.into_iter().enumerate() {
        parts[flow % plan.threads].push(socket);
    }
    let shared = Shared::new(stop, plan.threads);
    let mut clock = Clock::new(Instant::now(), plan);
    let mut tasks = Vec::with_capacity(plan.threads);
    for (thread, sockets) in parts.into_iter().enumerate() {
        let poller = Poller::new().map_err(|e| Error::system("make an epoll instance", e))?;
        let template = protocol.template();
        let max_reply = template.max_reply(plan.size);
        let numbers = (thread as u32..plan.own_flows()).step_by(plan.threads).map(|own| plan.flow(own));
        let ledger = Ledger::new(plan, thread, clock, &shared, template, numbers);
        tasks.push(Task { ledger, sockets, poller, max_reply });
    }
    let unclaimed = elsewhere::unclaimed();
    clock = Clock::new(start::await_start(plan, stop)?, plan);
    tasks.iter_mut().for_each(|task| task.ledger.clock = clock);
    let (reports, cpus) = threads::run(plan, clock, &shared, tasks, work, progress)?;
    let (mut outcome, cut) = threads::conclude("socket", plan, protocol, reports, cpus);
    outcome.evidence.notes.extend(granted.note);
    outcome.warnings.extend(granted.warnings);
    let (counts, unclaimed) = (&outcome.counts, elsewhere::unclaimed().saturating_sub(unclaimed));
    if (plan.transport, plan.mode) == (Transport::Udp, Mode::Rr)
        && elsewhere::likely(counts.sent, counts.lost, unclaimed)
    {
        outcome.warnings.extend(elsewhere::probe(plan, protocol).iter().map(ToString::to_string));
    }
    Ok((outcome, cut))
}

fn work(task: Task<'_>) -> Report {
    let Task { ledger, sockets, poller, max_reply } = task;
    let plan = ledger.plan;
    match (plan.transport, plan.mode) {
        (Transport::Udp, Mode::Rr) => {
            transmit::work(udp::RequestReply::new(plan, sockets, poller, max_reply), ledger)
        }
        (Transport::Udp, Mode::Stream | Mode::Flood) => {
            transmit::work(udp::OneWay::new(plan, sockets, poller), ledger)
        }
        (Transport::Tcp, _) => transmit::work(tcp::Connections::new(plan, sockets, poller), ledger),
    }
}

/// Whether this error means: not now, try again later.
fn try_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
