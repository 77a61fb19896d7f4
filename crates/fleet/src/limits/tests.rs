use std::net::{SocketAddr, SocketAddrV6};

use udpath_load::plan::{PortRange, Segment};

use super::*;

fn order(target: &str) -> Order {
    let mut plan = Plan::new(target.parse().unwrap());
    plan.arrivals = Arrivals::Open { rate: 8000.0, process: Process::Poisson };
    plan.segment = Segment::new(1, 4).unwrap();
    Order { protocol: "echo".into(), engine: "socket".into(), options: Vec::new(), plan }
}

fn limits(targets: &[&str]) -> Limits {
    Limits {
        targets: targets.iter().map(|text| text.parse().unwrap()).collect(),
        rate: Some(2000.0),
        bits: Some(10e6),
        time: Duration::from_secs(10),
        timeout: Duration::from_secs(5),
        flows: 100,
        memory: 16 << 20,
        options: vec!["type".into()],
    }
}

fn spoilt(spoil: impl Fn(&mut Order)) -> Result<(), Refusal> {
    let mut order = order("10.0.0.2:7");
    spoil(&mut order);
    limits(&["10.0.0.0/8"]).check(&order)
}

#[test]
fn targets_are_networks_and_ports() {
    let allowed = |target: &str, by: &str| limits(&[by]).check(&order(target)).is_ok();
    for (target, by) in [
        ("10.0.0.2:7", "10.0.0.2:7"),
        ("10.0.0.2:7", "10.0.0.2"),
        ("10.200.0.2:7", "10.0.0.0/8:1-9"),
        ("192.0.2.1:53", "0.0.0.0/0"),
        ("[2001:db8::5]:53", "[2001:db8::/32]:53"),
        ("[2001:db8::5]:53", "2001:db8::5"),
        ("[2001:db8::5]:53", "::/0"),
    ] {
        assert!(allowed(target, by), "{target} by {by}");
    }
    for (target, by) in [
        ("10.0.0.2:8", "10.0.0.2:7"),
        ("10.0.0.3:7", "10.0.0.2"),
        ("11.0.0.2:7", "10.0.0.0/8"),
        ("10.0.0.2:7", "::/0"),
        ("[::ffff:10.0.0.2]:7", "10.0.0.0/8"),
    ] {
        assert!(!allowed(target, by), "{target} by {by}");
    }
    assert_eq!(limits(&[]).check(&order("10.0.0.2:7")), Err(Refusal::Target("10.0.0.2:7".parse().unwrap())));
    for bad in
        ["", "x", "10.0.0.0/33", "10.0.0.1:0", "10.0.0.1:9-8", "10.0.0.1:70000", "[::1", "[::1]x", "::/129"]
    {
        assert!(bad.parse::<Allowed>().unwrap_err().contains("10.0.0.0/8:53"), "{bad}");
    }
    let shown = limits(&["10.0.0.0/8:53", "::1"]).targets.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown, ["10.0.0.0/8:53-53", "[::1/128]:1-65535"]);
}

/// An interface by name or number; without one, any.
#[test]
fn a_link_local_target_is_allowed_on_its_interface() {
    let allowed = |text: &str| text.parse::<Allowed>().unwrap();
    let to = |scope: u32| SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), 53, 0, scope));
    // Every network namespace has a loopback, and it is number 1.
    for text in ["[fe80::1%lo]:53", "[fe80::%1/10]:53", "fe80::1%lo"] {
        assert!(allowed(text).has(to(1)) && !allowed(text).has(to(2)), "{text}");
        assert_eq!(allowed(&allowed(text).to_string()), allowed(text));
    }
    assert!(allowed("[fe80::/10]:53").has(to(2)));
    for bad in ["[fe80::1%]:53", "[fe80::1%nothing]:53", "10.0.0.1%lo:53"] {
        assert!(bad.parse::<Allowed>().unwrap_err().contains("an interface of this machine"), "{bad}");
    }
}

#[test]
fn a_caller_cannot_raise_rate_and_time() {
    assert_eq!(spoilt(|_| ()), Ok(()), "a quarter of 8000 per second");
    let whole = spoilt(|order| order.plan.segment = Segment::WHOLE);
    assert_eq!(whole, Err(Refusal::Rate { rate: 8000.0, most: 2000.0 }));
    let ramp = spoilt(|order| order.plan.arrivals = Arrivals::Ramp { from: 1.0, to: 9000.0 });
    assert_eq!(ramp, Err(Refusal::Rate { rate: 2250.0, most: 2000.0 }));
    let closed = spoilt(|order| order.plan.arrivals = Arrivals::Closed { inflight: 1 });
    assert_eq!(closed, Err(Refusal::ClosedLoop));
    let long = spoilt(|order| {
        (order.plan.warmup, order.plan.duration) = (Duration::from_secs(6), Duration::MAX);
    });
    assert!(matches!(long, Err(Refusal::Time { .. })), "{long:?}");
    let file = spoilt(|order| order.options.push(("queries".into(), "/etc/shadow".into())));
    assert_eq!(file, Err(Refusal::Option("queries".into())));
    assert_eq!(spoilt(|order| order.options.push(("type".into(), "A".into()))), Ok(()));
    let any = Limits { rate: None, bits: None, ..limits(&["10.0.0.0/8"]) };
    let mut order = order("10.0.0.2:7");
    order.plan.arrivals = Arrivals::Closed { inflight: 1 };
    assert_eq!(any.check(&order), Ok(()));
    let slow = Limits { bits: Some(1e9), ..any };
    assert_eq!(slow.check(&order), Err(Refusal::ClosedLoop));
}

#[test]
fn a_caller_cannot_keep_an_agent_waiting_for_replies() {
    let week = spoilt(|order| order.plan.timeout = udpath_load::plan::MAX_TIME);
    assert!(matches!(week, Err(Refusal::Timeout { .. })), "{week:?}");
    assert_eq!(spoilt(|order| order.plan.timeout = Duration::from_secs(5)), Ok(()));
}

#[test]
fn bursts_and_large_requests_are_a_rate_too() {
    let burst = |len| Arrivals::Open { rate: 8000.0, process: Process::Burst { len } };
    assert_eq!(spoilt(|order| order.plan.arrivals = burst(20)), Ok(()), "10 ms of 2000 per second");
    let all = spoilt(|order| order.plan.arrivals = burst(20_000));
    assert_eq!(all, Err(Refusal::Burst { len: 20_000, most: 20 }));
    let large = spoilt(|order| order.plan.size = 1400);
    assert_eq!(large, Err(Refusal::Bandwidth { bits: 2000.0 * 8.0 * 1428.0, most: 10e6 }));
    // By bytes: 1250 in a millisecond, 12,500 in ten of them, which is 9 packets.
    let long = spoilt(|order| {
        order.plan.size = 1300;
        order.plan.arrivals = Arrivals::Open { rate: 800.0, process: Process::Burst { len: 10 } };
    });
    assert_eq!(long, Err(Refusal::Burst { len: 10, most: 9 }));
}

#[test]
fn flows_buffers_threads_and_requests_in_flight_are_memory() {
    let many = spoilt(|order| order.plan.flows = 404);
    assert_eq!(many, Err(Refusal::Flows { flows: 101, most: 100 }));
    assert_eq!(spoilt(|order| order.plan.flows = 400), Ok(()));
    let small = Limits { rate: None, bits: None, memory: 2 << 20, ..limits(&["10.0.0.0/8"]) };
    assert_eq!(small.check(&order("10.0.0.2:7")), Ok(()));
    let spoils: [fn(&mut Plan); 5] = [
        |plan| plan.sockets.receive_buffer = Some(1 << 30),
        |plan| plan.sockets.send_buffer = Some(16 << 20),
        |plan| plan.threads = 1024,
        |plan| plan.arrivals = Arrivals::Open { rate: 800_000.0, process: Process::Constant },
        |plan| (plan.transport, plan.size, plan.flows) = (Transport::Tcp, 65_507, 400),
    ];
    for (at, spoil) in spoils.into_iter().enumerate() {
        let mut order = order("10.0.0.2:7");
        spoil(&mut order.plan);
        let refused = small.check(&order);
        assert!(matches!(refused, Err(Refusal::Memory { .. })), "{at}: {refused:?}");
    }
}

#[test]
fn where_from_is_the_agents_matter() {
    let sources = spoilt(|order| order.plan.sources = vec!["10.0.0.9".parse().unwrap()]);
    assert_eq!(sources, Err(Refusal::Sources));
    let privileged = spoilt(|order| order.plan.source_ports = Some(PortRange { first: 53, last: 9000 }));
    assert_eq!(privileged, Err(Refusal::SourcePort(53)));
    for name in ["bbr;x", "../x", "a_name_that_is_far_too_long"] {
        let odd = spoilt(|order| order.plan.sockets.congestion = Some(name.into()));
        assert_eq!(odd, Err(Refusal::Congestion), "{name}");
    }
    let targets = spoilt(|order| order.plan.targets = vec!["10.0.0.2:7".parse().unwrap(); 257]);
    assert_eq!(targets, Err(Refusal::Targets(257)));
}
