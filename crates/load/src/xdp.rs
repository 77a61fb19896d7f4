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
//! - Where many requests are due at once and the kernel would copy them one by one, they go past the lanes as live
//!   frames ([`live`]); the result's notes say how many, and why not if they could not.
//! - Where to send is asked of the kernel's own tables once, before the start ([`Ways`]).
//!
//! # What the times are worth
//! The clock is read once per burst of at most 64 frames. **Sent** is the moment just before the kernel is told of the
//! burst: writing it (some microseconds) is in the lateness, not in the latency; the kernel's way to the wire is in the
//! latency. (Of at most 256 live frames; they take about as long to the wire as 64 by AF_XDP.) **Received** is the moment the thread finds the burst in the ring: it is late by what the thread did
//! meanwhile, at most one turn (256 requests written and a burst per queue judged: tens of microseconds), or by its wake-up.
//! **Intended** is the schedule's, untouched. In a closed loop it is the arrival of the reply that made room.

mod hand_over;
mod lane;
mod live;
mod open;
mod table;
mod way;
mod worker;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
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
use live::Live;
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
    /// Requests sent as live frames, and the calls for it.
    live: AtomicU64,
    live_calls: AtomicU64,
    /// Why a thread ceased to send them.
    live_given_up: OnceLock<String>,
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

/// Carries out `plan`; the outcome, and why it had to end early if it had. Without `may_live` everything is sent by AF_XDP.
pub(crate) fn run(
    plan: &Plan,
    may_live: bool,
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
    let queues = ports.len();
    let mode = ports.first().map_or_else(String::new, |port| device.mode(port));
    let mut lanes: Vec<Vec<Lane>> = (0..plan.threads).map(|_| Vec::new()).collect();
    for (number, port) in ports.into_iter().enumerate() {
        lanes[number % plan.threads].push(Lane::new(port));
    }
    let mut flows: Vec<Vec<_>> = (0..plan.threads).map(|_| Vec::new()).collect();
    for flow in 0..plan.flows {
        let entry = table.entry(flow);
        let link = links_of_targets[flow as usize % links_of_targets.len()];
        let headers = wire::Flow::new(link, entry.local, entry.remote)
            .map_err(|_| failed("a flow's ends are of different address families"))?;
        let lane = flow as usize % queues / plan.threads;
        flows[entry.thread as usize].push((flow, lane, wire::Template::new(&headers)));
    }
    let lives: Vec<Option<Live>> = lanes
        .iter()
        .zip(&flows)
        .map(|(lanes, flows)| if may_live { open_live(plan, &interface, lanes, flows, &sums) } else { None })
        .collect();

    let shared = Shared::new(stop, plan.threads);
    let clock = Clock::new(Instant::now() + LEAD, plan);
    let mut tasks = Vec::with_capacity(plan.threads);
    let all = links(plan.threads)?.into_iter().zip(lanes).zip(flows).zip(lives).enumerate();
    for (thread, (((links, lanes), flows), live)) in all {
        let template = protocol.template();
        let (shared, table, sums) = (&shared, &table, &sums);
        tasks.push(Task { plan, thread, clock, shared, sums, table, template, lanes, live, flows, links });
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
    outcome.evidence.notes.extend(how_sent(&sums));
    warn(&mut outcome.warnings, &sums, &device, &sockets);
    Ok((outcome, cut))
}

/// What one thread sends live frames with; none if it does not.
fn open_live(
    plan: &Plan,
    interface: &str,
    lanes: &[Lane],
    flows: &[(u32, usize, wire::Template)],
    sums: &Sums,
) -> Option<Live> {
    let len = plan.size + flows.first()?.2.payload_offset();
    // All are of one family and leave by one interface, so that their headers are as long as each other's.
    let alike = flows.iter().all(|(.., headers)| headers.payload_offset() + plan.size == len);
    if !alike || !live::is_worth_it(plan, lanes) {
        return None;
    }
    let opened = Live::open(interface, len);
    opened.map_err(|error| sums.live_given_up.set(error.to_string())).ok()
}

/// By which way requests were sent, if not all by AF_XDP as a matter of course.
fn how_sent(sums: &Sums) -> Option<String> {
    let (live, calls, given_up) =
        (Sums::of(&sums.live), Sums::of(&sums.live_calls), sums.live_given_up.get());
    if live == 0 && given_up.is_none() {
        return None;
    }
    let mut note = format!(
        "{live} requests were sent as live frames, in {calls} call(s): where at least {} were due at once; all others by \
         AF_XDP",
        live::LEAST
    );
    if let Some(why) = given_up {
        note.push_str(&format!("; a thread could not go on with live frames: {why}"));
    }
    Some(note)
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
