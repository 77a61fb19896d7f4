//! A profile in one sentence: where most of the time goes, and the largest finding.
//!
//! ```text
//! contexts ──▸ lead      "62 % of CPU time is in softirq on CPUs 0-4"
//! findings ──▸ largest   "31 % waits for the receive-queue lock of one socket, 0.0.0.0:53, read by 20 threads of knotd"
//! ```

use udpath_profile::Profile;
use udpath_profile::context::Context;
use udpath_profile::profile::CpuLine;
use udpath_steer::CpuSet;

use crate::finding::Finding;
use crate::rule::{cpus, percent};
use crate::rules::{OWN_WORK, TRACING_ID};

/// Below this share of the CPU time that there was a machine is idle, and its shares say little: at the default rate
/// five seconds of two CPUs have then less than 500 samples. Higher: a service that is slow at low load passes for
/// idle.
const IDLE: f64 = 0.05;
/// A CPU belongs to a context's CPUs if it has at least this part of what the one with the most has. Lower: CPUs that
/// only see strays are listed; higher: of uneven CPUs some are missing.
const BELONGS: f64 = 0.25;

/// The sentence. `findings` are those of the profile, the largest first.
pub(crate) fn sentence(profile: &Profile, findings: &[Finding]) -> String {
    if profile.busy() == 0 {
        return "Nothing ran on the sampled CPUs.".to_owned();
    }
    let used = profile.busy() as f64 / profile.available().max(1.0);
    let idle = used < IDLE;
    let (context, ns) = leading(profile);
    // The finding about a program's own work says more than the context.
    let own = findings.iter().position(|finding| finding.id == OWN_WORK && context == Context::User);
    let lead = match own {
        Some(at) => findings[at].evidence.clone(),
        // "100 % in the kernel" of almost nothing would read like a load.
        None => {
            let share = percent(ns as f64 / profile.busy() as f64);
            let of = if idle { "that" } else { "CPU time" };
            format!("{share} of {of} is {} on {}", place(context), cpus(&cpus_of(profile, context)))
        }
    };
    let lead = match idle {
        true => format!(
            "The CPUs were idle, {} busy; {}",
            percent(used),
            lead.replacen(" of CPU time ", " of that ", 1)
        ),
        false => lead,
    };
    let mut others = findings.iter().enumerate().filter(|(at, _)| Some(*at) != own);
    // Probes are mostly the profiler's own: another finding says more about the machine.
    let next = others.clone().find(|(_, finding)| finding.id != TRACING_ID).or_else(|| others.next());
    // The lead has said what the shares are of.
    let next = next.map_or_else(String::new, |(_, finding)| {
        format!("; {}", finding.evidence.replacen(" of CPU time ", " ", 1))
    });
    format!("{lead}{next}.")
}

/// The context with the most time, idle left out.
fn leading(profile: &Profile) -> (Context, u64) {
    let busy = profile.contexts.iter().filter(|(context, _)| **context != Context::Idle);
    busy.max_by_key(|(_, ns)| **ns).map_or((Context::Idle, 0), |(context, ns)| (*context, *ns))
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
    let of = |line: &CpuLine| line.sampled.get(&context).copied().unwrap_or(0) as f64;
    let most = profile.cpus.iter().map(of).fold(0.0, f64::max);
    profile
        .cpus
        .iter()
        .filter(|line| of(line) > 0.0 && of(line) >= BELONGS * most)
        .map(|line| line.cpu)
        .collect()
}

#[cfg(test)]
mod tests {
    use udpath_profile::classes::Class;

    use super::*;
    use crate::rules::of_profile;
    use crate::rules::testing::{built, of};

    fn summary(profile: &Profile) -> String {
        sentence(profile, &of_profile(profile))
    }

    #[test]
    fn the_leading_context_and_the_largest_finding() {
        assert_eq!(
            summary(&built()),
            "65 % of CPU time is in softirq on CPUs 0-1; 34 % waits for the receive-queue lock of one socket, \
             0.0.0.0:53, read by 20 threads of knotd (pid 812)."
        );
    }

    #[test]
    fn a_programs_own_work_leads() {
        let mut profile = of(&[
            (Context::User, Class::User, None, Some("knotd"), "worker@ query@", 7_000),
            (Context::Softirq, Class::Ip, None, None, "ip_rcv", 3_000),
        ]);
        let own = "70 % of CPU time is knotd's own work, 100 % of it in query [knotd]";
        assert_eq!(summary(&profile), format!("{own}."));
        profile.facts.focus.pids = vec![9];
        assert_eq!(summary(&profile), format!("{own}; 70 % goes to other programs (knotd)."));
    }

    #[test]
    fn an_idle_machine_is_called_idle() {
        let profile = of(&[(Context::Syscall, Class::Files, None, Some("x"), "vfs_read", 100)]);
        assert_eq!(
            summary(&profile),
            "The CPUs were idle, 1.0 % busy; 100 % of that is in system calls on CPUs 0-1."
        );
        let own = of(&[(Context::User, Class::User, None, Some("knotd"), "worker@ query@", 100)]);
        assert_eq!(
            summary(&own),
            "The CPUs were idle, 1.0 % busy; 100 % of that is knotd's own work, 100 % of it in query [knotd]."
        );
        assert_eq!(summary(&of(&[])), "Nothing ran on the sampled CPUs.");
    }
}
