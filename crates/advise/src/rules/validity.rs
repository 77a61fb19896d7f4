//! What falsifies a measurement: a generator that is itself the limit, a paused link, a control group's CPU limit.

use udpath_profile::Profile;
use udpath_profile::classes::Class;
use udpath_profile::profile::ThreadShare;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, number, percent};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: GENERATOR,
        severity: Severity::Limit,
        look: Look::Profile(generator),
        cause: "the program that sends is slower than the server, so the rate says nothing about the server",
        fix: &[
            "send from more threads, more machines, or with batches (sendmmsg); `udpath load` says when it is the limit",
        ],
    },
    Rule {
        id: "pause-frames",
        severity: Severity::Limit,
        look: Look::Map(pauses),
        cause: "link-level flow control stops the sender for everything on the link, and hides where packets would be lost",
        fix: &[
            "turn it off to measure (`ethtool -A IFACE rx off tx off`; it resets the link), and find the receiver that is too slow",
        ],
    },
    Rule {
        id: "cpu-limit",
        severity: Severity::Loss,
        look: Look::Map(limited),
        cause: "its control group used up its CPU time, and all of its threads stop until the next period: datagrams that \
                come in between fill the receive queue",
        fix: &["raise or remove the limit (systemd: CPUQuota=; docker: --cpus; Kubernetes: limits.cpu)"],
    },
];

/// The id of a generator that is the limit.
pub(crate) const GENERATOR: &str = "generator-limit";
/// A CPU that is busy for this share of the time has none left. Higher: a sender at its limit is missed, because the
/// kernel's own work interrupts it. Lower: one that could send a little more is blamed.
const FULL: f64 = 0.9;
/// A thread that has at least this share of a full CPU is what fills it, with the softirqs of its own packets. Lower:
/// other programs' work on that CPU is blamed on it.
const MOST: f64 = 0.5;
/// Share of one CPU that the busiest reader uses below which the server has time left.
const SPARE: f64 = 0.6;
/// Share of periods in which a group is throttled from which on its limit matters.
const THROTTLED: f64 = 0.05;
/// Fewest pause frames per second that stop a link: one pauses for at most 3.4 ms at 10 Gbit/s.
const PAUSES: f64 = 10.0;

/// A process outside the focus whose thread is on a CPU all the time and sends UDP, beside readers with time left.
fn generator(profile: &Profile) -> Vec<Found> {
    let focus = &profile.facts.focus.pids;
    let dropped = profile.datagrams.is_none_or(|counted| counted.dropped > 0);
    if focus.is_empty() || dropped || !profile.whole() {
        return Vec::new();
    }
    let of_one = |thread: &ThreadShare| thread.ns as f64 / (profile.seconds.max(1e-9) * 1e9);
    let sends = |pid: u32| {
        let stacks = profile.stacks.iter().filter(|stack| stack.pid == Some(pid));
        stacks.clone().any(|stack| {
            stack.class == Class::UdpSend
                || stack.frames.iter().any(|frame| frame.contains("udp") && frame.contains("sendmsg"))
        })
    };
    let (served, others): (Vec<_>, Vec<_>) =
        profile.processes.iter().partition(|process| focus.contains(&process.pid));
    let reader = served.iter().flat_map(|process| &process.threads).map(of_one).fold(0.0, f64::max);
    let sender = others
        .into_iter()
        .filter(|process| process.pid != 0 && sends(process.pid))
        .filter_map(|process| Some((process, process.threads.first()?)))
        .max_by_key(|(_, busiest)| busiest.ns);
    let Some((process, thread)) = sender else { return Vec::new() };
    let own = of_one(thread);
    // A thread that stays on one CPU also lacks the time that softirqs, the hypervisor and other programs take there.
    let (taken, what) = match thread.cpu.and_then(|cpu| Some((cpu, not_idle(profile, cpu)?))) {
        Some((cpu, taken)) if (MOST..FULL).contains(&own) => {
            (taken, format!("uses {} of CPU {cpu}, which is {} idle", percent(own), percent(1.0 - taken)))
        }
        _ => (own, format!("uses {} of one CPU", percent(own))),
    };
    let evidence = format!(
        "{} (pid {}) sends and {what}; the busiest reader uses {}, and nothing is lost",
        process.name,
        process.pid,
        percent(reader)
    );
    (taken >= FULL && reader < SPARE)
        .then(|| Found::new(evidence).at(Location::Process(process.pid)).share(taken))
        .into_iter()
        .collect()
}

/// Share of the interval in which a CPU was not idle, by the kernel's own accounting.
fn not_idle(profile: &Profile, cpu: u32) -> Option<f64> {
    let accounted = profile.cpus.iter().find(|line| line.cpu == cpu)?.accounted?;
    Some((1.0 - accounted.idle).clamp(0.0, 1.0))
}

fn pauses(on: Observed<'_>) -> Vec<Found> {
    let paused = on.map.interfaces.iter().filter_map(|interface| {
        let (received, sent) = (interface.pauses_received.unwrap_or(0), interface.pauses_sent.unwrap_or(0));
        let rate = on.rate(received.saturating_add(sent)).filter(|rate| *rate >= PAUSES)?;
        let evidence = format!(
            "{} received {} and sent {} pause frames {}",
            interface.name,
            number(received),
            number(sent),
            on.when()
        );
        Some(Found::new(evidence).at(Location::Interface(interface.name.clone())).rate(Some(rate)))
    });
    paused.collect()
}

fn limited(on: Observed<'_>) -> Vec<Found> {
    let quotas =
        on.map.processes.iter().flat_map(|process| process.quotas.iter().map(move |quota| (process, quota)));
    let mut groups = std::collections::BTreeSet::new();
    quotas
        .filter(|(_, quota)| {
            quota.throttled > 0 && quota.throttled as f64 >= THROTTLED * quota.periods as f64
        })
        .filter(|(_, quota)| groups.insert(quota.group.clone()))
        .map(|(process, quota)| {
            let evidence = format!(
                "{} (pid {}) was throttled in {} of {} periods {}, to {:.2} CPUs (control group {})",
                process.name,
                process.pid,
                number(quota.throttled),
                number(quota.periods),
                on.when(),
                quota.cpus,
                quota.group
            );
            let share = quota.throttled as f64 / quota.periods.max(1) as f64;
            Found::new(evidence)
                .at(Location::Process(process.pid))
                .share(share)
                .rate(on.rate(quota.throttled))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use udpath_host::map::QuotaMap;
    use udpath_profile::context::Context::{Softirq, Syscall, User};
    use udpath_profile::facts::Focus;
    use udpath_profile::profile::{Accounted, Datagrams, ProcessShare};

    use super::*;
    use crate::rules::testing::{Host, found_in, of, only};

    #[test]
    fn a_group_that_is_throttled() {
        let mut host = Host::with_queues(1);
        host.map.seconds = Some(10.0);
        host.serve(2, 0);
        let quota =
            QuotaMap { group: "/dns".into(), cpus: 0.2, periods: 100, throttled: 80, throttled_seconds: 6.0 };
        host.map.processes[0].quotas = vec![quota.clone()];
        let finding = only(&host, "cpu-limit");
        assert_eq!(
            finding.evidence,
            "knotd (pid 812) was throttled in 80 of 100 periods in 10.0 s, to 0.20 CPUs (control group /dns)"
        );
        host.map.processes[0].quotas = vec![QuotaMap { throttled: 1, ..quota }];
        assert_eq!(host.found("cpu-limit"), []);
    }

    #[test]
    fn a_link_that_is_paused() {
        let mut host = Host::with_queues(1);
        host.map.seconds = Some(10.0);
        (host.map.interfaces[0].pauses_sent, host.map.interfaces[0].pauses_received) = (Some(5000), Some(0));
        let finding = only(&host, "pause-frames");
        assert_eq!(finding.evidence, "eth0 received 0 and sent 5,000 pause frames in 10.0 s");
        host.map.interfaces[0].pauses_sent = Some(50);
        assert_eq!(host.found("pause-frames"), []);
    }

    #[test]
    fn a_sender_without_time_beside_a_server_with_time() {
        let built = |sender: u64, reader: u64, idle: f64| {
            let mut profile = of(&[
                (Syscall, Class::UdpSend, None, Some("flood"), "sendto udp_sendmsg", sender),
                (User, Class::User, None, Some("knotd"), "main@", reader),
                (Softirq, Class::Ip, None, None, "ip_rcv", 100),
            ]);
            for stack in &mut profile.stacks {
                stack.pid = stack.process.as_deref().map(|name| if name == "flood" { 7 } else { 812 });
            }
            let share = |pid, name: &str, ms: u64| ProcessShare {
                pid,
                name: name.into(),
                ns: ms * 1_000_000,
                share: 0.5,
                threads: vec![ThreadShare {
                    tid: pid,
                    name: name.into(),
                    ns: ms * 1_000_000,
                    reads: pid == 812,
                    cpu: (pid == 7).then_some(1),
                }],
            };
            profile.processes = vec![share(7, "flood", sender), share(812, "knotd", reader)];
            profile.datagrams = Some(Datagrams { received: 10, sent: 10, dropped: 0 });
            profile
                .cpus
                .iter_mut()
                .for_each(|line| line.accounted = Some(Accounted { idle, ..Accounted::default() }));
            profile.about(Focus { port: Some(53), pids: vec![812] })
        };
        let evidence = |profile: &Profile| {
            let found = found_in(profile, "generator-limit");
            found.first().map(|finding| finding.evidence.clone())
        };
        let of = |sender, reader, idle| evidence(&built(sender, reader, idle));
        assert_eq!(
            of(4_900, 1_000, 0.02).as_deref(),
            Some(
                "flood (pid 7) sends and uses 98 % of one CPU; the busiest reader uses 20 %, and nothing is lost"
            )
        );
        assert_eq!(
            of(3_500, 1_000, 0.05).as_deref(),
            Some(
                "flood (pid 7) sends and uses 70 % of CPU 1, which is 5.0 % idle; the busiest reader uses 20 %, and \
                 nothing is lost"
            ),
            "softirqs have the rest"
        );
        assert_eq!(of(3_500, 1_000, 0.2), None, "it could send more");
        assert_eq!(of(2_000, 1_000, 0.05), None, "others have most of its CPU");
        assert_eq!(of(4_900, 4_900, 0.02), None, "the server is full as well");
        let mut moving = built(3_500, 1_000, 0.05);
        moving.processes.iter_mut().for_each(|process| process.threads[0].cpu = None);
        assert_eq!(evidence(&moving), None, "another CPU may have time");
        let mut lossy = built(4_900, 1_000, 0.02);
        lossy.datagrams = Some(Datagrams { received: 10, sent: 10, dropped: 3 });
        assert_eq!(evidence(&lossy), None);
    }
}
