use super::*;

fn plan() -> Plan {
    Plan::new("192.0.2.1:7".parse().unwrap())
}

#[test]
fn the_default_plan_is_fine() {
    assert_eq!(plan().check(), Ok(()));
}

/// Every error, with a part of its message.
#[test]
fn each_fault_is_named() {
    type Spoil = fn(&mut Plan);
    let faults: &[(Spoil, &str)] = &[
        (|p| p.targets.clear(), "no target"),
        (|p| p.targets[0].set_port(0), "port 0"),
        (|p| p.targets = vec!["0.0.0.0:7".parse().unwrap()], "wildcard"),
        (|p| p.targets.push("[2001:db8::1]:7".parse().unwrap()), "families"),
        (|p| p.sources.push("2001:db8::1".parse().unwrap()), "families"),
        (|p| p.sources.push("224.0.0.1".parse().unwrap()), "unicast"),
        (
            |p| p.targets = vec!["[fe80::1]:7".parse().unwrap()],
            "`[fe80::1]:7` is link-local: add its interface, such as [fe80::1%eth0]:7",
        ),
        (
            |p| {
                p.targets = vec!["[2001:db8::1]:7".parse().unwrap()];
                p.sources.push("fe80::1".parse().unwrap());
            },
            "source fe80::1 is link-local: add its interface, such as fe80::1%eth0",
        ),
        (|p| p.sockets.congestion = Some("bbr".into()), "--congestion bbr needs TCP"),
        (|p| p.sockets.send_buffer = Some(0), "send buffer of 0 bytes"),
        (|p| p.sockets.receive_buffer = Some(MAX_BUFFER + 1), "receive buffer of 1073741824 bytes"),
        (|p| p.flows = 0, "number of flows 0"),
        (|p| p.flows = MAX_FLOWS + 1, "number of flows 131073"),
        (|p| p.source_ports = Some(PortRange { first: 0, last: 9 }), "port range 0-9"),
        (|p| p.source_ports = Some(PortRange { first: 9, last: 8 }), "port range 9-8"),
        (
            |p| (p.flows, p.source_ports) = (3, Some(PortRange { first: 5000, last: 5001 })),
            "3 flows need 3 source ports",
        ),
        (|p| p.arrivals = Arrivals::Closed { inflight: 0 }, "--inflight must be"),
        (|p| p.arrivals = Arrivals::Open { rate: 0.0, process: Process::Poisson }, "rate 0"),
        (|p| p.arrivals = Arrivals::Open { rate: -1.0, process: Process::Poisson }, "rate -1"),
        (|p| p.arrivals = Arrivals::Open { rate: f64::NAN, process: Process::Poisson }, "rate NaN"),
        (|p| p.arrivals = Arrivals::Open { rate: f64::INFINITY, process: Process::Constant }, "rate inf"),
        (|p| p.arrivals = Arrivals::Open { rate: 1.0, process: Process::Burst { len: 0 } }, "burst length"),
        (|p| p.arrivals = Arrivals::Ramp { from: 1.0, to: 2e9 }, "rate 2000000000"),
        (|p| p.size = 0, "payload size 0"),
        (|p| p.size = 65_508, "payload size 65508"),
        (|p| p.threads = 0, "number of threads 0"),
        (|p| p.threads = 2, "2 threads for 1 flow"),
        (|p| p.duration = Duration::ZERO, "duration of 0ns is too short"),
        (|p| p.duration = Duration::MAX, "duration"),
        (|p| p.timeout = Duration::ZERO, "timeout of 0ns is too short"),
        (|p| p.warmup = Duration::MAX, "warm-up"),
        (|p| (p.transport, p.mode) = (Transport::Tcp, Mode::Flood), "TCP"),
        (
            |p| {
                p.arrivals = Arrivals::Open { rate: 1e9, process: Process::Constant };
                p.timeout = Duration::from_secs(3600);
            },
            "may be in flight",
        ),
        (|p| p.arrivals = Arrivals::Closed { inflight: u32::MAX }, "may be in flight"),
    ];
    for (spoil, expected) in faults {
        let mut p = plan();
        spoil(&mut p);
        let sentence = p.check().expect_err(expected).to_string();
        assert!(sentence.contains(expected), "{sentence:?} should contain {expected:?}");
    }
}

#[test]
fn flows_cover_all_pairs_of_source_and_target() {
    let mut p = plan();
    p.targets = (1..=3).map(|i| SocketAddr::new(IpAddr::from([10, 0, 0, i]), 7)).collect();
    p.sources = (1..=2).map(|i| IpAddr::from([10, 0, 1, i])).collect();
    p.flows = 6;
    let pairs: std::collections::HashSet<_> = (0..6).map(|f| (p.target(f), p.source(f))).collect();
    assert_eq!(pairs.len(), 6);
}

/// A link-local address is bound with its interface: the named one, or the target's.
#[test]
fn the_interface_of_a_source_is_named_or_the_target_s() {
    let mut p = Plan::new("[fe80::2%3]:7".parse().unwrap());
    p.sources = vec!["fe80::1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
    assert_eq!(p.check(), Ok(()));
    assert_eq!(p.bound(p.sources[0], 5, p.targets[0]).to_string(), "[fe80::1%3]:5");
    assert_eq!(p.bound(p.sources[1], 5, p.targets[0]).to_string(), "[2001:db8::1]:5");
    p.targets = vec!["[2001:db8::2]:7".parse().unwrap()];
    p.source_scope = 4;
    assert_eq!(p.check(), Ok(()));
    assert_eq!(p.bound(p.sources[0], 5, p.targets[0]).to_string(), "[fe80::1%4]:5");
}
