//! Programs: the service's own work, and that of others.

use std::collections::BTreeMap;

use udpath_profile::Profile;
use udpath_profile::context::Context;
use udpath_profile::profile::ProcessShare;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, percent};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "userland-proxy",
        severity: Severity::Limit,
        look: Look::Map(proxies),
        cause: "it copies every datagram between two sockets, by two system calls and a wake-up each",
        fix: &[
            "let the container use the host's network (`docker run --network host`), or turn the proxy off in favour of NAT \
             (`\"userland-proxy\": false` in /etc/docker/daemon.json; undone by the old file)",
        ],
    },
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
/// Programs that carry a container's datagrams in user space: of Docker, of rootless Docker and Podman, of Podman
/// (whose second name is that of its build for AVX2).
const PROXIES: [&str; 6] =
    ["docker-proxy", "rootlessport", "rootlesskit", "slirp4netns", "pasta", "pasta.avx2"];
/// Share of the interval that such a program runs for it to matter.
const PROXY: f64 = 0.05;
/// Most other programs that are named.
const NAMED: usize = 3;

fn proxies(on: Observed<'_>) -> Vec<Found> {
    let known = on.map.processes.iter().filter(|process| PROXIES.contains(&process.name.as_str()));
    known
        .filter_map(|process| {
            let ran: f64 = process.busiest.iter().map(|thread| thread.ran).sum();
            let evidence = format!(
                "{} (pid {}) carries the datagrams of a container, and ran {} of the time",
                process.name,
                process.pid,
                percent(ran)
            );
            (ran >= PROXY).then(|| Found::new(evidence).at(Location::Process(process.pid)))
        })
        .collect()
}

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
    use udpath_host::map::ThreadMap;
    use udpath_profile::classes::Class;
    use udpath_profile::facts::Focus;

    use super::*;
    use crate::rules::testing::{Host, built, found_in, of, only};

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
    fn a_proxy_between_a_container_and_the_network() {
        let mut host = Host::with_queues(1);
        host.serve(2, 0);
        let thread = |ran| ThreadMap { ran, ..ThreadMap::default() };
        host.map.processes[0].busiest = vec![thread(0.3), thread(0.14)];
        assert_eq!(host.found("userland-proxy"), [], "a server of its own");
        host.map.processes[0].name = "docker-proxy".into();
        assert_eq!(
            only(&host, "userland-proxy").evidence,
            "docker-proxy (pid 812) carries the datagrams of a container, and ran 44 % of the time"
        );
        host.map.processes[0].busiest.clear();
        assert_eq!(host.found("userland-proxy"), [], "nothing passes it");
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
