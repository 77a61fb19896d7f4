//! CPU time that the hypervisor takes.

use udpath_profile::Profile;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, percent};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "steal",
        severity: Severity::Note,
        look: Look::Map(of_map),
        cause: "other virtual machines use the same CPUs, so figures vary with their load",
        fix: &[OWN],
    },
    Rule {
        id: "steal",
        severity: Severity::Note,
        look: Look::Profile(of_profile),
        cause: "other virtual machines use the same CPUs, so every figure here is uncertain",
        fix: &[OWN],
    },
];

const OWN: &str = "get dedicated CPUs from the hypervisor";
/// Share of time taken by the hypervisor from which on figures are somebody else's. Lower: every virtual machine has
/// the finding. Higher: a starved one has not.
const STEAL: f64 = 0.02;
/// The same during a profile: from here on every other figure is uncertain.
const STEAL_SAMPLED: f64 = 0.03;

/// Mean share of CPU time that the hypervisor took while the profile was sampled, 0 to 1; 0 if the kernel does not say.
pub(super) fn stolen(profile: &Profile) -> f64 {
    let shares = steal(profile);
    shares.iter().sum::<f64>() / shares.len().max(1) as f64
}

fn steal(profile: &Profile) -> Vec<f64> {
    profile.cpus.iter().filter_map(|line| Some(line.accounted?.steal)).collect()
}

/// The mean, if it is at least so much.
fn mean(shares: &[f64], least: f64) -> Option<f64> {
    let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    (mean >= least).then_some(mean)
}

fn found(share: Option<f64>, of: &str) -> Vec<Found> {
    let evidence = |share| format!("the hypervisor took {} of {of}", percent(share));
    share.map(|share| Found::new(evidence(share)).share(share).at(Location::Machine)).into_iter().collect()
}

fn of_map(on: Observed<'_>) -> Vec<Found> {
    let shares: Vec<f64> = on.map.cpus.iter().filter_map(|cpu| Some(cpu.time?.steal)).collect();
    found(mean(&shares, STEAL), "the CPU time")
}

fn of_profile(profile: &Profile) -> Vec<Found> {
    found(mean(&steal(profile), STEAL_SAMPLED), "the CPU time")
}

#[cfg(test)]
mod tests {
    use udpath_host::map::Shares;
    use udpath_profile::classes::Class;
    use udpath_profile::context::Context;
    use udpath_profile::profile::Accounted;

    use crate::rules::testing::{Host, found_in, of, only};

    #[test]
    fn time_that_the_hypervisor_took() {
        let mut host = Host::with_queues(1);
        host.cpus(2, 1);
        let time = |steal| Some(Shares { steal, ..Shares::default() });
        (host.map.cpus[0].time, host.map.cpus[1].time) = (time(0.1), time(0.02));
        assert_eq!(only(&host, "steal").evidence, "the hypervisor took 6.0 % of the CPU time");
        host.map.cpus[0].time = time(0.0);
        assert_eq!(host.found("steal"), []);
    }

    #[test]
    fn time_that_it_took_during_a_profile() {
        let mut profile = of(&[(Context::Softirq, Class::Ip, None, None, "ip_rcv", 5_000)]);
        let mut stolen = |steal| {
            for line in &mut profile.cpus {
                line.accounted = Some(Accounted { steal, ..Accounted::default() });
            }
            found_in(&profile, "steal")
        };
        let [finding] = &stolen(0.1)[..] else { panic!() };
        assert_eq!(
            (finding.evidence.as_str(), finding.share),
            ("the hypervisor took 10 % of the CPU time", Some(0.1))
        );
        assert_eq!(stolen(0.02), []);
    }
}
