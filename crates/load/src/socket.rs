//! The socket engine: the plan carried out by threads over kernel sockets.
//!
//! With T threads, flow `i` belongs to thread `i mod T`, which has one epoll for all of its flows.

mod oneway;
mod rr;
mod sys;
mod tcp;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::plan::{Mode, Plan, Transport};
use crate::record::Outcome;
use crate::template::{Protocol, Template};
use crate::threads::{self, Clock, LEAD, Poller, Report, Shared};
use crate::{Error, Progress};

/// What one thread is given.
struct Task<'a> {
    plan: &'a Plan,
    thread: usize,
    clock: Clock,
    shared: &'a Shared<'a>,
    template: Box<dyn Template>,
    /// Its flows: number in the plan, and socket.
    flows: Vec<(u32, OwnedFd)>,
    poller: Poller,
}

/// Carries out `plan`; the outcome, and why it had to end early if it had.
pub(crate) fn run(
    plan: &Plan,
    protocol: &dyn Protocol,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<(Outcome, Option<String>), Error> {
    let sockets = crate::flows::open(plan)?;
    let mut parts: Vec<Vec<(u32, OwnedFd)>> = (0..plan.threads).map(|_| Vec::new()).collect();
    for (flow, socket) in sockets.into_iter().enumerate() {
        parts[flow % plan.threads].push((flow as u32, socket));
    }
    let shared = Shared::new(stop, plan.threads);
    let clock = Clock::new(Instant::now() + LEAD, plan);
    let mut tasks = Vec::with_capacity(plan.threads);
    for (thread, flows) in parts.into_iter().enumerate() {
        let poller = Poller::new().map_err(|e| Error::system("make an epoll instance", e))?;
        tasks.push(Task {
            plan,
            thread,
            clock,
            shared: &shared,
            template: protocol.template(),
            flows,
            poller,
        });
    }
    let (reports, cpus) = threads::run(plan, clock, &shared, tasks, work, progress)?;
    Ok(threads::conclude("socket", plan, protocol, reports, cpus))
}

fn work(task: Task<'_>) -> Report {
    match (task.plan.transport, task.plan.mode) {
        (Transport::Udp, Mode::Rr) => rr::work(task),
        (Transport::Udp, Mode::Stream | Mode::Flood) => oneway::work(task),
        (Transport::Tcp, _) => tcp::work(task),
    }
}

/// Is this the kernel's way to say: nothing now, ask later?
fn try_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
