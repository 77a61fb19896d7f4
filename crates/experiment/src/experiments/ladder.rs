//! The ladder: one socket, its collapse when softirqs are spread, and what a socket per CPU makes of the same change.
//!
//! ```text
//!  client ══ 1 queue  ══ one        one-queue
//!         ══ Q queues ══ server     flood-*: an open load above what any arm carries; the other arms: a closed loop
//!         ══ Q queues ══ filtered   the last rung, with an nft rule set in the path
//!         ══ Q queues ══ tracked    with connection tracking
//!         ══ Q queues ══ merged     with GRO
//! ```
//! Machines are network namespaces, so that a rule set or connection tracking is in the path of one arm only, and
//! nothing has to be put back between trials.

use std::time::Duration;

use udpath_advise::ladder::Settings;
use udpath_lab::{LinkSpec, Offloads};
use udpath_load::Engine;
use udpath_load::plan::{Arrivals, Plan, Process};
use udpath_serve::Io;

use crate::arms::{self, Precision};
use crate::description::Description;
use crate::entry::{Context, Entry, Error, Found, Watch};
use crate::nft;
use crate::servers::{Bed, NOWHERE, ServerArm, Servers, without};

pub(super) const ENTRY: Entry = Entry { text: include_str!("../../data/ladder.toml"), measure };

const ONE: &str = "one";
const SERVER: &str = "server";
const FILTERED: &str = "filtered";
const TRACKED: &str = "tracked";
const MERGED: &str = "merged";

/// Flows: enough for any hash to spread them.
const FLOWS: u32 = 64;
/// Requests in flight per flow: 384 in all. Fewer: fast arms wait for the link's moderation. More: the ring of a veth
/// queue (256 frames) overflows.
const IN_FLIGHT: u32 = 6;
/// Interrupt moderation of the links, microseconds: what 10 Gbit/s cards have under load.
const MODERATION: u32 = 75;
/// Rate of the flood, requests per second and CPU: two to three times what a CPU of a server with kernel sockets
/// answers. Lower: no arm is flooded. Higher: the generator takes the CPUs from the softirqs that are to be seen.
const FLOOD: f64 = 500_000.0;
/// Length of a trial and its warm-up. Shorter: a virtual CPU that is taken away for some milliseconds decides it.
const TRIAL: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(60)];
/// When a request counts as lost: five times what a full socket's queue takes at the lowest rate. Longer: each trial of
/// the flood waits for it twice.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Narrow enough to tell rungs of 5 % apart; twelve comparisons take three minutes at most.
const PRECISION: Precision = Precision { half_width: 0.02, blocks: 8 };

/// A firewall's usual rules: what none of them matches is looked at by each.
const RULES: &str = "table inet udpath {
  set refused { type ipv4_addr; flags interval; elements = { 192.0.2.0/24, 198.51.100.0/24 } }
  chain input {
    type filter hook input priority filter; policy accept;
    ip saddr @refused counter drop
    ip protocol icmp limit rate 10/second accept
    tcp dport { 22, 80, 443 } accept
    udp dport 1-1023 counter accept
    ip saddr 203.0.113.7 counter drop
    meta length > 9000 counter drop
  }
  chain output { type filter hook output priority filter; policy accept; ip daddr @refused counter drop; }
}
";
/// What makes the kernel track connections.
const TRACK: &str = "table inet udpath {
  chain input { type filter hook input priority filter; policy accept; ct state invalid counter drop; }
}
";

fn measure(description: &Description, context: &Context<'_>, watch: &mut Watch<'_>) -> Result<Found, Error> {
    let failed = |what: &str, cause| Error::measuring(description, what, cause);
    let queues = Bed::queues().map_err(|cause| failed("the CPUs", cause))?;
    let wide = LinkSpec { moderation: MODERATION, ..LinkSpec::with_queues(queues) };
    let one = LinkSpec { queues: 1, ..wide.clone() };
    let merged = LinkSpec { offloads: Offloads { gro: true, ..Offloads::default() }, ..wide.clone() };
    let machines =
        [(ONE, one), (SERVER, wide.clone()), (FILTERED, wide.clone()), (TRACKED, wide), (MERGED, merged)];
    let bed = Bed::up("ladder", &machines, &[]).map_err(|cause| failed("the lab", cause))?;
    let mut arms = arms(queues as usize);
    let mut missing = Vec::new();
    for (machine, rules) in [(FILTERED, RULES), (TRACKED, TRACK)] {
        if let Err(reason) = nft::load(&bed.lab, machine, rules) {
            missing.extend(without(&mut arms, machine, &reason));
        }
    }
    let mut servers = Servers::new(description, context, &bed.lab, arms, |case| case);
    let mut found = arms::measure(description, context, watch, PRECISION, &mut servers)?;
    found.missing.extend(missing);
    for arm in ["flood-rss", "flood-spread", "flood-reuseport"] {
        let counts = servers.counts(arm);
        if counts.sent > 0 {
            let answered = counts.ok as f64 * 100.0 / counts.sent as f64;
            found
                .notes
                .push(format!("{arm}: {answered:.1} % of {} requests were answered in time.", counts.sent));
        }
    }
    Ok(found)
}

/// The arms: all run a server with a worker per queue that calls recvfrom and sendto.
fn arms(workers: usize) -> Vec<ServerArm> {
    let base = Settings::base(workers, FLOWS * IN_FLIGHT);
    let spread = Settings { rps: true, ..base };
    let split = Settings { io: Io::Reuseport, ..spread };
    let by_cpu = Settings { io: Io::Percpu, ..split };
    let pinned = Settings { pin: true, ..by_cpu };
    let last = Settings { rps: false, ..pinned };
    let arm = |name, machine, settings, (engine, plan): (Engine, &Plan)| ServerArm {
        name,
        machine,
        settings,
        rps_cpus: None,
        service: &[],
        engine,
        plan: plan.clone(),
    };
    let (flood, closed) = (flood(workers), closed(workers));
    let (flood, closed) = ((Engine::Xdp, &flood), (Engine::Kernel, &closed));
    vec![
        arm("flood-rss", SERVER, base, flood),
        arm("flood-spread", SERVER, spread, flood),
        arm("flood-reuseport", SERVER, split, flood),
        arm("one-queue", ONE, base, closed),
        arm("rss", SERVER, base, closed),
        arm("spread", SERVER, spread, closed),
        arm("reuseport", SERVER, split, closed),
        arm("by-cpu", SERVER, by_cpu, closed),
        arm("pinned", SERVER, pinned, closed),
        arm("rps-off", SERVER, last, closed),
        arm("netfilter", FILTERED, last, closed),
        arm("conntrack", TRACKED, last, closed),
        arm("gro", MERGED, last, closed),
    ]
}

fn plan(threads: usize, arrivals: Arrivals) -> Plan {
    let [duration, warmup] = TRIAL;
    Plan { flows: FLOWS, arrivals, duration, warmup, timeout: TIMEOUT, threads, ..Plan::new(NOWHERE) }
}

/// As fast as the server answers.
fn closed(cpus: usize) -> Plan {
    plan(cpus, Arrivals::Closed { inflight: IN_FLIGHT })
}

/// As fast as the client sends, whatever the server answers.
fn flood(cpus: usize) -> Plan {
    plan(1, Arrivals::Open { rate: FLOOD * cpus as f64, process: Process::Constant })
}
