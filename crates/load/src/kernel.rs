//! The kernel engine: a closed loop in the driver. A request costs about 0.1 us, so the server is the limit.
//!
//! An XDP program on the client's interface ([`udpath_bpf::ClosedLoop`]) turns each reply into the next request. User
//! space only starts the loop, gives up lost requests, and reads the results from shared memory:
//!
//! ```text
//!   launch every slot ──▶ warm-up ──▶ window opens ──▶ window closes ──▶ stop, drain ──▶ result
//!                            └── every tick: slots that wait longer than the timeout are counted lost, sent again ──┘
//! ```
//! It is closed-loop UDP request and reply through one interface; requests and replies must fit one frame, and the
//! interface's driver must have native XDP. Each target has a loop of its own (`loops`). What is sent depends on
//! [`Protocol::in_kernel`]:
//!
//! - an echo server gets requests of this engine, and header, length, every byte of the body and the port of each reply
//!   are checked in the kernel;
//! - other protocols have their requests prepared before the run (`requests`). Port, length, identifier and some fields
//!   of each reply are checked in the kernel, and a sample completely by the protocol's template (`samples`).

mod flows;
mod interface;
mod launcher;
mod loops;
mod requests;
mod samples;
mod sys;
mod window;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use udpath_bpf::{ClosedLoop, Memory};

use crate::plan::{Arrivals, Mode, Plan, PlanError, Transport};
use crate::progress::Progress;
use crate::result::LoadResult;
use crate::start;
use crate::template::Protocol;
use interface::Interface;
use loops::{Loop, Running};
use window::{Seconds, Window};

/// Scans for stuck slots per timeout. A slot must look stuck twice in a row, so a loss is detected after at most
/// 1 + 2/4 timeouts. Each scan walks over all slots.
const SCANS_PER_TIMEOUT: u32 = 4;
/// Bounds of the interval between scans. Shorter: a scan of 64 K slots takes a noticeable share of a CPU that the
/// server uses too. Longer: the end of the window and Ctrl-C take effect late.
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(20));
/// Time between two reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// Most slots: 64 bytes of shared memory each, and every scan walks over all of them.
const MAX_SLOTS: u64 = 1 << 20;

/// Errors of the kernel engine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    #[error("cannot set this thread's CPU affinity")]
    Affinity(#[source] io::Error),
    #[error("cannot list the interfaces of this network namespace")]
    Interfaces(#[source] io::Error),
    #[error("no interface has {0}, the source address towards the target; check that the interface is up")]
    NoInterface(IpAddr),
    #[error(
        "{} is reached through {}, {} through {}: the kernel engine sends through one interface",
        targets[0], names[0], targets[1], names[1]
    )]
    SeveralInterfaces { targets: [SocketAddr; 2], names: [String; 2] },
    #[error(
        "{0} is reached through the loopback, which has no native XDP: use the socket engine, or a server in another \
         network namespace (`udpath lab`)"
    )]
    Loopback(SocketAddr),
    #[error(transparent)]
    Bpf(#[from] udpath_bpf::Error),
    #[error("cannot read {what}")]
    Read { what: &'static str, source: io::Error },
    #[error("cannot send the first requests to {target}")]
    Launch { target: SocketAddr, source: io::Error },
}

impl From<KernelError> for crate::Error {
    fn from(error: KernelError) -> Self {
        Self::Engine { engine: "kernel", source: error.into() }
    }
}

/// Checks that this engine can carry out `plan`.
///
/// # Errors
/// The unsupported feature, and the engine that supports it.
pub(crate) fn check(plan: &Plan) -> Result<u32, PlanError> {
    plan.check()?;
    let cannot = |why| Err(PlanError::KernelEngine(why));
    let Arrivals::Closed { inflight } = plan.arrivals else {
        return cannot(
            "sends a request only when a reply comes: use --inflight, or the socket engine for a rate",
        );
    };
    if plan.transport != Transport::Udp || plan.mode != Mode::Rr {
        return cannot(
            "supports UDP request and reply only: use the socket engine for TCP, stream and flood",
        );
    }
    let slots = u64::from(plan.own_flows()) * u64::from(inflight);
    if slots > MAX_SLOTS {
        return cannot(
            "supports at most 1048576 requests in flight over all flows: lower --flows or --inflight",
        );
    }
    Ok(inflight)
}

/// Runs `plan` with the in-kernel closed loop, in the calling thread's network namespace.
///
/// # Errors
/// A plan or protocol this engine does not support, no native XDP, no permission, a socket that cannot be bound. A run
/// without any reply is [`crate::Error::NoAnswer`].
pub fn run(
    plan: &Plan,
    protocol: &dyn Protocol,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<LoadResult, crate::Error> {
    let inflight = check(plan)?;
    let mut loops = loops::open(plan, protocol, inflight)?;
    let interface = egress(&loops)?;
    for one in &mut loops {
        check_frame(one.size(), &interface, one.target())?;
        one.flows.settle(&interface);
    }

    let layouts: Vec<_> = loops.iter().map(|one| one.layout(inflight)).collect();
    let in_kernel = ClosedLoop::attach(&interface.name, &layouts).map_err(KernelError::from)?;
    let memories = in_kernel.memories();
    if plan.start_at.is_some() {
        start::sleep_until(start::await_start(plan, stop)?);
    }
    let start_skew = start::skew(plan);
    let mut running = Running::start(&loops, memories, inflight)?;

    let mut watch = Watch::new(plan, memories, progress, stop);
    watch.wait(&mut running, plan.warmup, false)?;
    let window = Window::open(memories);
    let cut = watch.wait(&mut running, plan.duration, true)?;
    let measured = window.close(memories);

    running.stop(plan.timeout);
    let ended = running.end();
    let counts = &ended.account.counts;
    if counts.received == 0 {
        let targets: Vec<_> = loops.iter().map(|one| one.target().to_string()).collect();
        return Err(crate::Error::NoAnswer {
            target: targets.join(", "),
            sent: counts.sent,
            more: (ended.account.elsewhere.iter().map(|elsewhere| format!(" {elsewhere}.")))
                .chain(ended.account.last_send_error.iter().map(|e| format!(" The last send failed: {e}.")))
                .collect(),
        });
    }
    let mut result =
        measured.into_result(plan, protocol.name(), inflight, &interface, &ended.account, start_skew);
    result.warnings.extend(ended.account.elsewhere.iter().map(ToString::to_string));
    result.warnings.extend(ended.remembered(&loops, result.tps));
    result.kinds = ended.kinds;
    result.generator.notes.extend(ended.note);
    result.warnings.extend(ended.warning);
    if cut {
        result.warnings.push(format!(
            "stopped after {:.1} s of {:.1} s",
            result.seconds,
            plan.duration.as_secs_f64()
        ));
    }
    Ok(result)
}

/// The interface that all flows leave by.
fn egress(loops: &[Loop<'_>]) -> Result<Interface, KernelError> {
    let mut found = None::<(SocketAddr, Interface)>;
    for one in loops {
        let (local, target) = (one.local()?.ip(), one.target());
        if local.is_loopback() || local == target.ip() {
            return Err(KernelError::Loopback(target));
        }
        let interface = Interface::with_address(local).map_err(KernelError::Interfaces)?;
        let interface = interface.ok_or(KernelError::NoInterface(local))?;
        match &found {
            Some((to, first)) if first.name != interface.name => {
                return Err(KernelError::SeveralInterfaces {
                    targets: [*to, target],
                    names: [first.name.clone(), interface.name],
                });
            }
            Some(_) => {}
            None => found = Some((target, interface)),
        }
    }
    // A plan has a target.
    found.map(|(_, interface)| interface).ok_or(KernelError::NoInterface(IpAddr::from([0; 4])))
}

/// The program handles frames, not fragments.
fn check_frame(size: usize, interface: &Interface, target: SocketAddr) -> Result<(), crate::Error> {
    let headers = if target.is_ipv4() { 28 } else { 48 };
    let most = interface.mtu.saturating_sub(headers);
    if size > most {
        return Err(PlanError::TooLargeForFrame { size, interface: interface.name.clone(), most }.into());
    }
    Ok(())
}

/// The number of this run, which distinguishes its replies from those to an earlier run.
fn run_id(seed: u64) -> u64 {
    let now = launcher::now() ^ seed.rotate_left(17) ^ u64::from(std::process::id()).rotate_left(40);
    // The upper half of a product depends on all bits.
    let mixed = now.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.rotate_left(32)
}

/// Waits, restarts stuck slots, checks the sample and reports progress.
struct Watch<'a> {
    plan: &'a Plan,
    progress: &'a mut dyn FnMut(&Progress),
    stop: &'a AtomicBool,
    tick: Duration,
    reported: (Instant, u64),
    memories: &'a [Memory],
    /// While the window is open.
    seconds: Option<Seconds>,
}

impl<'a> Watch<'a> {
    fn new(
        plan: &'a Plan,
        memories: &'a [Memory],
        progress: &'a mut dyn FnMut(&Progress),
        stop: &'a AtomicBool,
    ) -> Self {
        let tick = (plan.timeout / SCANS_PER_TIMEOUT).clamp(POLL_INTERVAL.0, POLL_INTERVAL.1);
        Self { plan, progress, stop, tick, reported: (Instant::now(), 0), memories, seconds: None }
    }

    /// Waits for `time`, or until `stop` is set; true if it was set.
    fn wait(&mut self, running: &mut Running<'_>, time: Duration, window: bool) -> Result<bool, KernelError> {
        let begin = Instant::now();
        self.seconds = window.then(|| Seconds::begin(self.memories));
        loop {
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() || self.stop.load(Ordering::Relaxed) {
                return Ok(!left.is_zero());
            }
            std::thread::sleep(left.min(self.tick));
            running.tend(self.plan.timeout)?;
            self.report(running, if window { begin.elapsed() } else { Duration::ZERO });
        }
    }

    fn report(&mut self, running: &Running<'_>, elapsed: Duration) {
        let (then, ok_then) = self.reported;
        let since = then.elapsed();
        if since < REPORT_INTERVAL {
            return;
        }
        let counts = running.counts();
        (self.progress)(&Progress {
            elapsed,
            total: self.plan.duration,
            sent: counts.sent,
            ok: counts.ok,
            lost: counts.lost,
            tps: counts.ok.saturating_sub(ok_then) as f64 / since.as_secs_f64(),
            interval: self.seconds.as_mut().and_then(|seconds| seconds.report(self.memories)),
        });
        self.reported = (Instant::now(), counts.ok);
    }
}
