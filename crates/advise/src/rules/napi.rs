//! NAPI: deferred interrupts.

use crate::finding::{Location, Severity};
use crate::rule::{Found, Look, Observed, Rule, counted};
use crate::rules::queues::each;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "defer-without-timer",
    severity: Severity::Note,
    look: Look::Map(defer_without_timer),
    // napi_complete_done of net/core/dev.c: without a timeout the interrupt is enabled at once.
    cause: "without the timer nothing would poll the queue again, so the kernel enables its interrupt at once",
    fix: &[],
}];

/// Nanoseconds that a remedy sets: what the kernel's documentation uses with deferred interrupts (napi.rst). Less: the
/// interrupt returns between two bursts. More: latency after a short pause.
const TIMER: u32 = 20_000;

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
    use crate::rules::testing::{Host, only, settings};

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
