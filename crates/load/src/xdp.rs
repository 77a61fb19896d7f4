//! The AF_XDP engine: carries out a plan over a device's queues, bypassing the kernel's UDP.
//!
//! ```text
//!               ┌─ thread 0 ───────────────────────────────┐      ┌─ thread 1 ────────────┐
//!   schedule ──▶│ request written into a frame ─▶ lane ────┼──▶   │                       │
//!               │   (headers from a wire::Template)        │ port │                       │
//!               │ count ◀──── judge ◀── parse, checksums ◀─┼──    │ judge: not my flow ───┼─┐
//!               └────▲─────────────────────────────────────┘      └───────────────────────┘ │
//!                    └──────────────────── mailbox: judged replies ─────────────────────────┘
//! ```
//! - Every queue of the interface has a port, every port belongs to one thread, and every flow sends through one port
//!   and belongs to that port's thread. The device chooses the queue of a reply (RSS; on a veth, the sender's queue).
//!   The thread that receives it judges it; if the flow belongs to another thread, that thread counts it, with the time
//!   of its arrival. No frame changes its thread, and no table has two writers.
//! - A kernel socket per flow stays bound and connected for the whole run, unread: it reserves the port, keeps the
//!   kernel from answering replies with "port unreachable", and receives that error from the target's host. The XDP
//!   program takes exactly these addresses and ports; everything else on the interface goes to the kernel as before.
//! - Where many requests are due at once and the kernel would copy them one by one, they bypass the lanes as live
//!   frames ([`live`]); the result's notes say how many, or why this failed.
//! - Routes and neighbours are read from the kernel's own tables once, before the start ([`Routes`]).
//!
//! # Accuracy of the times
//! The clock is read once per burst of at most 64 frames. **Sent** is the moment just before the burst is given to the
//! kernel: writing it (some microseconds) counts as lateness, not as latency; the kernel's way to the wire is latency.
//! (Live frames: at most 256; they take about as long to the wire as 64 by AF_XDP.) **Received** is the moment the
//! thread finds the burst in the ring: late by at most one turn (256 requests written and a burst per queue judged:
//! tens of microseconds), or by the thread's wake-up. **Intended** is the schedule's time, unchanged; in a closed loop,
//! the arrival of the reply that made room.

mod lane;
mod live;
mod mailbox;
mod open;
mod progress;
mod routes;
mod table;
mod transmit;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use error_reporter::Report;
use rustix::io::Errno;
use rustix::net::sockopt;
use udpath_stack::wire;

use crate::clock::Clock;
use crate::elsewhere::Elsewhere;
use crate::plan::{Mode, Plan, PlanError, Transport};
use crate::record::Outcome;
use crate::template::Protocol;
use crate::threads::{self, Shared};
use crate::transmit::{Ledger, work};
use crate::{Error, Progress, start};
use lane::Lane;
use live::Live;
use mailbox::mailboxes;
use open::Device;
use routes::Routes;
use table::Table;
use transmit::{Flow, Frames};

const NAME: &str = "xdp";
/// Most flows: the XDP program's table of addresses and ports has that many places.
const MAX_FLOWS: u32 = 4096;

/// Sums over all threads of figures missing from their reports.
#[derive(Debug, Default)]
struct Sums {
    /// Threads that still wait for replies.
    waiting: AtomicUsize,
    /// Replies received by another thread than their flow's.
    handed_over: AtomicU64,
    /// Datagrams to a flow's port that its target did not send, and the first of them with its sender.
    strangers: AtomicU64,
    stranger: OnceLock<Elsewhere>,
    /// Datagrams with a wrong checksum.
    damaged: AtomicU64,
    /// Requests that the device's queue dropped.
    dropped: AtomicU64,
    /// Times a request found the transmit ring full, or no frame free.
    ring_full: AtomicU64,
    /// Requests sent as live frames, and the calls for it.
    live: AtomicU64,
    live_calls: AtomicU64,
    /// Why a thread stopped sending them.
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

fn failed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Engine { engine: NAME, source: source.into() }
}

/// Checks what does not depend on the machine: whether this engine can carry out the plan.
pub(crate) fn check(plan: &Plan) -> Result<(), Error> {
    if plan.transport == Transport::Tcp {
        return Err(cannot("it sends UDP only; use the socket engine for TCP"));
    }
    if plan.mode != Mode::Rr {
        return Err(cannot("it supports rr only; use the socket engine for stream and flood"));
    }
    if let Some(target) = plan.targets.iter().find(|target| target.ip().is_loopback()) {
        return Err(cannot(routes::over_the_loopback(target.ip())));
    }
    let flows = plan.own_flows();
    if flows > MAX_FLOWS {
        return Err(cannot(format!("{flows} flows exceed its limit of {MAX_FLOWS}; use fewer")));
    }
    Ok(())
}

/// Carries out `plan`; returns the outcome, and why the run ended early if it did. Without `may_live` everything is
/// sent by AF_XDP.
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
    let mut routes = Routes::new()?;
    let interface = routes.interface(plan)?;
    let (mut device, ports) = Device::open(&interface, plan, protocol)?;
    device.bind(&locals)?;
    let links = routes.resolve(plan, &interface)?;
    drop(routes);

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
    for own in 0..plan.own_flows() {
        let (entry, flow) = (table.entry(own), plan.flow(own));
        let link = links[flow as usize % links.len()];
        let headers = wire::Flow::new(link, entry.local, entry.remote)
            .map_err(|_| failed("a flow has addresses of different families"))?;
        let lane = own as usize % queues / plan.threads;
        flows[entry.thread as usize].push((flow, Flow { lane, headers: wire::Template::new(&headers) }));
    }
    let lives: Vec<Option<Live>> = lanes
        .iter()
        .zip(&flows)
        .map(|(lanes, flows)| if may_live { open_live(plan, &interface, lanes, flows, &sums) } else { None })
        .collect();

    let shared = Shared::new(stop, plan.threads);
    let mut clock = Clock::new(Instant::now(), plan);
    let mut tasks = Vec::with_capacity(plan.threads);
    let all = mailboxes(plan.threads)?.into_iter().zip(lanes).zip(flows).zip(lives).enumerate();
    for (thread, (((mailboxes, lanes), flows), live)) in all {
        let (numbers, flows): (Vec<u32>, Vec<Flow>) = flows.into_iter().unzip();
        let ledger = Ledger::new(plan, thread, clock, &shared, protocol.template(), numbers.into_iter());
        let frames = Frames::new(&sums, &table, &ledger, lanes, flows, live, mailboxes);
        tasks.push((if protocol.one_size() { frames } else { frames.with_scratch() }, ledger));
    }

    clock = Clock::new(start::await_start(plan, stop)?, plan);
    tasks.iter_mut().for_each(|(_, ledger)| ledger.clock = clock);
    let carry_out = |(frames, ledger)| work(frames, ledger);
    let (reports, cpus) = threads::run(plan, clock, &shared, tasks, carry_out, progress)?;
    let (mut outcome, cut) = threads::conclude(NAME, plan, protocol, reports, cpus);
    outcome.evidence.notes.push(format!(
        "AF_XDP in {mode} on {queues} queue(s) of {interface}, by {} thread(s); transmit ring full {} time(s); {} \
         replies passed from one thread to another",
        plan.threads,
        Sums::of(&sums.ring_full),
        Sums::of(&sums.handed_over),
    ));
    outcome.evidence.notes.extend(how_sent(&sums));
    warn(&mut outcome.warnings, &sums, &device, &sockets);
    Ok((outcome, cut))
}

/// The live-frame state of one thread; none if it does not use live frames.
fn open_live(
    plan: &Plan,
    interface: &str,
    lanes: &[Lane],
    flows: &[(u32, Flow)],
    sums: &Sums,
) -> Option<Live> {
    let len = plan.size + flows.first()?.1.headers.payload_offset();
    // All have one address family and leave through one interface, so their headers have the same length.
    let alike = flows.iter().all(|(_, flow)| flow.headers.payload_offset() + plan.size == len);
    if !alike || !live::can_pay_off(plan, lanes) {
        return None;
    }
    let opened = Live::open(interface, len);
    opened.map_err(|error| sums.live_given_up.set(Report::new(error).to_string())).ok()
}

/// How requests were sent, if not all by AF_XDP.
fn how_sent(sums: &Sums) -> Option<String> {
    let (live, calls, given_up) =
        (Sums::of(&sums.live), Sums::of(&sums.live_calls), sums.live_given_up.get());
    if live == 0 && given_up.is_none() {
        return None;
    }
    let mut note = format!(
        "{live} requests were sent as live frames in {calls} call(s), used when {} or more are due at once; all others by \
         AF_XDP",
        live::LIVE_THRESHOLD
    );
    if let Some(why) = given_up {
        note.push_str(&format!("; a thread stopped using live frames: {why}"));
    }
    Some(note)
}

fn local(flow: usize, socket: &OwnedFd) -> Result<SocketAddr, Error> {
    rustix::net::getsockname(socket)
        .and_then(SocketAddr::try_from)
        .map_err(|e| Error::system(format!("read the address of flow {flow}"), e))
}

/// Warns of every event that no counter in the result shows.
fn warn(warnings: &mut Vec<String>, sums: &Sums, device: &Device, sockets: &[OwnedFd]) {
    let mut warn = |count: u64, what: &str| {
        if count > 0 {
            warnings.push(format!("{count} {what}"));
        }
    };
    let refused =
        sockets.iter().filter(|s| matches!(sockopt::socket_error(s), Ok(Err(Errno::CONNREFUSED)))).count();
    warn(refused as u64, "flow(s) received an ICMP port unreachable: nothing listens on the port");
    warn(Sums::of(&sums.dropped), "requests were dropped by the interface's queue; they count as lost");
    warn(Sums::of(&sums.damaged), "replies had a wrong checksum and were dropped, as the kernel drops them");
    warn(
        device.to_the_kernel(),
        "replies were too long for a frame, or arrived on a queue added after the start; they count as lost",
    );
    let count = Some(Sums::of(&sums.strangers));
    warnings.extend(sums.stranger.get().map(|first| Elsewhere { count, ..*first }.to_string()));
}
