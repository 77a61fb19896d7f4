//! The AF_XDP engine: the plan carried out over a device's queues, past the kernel's UDP.
//!
//! ```text
//!               ┌─ thread 0 ───────────────────────────────┐      ┌─ thread 1 ────────────┐
//!   schedule ──▶│ request written into a frame ─▶ lane ────┼──▶   │                       │
//!               │   (headers from a wire::Template)        │ port │                       │
//!               │ verdict ◀── judge ◀── parse, checksums ◀─┼──    │ judge: not my flow ───┼─┐
//!               └────▲─────────────────────────────────────┘      └───────────────────────┘ │
//!                    └───────────────────── ring of verdicts ───────────────────────────────┘
//! ```
//! - Every queue of the interface has a port, every port belongs to one thread, every flow sends by one port and
//!   belongs to that port's thread. A reply comes back on whichever queue the device chooses (RSS; on a veth, the
//!   sender's queue). Whoever receives it checks it; if the flow is another thread's, the verdict goes there, with the
//!   time of its arrival. No frame changes its thread, and no table has two writers.
//! - A kernel socket per flow stays bound and connected for the whole run, unread: it reserves the port, keeps the kernel
//!   from answering our replies with "port unreachable", and is told when the target's host says that. The XDP program
//!   takes exactly these addresses and ports; everything else on the interface goes to the kernel as before.
//! - Where to send is asked of the kernel's own tables once, before the start ([`Ways`]).
//!
//! # What the times are worth
//! The clock is read once per burst of at most 64 frames. **Sent** is the moment just before the kernel is told of the
//! burst: writing it (some microseconds) is in the lateness, not in the latency; the kernel's way to the wire is in the
//! latency. **Received** is the moment the thread finds the burst in the ring: it is late by what the thread did
//! meanwhile, at most one turn (256 requests written and a burst per queue judged: tens of microseconds), or by its wake-up.
//! **Intended** is the schedule's, untouched. In a closed loop it is the arrival of the reply that made room.

mod hand_over;
mod lane;
mod open;
mod table;
mod way;
mod worker;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::sockopt;
use udpath_stack::wire;

use crate::plan::{Mode, Plan, PlanError, Transport};
use crate::record::Outcome;
use crate::template::Protocol;
use crate::threads::{self, Clock, LEAD, Shared};
use crate::{Error, Progress};
use hand_over::links;
use lane::Lane;
use open::Device;
use table::Table;
use way::Ways;
use worker::Task;

const NAME: &str = "xdp";
/// Most flows: as many addresses with their ports does the XDP program take one by one.
const MAX_FLOWS: u32 = 4096;

/// What the threads found beside their reports, added up.
#[derive(Debug, Default)]
struct Sums {
    /// Threads that still wait for replies.
    waiting: AtomicUsize,
    /// Replies whose flow is another thread's than the one that received them.
    handed_over: AtomicU64,
    /// Datagrams for a flow's port that are not from its target.
    strangers: AtomicU64,
    /// Datagrams with a wrong checksum.
    damaged: AtomicU64,
    /// Requests that the device's queue dropped.
    dropped: AtomicU64,
    /// Times a request found the transmit ring full, or no frame free.
    ring_full: AtomicU64,
}

impl Sums {
    fn of(sum: &AtomicU64) -> u64 {
        sum.load(Ordering::Relaxed)
    }
}

fn cannot(what: impl Into<String>) -> Error {
    PlanError::Engine { engine: NAME, what: what.into() }.into()
}

fn failed(what: impl Into<String>) -> Error {
    Error::Engine { engine: NAME, what: what.into() }
}

/// Holds a plan to what this engine can do, as far as that can be told without looking at the machine.
pub(crate) fn check(plan: &Plan) -> Result<(), Error> {
    if plan.transport == Transport::Tcp {
        return Err(cannot("it sends UDP; use the socket engine for TCP"));
    }
    if plan.mode != Mode::Rr {
        return Err(cannot(
            "it sends requests and takes replies (rr); use the socket engine for stream and flood",
        ));
    }
    if let Some(target) = plan.targets.iter().find(|target| target.ip().is_loopback()) {
        return Err(cannot(way::over_the_loopback(target.ip())));
    }
    if plan.flows > MAX_FLOWS {
        return Err(cannot(format!(
            "{} flows are more than the {MAX_FLOWS} it takes; use fewer",
            plan.flows
        )));
    }
    Ok(())
}

/// Carries out `plan`; the outcome, and why it had to end early if it had.
pub(crate) fn run(
    plan: &Plan,
    protocol: &dyn Protocol,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<(Outcome, Option<String>), Error> {
    check(plan)?;
    let sockets = crate::flows::open(plan)?;
    let locals = sockets.iter().enumerate().map(|(flow, socket)| local(flow, socket));
    let locals = locals.collect::<Result<Vec<_>, _>>()?;
    let mut ways = Ways::new()?;
    let interface = ways.interface(plan)?;
    let (mut device, ports) = Device::open(&interface, plan, protocol)?;
    device.bind(&locals)?;
    let links_of_targets = ways.resolve(plan, &interface)?;
    drop(ways);

    // A thread without a queue could neither send nor receive.
    let plan = &Plan { threads: plan.threads.min(ports.len()), ..plan.clone() };
    let table = Table::new(plan, &locals, ports.len());
    let sums = Sums { waiting: AtomicUsize::new(plan.threads), ..Sums::default() };
    let shared = Shared::new(stop, plan.threads);
    let clock = Clock::new(Instant::now() + LEAD, plan);
    let mut tasks = Vec::with_capacity(plan.threads);
    for (thread, links) in links(plan.threads)?.into_iter().enumerate() {
        let (template, lanes, flows) = (protocol.template(), Vec::new(), Vec::new());
        let (shared, table, sums) = (&shared, &table, &sums);
        tasks.push(Task { plan, thread, clock, shared, sums, table, template, lanes, flows, links });
    }
    let queues = ports.len();
    let mode = ports.first().map_or_else(String::new, |port| device.mode(port));
    for (number, port) in ports.into_iter().enumerate() {
        tasks[number % plan.threads].lanes.push(Lane::new(port));
    }
    for flow in 0..plan.flows {
        let entry = table.entry(flow);
        let link = links_of_targets[flow as usize % links_of_targets.len()];
        let headers = wire::Flow::new(link, entry.local, entry.remote)
            .map_err(|_| failed("a flow's ends are of different address families"))?;
        let lane = flow as usize % queues / plan.threads;
        tasks[entry.thread as usize].flows.push((flow, lane, wire::Template::new(&headers)));
    }

    let (reports, cpus) = threads::run(plan, clock, &shared, tasks, worker::work, progress)?;
    let (mut outcome, cut) = threads::conclude(NAME, plan, protocol, reports, cpus);
    outcome.evidence.notes.push(format!(
        "AF_XDP in {mode} on {queues} queue(s) of {interface}, by {} thread(s); the transmit ring was full {} time(s), \
         and {} replies were handed from one thread to another",
        plan.threads,
        Sums::of(&sums.ring_full),
        Sums::of(&sums.handed_over),
    ));
    warn(&mut outcome.warnings, &sums, &device, &sockets);
    Ok((outcome, cut))
}

fn local(flow: usize, socket: &OwnedFd) -> Result<SocketAddr, Error> {
    rustix::net::getsockname(socket)
        .and_then(SocketAddr::try_from)
        .map_err(|e| Error::system(format!("read the address of flow {flow}"), e))
}

/// What the reader must know: all that happened to datagrams and is in none of the counts.
fn warn(warnings: &mut Vec<String>, sums: &Sums, device: &Device, sockets: &[OwnedFd]) {
    let mut told = |count: u64, what: &str| {
        if count > 0 {
            warnings.push(format!("{count} {what}"));
        }
    };
    let refused =
        sockets.iter().filter(|s| matches!(sockopt::socket_error(s), Ok(Err(Errno::CONNREFUSED)))).count();
    told(
        refused as u64,
        "flow(s) were told by the target's host that nothing listens on the port (ICMP port unreachable)",
    );
    told(
        Sums::of(&sums.dropped),
        "requests were dropped by the interface's queue after they were handed over; they count as lost",
    );
    told(Sums::of(&sums.damaged), "replies had a wrong checksum and were dropped, as the kernel would");
    told(Sums::of(&sums.strangers), "datagrams came to the flows' ports from others than their targets");
    told(
        device.to_the_kernel(),
        "replies were too long for a frame, or came on a queue that was not there at the start: they count as lost",
    );
}
