//! Programs: the service's own work, and that of others.

use std::collections::BTreeMap;

use udpath_profile::Profile;
use udpath_profile::context::Context;
use udpath_profile::profile::ProcessShare;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Rule, percent};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: OWN_WORK,
        severity: Severity::Note,
        look: Look::Profile(user),
        cause: "the network stack is not the limit here",
        fix: &["optimise the program: the flame graph shows its functions"],
    },
    Rule {
        id: OTHERS,
        severity: Severity::Limit,
        look: Look::Profile(others),
        cause: "they take CPUs from the service",
        fix: &["move them to other CPUs or another machine"],
    },
];

/// The id of a program's own work.
pub(crate) const OWN_WORK: &str = "user";
/// The id of the work of other programs.
pub(crate) const OTHERS: &str = "others";
/// A program's own work. Of an echo server under load it is 5 %, of a name server a third.
const USER: f64 = 0.4;
/// Of a program's own work: a function that is worth its name.
const FUNCTION: f64 = 0.2;
/// Programs beside those asked for: from here on they take CPUs from the service rather than fill its pauses.
const BESIDE: f64 = 0.25;
/// Most other programs that are named.
const NAMED: usize = 3;

fn user(profile: &Profile) -> Vec<Found> {
    let mut by_process: BTreeMap<&str, (u64, BTreeMap<&str, u64>)> = BTreeMap::new();
    for stack in profile.stacks.iter().filter(|stack| stack.context == Context::User) {
        let sums = by_process.entry(stack.process.as_deref().unwrap_or_default()).or_default();
        sums.0 += stack.ns;
        if let Some(innermost) = stack.frames.last() {
            *sums.1.entry(innermost).or_default() += stack.ns;
        }
    }
    let largest = by_process.into_iter().max_by_key(|(_, (ns, _))| *ns);
    let Some((name, (ns, functions))) = largest else { return Vec::new() };
    let share = ns as f64 / profile.busy() as f64;
    if share < USER {
        return Vec::new();
    }
    let pids = profile.processes.iter().filter(|process| process.name == name).map(|process| process.pid);
    let whose = if name.is_empty() { "one program's" } else { &format!("{name}'s") };
    let top = functions.into_iter().max_by_key(|(_, ns)| *ns);
    let top = top.filter(|(_, most)| *most as f64 >= FUNCTION * ns as f64);
    let most = top.map_or_else(String::new, |(function, most)| {
        format!(", {} of it in {function}", percent(most as f64 / ns as f64))
    });
    vec![Found::cpu_time(share, &format!("is {whose} own work{most}")).at_all(pids.map(Location::Process))]
}

fn others(profile: &Profile) -> Vec<Found> {
    let focus = &profile.facts.focus.pids;
    let others: Vec<&ProcessShare> = profile
        .processes
        .iter()
        .filter(|process| process.pid != 0 && !focus.contains(&process.pid))
        .collect();
    let share = others.iter().map(|process| process.share).sum::<f64>();
    if focus.is_empty() || share < BESIDE {
        return Vec::new();
    }
    let (mut names, mut pids) = (Vec::<&str>::new(), Vec::new());
    for process in others {
        if names.len() < NAMED && !names.contains(&process.name.as_str()) {
            names.push(&process.name);
            pids.push(process.pid);
        }
    }
    let does = format!("goes to other programs ({})", names.join(", "));
    vec![Found::cpu_time(share, &does).at_all(pids.into_iter().map(Location::Process))]
}

#[cfg(test)]
mod tests {
    use udpath_profile::classes::Class;
    use udpath_profile::facts::Focus;

    use super::*;
    use crate::rules::testing::{built, found_in, of};

    #[test]
    fn a_slow_program_is_named_with_its_function() {
        let profile = |own| {
            of(&[
                (Context::User, Class::User, None, Some("knotd"), "worker@ query@", own),
                (Context::User, Class::User, None, Some("knotd"), "worker@ parse@", 1_000),
                (Context::Softirq, Class::Ip, None, None, "ip_rcv", 3_000),
            ])
        };
        let [finding] = &found_in(&profile(6_000), "user")[..] else { panic!() };
        assert_eq!(finding.evidence, "70 % of CPU time is knotd's own work, 86 % of it in query [knotd]");
        assert_eq!(finding.locations, [Location::Process(812)]);
        assert_eq!(found_in(&profile(900), "user"), []);
    }

    #[test]
    fn other_programs_are_named_if_the_profile_is_about_one() {
        let mut profile = built();
        let process = |pid, name: &str, share| ProcessShare {
            pid,
            name: name.into(),
            ns: 0,
            share,
            threads: Vec::new(),
        };
        profile.processes.extend([process(9, "flood", 0.4), process(10, "qemu", 0.12)]);
        assert_eq!(found_in(&profile, "others"), []);
        let mut profile = profile.about(Focus { port: None, pids: vec![812] });
        let [finding] = &found_in(&profile, "others")[..] else { panic!() };
        assert_eq!(finding.evidence, "52 % of CPU time goes to other programs (flood, qemu)");
        assert_eq!(finding.locations, [9, 10].map(Location::Process));
        profile.processes.retain(|process| process.pid != 9);
        assert_eq!(found_in(&profile, "others"), []);
    }
}
