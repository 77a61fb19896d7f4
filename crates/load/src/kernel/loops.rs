//! The loops of a run: one for each target, or for each part of a mix, with flows, requests and a program of its own.
//!
//! ```text
//!   plan ─▸ targets, or Protocol::parts ─▸ Loop: its plan, requests, sockets ─▸ Running: launcher, sample, its memory
//! ```
//! Most runs have one loop. Of several, the flows keep the order of the plan: flow `i` has target or slot `i` modulo
//! their number.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use udpath_bpf::{Layout, Memory};

use super::flows::Flows;
use super::launcher::{Account, Launcher};
use super::requests::{self, Requests};
use super::samples::{Found, SampleCheck};
use super::{KernelError, run_id};
use crate::plan::{Plan, PlanError};
use crate::result::{Counts, Kind};
use crate::template::Protocol;

/// Most loops: each has programs and tables of its own, half a megabyte at least. A mix has at most this many parts.
const MAX_LOOPS: usize = 100;
/// Descriptors that a loop needs beyond its flows: maps, programs, links.
const FILES_PER_LOOP: u64 = 32;

/// A loop, not started yet.
pub(super) struct Loop<'a> {
    /// The part of a mix that it is.
    name: Option<String>,
    protocol: &'a dyn Protocol,
    plan: Plan,
    requests: Requests,
    pub(super) flows: Flows,
}

/// What a loop sends, and where.
struct Share<'a> {
    name: Option<String>,
    protocol: &'a dyn Protocol,
    target: SocketAddr,
    size: usize,
    flows: u32,
}

/// Opens the loops of `plan`, with `inflight` requests in flight per flow.
///
/// # Errors
/// A plan or protocol that the engine does not carry, a socket that cannot be opened.
pub(super) fn open<'a>(
    plan: &Plan,
    protocol: &'a dyn Protocol,
    inflight: u32,
) -> Result<Vec<Loop<'a>>, crate::Error> {
    let shares = shares(plan, protocol);
    if shares.len() > MAX_LOOPS {
        return Err(PlanError::KernelEngine("supports at most 100 targets").into());
    }
    if shares.len() > 1 && plan.sources.len() > 1 {
        return Err(PlanError::KernelEngine(
            "tells the replies of several targets apart by their ports: remove all --source but one",
        )
        .into());
    }
    crate::flows::allow_files(u64::from(plan.own_flows()) + shares.len() as u64 * FILES_PER_LOOP)?;
    let (run, mut first) = (run_id(plan.seed), 0);
    let open = |share: Share<'a>| {
        let Share { name, protocol, target, size, flows } = share;
        // Each loop's flows are numbered like those of a plan of their own, with as many in each segment.
        let whole = flows * plan.segment.of();
        let plan = Plan { targets: vec![target], flows: whole, size, ..plan.clone() };
        let requests = Requests::new(&plan, protocol, inflight, run)?;
        let opened = Flows::open(&plan, first)?;
        first += flows as usize;
        Ok(Loop { name, protocol, plan, requests, flows: opened })
    };
    shares.into_iter().map(open).collect()
}

/// Who has which flows of `plan`. Nobody has none: a plan has at least as many flows as targets.
fn shares<'a>(plan: &Plan, protocol: &'a dyn Protocol) -> Vec<Share<'a>> {
    let turns = plan.targets.len();
    let flows = |mine: &dyn Fn(usize) -> bool| {
        (0..plan.own_flows()).filter(|own| mine(plan.flow(*own) as usize % turns)).count()
    };
    let mut shares: Vec<_> = match protocol.parts() {
        Some(parts) => (0..)
            .zip(parts.parts)
            .map(|(at, part)| {
                let flows = flows(&|turn| parts.slots.get(turn % parts.slots.len()) == Some(&at)) as u32;
                Share {
                    name: Some(part.name),
                    protocol: part.protocol,
                    target: part.target,
                    size: part.size,
                    flows,
                }
            })
            .collect(),
        None => (plan.targets.iter().enumerate())
            .map(|(at, target)| {
                let flows = flows(&|turn| turn == at) as u32;
                Share { name: None, protocol, target: *target, size: plan.size, flows }
            })
            .collect(),
    };
    shares.retain(|share| share.flows > 0);
    shares
}

impl Loop<'_> {
    pub(super) fn target(&self) -> SocketAddr {
        self.plan.target(0)
    }

    /// Bytes of its longest request.
    pub(super) fn size(&self) -> usize {
        self.plan.size
    }

    /// Its own address towards the target.
    pub(super) fn local(&self) -> Result<SocketAddr, KernelError> {
        let local = self.flows.local(0);
        local.map_err(|source| KernelError::Read { what: "a flow's own address", source })
    }

    pub(super) fn layout(&self, inflight: u32) -> Layout<'_> {
        Layout {
            requests: self.requests.in_kernel(),
            server: self.target(),
            timeout: self.plan.timeout.as_nanos() as u64,
            slots: self.plan.own_flows() * inflight,
            flows: self.plan.own_flows(),
            homes: self.flows.homes(),
        }
    }
}

/// The loops of a run, started.
pub(super) struct Running<'a> {
    all: Vec<One<'a>>,
    memories: &'a [Memory],
}

struct One<'a> {
    its: &'a Loop<'a>,
    launcher: Launcher<'a>,
    sample: Option<SampleCheck<'a>>,
}

impl<'a> Running<'a> {
    /// Sends the first request of every slot; `memories` are those of `loops`.
    pub(super) fn start(
        loops: &'a [Loop<'a>],
        memories: &'a [Memory],
        inflight: u32,
    ) -> Result<Self, KernelError> {
        let one = |(its, memory): (&'a Loop<'a>, &'a Memory)| {
            let sample = match (&its.requests, memory.samples()) {
                (Requests::Prebuilt(table), Some(samples)) => {
                    Some(SampleCheck::new(samples, table, its.protocol, its.plan.segment))
                }
                _ => None,
            };
            let mut launcher = Launcher::new(memory, &its.flows, &its.requests, inflight);
            launcher.launch_all(its.target())?;
            Ok(One { its, launcher, sample })
        };
        let all = loops.iter().zip(memories).map(one).collect::<Result<_, KernelError>>()?;
        Ok(Self { all, memories })
    }

    /// Gives up requests that have been in flight for longer than `timeout`, and checks the copies of replies.
    pub(super) fn tend(&mut self, timeout: Duration) -> Result<(), KernelError> {
        for one in &mut self.all {
            one.launcher.relaunch_stuck(timeout)?;
            one.check();
        }
        Ok(())
    }

    /// The outcome of all requests so far. Those in flight count as sent only.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.all.iter().for_each(|one| counts.add(&one.launcher.counts()));
        counts
    }

    /// Sends nothing more and waits until nothing is in flight, but not longer than `timeout`. Requests still open then
    /// are lost, unless their reply arrives within one more timeout: then they are late.
    pub(super) fn stop(&mut self, timeout: Duration) {
        self.memories.iter().for_each(|memory| memory.set_running(false));
        await_until(timeout, || !self.all.iter().any(|one| one.launcher.in_flight()));
        let lost: u64 = self.all.iter_mut().map(|one| one.launcher.give_up_all()).sum();
        if lost > 0 {
            let answered = || {
                let Counts { late, refused, .. } = self.counts();
                late + refused
            };
            let before = answered();
            await_until(timeout, || answered() >= before + lost);
        }
        self.all.iter_mut().for_each(One::check);
    }

    /// What all of them found.
    pub(super) fn end(self) -> Ended {
        let mut ended = Ended::default();
        let mut sampled = None::<(Found, u64)>;
        for One { its, launcher, sample } in self.all {
            let mut account = launcher.account(its.target());
            let mut kinds = Vec::new();
            if let Some(sample) = sample {
                let found = sample.found();
                let received = account.counts.received;
                found.correct(&mut account.counts);
                kinds = sample.kinds();
                sampled =
                    Some(sampled.map_or((found, received), |(all, of)| (all.plus(&found), of + received)));
            }
            let Counts { ok, received, corrupt, wrong_flow, .. } = account.counts;
            if let Some(name) = &its.name {
                // All of them, counted in the driver; the sample's would be some.
                let count = received.saturating_sub(corrupt + wrong_flow);
                kinds = Vec::from_iter((count > 0).then(|| Kind {
                    name: name.clone(),
                    count,
                    refused: account.counts.refused,
                }));
            }
            Kind::add(&mut ended.kinds, kinds);
            ended.account.add(account);
            ended.ok.push(ok);
        }
        ended.note = sampled.map(|(found, of)| found.note(of));
        ended.warning = sampled.and_then(|(found, _)| found.warning());
        ended
    }
}

impl One<'_> {
    fn check(&mut self) {
        if let Some(sample) = &mut self.sample {
            sample.read();
        }
    }
}

/// What the loops found.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) account: Account,
    /// Intact replies by what they say, or by part of a mix.
    pub(super) kinds: Vec<Kind>,
    /// Requests answered in time, by loop.
    ok: Vec<u64>,
    /// How many replies were checked completely, and what that found.
    pub(super) note: Option<String>,
    pub(super) warning: Option<String>,
}

impl Ended {
    /// Warnings that servers may have answered from memory, at `rate` transactions per second in total.
    pub(super) fn remembered(&self, loops: &[Loop<'_>], rate: f64) -> Vec<String> {
        let total: u64 = self.ok.iter().sum();
        let of = |(its, ok): (&Loop<'_>, &u64)| match &its.requests {
            Requests::Prebuilt(table) => {
                requests::remembered(its.protocol, table, rate * *ok as f64 / total.max(1) as f64)
            }
            Requests::Echo { .. } => None,
        };
        loops.iter().zip(&self.ok).filter_map(of).collect()
    }
}

impl Account {
    fn add(&mut self, other: Self) {
        self.counts.add(&other.counts);
        self.unsent += other.unsent;
        self.elsewhere.extend(other.elsewhere);
        self.last_send_error = self.last_send_error.take().or(other.last_send_error);
    }
}

/// Waits until `done`, but not longer than `most`.
fn await_until(most: Duration, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() && begin.elapsed() < most {
        std::thread::sleep(Duration::from_millis(1));
    }
}
