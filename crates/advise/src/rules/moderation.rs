//! How many packets share an interrupt: moderation by the device, deferral by NAPI, and queues with too few packets.

use udpath_host::interfaces::Interface;
use udpath_host::map::InterfaceMap;

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, counted, number, percent};
use crate::rules::queues::{each, placed, reachable};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "no-moderation",
        severity: Severity::Limit,
        look: Look::Map(no_moderation),
        cause: "nearly every packet raises an interrupt of its own",
        fix: &[],
    },
    Rule {
        id: "slow-coalescing",
        severity: Severity::Note,
        look: Look::Map(slow_coalescing),
        cause: "a request waits so long for its interrupt while little else comes",
        fix: &[],
    },
    Rule {
        id: "too-many-queues",
        severity: Severity::Note,
        look: Look::Map(too_many_queues),
        cause: "spread over so many queues, few packets arrive together, so each interrupt and poll is for few of them",
        fix: &[
            "halve the number of queues as long as the device loses nothing; fewer also share caches better",
        ],
    },
    Rule {
        id: "defer-without-timer",
        severity: Severity::Note,
        look: Look::Map(defer_without_timer),
        // napi_complete_done of net/core/dev.c: without a timeout the interrupt is enabled at once.
        cause: "without the timer nothing would poll the queue again, so the kernel enables its interrupt at once",
        fix: &[],
    },
];

/// Packets per interrupt below which there is no moderation, and the packets per second from which on that matters: an
/// idle queue has one packet per interrupt.
const UNMODERATED: (f64, f64) = (1.5, 10_000.0);
/// Microseconds of receive coalescing from which on they dominate the answer's time.
const SLOW_USECS: u32 = 100;
/// Queues from which on there may be too many.
const MANY_QUEUES: usize = 4;
/// Interrupts per second that are worth sharing: at a microsecond or two each, a tenth of a CPU. Lower: a quiet machine
/// has findings. Higher: the cost goes unnoticed.
const MANY_INTERRUPTS: f64 = 50_000.0;
/// Packets per interrupt below which they are hardly shared, and the share of softirq time of the queues' CPUs below
/// which half as many CPUs would do.
const BARELY_SHARED: (f64, f64) = (4.0, 0.25);

/// Nanoseconds that a remedy sets: what the kernel's documentation uses with deferred interrupts (napi.rst). Less: the
/// interrupt returns between two bursts. More: latency after a short pause.
const TIMER: u32 = 20_000;

fn no_moderation(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let (packets, interrupts) = counts(interface);
        let rate = on.rate(packets)?;
        let each = packets as f64 / interrupts as f64;
        let evidence = format!(
            "{} raised {} interrupts for {} packets {}, {each:.1} packets each",
            interface.name,
            number(interrupts),
            number(packets),
            on.when()
        );
        (interrupts > 0 && each < UNMODERATED.0 && rate >= UNMODERATED.1).then(|| {
            let name = &interface.name;
            Found::new(evidence)
                .at(Location::Interface(name.clone()))
                .rate(on.rate(interrupts))
                .changes("let the device collect packets", coalescing(on.interface(name), name))
        })
    })
}

/// Adaptive moderation where the driver has it, else a fixed delay; without either, NAPI's own.
fn coalescing(interface: Option<&Interface>, name: &str) -> Vec<String> {
    match interface.and_then(|interface| interface.coalescing.as_ref()).map(|fact| &fact.value) {
        Some(set) if set.get("adaptive-rx") == Some(&0) => vec![format!("{name}:coalesce/adaptive-rx=on")],
        Some(set) if set.contains_key("rx-usecs") => vec![format!("{name}:coalesce/rx-usecs=20")],
        _ => vec![format!("{name}:napi/gro-flush-timeout=20000"), format!("{name}:napi/defer-hard-irqs=10")],
    }
}

fn slow_coalescing(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let set = &on.interface(&interface.name)?.coalescing.as_ref()?.value;
        let adapts = set.get("adaptive-rx").is_some_and(|on| *on != 0);
        let usecs = set.get("rx-usecs").filter(|usecs| **usecs >= SLOW_USECS && !adapts)?;
        let evidence =
            format!("{} waits {usecs} us for more packets before an interrupt (rx-usecs)", interface.name);
        let shorter = vec![format!("{}:coalesce/rx-usecs=20", interface.name)];
        let found = Found::new(evidence).at(Location::Interface(interface.name.clone()));
        Some(found.changes("for latency, wait less", shorter))
    })
}

/// Packets and interrupts of the queues that count both.
fn counts(interface: &InterfaceMap) -> (u64, u64) {
    let counted = interface.queues.iter().filter_map(|queue| Some((queue.packets?, queue.interrupts?)));
    counted.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Whether the device waits for more packets before an interrupt.
fn is_moderated(interface: &Interface) -> bool {
    let set = interface.coalescing.as_ref().map(|fact| &fact.value);
    set.is_some_and(|set| ["adaptive-rx", "rx-usecs"].iter().any(|of| set.get(*of).is_some_and(|on| *on > 0)))
}

fn too_many_queues(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let name = &interface.name;
        let (queues, (packets, interrupts)) = (reachable(interface).len(), counts(interface));
        let rate = on.rate(interrupts).filter(|rate| *rate >= MANY_INTERRUPTS)?;
        let each = packets as f64 / interrupts as f64;
        let placed = placed(interface);
        let times = placed.iter().filter_map(|(_, cpu)| on.map.cpus.iter().find(|one| one.cpu == *cpu)?.time);
        let (sum, known) = times.fold((0.0, 0), |(sum, known), time| (sum + time.soft, known + 1));
        let softirqs = sum / f64::from(known);
        let moderated = on.interface(name).is_some_and(is_moderated);
        let many = queues >= MANY_QUEUES && known > 0 && interface.missed == 0;
        (many && moderated && each < BARELY_SHARED.0 && softirqs < BARELY_SHARED.1).then(|| {
            let evidence = format!(
                "{name} raised {} interrupts/s on {}, {each:.1} packets each, while their CPUs spent {} in softirqs",
                number(rate as u64),
                counted(queues, "queue"),
                percent(softirqs)
            );
            Found::new(evidence)
                .at(Location::Interface(name.clone()))
                .rate(Some(rate))
                .changes("use half as many queues", vec![format!("{name}:channels/combined={}", queues / 2)])
        })
    })
}

fn defer_without_timer(on: Observed<'_>) -> Vec<Found> {
    each(on, |interface| {
        let defaults = &on.interface(&interface.name)?.napi_defaults;
        let (polls, timer) = (defaults.defer_hard_irqs?, defaults.gro_flush_timeout?);
        let name = &interface.name;
        let polls_text = counted(polls as usize, "empty poll");
        (polls > 0 && timer == 0).then(|| {
            Found::new(format!("{name} defers interrupts by {polls_text}, and its timer is off: no effect"))
                .at(Location::Interface(name.clone()))
                .changes("set the timer too", vec![format!("{name}:napi/gro-flush-timeout={TIMER}")])
        })
    })
}

#[cfg(test)]
mod tests {
    use udpath_host::interfaces::Coalescing;
    use udpath_host::map::Shares;

    use crate::rules::testing::{Host, fact, only, set, settings};

    #[test]
    fn an_interrupt_for_each_packet() {
        let mut host = Host::with_queues(2);
        host.map.seconds = Some(10.0);
        for queue in &mut host.map.interfaces[0].queues {
            (queue.packets, queue.interrupts) = (Some(100_000), Some(95_000));
        }
        let finding = only(&host, "no-moderation");
        assert_eq!(
            finding.evidence,
            "eth0 raised 190,000 interrupts for 200,000 packets in 10.0 s, 1.1 packets each"
        );
        assert_eq!(settings(&finding), ["eth0:napi/gro-flush-timeout=20000", "eth0:napi/defer-hard-irqs=10"]);
        let adaptive = Coalescing::from([("adaptive-rx".into(), 0)]);
        host.snapshot.interfaces[0].coalescing = Some(fact(adaptive));
        assert_eq!(settings(&only(&host, "no-moderation")), ["eth0:coalesce/adaptive-rx=on"]);
        for queue in &mut host.map.interfaces[0].queues {
            queue.interrupts = Some(10_000);
        }
        assert_eq!(host.found("no-moderation"), []);
    }

    #[test]
    fn a_long_wait_for_the_interrupt() {
        let mut host = Host::with_queues(1);
        let waits = |usecs| Coalescing::from([("rx-usecs".into(), usecs)]);
        host.snapshot.interfaces[0].coalescing = Some(fact(waits(250)));
        assert_eq!(settings(&only(&host, "slow-coalescing")), ["eth0:coalesce/rx-usecs=20"]);
        host.snapshot.interfaces[0].coalescing = Some(fact(waits(20)));
        assert_eq!(host.found("slow-coalescing"), []);
    }

    #[test]
    fn queues_with_few_packets_each() {
        let mut host = Host::with_queues(8);
        host.cpus(8, 1);
        host.map.seconds = Some(1.0);
        let adaptive = Coalescing::from([("adaptive-rx".into(), 1)]);
        host.snapshot.interfaces[0].coalescing = Some(fact(adaptive));
        for (queue, cpu) in host.map.interfaces[0].queues.iter_mut().zip(0..) {
            (queue.packets, queue.interrupts, queue.cpus) =
                (Some(20_000), Some(10_000), set(&format!("{cpu}")));
        }
        let softirqs = |soft| Some(Shares { soft, ..Shares::default() });
        host.map.cpus.iter_mut().for_each(|cpu| cpu.time = softirqs(0.04));
        let finding = only(&host, "too-many-queues");
        assert_eq!(
            finding.evidence,
            "eth0 raised 80,000 interrupts/s on 8 queues, 2.0 packets each, while their CPUs spent 4.0 % in softirqs"
        );
        assert_eq!(settings(&finding), ["eth0:channels/combined=4"]);
        for spoil in [
            // Busy, lossy, shared, not moderated: the queues are needed, or something else is the matter.
            |host: &mut Host| host.map.cpus.iter_mut().for_each(|cpu| cpu.time.as_mut().unwrap().soft = 0.6),
            |host: &mut Host| host.map.interfaces[0].missed = 1,
            |host: &mut Host| {
                host.map.interfaces[0].queues.iter_mut().for_each(|queue| queue.packets = Some(90_000));
            },
            |host: &mut Host| host.snapshot.interfaces[0].coalescing = None,
        ] {
            let mut healthy = Host { snapshot: host.snapshot.clone(), map: host.map.clone() };
            spoil(&mut healthy);
            assert_eq!(healthy.found("too-many-queues"), []);
        }
    }

    #[test]
    fn deferring_without_a_timer_has_no_effect() {
        let mut host = Host::with_queues(2);
        let mut set = |polls, timer| {
            let defaults = &mut host.snapshot.interfaces[0].napi_defaults;
            (defaults.defer_hard_irqs, defaults.gro_flush_timeout) = (Some(polls), Some(timer));
            only_if(&host)
        };
        assert!(set(0, 0).is_none() && set(0, 20_000).is_none() && set(2, 20_000).is_none());
        let (evidence, fix) = set(2, 0).unwrap();
        assert_eq!(evidence, "eth0 defers interrupts by 2 empty polls, and its timer is off: no effect");
        assert_eq!(fix, ["eth0:napi/gro-flush-timeout=20000"]);
    }

    fn only_if(host: &Host) -> Option<(String, Vec<String>)> {
        if host.found("defer-without-timer").is_empty() {
            return None;
        }
        let finding = only(host, "defer-without-timer");
        Some((finding.evidence.clone(), settings(&finding)))
    }
}
