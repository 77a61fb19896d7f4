//! RPS: protocol processing of one queue spread over the CPUs, over TCP and UDP, where it pays and where it does not.
//!
//! ```text
//!  client ══ 1 queue  ══ tcp-one   tcp-off, tcp-on, tcp-rfs        500 connections, one request in flight each
//!         ══ Q queues ══ tcp-many  tcp-many
//!         ══ 1 queue  ══ one       udp-off, udp-on, masks; light-off, light-on: two flows
//!         ══ Q queues ══ many      udp-many
//!         ══ 1 queue  ══ firewall  heavy-off, heavy-on: a receive path that costs more than the rest
//!         ══ 1 queue  ══ fast-a    xdp-one                          udpath's own datapath
//!         ══ 1 queue  ══ fast-b    xdp-steered
//! ```
//! A link of one queue has one NAPI, which one CPU polls at a time, as a card with one queue has one interrupt.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use udpath_advise::ladder::Settings;
use udpath_host::cpus;
use udpath_host::source::Folder;
use udpath_lab::{Lab, LinkSpec, Offloads, Rps, online_cpus};
use udpath_load::Engine;
use udpath_load::plan::{Arrivals, Plan, Transport};
use udpath_load::result::Counts;
use udpath_protocols::echo::HEADER;
use udpath_serve::Io;
use udpath_steer::CpuSet;

use crate::arms::{self, Precision};
use crate::description::Description;
use crate::entry::{Context, Effort, Entry, Error, Found, Progress, Watch};
use crate::nft;
use crate::outcome::Table;
use crate::servers::{Bed, CLIENT, NOWHERE, ServerArm, Servers, without};

pub(super) const ENTRY: Entry = Entry { text: include_str!("../../data/rps.toml"), measure };

const TCP_ONE: &str = "tcp-one";
const TCP_MANY: &str = "tcp-many";
const ONE: &str = "one";
const MANY: &str = "many";
const FIREWALL: &str = "firewall";
const FAST: [&str; 2] = ["fast-a", "fast-b"];

/// Instances of netperf in the document.
const FLOWS: u32 = 500;
/// Payload of a request of the in-kernel loop, bytes: the smallest in which it recognises a reply.
const IN_KERNEL: usize = 32;
/// Flows of the lightly loaded case: one for each of two CPUs.
const FEW: u32 = 2;
/// Interrupt moderation of the links that the in-kernel loop uses, microseconds: what cards have under load.
const MODERATION: u32 = 75;
/// Rules that no datagram matches: enough for a datagram to cost more in softirq than in the server. Fewer: the server
/// is the limit with and without RPS. More: nothing else is seen.
const RULES: usize = 400;
/// Length of a trial and its warm-up. Shorter: opening 500 connections takes longer than using them.
const TRIAL: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(60)];
/// When a request counts as lost: far above any latency of a working server in a lab.
const TIMEOUT: Duration = Duration::from_millis(200);
/// Narrow enough to tell arms of 5 % apart; eleven comparisons take three minutes at most.
const PRECISION: Precision = Precision { half_width: 0.02, blocks: 8 };
/// How often masks change while reordering is counted. More often: the writes take the CPU time.
const CHANGE: Duration = Duration::from_millis(2);
/// Flows, and requests in flight of each, while reordering is counted: with few in flight none can overtake another.
const OVERTAKING: [u32; 2] = [8, 32];

fn measure(description: &Description, context: &Context<'_>, watch: &mut Watch<'_>) -> Result<Found, Error> {
    let failed = |what: &str, cause| Error::measuring(description, what, cause);
    let queues = Bed::queues().map_err(|cause| failed("the CPUs", cause))?;
    let cpus = online_cpus().map_err(|cause| failed("the CPUs", cause))?;
    let moderated = |queues| LinkSpec { moderation: MODERATION, ..LinkSpec::with_queues(queues) };
    // GRO turns NAPI on at both ends.
    let tcp = |queues| {
        let offloads = Offloads { gro: true, ..Offloads::default() };
        LinkSpec { offloads, ..LinkSpec::with_queues(queues) }
    };
    let machines = [
        (TCP_ONE, tcp(1)),
        (TCP_MANY, tcp(queues)),
        (ONE, moderated(1)),
        (MANY, moderated(queues)),
        (FIREWALL, moderated(1)),
        (FAST[0], moderated(1)),
        (FAST[1], moderated(1)),
    ];
    let bed = Bed::up("rps", &machines, &FAST).map_err(|cause| failed("the lab", cause))?;
    let (masks, why) = masks(&cpus);
    let mut arms = arms(queues as usize, masks);
    let mut missing = Vec::new();
    if let Err(reason) = nft::load(&bed.lab, FIREWALL, &rules()) {
        missing.extend(without(&mut arms, FIREWALL, &reason));
    }
    if let Some(reason) = why {
        missing.extend(["mask-near", "mask-far"].map(|case| (case.to_owned(), reason.clone())));
    }
    if queues < 2 {
        let reason = "this machine has one CPU, and RPS needs a second one".to_owned();
        missing.push(("udp-many".to_owned(), reason));
        arms.retain(|arm| arm.name != "udp-many" && arm.name != "tcp-many");
    }
    let mut servers = Servers::new(description, context, &bed.lab, arms, alias);
    let mut found = arms::measure(description, context, watch, PRECISION, &mut servers)?;
    found.missing.extend(missing);
    watch(&Progress { what: "reordering", step: 1, steps: 1 });
    found.tables.push(reordering(&mut servers, &bed.lab, &cpus, context)?);
    Ok(found)
}

/// The arm of a published case: what this machine has in place of each of the document's.
fn alias(case: &str) -> &str {
    match case {
        "e1000e-off" | "forcedeth-off" | "bnx2x-4q" => "tcp-off",
        "e1000e-on" | "forcedeth-on" | "bnx2x-4q-rps" => "tcp-on",
        "bnx2x-8q" => "tcp-many",
        own => own,
    }
}

fn arms(workers: usize, masks: Option<[CpuSet; 2]>) -> Vec<ServerArm> {
    let base = Settings::base(workers, FLOWS);
    let rps = Settings { rps: true, ..base };
    let rfs = Settings { rfs: true, ..rps };
    let split = Settings { io: Io::Reuseport, pin: true, ..base };
    let xdp = Settings { io: Io::Xdp, one_queue: true, pin: true, workers: 1, ..base };
    let steered = Settings { steer: true, workers, ..xdp };
    let tcp =
        Load { engine: Engine::Socket, plan: Plan { transport: Transport::Tcp, ..plan(FLOWS, 1, workers) } };
    let udp = Load { engine: Engine::Kernel, plan: Plan { size: IN_KERNEL, ..plan(FLOWS, 1, workers) } };
    let light = Load { engine: Engine::Socket, plan: plan(FEW, 1, 1) };
    let deep = Load { engine: Engine::Socket, plan: plan(OVERTAKING[0], OVERTAKING[1], 1) };
    let arm = |name, machine, settings, load: &Load| ServerArm {
        name,
        machine,
        settings,
        rps_cpus: None,
        service: if machine == TCP_ONE || machine == TCP_MANY { &["--tcp"] } else { &[] },
        engine: load.engine,
        plan: load.plan.clone(),
    };
    let mut arms = vec![
        arm("tcp-off", TCP_ONE, base, &tcp),
        arm("tcp-on", TCP_ONE, rps, &tcp),
        arm("tcp-rfs", TCP_ONE, rfs, &tcp),
        arm("tcp-many", TCP_MANY, base, &tcp),
        arm("udp-off", ONE, base, &udp),
        arm("udp-on", ONE, rps, &udp),
        arm("udp-many", MANY, base, &udp),
        arm("heavy-off", FIREWALL, base, &udp),
        arm("heavy-on", FIREWALL, rps, &udp),
        arm("light-off", ONE, base, &light),
        arm("light-on", ONE, rps, &light),
        arm("xdp-one", FAST[0], xdp, &udp),
        arm("xdp-steered", FAST[1], steered, &udp),
        arm(ORDER, ONE, Settings { rps: true, ..split }, &deep),
    ];
    for (name, cpus) in ["mask-near", "mask-far"].into_iter().zip(masks.into_iter().flatten()) {
        arms.push(ServerArm { rps_cpus: Some(cpus), ..arm(name, ONE, rps, &udp) });
    }
    arms
}

/// An arm of no case: the one in which reordering is counted. Each flow has one socket and one worker, so that nothing
/// but RPS can reorder.
const ORDER: &str = "order";

struct Load {
    engine: Engine,
    plan: Plan,
}

fn plan(flows: u32, inflight: u32, threads: usize) -> Plan {
    let [duration, warmup] = TRIAL;
    let arrivals = Arrivals::Closed { inflight };
    Plan { flows, arrivals, size: HEADER, duration, warmup, timeout: TIMEOUT, threads, ..Plan::new(NOWHERE) }
}

/// Rules that every datagram is compared with and that match none.
fn rules() -> String {
    let mut text =
        "table inet udpath {\nchain input { type filter hook input priority filter; policy accept;\n"
            .to_owned();
    for port in 1..=RULES {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "udp dport {port} counter drop");
    }
    text + "}\n}\n"
}

/// RPS masks of CPUs that share the last-level cache of the first CPU, and of as many that do not; or why there are
/// none.
fn masks(online: &CpuSet) -> (Option<[CpuSet; 2]>, Option<String>) {
    let source = Folder::live();
    let nodes = cpus::nodes(&source, &mut Vec::new());
    let caches = cpus::read(&source, &nodes, &mut Vec::new()).caches;
    let first = online.first().unwrap_or(0);
    let near = caches.iter().find(|cache| cache.contains(first)).map(|cache| cache.intersection(online));
    let Some(near) = near else {
        return (None, Some("this kernel does not say which CPUs share a cache".to_owned()));
    };
    let far: CpuSet = online.difference(&near).iter().take(near.len()).collect();
    let near: CpuSet = near.iter().take(far.len()).collect();
    if far.is_empty() {
        let count = online.len();
        let reason =
            format!("all {count} CPUs share one last-level cache, so that every mask is cache-aware");
        return (None, Some(reason));
    }
    (Some([near, far]), None)
}

/// Counts replies that overtook another of their flow, with a constant mask and while masks change.
fn reordering(
    servers: &mut Servers<'_>,
    lab: &Lab,
    cpus: &CpuSet,
    context: &Context<'_>,
) -> Result<Table, Error> {
    let trials = if context.effort == Effort::Full { 5 } else { 1 };
    let mut rows = Vec::new();
    for (name, changing) in [("constant masks", false), ("masks that change", true)] {
        let mut counts = Counts::default();
        for _ in 0..trials {
            let over = AtomicBool::new(false);
            let run = thread::scope(|scope| {
                if changing {
                    scope.spawn(|| change(lab, cpus, &over));
                }
                let run = servers.run(ORDER);
                over.store(true, Ordering::Relaxed);
                run
            })?;
            if let Some(result) = run {
                counts.add(&result.counts);
            }
        }
        let share = counts.reordered as f64 * 1e6 / (counts.received.max(1)) as f64;
        rows.push(vec![
            name.to_owned(),
            counts.received.to_string(),
            counts.reordered.to_string(),
            format!("{share:.0}"),
            counts.lost.to_string(),
        ]);
    }
    let every = CHANGE.as_millis();
    Ok(Table {
        title: format!("Replies that overtook an earlier one of their flow; masks change every {every} ms"),
        columns: ["RPS", "replies", "reordered", "per million", "lost"].map(str::to_owned).into(),
        rows,
    })
}

/// Writes RPS masks of one CPU each in turn, until it is over. The next trial sets them again.
fn change(lab: &Lab, cpus: &CpuSet, over: &AtomicBool) {
    let Ok(interface) = lab.machine(ONE).and_then(|machine| machine.towards(CLIENT)) else { return };
    for cpu in cpus.iter().cycle() {
        if over.load(Ordering::Relaxed) {
            return;
        }
        // A write that fails leaves the mask as it is, and the count shows it.
        let _ = interface.set_rps(&Rps { cpus: [cpu].into_iter().collect(), flows: 0 });
        thread::sleep(CHANGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_an_arm_or_a_reason() {
        let description = Description::parse(ENTRY.text).unwrap();
        let arms = arms(2, Some([CpuSet::first_n(1), CpuSet::first_n(1)]));
        for case in &description.cases {
            let named = arms.iter().any(|arm| arm.name == alias(&case.id));
            assert!(named || case.not_here.is_some(), "{} has neither", case.id);
        }
    }

    #[test]
    fn no_rule_matches_a_server() {
        let text = rules();
        assert_eq!(text.matches("counter drop").count(), RULES);
        assert!(!text.contains("dport 7000"));
    }
}
