//! The kernel engine: a closed loop in the driver. A request costs about 0.1 us, so the server is the limit.
//!
//! An XDP program on the client's interface ([`udpath_bpf::ClosedLoop`]) turns each reply into the next request. User
//! space only starts the loop, gives up lost requests, and reads the results from shared memory:
//!
//! ```text
//!   launch every slot ──▶ warm-up ──▶ window opens ──▶ window closes ──▶ stop, drain ──▶ result
//!                            └── every tick: slots that wait longer than the timeout are counted lost, sent again ──┘
//! ```
//! It is closed-loop UDP request and reply to one target; requests and replies must fit one frame, and the interface's
//! driver must have native XDP. What is sent depends on [`Protocol::in_kernel`]:
//!
//! - an echo server gets requests of this engine, and header, length, every byte of the body and the port of each reply are
//!   checked in the kernel;
//! - other protocols have their requests prepared before the run (`requests`). Port, length, identifier and some fields of
//!   each reply are checked in the kernel, and a sample completely by the protocol's template (`samples`).

mod flows;
mod interface;
mod launcher;
mod requests;
mod samples;
mod sys;
mod window;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use udpath_bpf::{ClosedLoop, Layout};

use crate::plan::{Arrivals, Mode, Plan, PlanError, Transport};
use crate::progress::Progress;
use crate::result::LoadResult;
use crate::template::Protocol;
use flows::Flows;
use interface::Interface;
use launcher::Launcher;
use requests::Requests;
use samples::SampleCheck;
use window::Window;

/// Scans for stuck slots per timeout. A slot must look stuck twice in a row, so a loss is detected after at most
/// 1 + 2/4 timeouts. Each scan walks over all slots.
const SCANS_PER_TIMEOUT: u32 = 4;
/// Bounds of the interval between scans. Shorter: a scan of 64 K slots takes a noticeable share of a CPU that the server
/// uses too. Longer: the end of the window and Ctrl-C take effect late.
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
    if plan.targets.len() != 1 {
        return cannot("supports one target only: use the socket engine for several");
    }
    let slots = u64::from(plan.flows) * u64::from(inflight);
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
/// A plan or protocol this engine does not support, no native XDP, no permission, a socket that cannot be bound. A run without any
/// reply is [`crate::Error::NoAnswer`].
pub fn run(
    plan: &Plan,
    protocol: &dyn Protocol,
    progress: &mut dyn FnMut(&Progress),
    stop: &AtomicBool,
) -> Result<LoadResult, crate::Error> {
    let inflight = check(plan)?;
    let requests = Requests::new(plan, protocol, inflight, run_id(plan.seed))?;
    let target = plan.target(0);
    let flows = Flows::open(plan)?;
    let interface = egress(&flows, target)?;
    check_frame(plan, &interface, target)?;

    let layout = Layout {
        requests: requests.in_kernel(),
        server_port: target.port(),
        timeout: plan.timeout.as_nanos() as u64,
        slots: plan.flows * inflight,
        flows: plan.flows,
    };
    let in_kernel = ClosedLoop::attach(&interface.name, &layout).map_err(KernelError::from)?;
    let memory = in_kernel.memory();
    let mut sample = match (&requests, memory.samples()) {
        (Requests::Prebuilt(table), Some(samples)) => Some(SampleCheck::new(samples, table, protocol)),
        _ => None,
    };
    let mut launcher = Launcher::new(memory, &flows, &requests, inflight);
    launcher.launch_all(target)?;

    let mut watch = Watch::new(plan, progress, stop);
    watch.wait(&mut launcher, sample.as_mut(), plan.warmup, false)?;
    let window = Window::open(memory);
    let cut = watch.wait(&mut launcher, sample.as_mut(), plan.duration, true)?;
    let measured = window.close(memory);

    memory.set_running(false);
    launcher.drain(plan.timeout);
    let mut account = launcher.account();
    if account.counts.received == 0 {
        return Err(crate::Error::NoAnswer {
            target: target.to_string(),
            sent: account.counts.sent,
            more: account
                .last_send_error
                .map_or_else(String::new, |e| format!(" The last send failed: {e}.")),
        });
    }
    let (found, kinds) = sample.map_or((None, Vec::new()), |mut sample| {
        sample.read();
        (Some(sample.found()), sample.kinds())
    });
    if let Some(found) = &found {
        found.correct(&mut account.counts);
    }
    let mut result = measured.into_result(plan, protocol.name(), inflight, &interface, &account);
    result.kinds = kinds;
    if let Some(found) = &found {
        result.generator.notes.push(found.note(account.counts.received));
        result.warnings.extend(found.warning());
    }
    if let Requests::Prebuilt(table) = &requests {
        result.warnings.extend(requests::remembered(protocol, table, result.tps));
    }
    if cut {
        result.warnings.push(format!(
            "stopped after {:.1} s of {:.1} s",
            result.seconds,
            plan.duration.as_secs_f64()
        ));
    }
    Ok(result)
}

/// The interface that the flows leave by.
fn egress(flows: &Flows, target: SocketAddr) -> Result<Interface, KernelError> {
    let local =
        flows.local(0).map_err(|source| KernelError::Read { what: "a flow's own address", source })?.ip();
    if local.is_loopback() || local == target.ip() {
        return Err(KernelError::Loopback(target));
    }
    Interface::with_address(local).map_err(KernelError::Interfaces)?.ok_or(KernelError::NoInterface(local))
}

/// The program handles frames, not fragments.
fn check_frame(plan: &Plan, interface: &Interface, target: SocketAddr) -> Result<(), crate::Error> {
    let headers = if target.is_ipv4() { 28 } else { 48 };
    let most = interface.mtu.saturating_sub(headers);
    if plan.size > most {
        return Err(
            PlanError::TooLargeForFrame { size: plan.size, interface: interface.name.clone(), most }.into()
        );
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
}

impl<'a> Watch<'a> {
    fn new(plan: &'a Plan, progress: &'a mut dyn FnMut(&Progress), stop: &'a AtomicBool) -> Self {
        let tick = (plan.timeout / SCANS_PER_TIMEOUT).clamp(POLL_INTERVAL.0, POLL_INTERVAL.1);
        Self { plan, progress, stop, tick, reported: (Instant::now(), 0) }
    }

    /// Waits for `time`, or until `stop` is set; true if it was set.
    fn wait(
        &mut self,
        launcher: &mut Launcher<'_>,
        mut sample: Option<&mut SampleCheck<'_>>,
        time: Duration,
        window: bool,
    ) -> Result<bool, KernelError> {
        let begin = Instant::now();
        loop {
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() || self.stop.load(Ordering::Relaxed) {
                return Ok(!left.is_zero());
            }
            std::thread::sleep(left.min(self.tick));
            launcher.relaunch_stuck(self.plan.timeout)?;
            if let Some(sample) = &mut sample {
                sample.read();
            }
            self.report(launcher, if window { begin.elapsed() } else { Duration::ZERO });
        }
    }

    fn report(&mut self, launcher: &Launcher<'_>, elapsed: Duration) {
        let (then, ok_then) = self.reported;
        let since = then.elapsed();
        if since < REPORT_INTERVAL {
            return;
        }
        let counts = launcher.counts();
        (self.progress)(&Progress {
            elapsed,
            total: self.plan.duration,
            sent: counts.sent,
            ok: counts.ok,
            lost: counts.lost,
            tps: counts.ok.saturating_sub(ok_then) as f64 / since.as_secs_f64(),
        });
        self.reported = (Instant::now(), counts.ok);
    }
}
