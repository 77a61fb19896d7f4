//! Machines whose readers cannot keep up, each beside one that can.

use udpath_host::map::Shares;
use udpath_host::sockets::looks::QueueLooks;
use udpath_host::udp::UdpCounters;

use crate::finding::Location;
use crate::rules::testing::{Host, only, settings, thread};

/// A server whose two threads ran this much, and whose socket dropped.
fn lossy(ran: [f64; 2]) -> Host {
    let mut host = Host::with_queues(1);
    host.map.seconds = Some(10.0);
    host.serve(2, 0);
    host.map.sockets[0].drops = 5000;
    host.map.sockets[0].queued = 0;
    host.map.sockets[0].queued_before = Some(0);
    host.map.processes[0].busiest = vec![thread(812, ran[0]), thread(813, ran[1])];
    host
}

#[test]
fn a_burst_that_the_buffer_does_not_hold() {
    let host = lossy([0.2, 0.01]);
    let finding = only(&host, "receive-buffer-small");
    assert_eq!(
        finding.evidence,
        "5,000 datagrams dropped in 10.0 s at 0.0.0.0:53 (knotd, pid 812), whose buffer holds 200,000 bytes, while its \
         busiest reader was 80 % idle"
    );
    assert_eq!(
        (settings(&finding), finding.rate),
        (vec!["socket:812/9:receive-buffer=800000".to_owned()], Some(500.0))
    );
    for id in ["reader-slow", "reader-blocked", "socket-drops", "group-uneven"] {
        assert_eq!(host.found(id), [], "{id}");
    }
    let mut healthy = lossy([0.2, 0.01]);
    healthy.map.sockets[0].drops = 0;
    assert_eq!(healthy.found("receive-buffer-small"), []);
}

/// Looks at the queue of a server whose reader has time left, and whose queue was empty at the end of the interval.
fn looked(full: u32, dropping: u32) -> Host {
    let mut host = lossy([0.2, 0.01]);
    host.map.sockets[0].looks = Some(QueueLooks { looks: 200, full, dropping, ..QueueLooks::default() });
    host.map.udp.v4 = Some(UdpCounters { in_datagrams: 2500, ..UdpCounters::default() });
    host
}

/// Steady loss of two thirds: the reader takes all that waits, then waits for something else.
#[test]
fn a_queue_that_is_full_most_of_the_time_is_no_burst_though_it_is_empty_at_an_end() {
    let finding = only(&looked(166, 130), "reader-slow");
    assert!(finding.cause.starts_with("its readers slept although datagrams waited"), "{}", finding.cause);
    assert!(
        finding.evidence.ends_with(
            "; its queue was half full or more at 83 % of 200 looks, and dropped something before 65 %, at least 67 % of what came"
        ),
        "{}",
        finding.evidence
    );
    assert_eq!(looked(166, 130).found("receive-buffer-small"), []);
}

#[test]
fn a_queue_that_is_full_at_few_looks_had_bursts_though_it_is_full_at_both_ends() {
    let mut host = looked(20, 20);
    (host.map.sockets[0].queued, host.map.sockets[0].queued_before) = (190_000, Some(190_000));
    only(&host, "receive-buffer-small");
    assert_eq!(host.found("reader-slow"), []);
}

#[test]
fn a_few_looks_decide_nothing() {
    let mut host = looked(0, 0);
    host.map.sockets[0].looks = Some(QueueLooks { looks: 5, full: 5, dropping: 5, ..QueueLooks::default() });
    host.map.udp.v4 = Some(UdpCounters { in_datagrams: 100_000, ..UdpCounters::default() });
    only(&host, "receive-buffer-small");
    // Without looks, a loss of most of what came may be anything.
    host.map.udp.v4 = Some(UdpCounters { in_datagrams: 2500, ..UdpCounters::default() });
    assert_eq!(host.found("receive-buffer-small"), []);
    only(&host, "socket-drops");
}

#[test]
fn readers_without_time() {
    let host = lossy([0.97, 0.01]);
    let finding = only(&host, "reader-slow");
    assert!(
        finding.evidence.ends_with("whose busiest reader ran 97 % of the time and waited for a CPU 0.0 %")
    );
    assert_eq!(finding.cause, "more datagrams come than its readers can handle");
    assert_eq!(host.found("receive-buffer-small"), []);
    // A thread on a CPU without idle time is as busy as that.
    let mut host = lossy([0.5, 0.0]);
    host.map.cpus[0].time = Some(Shares { sys: 0.5, soft: 0.48, idle: 0.02, ..Shares::default() });
    only(&host, "reader-slow");
    // A queue that stays full though its readers sleep.
    let mut host = lossy([0.2, 0.0]);
    (host.map.sockets[0].queued, host.map.sockets[0].queued_before) = (190_000, Some(190_000));
    assert!(only(&host, "reader-slow").cause.starts_with("its readers slept although datagrams waited"));
}

#[test]
fn a_reader_that_does_not_run() {
    let mut host = lossy([0.0, 0.0005]);
    assert_eq!(host.found("reader-blocked"), [], "its queue is empty");
    (host.map.sockets[0].queued, host.map.sockets[0].queued_before) = (200_000, Some(200_000));
    let finding = only(&host, "reader-blocked");
    assert!(finding.evidence.ends_with("while no thread of its process ran"));
    // Alone, it has no group; and its commands name it.
    assert!(!finding.cause.contains("group"), "{}", finding.cause);
    let fix = finding.remedies[0].what();
    assert!(fix.contains("`cat /proc/812/stack`, `strace -p 812`") && !fix.contains("PID"), "{fix}");
    host.map.processes[0].busiest[0].stopped = true;
    host.map.sockets[0].group = 4;
    let finding = only(&host, "reader-blocked");
    assert!(
        finding.cause.contains("its share of the group's flows")
            && finding.evidence.ends_with("while its process is stopped; it is one of 4 sockets"),
        "{}",
        finding.evidence
    );
    assert_eq!(host.found("reader-slow"), []);
    host.map.sockets[0].drops = 0;
    host.map.sockets[0].queued = 0;
    assert_eq!(host.found("reader-blocked"), [], "an idle server");
}

#[test]
fn a_group_in_which_one_reader_has_all_the_work() {
    let mut host = lossy([0.98, 0.02]);
    host.map.sockets[0].group = 2;
    let finding = only(&host, "group-uneven");
    assert!(
        finding.evidence.starts_with(
            "of the 2 sockets of 0.0.0.0:53 (knotd, pid 812), one reader is 98 % busy, the others 2.0 % on average; 5,000"
        ),
        "{}",
        finding.evidence
    );
    assert_eq!(settings(&finding), ["port:53:selection=by-cpu"]);
    assert_eq!(host.found("reader-slow"), []);
    host.map.processes[0].busiest[1].ran = 0.6;
    assert_eq!(host.found("group-uneven"), []);
}

#[test]
fn threads_that_share_a_socket() {
    let mut host = lossy([0.5, 0.48]);
    host.map.sockets[0].drops = 0;
    let finding = only(&host, "shared-socket");
    assert_eq!(
        finding.evidence,
        "0.0.0.0:53 (knotd, pid 812) is one socket, and 2 threads of its process ran 48 % to 50 % of the time each"
    );
    host.map.sockets[0].group = 2;
    assert_eq!(host.found("shared-socket"), []);
    let mut host = lossy([0.5, 0.01]);
    host.map.sockets[0].drops = 0;
    assert_eq!(host.found("shared-socket"), []);
}

#[test]
fn a_reader_beside_softirqs() {
    let mut host = lossy([0.4, 0.0]);
    host.map.processes[0].busiest[0].waited = 0.4;
    host.map.processes[0].busiest[0].allowed = [0].into_iter().collect();
    host.map.cpus[0].time = Some(Shares { soft: 0.55, sys: 0.4, idle: 0.05, ..Shares::default() });
    let finding = only(&host, "softirq-starves-reader");
    assert_eq!(
        finding.evidence,
        "thread 812 of knotd (pid 812) waited 40 % of the time for CPU 0, which spent 55 % in softirqs"
    );
    host.map.processes[0].busiest[0].waited = 0.1;
    assert_eq!(host.found("softirq-starves-reader"), []);
}

#[test]
fn a_reader_on_another_node_than_the_device() {
    let mut host = lossy([0.5, 0.0]);
    host.cpus(4, 2);
    host.map.interfaces[0].node = Some(1);
    let finding = only(&host, "reader-on-other-node");
    assert_eq!(finding.evidence, "1 of 1 busy thread of knotd (pid 812) ran away from node 1, that of eth0");
    host.map.interfaces[0].node = Some(0);
    assert_eq!(host.found("reader-on-other-node"), []);
}

/// A server of one thread on a machine of eight CPUs that loses nothing.
fn full(ran: f64) -> Host {
    let mut host = lossy([ran, 0.01]);
    host.cpus(8, 1);
    host.map.sockets[0].drops = 0;
    host
}

#[test]
fn a_reader_at_its_limit_that_loses_nothing() {
    let finding = only(&full(0.97), "reader-limit");
    assert_eq!(
        finding.evidence,
        "the thread of knotd (pid 812), which reads 0.0.0.0:53, ran 97 % of the time; 8 CPUs are online"
    );
    assert_eq!(finding.locations, [Location::Process(812), Location::Socket(9)]);
    assert_eq!(full(0.8).found("reader-limit"), []);
    // One that never sleeps, and that others hold up now and then; and one that gets too little of its CPU.
    let held_up = |ran, waited| {
        let mut host = full(ran);
        host.map.processes[0].busiest[0].waited = waited;
        host
    };
    assert_eq!(
        only(&held_up(0.89, 0.08), "reader-limit").evidence,
        "the thread of knotd (pid 812), which reads 0.0.0.0:53, ran 89 % of the time and waited for a CPU for 8.0 %; 8 CPUs are online"
    );
    assert_eq!(held_up(0.89, 0.02).found("reader-limit"), []);
    assert_eq!(held_up(0.6, 0.38).found("reader-limit"), []);
    // Of an ephemeral port, or since boot.
    let mut host = full(0.97);
    host.map.sockets[0].peer = Some("192.0.2.1:53".parse().unwrap());
    assert_eq!(host.found("reader-limit"), []);
    let mut host = full(0.97);
    host.map.seconds = None;
    assert_eq!(host.found("reader-limit"), []);
}

#[test]
fn a_loss_comes_before_the_limit_of_its_reader() {
    let mut host = full(0.97);
    host.map.udp.v4 = Some(UdpCounters { in_datagrams: 1_000_000, ..UdpCounters::default() });
    host.map.sockets[0].drops = 5000;
    assert_eq!(host.found("reader-limit"), []);
    only(&host, "reader-slow");
    // A few of a million do not.
    host.map.sockets[0].drops = 500;
    only(&host, "reader-limit");
}

#[test]
fn readers_on_all_cpus_are_not_too_few() {
    let mut host = full(0.97);
    host.cpus(2, 1);
    host.map.processes[0].busiest[1].ran = 0.5;
    assert_eq!(host.found("reader-limit"), []);
}
