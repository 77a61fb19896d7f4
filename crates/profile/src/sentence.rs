//! What the figures come to: the sentence a colleague would say, and what is remarkable.
//!
//! ```text
//! contexts ──▸ lead     "62 % of the CPU time used is in softirq on CPUs 0-4"
//! rules    ──▸ findings "31 % waits for the receive-queue lock of one socket, 0.0.0.0:53, read by 20 threads of knotd"
//!              the largest finding ends the sentence; each has what helps
//! ```
//! Pure: from a [`Profile`] and the [`Facts`](crate::facts::Facts) in it. The rules and their thresholds are in `rules.rs`.

mod rules;

use serde::{Deserialize, Serialize};
use udpath_steer::CpuSet;

use crate::Profile;
use crate::context::Context;

pub use rules::Rule;

/// Something remarkable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Which rule found it.
    pub rule: Rule,
    /// How large it is, 0 to 1: of the CPU time used, where the rule does not say otherwise.
    pub share: f64,
    /// In words, as a part of a sentence.
    pub text: String,
    /// What helps, as a part of a sentence.
    pub remedy: String,
}

/// Below this share of the CPU time that there was a machine is idle, and its shares say little: at the default rate five
/// seconds of two CPUs have then less than 500 samples. Higher: a service that is slow at low load is told that it is idle.
const IDLE: f64 = 0.05;
/// A CPU belongs to a context's CPUs if it has at least this part of what the one with the most has. Lower: CPUs that
/// only see strays are listed; higher: of uneven CPUs some are missing.
const BELONGS: f64 = 0.25;

/// The sentence, and the findings, the largest first.
#[must_use]
pub fn conclude(profile: &Profile) -> (String, Vec<Finding>) {
    if profile.busy() == 0 {
        return ("Nothing ran on the sampled CPUs.".to_owned(), Vec::new());
    }
    let mut findings = rules::all(profile);
    findings.sort_by(|a, b| b.share.total_cmp(&a.share));
    let used = profile.busy() as f64 / profile.available().max(1.0);
    let (idle, of) = if used < IDLE {
        (format!("{} of the CPU time was used; ", percent(used)), "that")
    } else {
        (String::new(), "the CPU time used")
    };
    let (context, ns) = leading(profile);
    // What is mostly a program's own work is said by the rule that names it.
    let own = findings.iter().position(|finding| finding.rule == Rule::User && context == Context::User);
    let lead = match own {
        Some(at) => format!("{} of {of} {}", percent(findings[at].share), rest(&findings[at].text)),
        None => {
            let share = percent(ns as f64 / profile.busy() as f64);
            format!("{share} of {of} is {} on {}", place(context), cpus(&cpus_of(profile, context)))
        }
    };
    let next = findings.iter().enumerate().find(|(at, _)| Some(*at) != own);
    let next = next.map_or_else(String::new, |(_, finding)| format!(", {}", finding.text));
    (format!("{idle}{lead}{next}."), findings)
}

/// The context with the most time, idle left out.
fn leading(profile: &Profile) -> (Context, u64) {
    let busy = profile.contexts.iter().filter(|(context, _)| **context != Context::Idle);
    busy.max_by_key(|(_, ns)| **ns).map_or((Context::Idle, 0), |(context, ns)| (*context, *ns))
}

/// A finding's text without the share it begins with.
fn rest(text: &str) -> &str {
    text.split_once(" % ").map_or(text, |(_, rest)| rest)
}

const fn place(context: Context) -> &'static str {
    match context {
        Context::HardIrq => "in hard interrupts",
        Context::Softirq => "in softirq",
        Context::Syscall => "in system calls",
        Context::Kernel => "in the kernel outside system calls",
        Context::User => "in programs",
        Context::Guest => "in virtual machines",
        Context::Idle => "idle",
    }
}

/// The CPUs that carry a context.
fn cpus_of(profile: &Profile, context: Context) -> CpuSet {
    let of = |line: &crate::profile::CpuLine| line.sampled.get(&context).copied().unwrap_or(0) as f64;
    let most = profile.cpus.iter().map(of).fold(0.0, f64::max);
    profile
        .cpus
        .iter()
        .filter(|line| of(line) > 0.0 && of(line) >= BELONGS * most)
        .map(|line| line.cpu)
        .collect()
}

fn cpus(set: &CpuSet) -> String {
    if set.len() == 1 { format!("CPU {set}") } else { format!("CPUs {set}") }
}

/// A share as people say it.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
pub(crate) mod tests;
