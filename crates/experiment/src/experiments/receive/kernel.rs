//! This kernel's socket under a flood: `serve sink` on CPU 0, senders and their softirqs on the other CPUs.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use udpath_advise::ladder::Settings;
use udpath_advise::test_bed::{CLIENT, ServerUnderTest, TestBed};
use udpath_lab::{Lab, LabBuilder, LinkSpec, Offloads, confined, online_cpus};
use udpath_load::Engine;
use udpath_load::plan::{Mode, Plan};
use udpath_profile::Profile;
use udpath_protocols::sink::SinkLoad;
use udpath_steer::CpuSet;

use super::Extent;
use super::bare::{self, BareError, Call};
use crate::description::Description;
use crate::entry::{Context, Error};
use crate::in_turn::{Trials, in_turn};
use crate::outcome::Table;
use crate::threads::cpus;
use crate::work::{Group, Spent, sample};

/// Machines by the receive queues of their link, with the case of each.
const QUEUES: [(&str, &str, u32); 3] =
    [("queues-1", "one-queue", 1), ("queues-2", "two-rx-queues", 2), ("queues-4", "four-rx-queues", 4)];
/// Calls of `serve sink` beside recvmsg, on the link of one queue: case, call, batch.
const CALLS: [(&str, &str, usize); 2] = [("recvfrom", "recvfrom", 1), ("recvmmsg", "recvmmsg", 32)];
/// Receivers without a server around them.
const BARE: [(&str, Call); 2] = [("bare-recvfrom", Call::Recvfrom), ("bare-read", Call::Read)];
/// Flows of the flood: enough for a hash to reach every queue.
const FLOWS: u32 = 16;
/// Payload, bytes: small, as pktgen's.
const SIZE: usize = 18;
/// First port of the servers; the bare receivers' is beyond them.
const PORT: u16 = 9000;
const BARE_PORT: u16 = 9100;
/// Trials of a bare receiver until one has a rate. Fewer: a busy machine that gives it no CPU for as long as a trial
/// ends the experiment. More: a flood that never arrives is noticed late.
const ATTEMPTS: usize = 4;
/// From the start of a load until it is sampled. Shorter: part of the samples is its start.
const BEFORE_SAMPLES: Duration = Duration::from_millis(300);
/// How much longer than the samples a load runs: reading the kernel's symbols takes some tenths of a second.
const BESIDE_SAMPLES: Duration = Duration::from_millis(1500);
/// Functions of the reader that the table shows.
const FUNCTIONS: usize = 10;

/// What the kernel's socket showed.
pub(super) struct OfKernel {
    pub(super) trials: Trials,
    pub(super) limited_by: BTreeMap<String, String>,
    pub(super) tables: Vec<Table>,
    pub(super) notes: Vec<String>,
    locks: BTreeMap<String, f64>,
}

impl OfKernel {
    /// The share of the reader's time in locks, of both: the published cause.
    pub(super) fn cause(&self, of: &str, to: &str) -> Option<String> {
        let (of, to) = (self.locks.get(of)? * 100.0, self.locks.get(to)? * 100.0);
        Some(format!(
            "The reader spends {of:.1} % of its time in locks instead of {to:.1} %; it was 70 % in 4.9."
        ))
    }
}

/// The cases.
pub(super) fn ids() -> Vec<&'static str> {
    let queues = QUEUES.iter().map(|(_, id, _)| *id);
    queues.chain(CALLS.iter().map(|(id, ..)| *id)).chain(BARE.iter().map(|(id, _)| *id)).collect()
}

/// Steps of progress.
pub(super) fn steps(extent: Extent) -> usize {
    ids().len() * 2 * extent.load_blocks + QUEUES.len()
}

pub(super) fn measure(
    description: &Description,
    context: &Context<'_>,
    extent: Extent,
    next: &mut dyn FnMut(&str) -> Result<(), Error>,
) -> Result<OfKernel, Error> {
    let failed = |what: &str, cause: Cause| match context.check() {
        Ok(()) => Error::Measure { experiment: description.name.clone(), what: what.to_owned(), cause },
        Err(interrupted) => interrupted,
    };
    let of_lab = |cause: udpath_lab::Error| failed("the lab", cause.into());
    let lab = build().map_err(of_lab)?;
    let bed = TestBed {
        lab: &lab,
        program: &context.program,
        protocol: &SinkLoad,
        engine: Engine::Socket,
        plan: plan(extent.load),
        stop: context.stop,
    };
    let flood = Flood { bed: &bed, senders: senders(&online_cpus().map_err(of_lab)?), failed: &failed };
    let mut servers = flood.start()?;
    let trials = in_turn(&ids(), extent.load_blocks, |id, _| {
        next(id)?;
        match servers.get_mut(id) {
            Some(server) => flood.delivered(&bed.plan, id, server),
            None => flood.bare(id).map_err(|cause| failed(id, cause.into())),
        }
    })?;
    let (mut profiles, mut notes) = (Vec::new(), Vec::new());
    for (_, id, queues) in QUEUES {
        next(id)?;
        let Some(server) = servers.get_mut(id) else { continue };
        match flood.profile(extent.sampled, id, server)? {
            Ok(profile) => profiles.push(Profiled { id, queues, reader: server.pid(), profile }),
            Err(why) => notes.push(format!("no profile with {queues} queue(s): {why}")),
        }
    }
    drop(servers);
    lab.down().map_err(of_lab)?;

    let of_reader: BTreeMap<&str, Spent> = profiles.iter().map(|taken| (taken.id, taken.spent())).collect();
    let limited = of_reader
        .iter()
        .filter_map(|(id, spent)| Some(((*id).to_owned(), format!("the reader: {}", spent.largest()?))));
    let locks = of_reader.iter().map(|(id, spent)| ((*id).to_owned(), spent.share(Group::Locks)));
    notes.push(format!(
        "the softirqs of all queues run on the {} CPU(s) of the senders: queues contend with the reader, and with each other only where \
         there are as many CPUs",
        cpus().saturating_sub(1).max(1)
    ));
    Ok(OfKernel {
        trials,
        limited_by: limited.collect(),
        locks: locks.collect(),
        tables: vec![classes(&profiles), functions(&profiles)],
        notes,
    })
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The flood and its receivers.
struct Flood<'a> {
    bed: &'a TestBed<'a>,
    /// CPUs of the senders.
    senders: CpuSet,
    failed: &'a dyn Fn(&str, Cause) -> Error,
}

impl Flood<'_> {
    /// Starts a sink for each case, all on CPU 0; those that are not measured sleep.
    fn start(&self) -> Result<BTreeMap<&'static str, ServerUnderTest>, Error> {
        let queues = QUEUES.into_iter().map(|(machine, id, _)| (machine, id, "recvmsg", 1));
        let calls = CALLS.into_iter().map(|(id, call, batch)| (QUEUES[0].0, id, call, batch));
        let sinks = (PORT..).zip(queues.chain(calls)).map(|(port, (machine, id, call, batch))| {
            let service = ["--receive", call, "--cpus", "0"].map(Into::into);
            let settings = Settings { batch, ..Settings::base(1, FLOWS) };
            let started = self.bed.start(machine, port, id, settings, &service);
            Ok((id, started.map_err(|cause| (self.failed)(id, cause.into()))?))
        });
        sinks.collect()
    }

    /// Datagrams per second that a sink receives while `plan` floods it.
    fn delivered(&self, plan: &Plan, id: &str, server: &mut ServerUnderTest) -> Result<f64, Error> {
        let failed = |cause: Cause| (self.failed)(id, cause);
        let done = confined(&self.senders, || self.bed.trial_with(plan, server));
        let done = done.map_err(|cause| failed(cause.into()))?;
        let result = done.map_err(|cause| failed(cause.into()))?;
        let delivered = result.and_then(|result| result.delivered);
        delivered
            .map(|delivered| delivered.per_second)
            .ok_or_else(|| failed("the sink did not report what it received".into()))
    }

    /// The same of a bare receiver, on the link of one queue; again if it got next to nothing.
    fn bare(&self, id: &str) -> Result<f64, BareError> {
        let mut left = ATTEMPTS;
        loop {
            left -= 1;
            match self.bare_once(id) {
                Err(BareError::TooFew(_)) if left > 0 => {}
                done => return done,
            }
        }
    }

    fn bare_once(&self, id: &str) -> Result<f64, BareError> {
        let call = BARE.iter().find(|(known, _)| *known == id).map_or(Call::Read, |(_, call)| *call);
        let (lab, machine) = (self.bed.lab, QUEUES[0].0);
        let at = SocketAddr::new(IpAddr::V4(lab.address_of(machine, CLIENT)?.ipv4), BARE_PORT);
        let plan = Plan { targets: vec![at], ..self.bed.plan.clone() };
        bare::receive(lab.machine(machine)?, at, (call, Settings::base(1, FLOWS).receive_buffer), || {
            let client = lab.machine(CLIENT)?;
            let load =
                || udpath_load::run(&plan, Engine::Socket, self.bed.protocol, &mut |_| (), self.bed.stop);
            // It reports that nobody counted; the receiver does.
            let done = confined(&self.senders, || client.run(load))??;
            done.map(drop).map_err(|cause| BareError::Load(Box::new(cause)))
        })
    }

    /// A profile of all CPUs during an extra run; the inner error is why there is none.
    fn profile(
        &self,
        length: Duration,
        id: &str,
        server: &mut ServerUnderTest,
    ) -> Result<Result<Profile, String>, Error> {
        let plan = Plan { duration: length + BESIDE_SAMPLES, ..self.bed.plan.clone() };
        thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                thread::sleep(BEFORE_SAMPLES);
                sample(length, &[], self.bed.stop)
            });
            let loaded = self.delivered(&plan, id, server);
            let sampled = sampler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            loaded.map(|_rate| sampled)
        })
    }
}

/// A profile of one number of queues.
struct Profiled {
    id: &'static str,
    queues: u32,
    /// The sink's process.
    reader: u32,
    profile: Profile,
}

impl Profiled {
    /// Where the reader's time went.
    fn spent(&self) -> Spent {
        Spent::of_processes(&self.profile, |pid| pid == self.reader)
    }

    /// Where that of all who took part went; the senders are threads of this process.
    fn all(&self) -> Spent {
        let own = std::process::id();
        Spent::with_interrupts(&self.profile, |pid| pid == self.reader || pid == own)
    }
}

/// A client, and a machine for each number of queues.
fn build() -> Result<Lab, udpath_lab::Error> {
    let mut lab = LabBuilder::new("receive").machine(CLIENT);
    for (machine, _, queues) in QUEUES {
        // With GRO a veth has NAPI, and with it an instance for each queue, as a card has.
        let offloads = Offloads { gro: true, ..Offloads::default() };
        let spec = LinkSpec { offloads, ..LinkSpec::with_queues(queues) };
        lab = lab.machine(machine).link(CLIENT, machine, &spec);
    }
    lab.up()
}

fn plan(duration: Duration) -> Plan {
    let anywhere = SocketAddr::from(([127, 0, 0, 1], PORT));
    let threads = (cpus() - 1).clamp(1, FLOWS as usize);
    Plan { mode: Mode::Flood, flows: FLOWS, size: SIZE, duration, threads, ..Plan::new(anywhere) }
}

/// The CPUs of the senders: all but the reader's, or that one if there is no other.
fn senders(online: &CpuSet) -> CpuSet {
    let others: CpuSet = online.iter().filter(|cpu| *cpu != 0).collect();
    if others.is_empty() { online.clone() } else { others }
}

fn classes(profiles: &[Profiled]) -> Table {
    let rows = profiles.iter().flat_map(|taken| {
        let row =
            |what: &str, spent: Spent| [vec![taken.queues.to_string(), what.into()], spent.cells()].concat();
        [row("the reader", taken.spent()), row("reader, senders, softirqs", taken.all())]
    });
    let columns = ["queues", "of"].into_iter().chain(Group::ALL.map(Group::name));
    Table {
        title: "CPU time under the flood, by class".into(),
        columns: columns.map(Into::into).collect(),
        rows: rows.collect(),
    }
}

/// The reader's functions, as `perf top -p` shows them: published beside measured.
fn functions(profiles: &[Profiled]) -> Table {
    const PUBLISHED: [(&str, &str); 4] = [
        (
            "4.9 (RHEL 7.3), published",
            "_raw_spin_lock_bh 70.2 %, lock_sock_fast 4.3 %, skb_release_data 3.3 %",
        ),
        (
            "RHEL 7.4, published",
            "udp_rmem_release 15.8 %, _raw_spin_lock_irqsave 12.9 %, __free_page_frag 11.0 %",
        ),
        (
            "4.11, published",
            "copy_user_enhanced_fast_string 12.6 %, _raw_spin_lock_irqsave 10.8 %, udp_recvmsg 9.1 %",
        ),
        (
            "4.13, published",
            "copy_user_enhanced_fast_string 12.6 %, page_frag_free 7.8 %, skb_release_data 4.7 %",
        ),
    ];
    let published = PUBLISHED.map(|(kernel, functions)| vec![kernel.to_owned(), functions.to_owned()]);
    let measured = profiles.iter().map(|Profiled { queues, reader, profile, .. }| {
        let mut leaves = BTreeMap::<&str, u64>::new();
        for stack in profile.stacks.iter().filter(|stack| stack.pid == Some(*reader)) {
            *leaves.entry(stack.frames.last().map_or("?", String::as_str)).or_default() += stack.ns;
        }
        let total: u64 = leaves.values().sum::<u64>().max(1);
        let mut leaves: Vec<_> = leaves.into_iter().collect();
        leaves.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let words = leaves
            .iter()
            .take(FUNCTIONS)
            .map(|(function, ns)| format!("{function} {:.1} %", *ns as f64 * 100.0 / total as f64));
        vec![format!("here, {queues} queue(s)"), words.collect::<Vec<_>>().join(", ")]
    });
    Table {
        title: "functions of the reading process, by CPU time".into(),
        columns: ["kernel", "functions"].map(Into::into).to_vec(),
        rows: published.into_iter().chain(measured).collect(),
    }
}
