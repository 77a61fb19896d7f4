//! Flow rules: against a second implementation that compares bit by bit, and in a prediction.

use std::net::IpAddr;

use error_reporter::Report;
use proptest::prelude::*;
use udpath_steer::Flow;
use udpath_steer::predict::{Predictor, Step, Tables, Why};
use udpath_steer::rules::{FlowAction, FlowRule, FlowRules, Masked, RuleMatch};

/// The first of Microsoft's verification vectors; its hash with ports is 0x51ccc178.
fn flow() -> Flow {
    Flow::udp("66.9.149.187:2794".parse().unwrap(), "161.142.100.80:1766".parse().unwrap()).unwrap()
}

const CARD: &str = r#""key": "microsoft", "udp4": "sdfn", "passed_on": true, "queues": 8,
    "table": [0, 1, 2, 3, 4, 5, 6, 7],
    "receive": [{"queue": 7, "irq": 52, "irq_cpus": "3", "rps_cpus": ""}, {"queue": 5, "rps_cpus": "0-1"}],
    "sockets": {"by": "cpu", "cpus": [2, 3]}"#;

fn predictor(more: &str) -> Predictor {
    let text = format!(r#"{{"schema": "udpath.tables/1", {CARD}, {more}}}"#);
    let tables: Tables = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(serde_json::from_str::<Tables>(&serde_json::to_string(&tables).unwrap()).unwrap(), tables);
    Predictor::new(&tables).unwrap_or_else(|error| panic!("{error}"))
}

/// One rule at location 1023 for the flow's port.
fn ruled(action: &str, more: &str) -> Predictor {
    predictor(&format!(
        r#""rules": [{{"location": 1023, "flow": "udp4", "destination_port": {{"value": 1766, "mask": 65535}},
            "action": {action}}}]{more}"#
    ))
}

#[test]
fn a_rule_names_the_queue_and_the_way_goes_on_from_there() {
    let path = ruled(r#"{"queue": {"queue": 7, "vf": 0}}"#, "").decide(&flow());
    assert_eq!(path.queue, Step { value: Some(7), why: Why::Rule { location: 1023 } });
    assert_eq!(path.queue.why.to_string(), "ntuple rule 1023");
    assert_eq!((path.irq.value, path.cpu.value, path.rps.value), (Some(52), Some(3), Some(3)));
    assert_eq!((path.socket.value, path.socket.why), (Some(1), Why::IncomingCpu));
    // Past RSS a packet may have no hash: RPS over two CPUs is unpredictable.
    let path = ruled(r#"{"queue": {"queue": 5, "vf": 0}}"#, "").decide(&flow());
    assert_eq!((path.rps.value, path.rps.why), (None, Why::RuleHash { location: 1023 }));
    // Another port is left to RSS.
    let other = Flow::udp(flow().source(), "161.142.100.80:53".parse().unwrap()).unwrap();
    let ruled = ruled(r#""drop""#, "");
    assert!(matches!(ruled.decide(&other).queue.why, Why::Entry { .. }));
    let path = ruled.decide(&flow());
    for step in [path.queue, path.irq, path.cpu, path.rps, path.socket] {
        assert_eq!(step, Step { value: None, why: Why::RuleDrops { location: 1023 } });
    }
    assert_eq!(path.queue.why.to_string(), "ntuple rule 1023 drops it");
}

#[test]
fn uncertain_rules_are_not_guessed() {
    let why = |action: &str| ruled(action, "").decide(&flow()).queue;
    let step = why(r#"{"queue": {"queue": 1, "vf": 3}}"#);
    assert_eq!(
        (step.value, step.why.to_string().as_str()),
        (None, "ntuple rule 1023 directs it to virtual function 2")
    );
    let step = why(r#"{"queue": {"queue": 8, "vf": 0}}"#);
    assert_eq!((step.value, step.why), (None, Why::RuleBeyond { location: 1023, queue: 8 }));
    assert_eq!(why(r#""wake""#).why, Why::RuleMaybe { location: 1023 });
    let missing = why(r#"{"context": {"context": 4, "queue": 0}}"#);
    assert_eq!(missing.why, Why::RuleNoContext { location: 1023, context: 4 });
    let path = predictor(
        r#""rules": [{"location": 0, "flow": "udp4", "further": true, "action": {"queue": {"queue": 1, "vf": 0}}}]"#,
    )
    .decide(&flow());
    assert_eq!((path.queue.value, path.queue.why), (None, Why::RuleMaybe { location: 0 }));
    assert_eq!((path.rps.value, path.socket.value), (None, None));
}

#[test]
fn a_context_has_its_own_table_and_the_key_of_the_card_unless_it_has_one() {
    let context = |own: &str, added: u32| {
        let action = format!(r#"{{"context": {{"context": 1, "queue": {added}}}}}"#);
        ruled(&action, &format!(r#", "contexts": {{"1": {{{own}}}}}"#)).decide(&flow())
    };
    // 0x51ccc178: entry 0 of 4.
    let path = context(r#""table": [6, 4, 4, 4]"#, 0);
    assert_eq!((path.hash.value, path.queue.value), (Some(0x51cc_c178), Some(6)));
    assert_eq!(path.queue.why.to_string(), "ntuple rule 1023: entry 0 of 4 in RSS context 1");
    assert_eq!(context(r#""table": [6, 4, 4, 4]"#, 1).queue.value, Some(7));
    let beyond = context(r#""table": [6, 4, 4, 4]"#, 2);
    assert_eq!(
        beyond.socket.why.to_string(),
        "ntuple rule 1023 directs it to queue 8, which the stack does not have"
    );
    let one = context(r#""table": [5, 5]"#, 0);
    assert_eq!(one.queue.why.to_string(), "ntuple rule 1023: every entry of RSS context 1");
    // Its hash comes with the packet: RPS goes on with it, 0x51ccc178 of 2 CPUs.
    assert_eq!((one.queue.value, one.rps.value), (Some(5), Some(0)));
    let own = context(r#""table": [0, 1], "key": "symmetric""#, 0);
    assert!(own.hash.value.is_some() && own.hash.value != Some(0x51cc_c178));
    assert_eq!(context(r#""table": [0, 1], "function": "xor""#, 0).queue.why, Why::HashUnknown);
    assert_eq!(context("", 0).queue.why, Why::RuleNoContext { location: 1023, context: 1 });
}

#[test]
fn rules_that_contradict_each_other_are_refused() {
    let refused = |more: &str| {
        let text = format!(r#"{{"schema": "udpath.tables/1", "queues": 2, {more}}}"#);
        let error = Predictor::new(&serde_json::from_str::<Tables>(&text).unwrap()).unwrap_err();
        Report::new(error).to_string()
    };
    let rule = r#"{"location": 7, "flow": "udp4", "action": "drop"}"#;
    assert_eq!(
        refused(&format!(r#""rules": [{rule}, {rule}]"#)),
        "two flow rules at location 7; a location holds one"
    );
    assert_eq!(
        refused(r#""contexts": {"3": {"table": [0, 2]}}"#),
        "invalid RSS context 3: entry 1 of the indirection table is queue 2, but there are only 2, 0 to 1"
    );
}

#[test]
fn a_group_is_chosen_from_as_it_was_set() {
    let of = |sockets: &str, cpu: &str| {
        let text = format!(
            r#"{{"schema": "udpath.tables/1", "queues": 1, "receive": [{{"queue": 0, "irq_cpus": "{cpu}"}}],
                "sockets": {sockets}}}"#
        );
        let socket = Predictor::new(&serde_json::from_str(&text).unwrap()).unwrap().decide(&flow()).socket;
        (socket.value, socket.why.to_string())
    };
    let value = |sockets: &str, cpu: &str| of(sockets, cpu).0;
    let modulo = r#"{"by": "cpu-modulo", "cpus": [null, null, null]}"#;
    assert_eq!(
        of(modulo, "7"),
        (Some(1), "the CPU number modulo 3, by the program attached to the group".into())
    );
    assert_eq!(value(modulo, "0-1"), None);
    let index = r#"{"by": "cpu-index", "cpus": [null, null, null]}"#;
    assert_eq!(of(index, "2"), (Some(2), "the CPU number, by the program attached to the group".into()));
    assert_eq!(
        of(index, "3"),
        (
            None,
            "the program returns the CPU number, but there are 3 sockets: selected by the kernel's own hash"
                .into()
        )
    );
    assert_eq!(value(index, "0-1"), None);
    let last = r#"{"by": "last", "cpus": [null, null]}"#;
    assert_eq!(of(last, "0-1"), (Some(1), "bound last: sockets with SO_REUSEADDR alone do not share".into()));
    // A CPU that a socket names goes before.
    let named = r#"{"by": "last", "cpus": [0, 0, 1, null]}"#;
    assert_eq!((value(named, "0"), value(named, "1"), value(named, "2")), (Some(1), Some(2), Some(3)));
    let (none, why) = of(r#"{"by": "unknown", "cpus": [null, null]}"#, "0");
    assert!(none.is_none() && why.contains("could not be read, or a program selects"), "{why}");
}

/// Bit by bit, the highest first.
fn bits(address: IpAddr) -> Vec<bool> {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect()
}

fn wide(number: u16) -> Vec<bool> {
    (0..16).map(|bit| number >> bit & 1 == 1).collect()
}

/// What is asked for, the bits of it that count, and what there is: of another length it is of another family.
fn same(value: &[bool], mask: &[bool], found: &[bool]) -> bool {
    value.len() == found.len() && (0..found.len()).all(|at| !mask[at] || value[at] == found[at])
}

fn plainly_fits(rule: &FlowRule, flow: &Flow) -> bool {
    let kind = match rule.flow.as_str() {
        "udp4" | "ip4" => flow.is_ipv4(),
        "udp6" | "ip6" => !flow.is_ipv4(),
        _ => false,
    };
    let address = |wanted: Option<Masked<IpAddr>>, found: IpAddr| {
        wanted.is_none_or(|wanted| same(&bits(wanted.value), &bits(wanted.mask), &bits(found)))
    };
    let port = |wanted: Option<Masked<u16>>, found: u16| {
        wanted.is_none_or(|wanted| same(&wide(wanted.value), &wide(wanted.mask), &wide(found)))
    };
    kind && address(rule.source, flow.source().ip())
        && address(rule.destination, flow.destination().ip())
        && port(rule.source_port, flow.source_port)
        && port(rule.destination_port, flow.destination_port)
}

/// An address of few different bits, so that rules and flows meet.
fn address(v4: bool) -> BoxedStrategy<IpAddr> {
    match v4 {
        true => (0..8_u32).prop_map(|low| IpAddr::from((0x0a00_0000 | low).to_be_bytes())).boxed(),
        false => (0..8_u128).prop_map(|low| IpAddr::from((0x2001 << 112 | low).to_be_bytes())).boxed(),
    }
}

/// Masks of all kinds: none, all, a prefix, any bits.
fn mask(v4: bool) -> BoxedStrategy<IpAddr> {
    let of = move |bits: u128| match v4 {
        true => IpAddr::from(((bits & u128::from(u32::MAX)) as u32).to_be_bytes()),
        false => IpAddr::from(bits.to_be_bytes()),
    };
    prop_oneof![Just(u128::MAX), Just(!3), Just(6), any::<u128>()].prop_map(of).boxed()
}

prop_compose! {
    fn some_rule()(v4 in any::<bool>())(
        location in 0..40_u32,
        udp in any::<bool>(),
        source in prop::option::of((address(v4), mask(v4))),
        destination in prop::option::of((address(v4), mask(v4))),
        source_port in prop::option::of((0..4_u16, any::<u16>())),
        destination_port in prop::option::of((0..4_u16, any::<u16>())),
        queue in 0..8_u32,
        v4 in Just(v4),
    ) -> FlowRule {
        let name = if udp { "udp" } else { "ip" };
        let masked = |pair: Option<(IpAddr, IpAddr)>| pair.map(|(value, mask)| Masked { value, mask });
        let port = |pair: Option<(u16, u16)>| pair.map(|(value, mask)| Masked { value, mask });
        FlowRule {
            location,
            flow: format!("{name}{}", if v4 { 4 } else { 6 }),
            source: masked(source),
            destination: masked(destination),
            source_port: port(source_port),
            destination_port: port(destination_port),
            protocol: None,
            ether_type: None,
            further: false,
            action: FlowAction::Queue { queue, vf: 0 },
        }
    }
}

prop_compose! {
    fn some_flow()(v4 in any::<bool>())(
        source in address(v4), destination in address(v4), ports in (0..4_u16, 0..4_u16),
    ) -> Flow {
        Flow::udp((source, ports.0).into(), (destination, ports.1).into()).unwrap()
    }
}

proptest! {
    #[test]
    fn a_mask_counts_bit_by_bit_and_the_lowest_location_wins(
        rules in prop::collection::vec(some_rule(), 0..12), flow in some_flow(),
    ) {
        for rule in &rules {
            prop_assert_eq!(rule.fits(&flow) == RuleMatch::Yes, plainly_fits(rule, &flow), "{:?} {}", rule, flow);
        }
        let lowest = rules.iter().filter(|rule| plainly_fits(rule, &flow)).map(|rule| rule.location).min();
        let ordered = FlowRules::new(rules.clone());
        prop_assert_eq!(ordered.of(&flow).map(|(rule, _)| rule.location), lowest);
        // A card has one rule at a location.
        let mut rules = rules;
        rules.sort_by_key(|rule| rule.location);
        rules.dedup_by_key(|rule| rule.location);
        let first = rules.iter().find(|rule| plainly_fits(rule, &flow)).map(|rule| rule.action);
        let predictor = Predictor::new(&Tables { queues: Some(8), rules, ..Tables::default() }).unwrap();
        let queue = predictor.decide(&flow).queue;
        match first {
            Some(FlowAction::Queue { queue: wanted, .. }) => prop_assert_eq!(queue.value, Some(wanted)),
            _ => prop_assert_eq!((queue.value, queue.why), (None, Why::NoTable)),
        }
    }
}
