//! The rate that the path should carry.

use super::*;

/// Two CPUs, one reader; a transaction costs 2 us in softirqs and 3 us in the program.
#[test]
fn the_rate_that_one_reader_should_carry() {
    let mut profile = of(&[
        (Softirq, Class::UdpReceive, None, None, "handle_softirqs udp_rcv", 200),
        (Syscall, Class::SocketRead, None, Some("knotd"), "udp_recvmsg", 300),
    ]);
    profile.datagrams = Some(Datagrams { received: 100_000, sent: 100_000, dropped: 0 });
    for stack in &mut profile.stacks {
        stack.pid = stack.process.as_ref().map(|_| 812);
    }
    profile.processes[0].threads.truncate(1);
    let profile = profile.about(Focus { port: Some(53), pids: vec![812] });
    let capacity = diagnosed(&host(0.3, 0), Some(&profile)).capacity.unwrap();
    let close = |a: f64, b: f64| (a - b).abs() < 0.01 * b;
    assert!(close(capacity.softirq_ns, 2000.0) && close(capacity.program_ns, 3000.0), "{capacity:?}");
    assert!(
        close(capacity.carried.rate, 20_000.0) && close(capacity.carried.per_cpu, 200_000.0),
        "{capacity:?}"
    );
    // One reader: 1 s / 3 us. Both CPUs together would carry 2 s / 5 us.
    assert_eq!((capacity.limit, capacity.readers), (Bound::Readers, 1));
    assert!(close(capacity.should_carry, 1e9 / 3000.0), "{capacity:?}");
    let mut limited = host(0.3, 0);
    limited.map.processes[0].quotas =
        vec![udpath_host::map::QuotaMap { cpus: 0.2, periods: 100, ..Default::default() }];
    let capacity = diagnosed(&limited, Some(&profile)).capacity.unwrap();
    assert_eq!(capacity.limit, Bound::CpuLimit);
    assert!(close(capacity.should_carry, 0.2e9 / 3000.0), "{capacity:?}");
}

/// Of 2 us in softirqs and 3 us in the program, the protocols, the socket and the calls go; what an interface has
/// AF_XDP sockets on is past them already.
#[test]
fn the_rate_past_the_kernels_sockets() {
    let mut profile = of(&[
        (Softirq, Class::NicDriver, None, None, "handle_softirqs ixgbe_poll", 30),
        (Softirq, Class::UdpReceive, None, None, "handle_softirqs udp_rcv", 160),
        (HardIrq, Class::Interrupt, None, None, "common_interrupt", 10),
        (Syscall, Class::SocketRead, None, Some("knotd"), "udp_recvmsg", 200),
        (Syscall, Class::Transmit, None, Some("knotd"), "dev_hard_start_xmit", 20),
        (User, Class::User, None, Some("knotd"), "answer", 80),
    ]);
    profile.datagrams = Some(Datagrams { received: 100_000, sent: 100_000, dropped: 0 });
    for stack in &mut profile.stacks {
        stack.pid = stack.process.as_ref().map(|_| 812);
    }
    let mut profile = profile.about(Focus { port: Some(53), pids: vec![812] });
    profile.processes.iter_mut().for_each(|process| process.pid = 812);
    let mut host = host(0.3, 0);
    let capacity = diagnosed(&host, Some(&profile)).capacity.unwrap();
    let PastSockets { softirq_ns, program_ns } = capacity.past_sockets.unwrap();
    assert!((softirq_ns - 400.0).abs() < 1.0, "{softirq_ns}");
    // Its own work, the device, and at least something for rings and headers.
    assert!((1010.0..1500.0).contains(&program_ns), "{program_ns}");
    let (now, then) = (capacity.should_carry, capacity.past_sockets().unwrap());
    assert!(then > 2.0 * now && then < 2e9 / (softirq_ns + program_ns) * 1.01, "{now} {then}");
    host.map.interfaces[0].queues[0].xsk = true;
    assert_eq!(diagnosed(&host, Some(&profile)).capacity.unwrap().past_sockets, None);
}

/// A profile of the name server: 10,000 transactions that cost 5 us each.
fn profiled() -> Profile {
    let mut profile = of(&[
        (Softirq, Class::UdpReceive, None, None, "handle_softirqs udp_rcv", 200),
        (Syscall, Class::SocketRead, None, Some("knotd"), "udp_recvmsg", 300),
    ]);
    profile.datagrams = Some(Datagrams { received: 10_000, sent: 10_000, dropped: 0 });
    for stack in &mut profile.stacks {
        stack.pid = stack.process.as_ref().map(|_| 812);
    }
    profile.processes.iter_mut().for_each(|process| process.pid = 812);
    profile.about(Focus { port: Some(53), pids: vec![812] })
}

/// What readers cost says nothing about what they could do if they wait for something else.
#[test]
fn readers_that_sleep_while_datagrams_wait_promise_no_rate() {
    let mut host = host(0.3, 5000);
    assert!(diagnosed(&host, Some(&profiled())).capacity.is_some(), "a burst");
    (host.map.sockets[0].queued, host.map.sockets[0].queued_before) = (190_000, Some(190_000));
    let mut sleeping = diagnosed(&host, Some(&profiled()));
    assert_eq!((ids(&sleeping)[0].0, &sleeping.capacity), ("reader-slow", &None));
    assert!(sleeping.no_capacity.as_ref().unwrap().contains("its readers waited for something else"));
    let lever = Lever { what: "two".into(), command: "udpath multiply".into(), reads: Reads::With(2) };
    sleeping.offer(9, Want::Readers, &[lever]);
    let found = &sleeping.findings[0].finding;
    assert!(matches!(found.remedies[0], Remedy::Command { expected: None, .. }), "{found:?}");
    // Blocked for good.
    host.map.processes[0].busiest = vec![thread(812, 0.0)];
    let blocked = diagnosed(&host, Some(&profiled()));
    assert_eq!((ids(&blocked)[0].0, &blocked.capacity), ("reader-blocked", &None));
}

/// A server whose threads did not run served nothing, whatever else was counted.
#[test]
fn a_server_that_did_not_run_carries_nothing() {
    let why = |profile: &Profile| diagnosed(&host(0.0, 0), Some(profile)).no_capacity.unwrap_or_default();
    assert_eq!(why(&profiled()), "");
    let mut idle = profiled();
    idle.processes.iter_mut().for_each(|process| process.ns = 0);
    assert!(why(&idle).ends_with("no thread of the server used CPU time."), "{}", why(&idle));
    // Costs that would not allow what is carried are of something else.
    let mut other = profiled();
    other.datagrams = Some(Datagrams { received: 1_200_000, sent: 1_200_000, dropped: 0 });
    other.stacks.iter_mut().for_each(|stack| stack.ns *= 30);
    other.contexts.values_mut().for_each(|ns| *ns *= 30);
    assert!(why(&other).contains("CPU time went into something else"), "{}", why(&other));
}

#[test]
fn a_reader_that_others_hold_up_is_said_not_to_be_judged() {
    let unseen = |ran, waited| {
        let mut host = host(0.3, 0);
        host.map.processes[0].busiest = vec![ThreadMap { waited, ..thread(812, ran) }];
        diagnosed(&host, None)
            .unseen
            .into_iter()
            .find(|why| why.starts_with("whether the reader is at its limit"))
    };
    assert_eq!(
        unseen(0.6, 0.38).as_deref(),
        Some(
            "whether the reader is at its limit: the busiest thread of knotd (pid 812) ran 60 % of the time, but waited for a \
             CPU for 38 %, which other programs had"
        )
    );
    assert_eq!((unseen(0.97, 0.01), unseen(0.3, 0.1)), (None, None));
}

#[test]
fn without_datagrams_or_samples_the_rate_is_unknown_in_one_sentence() {
    let none = diagnosed(&host(0.3, 0), None);
    assert_eq!(
        none.no_capacity.as_deref(),
        Some("The rate that this path should carry is unknown without a profile: no samples.")
    );
    let mut profile = of(&[(Softirq, Class::Ip, None, None, "ip_rcv", 500)]);
    profile.datagrams = Some(Datagrams { received: 12, sent: 3, dropped: 0 });
    let few = diagnosed(&host(0.3, 0), Some(&profile)).no_capacity.unwrap();
    assert_eq!(
        few,
        "The rate that this path should carry is unknown: only 12 datagrams passed during the interval."
    );
}
