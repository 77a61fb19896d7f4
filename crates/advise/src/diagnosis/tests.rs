//! Diagnoses of machines that are built here.

mod capacity;

use udpath_host::map::{Shares, ThreadMap};
use udpath_host::sockets::looks::QueueLooks;
use udpath_profile::classes::Class;
use udpath_profile::context::Context::{HardIrq, Softirq, Syscall, User};
use udpath_profile::facts::Focus;
use udpath_profile::profile::Datagrams;

use super::*;
use crate::rules::testing::{Host, of, thread};

/// A name server with one reader over ten seconds: how much it ran, and how many datagrams its socket dropped.
fn host(ran: f64, drops: u64) -> Host {
    let mut host = Host::with_queues(2);
    host.map.seconds = Some(10.0);
    host.serve(1, 0);
    (host.map.sockets[0].drops, host.map.sockets[0].queued, host.map.sockets[0].queued_before) =
        (drops, 0, Some(0));
    host.map.processes[0].busiest = vec![thread(812, ran)];
    for cpu in &mut host.map.cpus {
        cpu.time = Some(Shares { sys: 0.1, soft: 0.1, idle: 0.8, ..Shares::default() });
    }
    host
}

fn diagnosed(host: &Host, profile: Option<&Profile>) -> Diagnosis {
    Diagnosis::of(&host.map, rules::of_map(&host.snapshot, &host.map), profile.ok_or("no samples"))
}

fn ids(diagnosis: &Diagnosis) -> Vec<(&str, Severity, Option<&str>)> {
    let one = |found: &'_ Diagnosed| -> (&'static str, Severity, Option<&'static str>) {
        let name = |id: &str| RANKS.iter().copied().find(|known| *known == id).unwrap();
        (name(&found.finding.id), found.finding.severity, found.explained_by.as_deref().map(name))
    };
    diagnosis.findings.iter().map(one).collect()
}

#[test]
fn a_healthy_machine_has_a_sentence_and_no_findings() {
    let diagnosis = diagnosed(&host(0.3, 0), None);
    assert_eq!(
        diagnosis.headline,
        "Nothing saturated: 20 % of the CPU time used; the busiest link is the reader thread 812 of knotd (pid 812) at 30 %."
    );
    assert!(!diagnosis.has_findings(), "{:?}", ids(&diagnosis));
    assert_eq!(diagnosis.unseen.last().map(String::as_str), Some("where CPU time goes: no samples"));
    let stages: Vec<Stage> = diagnosis.links.iter().map(|link| link.stage).collect();
    assert!(stages.is_sorted(), "outermost first: {stages:?}");
}

#[test]
fn a_full_queue_is_named_with_the_reader_behind_it() {
    let diagnosis = diagnosed(&host(0.97, 5000), None);
    assert_eq!(
        diagnosis.headline,
        "The first saturated link is the receive queue 0.0.0.0:53 (knotd, pid 812): 500 datagrams/s dropped because it was \
         full; behind it, the reader thread 812 of knotd (pid 812) is saturated: ran 97 %, waited for a CPU 0.0 %; CPU 0 \
         was 80 % idle."
    );
    assert_eq!(ids(&diagnosis)[0], ("reader-slow", Severity::Loss, None));
    assert!(diagnosis.has_findings());
    let first = &diagnosis.findings[0];
    assert_eq!(
        (first.confidence.level, first.confidence.because.as_str()),
        (Level::High, "5,000 counted in 10.0 s")
    );
}

#[test]
fn two_instants_of_a_queue_do_not_make_sure() {
    let mut burst = host(0.2, 5000);
    let sure = |host: &Host| {
        let diagnosis = diagnosed(host, None);
        assert_eq!(diagnosis.findings[0].finding.id, "receive-buffer-small");
        diagnosis.findings[0].confidence.clone()
    };
    let Confidence { level, because } = sure(&burst);
    assert_eq!(level, Level::Medium);
    assert_eq!(because, "5,000 counted in 10.0 s; its queue was seen only at the ends of the interval");
    burst.map.sockets[0].looks =
        Some(QueueLooks { looks: 500, full: 20, dropping: 20, ..QueueLooks::default() });
    assert_eq!(sure(&burst).level, Level::High);
}

#[test]
fn symptoms_come_after_their_causes() {
    let mut host = host(0.97, 5000);
    host.map.processes[0].quotas = vec![udpath_host::map::QuotaMap {
        group: "/dns".into(),
        cpus: 0.2,
        periods: 100,
        throttled: 90,
        throttled_seconds: 7.0,
    }];
    host.map.udp.v4 = Some(udpath_host::udp::UdpCounters { rcvbuf_errors: 5000, ..Default::default() });
    let diagnosis = diagnosed(&host, None);
    let loss: Vec<_> =
        ids(&diagnosis).into_iter().filter(|(_, severity, _)| *severity < Severity::Note).collect();
    assert_eq!(
        loss,
        [
            ("cpu-limit", Severity::Loss, None),
            ("reader-slow", Severity::Loss, Some("cpu-limit")),
            ("udp-errors", Severity::Loss, Some("cpu-limit"))
        ]
    );
    assert!(diagnosis.headline.contains("behind it, the reader thread"), "{}", diagnosis.headline);
}

#[test]
fn a_handful_of_lost_packets_comes_after_what_limits() {
    let first = |lost: u64| {
        let mut host = host(0.97, 0);
        host.map.interfaces[0].packets = Some(1_000_000);
        host.map.processes[0].threads = 2;
        host.map.processes[0].busiest = vec![thread(812, 0.97), thread(813, 0.97)];
        host.map.interfaces[0].out.dropped = lost;
        diagnosed(&host, None).findings[0].finding.id.clone()
    };
    assert_eq!(first(100), "shared-socket");
    assert_eq!(first(10_000), "transmit-queue-full");
}

#[test]
fn a_cost_limits_only_where_capacity_is_short() {
    let mut profile = of(&[
        (Softirq, Class::Netfilter, None, None, "nf_conntrack_in", 900),
        (Syscall, Class::SocketRead, None, Some("knotd"), "udp_recvmsg", 900),
    ]);
    profile.datagrams = Some(Datagrams { received: 10, sent: 10, dropped: 0 });
    let severity = |ran, queued| {
        let mut host = host(ran, 0);
        host.map.sockets[0].queued = queued;
        let diagnosis = diagnosed(&host, Some(&profile));
        let found = diagnosis.findings.iter().find(|found| found.finding.id == "netfilter").unwrap();
        (found.finding.severity, found.confidence.clone())
    };
    let (limits, confidence) = severity(0.95, 0);
    assert_eq!(
        (limits, confidence.because.as_str()),
        (Severity::Limit, "900 of 1,800 samples, 50 % ± 2.3 %")
    );
    assert_eq!(severity(0.2, 0).0, Severity::Note);
    let buffer = host(0.2, 0).map.sockets[0].buffer.unwrap();
    assert_eq!(severity(0.2, buffer / 10 * 9).0, Severity::Note, "a burst as the interval ends");
}

#[test]
fn changes_are_what_appears_grows_twofold_or_goes() {
    let (calm, lossy, worse) = (host(0.3, 0), host(0.97, 5000), host(0.97, 12_000));
    let [calm, lossy, worse] = [calm, lossy, worse].map(|host| diagnosed(&host, None));
    let words = |then: Option<&Diagnosis>, now: &Diagnosis| -> Vec<String> {
        let word = |change: &Change<'_>| match change {
            Change::Headline(_) => "headline".to_owned(),
            Change::Appeared(found) => format!("+{}", found.finding.id),
            Change::Grew(found) => format!(">{}", found.finding.id),
            Change::Went(found) => format!("-{}", found.finding.id),
        };
        let found = changes(then, now);
        found.iter().map(word).filter(|word| word.contains("reader") || word == "headline").collect()
    };
    assert_eq!(words(None, &calm), ["headline"]);
    assert_eq!(words(Some(&calm), &lossy), ["headline", "+reader-slow"]);
    assert_eq!(words(Some(&lossy), &worse), [">reader-slow"]);
    assert_eq!(words(Some(&worse), &calm), ["headline", "-reader-slow"]);
    // Slow growth adds up: what was reported is kept until it has doubled.
    let more = diagnosed(&host(0.97, 8000), None);
    assert_eq!(words(Some(&lossy), &more), [""; 0]);
    let kept = lossy.clone().updated(more);
    assert_eq!(words(Some(&kept), &worse), [">reader-slow"]);
}

#[test]
fn a_single_snapshot_has_no_rates() {
    let mut once = host(0.3, 5);
    once.map.seconds = None;
    once.map.processes[0].busiest = Vec::<ThreadMap>::new();
    let diagnosis = diagnosed(&once, None);
    assert!(diagnosis.headline.starts_with("One snapshot shows no rates"));
    assert_eq!(diagnosis.used, None);
    assert!(diagnosis.unseen.iter().any(|why| why.starts_with("rates: there is one snapshot")));
}

#[test]
fn a_diagnosis_survives_its_json_and_has_commands_to_copy() {
    let mut burst = host(0.2, 5000);
    burst.map.sockets[0].queued = 0;
    let diagnosis = diagnosed(&burst, None);
    let first = &diagnosis.findings[0];
    assert_eq!(first.finding.id, "receive-buffer-small");
    assert_eq!(first.commands, ["udpath apply --set socket:812/9:receive-buffer=800000"]);
    let text = serde_json::to_string(&diagnosis).unwrap();
    assert_eq!(serde_json::from_str::<Diagnosis>(&text).unwrap(), diagnosis);
}

/// A reader at its limit that loses nothing, and a small cost of each datagram.
#[test]
fn what_the_server_can_be_told_comes_first_with_the_rate_to_expect() {
    let mut host = host(0.97, 0);
    host.cpus(8, 1);
    let mut diagnosis = diagnosed(&host, None);
    assert_eq!(ids(&diagnosis)[0], ("reader-limit", Severity::Limit, None));
    assert_eq!(diagnosis.wants(), [(9, Want::Readers)]);
    // 2 us in softirqs and 4 us in the program, of which one thread carries 250,000 per second.
    let carried = Carried { rate: 240_000.0, transactions: true, per_cpu: 166_667.0 };
    diagnosis.capacity = Some(Capacity {
        carried,
        should_carry: 250_000.0,
        limit: Bound::Readers,
        cpus: 1.0,
        readers: 1,
        softirq_ns: 2000.0,
        program_ns: 4000.0,
        free_cpus: Some(6.0),
        receive_cpus: Some(8.0),
        limit_cpus: None,
        past_sockets: Some(PastSockets { softirq_ns: 500.0, program_ns: 1000.0 }),
    });
    let lever = |what: &str, reads| Lever { what: what.into(), command: format!("udpath {what}"), reads };
    let levers = [
        lever("two", Reads::With(2)),
        lever("eight", Reads::With(8)),
        lever("xdp", Reads::PastSockets),
        lever("buffer", Reads::AsNow),
    ];
    diagnosis.offer(9, Want::Readers, &levers);
    diagnosis.offer(10, Want::Readers, &[lever("another socket", Reads::AsNow)]);
    let found = &diagnosis.findings[0];
    let remedies: Vec<_> = found
        .finding
        .remedies
        .iter()
        .map(|remedy| match remedy {
            Remedy::Command { what, expected, .. } => (&**what, *expected),
            other => (if other.what().starts_with("let the program read") { "advice" } else { "?" }, None),
        })
        .collect();
    // Eight threads are limited by the six CPUs' worth of time that is left.
    let expected = [
        ("two", Some(500_000.0)),
        ("eight", Some(1_000_000.0)),
        ("xdp", Some(4_000_000.0)),
        ("buffer", None),
        ("advice", None),
    ];
    assert_eq!(remedies, expected);
    assert_eq!(found.commands, ["udpath two", "udpath eight", "udpath xdp", "udpath buffer"]);
    let text = serde_json::to_string(&diagnosis).unwrap();
    assert_eq!(serde_json::from_str::<Diagnosis>(&text).unwrap(), diagnosis);
}

#[test]
fn a_burst_wants_a_larger_buffer_now_and_for_good() {
    let mut host = host(0.2, 5000);
    host.map.sockets[0].buffer = Some(212_992);
    let mut diagnosis = diagnosed(&host, None);
    let want = Want::Buffer(851_968);
    assert_eq!(diagnosis.wants(), [(9, want)]);
    let lever =
        |what: &str| Lever { what: what.into(), command: format!("udpath {what}"), reads: Reads::AsNow };
    diagnosis.offer(9, Want::Readers, &[lever("threads")]);
    diagnosis.offer(9, want, &[lever("policy")]);
    let found = &diagnosis.findings[0];
    assert_eq!(
        found.commands,
        ["udpath apply --set socket:812/9:receive-buffer=851968", "udpath policy"],
        "first what works at once"
    );
    assert!(matches!(found.finding.remedies.last(), Some(Remedy::Advice(_))), "{found:?}");
}

#[test]
fn without_readers_at_their_limit_nothing_is_offered() {
    let mut diagnosis = diagnosed(&host(0.3, 0), None);
    assert_eq!(diagnosis.wants(), []);
    let before = diagnosis.clone();
    diagnosis.offer(
        9,
        Want::Readers,
        &[Lever { what: "w".into(), command: "c".into(), reads: Reads::AsNow }],
    );
    assert_eq!(diagnosis, before);
    let slow = diagnosed(&host(0.97, 5000), None);
    assert_eq!(slow.wants(), [(9, Want::Readers)], "a loss for want of readers is mended the same way");
}
