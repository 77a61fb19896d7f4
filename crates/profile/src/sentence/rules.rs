//! The rules: each looks for one thing, says it in words, and what helps. A rule speaks from its threshold on.
//!
//! The thresholds are shares of the CPU time used. Lower: what five seconds of sampling cannot tell from chance, and what
//! nobody would act on, is reported; higher: the second or third cause of a slow service stays unnamed.

mod locks;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Finding, cpus, percent};
use crate::Profile;
use crate::classes::Class;
use crate::context::Context;
use crate::profile::ProcessShare;

/// What was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The lock of a UDP socket's receive queue.
    ReceiveQueueLock,
    /// Another lock.
    Lock,
    /// Packet filters and connection tracking.
    Netfilter,
    /// Packet sockets that look on.
    Taps,
    /// Packets are looked at for merging, and none are merged.
    Gro,
    /// A program's own work.
    User,
    /// Programs that were not asked for.
    Others,
    /// A CPU has no time left while others do. The share is what that CPU did.
    OneCpu,
    /// What the processor's flaws cost.
    Mitigations,
    /// Security modules, audit, seccomp.
    Security,
    /// Time that the hypervisor took: a share of all time.
    Steal,
    /// Sleeping and waking.
    WakeUps,
    /// Tracing.
    Tracing,
    /// Datagrams dropped: a share of those that came.
    Drops,
}

/// Packet filters: a single rule costs 1 to 2 %, connection tracking 5 to 20 %.
const NETFILTER: f64 = 0.05;
/// Packet sockets: each clones every packet.
const TAPS: f64 = 0.02;
/// Looking for packets to merge: 60 to 80 ns for each, 2 % of the time of an echo server. It helps nobody where none are
/// merged, and goes by one command; 1.5 % of five seconds of two CPUs is known to half a point.
const GRO: f64 = 0.015;
/// Of the time spent looking: merging, where it happens, takes more than this.
const GRO_MERGES: f64 = 0.02;
/// A program's own work. Of an echo server under load it is 5 %, of a name server a third.
const USER: f64 = 0.4;
/// Programs beside those asked for: from here on they take CPUs from the service rather than fill its pauses.
const OTHERS: f64 = 0.25;
/// Of a program's own work: a function that is worth its name.
const FUNCTION: f64 = 0.2;
/// A CPU without time left, of the interval: sampling errs by a point or two.
const FULL: f64 = 0.95;
/// The mean of the other CPUs, up to which they have time.
const FREE: f64 = 0.6;
/// Mitigations: thunks and barriers that show as functions of their own.
const MITIGATIONS: f64 = 0.05;
/// Security modules and audit: hooks that answer at once cost 1 %.
const SECURITY: f64 = 0.04;
/// Time taken by the hypervisor, of all time: from here on every other figure is uncertain.
const STEAL: f64 = 0.03;
/// Sleeping and waking; a datagram that wakes a reader each time costs 15 to 30 %.
const WAKE_UPS: f64 = 0.2;
/// Tracing by others; this program's own sampling takes less.
const TRACING: f64 = 0.03;
/// Datagrams dropped, of those that came.
const DROPS: f64 = 0.01;

/// Everything that is remarkable, in no order.
pub(super) fn all(profile: &Profile) -> Vec<Finding> {
    let mut findings = locks::all(profile);
    let rules =
        [netfilter, taps, gro, user, others, one_cpu, mitigations, security, steal, wake_ups, tracing, drops];
    findings.extend(rules.iter().filter_map(|rule| rule(profile)));
    findings
}

fn finding(rule: Rule, share: f64, text: String, remedy: &str) -> Finding {
    Finding { rule, share, text, remedy: remedy.to_owned() }
}

/// A class from its threshold on.
fn class(profile: &Profile, class: Class, least: f64) -> Option<f64> {
    Some(profile.share(class)).filter(|share| *share >= least)
}

fn netfilter(profile: &Profile) -> Option<Finding> {
    let share = class(profile, Class::Netfilter, NETFILTER)?;
    let tracked = profile.facts.tracked.filter(|count| *count > 0);
    let tracked = tracked.map_or_else(String::new, |count| format!(" ({count} connections are tracked)"));
    let text = format!("{} is packet filters and connection tracking{tracked}", percent(share));
    Some(finding(
        Rule::Netfilter,
        share,
        text,
        "exempt the service's port from tracking (notrack in raw), and filter early",
    ))
}

fn taps(profile: &Profile) -> Option<Finding> {
    let share = class(profile, Class::Taps, TAPS)?;
    let mut whose: Vec<String> = profile
        .facts
        .taps
        .iter()
        .filter_map(|tap| tap.pid.map(|pid| format!("{} (pid {pid})", tap.name)))
        .collect();
    whose.dedup();
    let whose = if whose.is_empty() { "packet sockets that look on".to_owned() } else { whose.join(", ") };
    let text = format!("{} copies packets for {whose}", percent(share));
    Some(finding(Rule::Taps, share, text, "end it, or give it a filter that is early and narrow"))
}

fn gro(profile: &Profile) -> Option<Finding> {
    let passes = |names: &[&str]| {
        let stacks = profile.stacks.iter();
        let through = stacks.filter(|stack| stack.frames.iter().any(|frame| names.contains(&frame.as_str())));
        through.map(|stack| stack.ns).sum::<u64>() as f64
    };
    // Packets that were held back go up from here as well: that is not the cost of looking.
    let up = [
        "netif_receive_skb_list_internal",
        "gro_normal_list",
        "napi_gro_complete",
        "gro_complete",
        "gro_normal_one",
    ];
    let looking = profile.stacks.iter().filter(|stack| {
        let enters =
            stack.frames.iter().rposition(|frame| frame == "dev_gro_receive" || frame == "gro_receive_skb");
        enters.is_some_and(|at| !stack.frames[at..].iter().any(|frame| up.contains(&frame.as_str())))
    });
    let looking = looking.map(|stack| stack.ns).sum::<u64>() as f64;
    let share = looking / profile.busy() as f64;
    if share < GRO || passes(&["skb_gro_receive", "skb_gro_receive_list"]) > looking * GRO_MERGES {
        return None;
    }
    let text = format!("{} looks for packets to merge (GRO), and hardly any are merged", percent(share));
    Some(finding(Rule::Gro, share, text, "UDP_GRO at the socket if it takes runs of datagrams, else GRO off"))
}

fn user(profile: &Profile) -> Option<Finding> {
    let mut by_process: BTreeMap<&str, (u64, BTreeMap<&str, u64>)> = BTreeMap::new();
    for stack in profile.stacks.iter().filter(|stack| stack.context == Context::User) {
        let sums = by_process.entry(stack.process.as_deref().unwrap_or_default()).or_default();
        sums.0 += stack.ns;
        if let Some(innermost) = stack.frames.last() {
            *sums.1.entry(innermost).or_default() += stack.ns;
        }
    }
    let (name, (ns, functions)) = by_process.into_iter().max_by_key(|(_, (ns, _))| *ns)?;
    let share = ns as f64 / profile.busy() as f64;
    if share < USER {
        return None;
    }
    let name = if name.is_empty() { "one program" } else { name };
    let top = functions.into_iter().max_by_key(|(_, ns)| *ns);
    let top = top.filter(|(_, most)| *most as f64 >= FUNCTION * ns as f64);
    let most = top.map_or_else(String::new, |(function, most)| {
        format!(", {} of it in {function}", percent(most as f64 / ns as f64))
    });
    let text = format!("{} is {name}'s own work{most}", percent(share));
    Some(finding(Rule::User, share, text, "the program itself: see its functions in the flame graph"))
}

fn others(profile: &Profile) -> Option<Finding> {
    let focus = &profile.facts.focus.pids;
    let others: Vec<&ProcessShare> = profile
        .processes
        .iter()
        .filter(|process| process.pid != 0 && !focus.contains(&process.pid))
        .collect();
    let share = others.iter().map(|process| process.share).sum::<f64>();
    if focus.is_empty() || share < OTHERS {
        return None;
    }
    let mut names: Vec<&str> = Vec::new();
    for process in &others {
        if !names.contains(&process.name.as_str()) {
            names.push(&process.name);
        }
    }
    names.truncate(3);
    let text = format!("{} is other programs' ({})", percent(share), names.join(", "));
    Some(finding(Rule::Others, share, text, "other CPUs for them, or another machine"))
}

fn one_cpu(profile: &Profile) -> Option<Finding> {
    let busy = |line: &crate::profile::CpuLine| {
        let ns = line
            .sampled
            .iter()
            .filter(|(context, _)| **context != Context::Idle)
            .map(|(_, ns)| ns)
            .sum::<u64>();
        ns as f64 / 1e9 / profile.seconds.max(1e-9)
    };
    let (full, rest): (Vec<_>, Vec<_>) = profile.cpus.iter().partition(|line| busy(line) >= FULL);
    // A few that are full beside many that are not: a queue, an interrupt, a thread.
    if full.is_empty() || rest.is_empty() || full.len() * 2 > profile.cpus.len() {
        return None;
    }
    let free = rest.iter().map(|line| busy(line)).sum::<f64>() / rest.len() as f64;
    if free > FREE {
        return None;
    }
    let share =
        full.iter().map(|line| busy(line)).sum::<f64>() * profile.seconds * 1e9 / profile.busy() as f64;
    let which = full.iter().map(|line| line.cpu).collect();
    let are = if full.len() == 1 { "is" } else { "are" };
    let others = if rest.len() == 1 { "other".to_owned() } else { format!("other {}", rest.len()) };
    let used = if rest.len() == 1 { "is" } else { "are" };
    let text = format!("{} {are} full while the {others} {used} {} used", cpus(&which), percent(free));
    Some(finding(
        Rule::OneCpu,
        share,
        text,
        "spread the interrupts (RSS, RPS) or the threads; `udpath show` says which",
    ))
}

fn mitigations(profile: &Profile) -> Option<Finding> {
    let share = class(profile, Class::Mitigations, MITIGATIONS)?;
    let text = format!("{} pays for the processor's flaws (mitigations)", percent(share));
    Some(finding(Rule::Mitigations, share, text, "fewer system calls: bursts by recvmmsg and sendmmsg"))
}

fn security(profile: &Profile) -> Option<Finding> {
    let share = class(profile, Class::Security, SECURITY)?;
    let text = format!("{} is security modules and audit", percent(share));
    Some(finding(
        Rule::Security,
        share,
        text,
        "audit rules that leave the service's system calls out; bursts",
    ))
}

fn steal(profile: &Profile) -> Option<Finding> {
    let stolen: Vec<f64> = profile.cpus.iter().filter_map(|line| Some(line.accounted?.steal)).collect();
    let share = stolen.iter().sum::<f64>() / stolen.len().max(1) as f64;
    (share >= STEAL).then(|| {
        let text = format!("the hypervisor took {} of the CPUs", percent(share));
        finding(Rule::Steal, share, text, "ask for CPUs of your own: every figure here is uncertain")
    })
}

fn wake_ups(profile: &Profile) -> Option<Finding> {
    let share = class(profile, Class::Scheduling, WAKE_UPS)?;
    let text = format!("{} is sleeping and waking", percent(share));
    Some(finding(Rule::WakeUps, share, text, "read until the queue is empty, or busy polling"))
}

fn tracing(profile: &Profile) -> Option<Finding> {
    let share = class(profile, Class::Tracing, TRACING)?;
    let text = format!("{} is tracing", percent(share));
    Some(finding(
        Rule::Tracing,
        share,
        text,
        "see who has probes attached; a lower --rate if it is this program",
    ))
}

fn drops(profile: &Profile) -> Option<Finding> {
    let share = profile.datagrams?.loss();
    (share >= DROPS).then(|| {
        let text = format!("{} of the datagrams that came were dropped", percent(share));
        finding(
            Rule::Drops,
            share,
            text,
            "a larger receive buffer for bursts; more readers for a load that stays",
        )
    })
}
