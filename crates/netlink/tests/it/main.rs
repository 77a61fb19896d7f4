//! What a kernel answered about three drivers, byte for byte, read again: `fixtures/emulated` (see its README). What is
//! read is compared with what ethtool made of the same machine at the same time.

#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod ethtool;
#[path = "../recording/mod.rs"]
mod recording;

use proptest::prelude::*;
use udpath_netlink::ethtool::coalesce::{COALESCING, Width};
use udpath_netlink::netdev::Direction;
use udpath_netlink::rtnetlink::qdisc::ROOT;

use ethtool::Pages;
use recording::{Answers, Conversation, read_route};

/// virtio-net with 16 queues, vmxnet3, e1000e.
const INTERFACES: [&str; 3] = ["eth0", "eth1", "eth2"];
const GENERIC: &str = include_str!("../../fixtures/emulated/generic.netlink");
const ROUTE: &str = include_str!("../../fixtures/emulated/route.netlink");

fn answers() -> Answers {
    Conversation::parse(GENERIC).replay(|socket| Answers::read(socket, &INTERFACES))
}

#[test]
fn text_keeps_every_byte() {
    for text in [GENERIC, ROUTE] {
        let comment = text.lines().next().unwrap().trim_start_matches("# ");
        assert_eq!(Conversation::parse(text).text(comment), text);
    }
}

#[test]
fn rings_and_channels_are_ethtools() {
    let (answers, pages) = (answers(), Pages::read());
    let mut compared = 0;
    for (name, interface) in &answers.interfaces {
        let mut check = |page: &str, section: &str, line: &str, found: Option<u32>| {
            let expected = pages.number(page, name, section, line);
            assert_eq!(found, expected, "ethtool {page} {name}: {section} {line}");
            compared += u32::from(expected.is_some());
        };
        let (now, most) = ("Current hardware settings:", "Pre-set maximums:");
        let rings = interface.rings.clone().unwrap_or_default();
        for (section, [rx, tx]) in [(now, [rings.rx, rings.tx]), (most, [rings.rx_max, rings.tx_max])] {
            check("-g", section, "RX", rx);
            check("-g", section, "TX", tx);
        }
        let channels = interface.channels.clone().unwrap_or_default();
        for (section, of) in [(now, channels.now), (most, channels.max)] {
            for (line, count) in
                [("RX", of.rx), ("TX", of.tx), ("Other", of.other), ("Combined", of.combined)]
            {
                check("-l", section, line, count);
            }
        }
        // ethtool shows switches, such as adaptive moderation, in words of its own.
        let numbers = COALESCING.iter().filter(|(_, _, width)| *width == Width::Word);
        let coalescing = interface.coalescing.clone().unwrap_or_default();
        for (line, _, _) in numbers.filter(|(line, _, _)| !line.starts_with("tx-aggr")) {
            check("-c", "", line, coalescing.get(*line).copied());
        }
    }
    assert!(compared > 20, "{compared} numbers were there to compare");
}

#[test]
fn features_are_ethtools() {
    let (answers, pages) = (answers(), Pages::read());
    for (name, interface) in &answers.interfaces {
        let features = interface.features.as_ref().unwrap();
        let shown = pages.features(name);
        let known: Vec<_> = shown.iter().filter(|(feature, _)| features.contains_key(**feature)).collect();
        // Some have names of ethtool's own.
        assert!(known.len() > 30, "{} of {}", known.len(), shown.len());
        for (feature, (active, fixed)) in known {
            let found = features[*feature];
            assert_eq!((found.active, !found.changeable), (*active, *fixed), "{feature} of {name}");
        }
    }
}

#[test]
fn table_and_key_are_ethtools() {
    let (answers, pages) = (answers(), Pages::read());
    for name in ["eth0", "eth1"] {
        let main = &answers.interfaces[name].rss.as_ref().unwrap().main;
        let (table, key) = pages.rss(name);
        assert_eq!(main.table, table, "{name}");
        let text: Vec<String> = main.key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text.join(":"), key, "{name}");
        assert!(!table.is_empty(), "{name}");
    }
}

#[test]
fn queues_have_their_napis() {
    let answers = answers();
    let (queues, napis) = (answers.queues.unwrap(), answers.napis.unwrap());
    let (links, _) = Conversation::parse(ROUTE).replay(read_route);
    let links = links.unwrap();
    let index = |name: &str| links.iter().find(|link| link.name.as_deref() == Some(name)).unwrap().index;
    let of = |name: &str, direction| {
        queues.iter().filter(|queue| (queue.interface, queue.direction) == (index(name), direction)).count()
    };
    assert_eq!((of("eth0", Direction::Rx), of("eth0", Direction::Tx)), (16, 16));
    // Each NAPI instance that is named exists, at the same interface.
    for queue in &queues {
        let Some(id) = queue.napi else { continue };
        let napi = napis.iter().find(|napi| napi.id == id).unwrap_or_else(|| panic!("no NAPI instance {id}"));
        assert_eq!(napi.interface, queue.interface);
    }
    // virtio counts by queue, over netlink.
    let counted = answers.counters.unwrap();
    let by_queue = counted.iter().filter(|of| (of.interface, of.direction) == (index("eth0"), Direction::Rx));
    assert_eq!(by_queue.count(), 16);
    assert!(answers.devices.unwrap().iter().any(|device| device.index == index("eth0")));
}

#[test]
fn links_and_their_queueing_disciplines() {
    let (links, qdiscs) = Conversation::parse(ROUTE).replay(read_route);
    let (links, qdiscs) = (links.unwrap(), qdiscs.unwrap());
    let shown: Vec<_> = links.iter().map(|link| (link.name.as_deref().unwrap(), link.mtu)).collect();
    assert_eq!(
        shown,
        [("lo", Some(65_536)), ("eth0", Some(1500)), ("eth1", Some(1500)), ("eth2", Some(1500))]
    );
    let eth0 = links.iter().find(|link| link.name.as_deref() == Some("eth0")).unwrap();
    assert_eq!((eth0.rx_queues, eth0.tx_queues, eth0.qdisc.as_deref()), (Some(16), Some(16), Some("mq")));
    // The kernel's own root and one below it for each transmit queue, by its number from 1.
    let own: Vec<_> = qdiscs.iter().filter(|found| found.interface == eth0.index).collect();
    assert_eq!(own.iter().filter(|found| found.kind == "mq" && found.parent == ROOT).count(), 1);
    let mut classes: Vec<u32> =
        own.iter().filter(|found| found.kind != "mq").map(|found| found.parent & 0xffff).collect();
    classes.sort_unstable();
    assert_eq!(classes, (1..=16).collect::<Vec<_>>());
}

#[test]
fn another_request_is_noticed() {
    let other = ["eth2", "eth1", "eth0"];
    let replay = || Conversation::parse(GENERIC).replay(|socket| Answers::read(socket, &other));
    let said = std::panic::catch_unwind(replay).unwrap_err();
    assert!(
        said.downcast_ref::<String>().is_some_and(|said| said.starts_with("replay: request")),
        "{said:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Bytes of an answer's body are damaged: its reader errs or reads something else, and ends.
    #[test]
    fn damaged_answers_are_read_without_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..40),
    ) {
        /// Bytes of netlink's header and of generic netlink's, without which an exchange would not end.
        const HEADERS: usize = 20;
        let mut conversation = Conversation::parse(GENERIC);
        let mut answers: Vec<_> = conversation.answers_mut().filter(|answer| answer.len() > 64).collect();
        for (which, at, byte) in damage {
            let answer = which.index(answers.len());
            let body = &mut answers[answer][HEADERS..];
            let at = at.index(body.len());
            body[at] = byte;
        }
        // A family's number may be among the damage: the next request is another one then, which ends the replay.
        let replay = || conversation.replay(|socket| Answers::read(socket, &INTERFACES));
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(replay)) {
            let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            prop_assert!(said.starts_with("replay: "), "{}", said);
        }
    }
}
