//! What of a change is seen, of each kind of trace.

use super::*;
use crate::services::{Profile, Service};

fn shape(processes: usize, threads: usize, sockets: usize, buffer: u32) -> Shape {
    Shape {
        processes,
        threads,
        sockets,
        reuseport: sockets > 1,
        receive_buffer: Some(buffer),
        send_buffer: Some(buffer),
        interfaces: Some(vec!["eth0".to_owned()]),
        stale: false,
    }
}

fn prepared(server: &str, text: &str, (knob, value): (&str, &str)) -> Prepared {
    let service = Service::of_text(Profile::named(server).unwrap(), text);
    let proposals = vec![service.propose(knob, value).unwrap()];
    service.prepare(proposals, Some("true")).unwrap()
}

fn compared(server: &str, text: &str, change: (&str, &str), (before, now): (&Shape, &Shape)) -> Outcome {
    let found = prepared(server, text, change).compared(before, now);
    let [one] = &found[..] else { panic!("{found:?}") };
    assert_eq!(one.change, format!("{}={}", change.0, change.1));
    one.outcome.clone()
}

#[test]
fn a_knob_shows_in_what_it_makes_more_or_fewer() {
    let nsd = "server:\n  server-count: 1\n";
    for (server, text, change, now, seen, in_effect) in [
        ("nsd", nsd, ("server-count", "2"), shape(4, 4, 1, 1), "4 processes, 3 before", true),
        ("nsd", nsd, ("server-count", "3"), shape(4, 4, 1, 1), "4 processes, 3 before", false),
        ("nsd", nsd, ("server-count", "2"), shape(3, 4, 1, 1), "3 processes, 3 before", false),
        // The file had changed since the start.
        (
            "nsd",
            "server:\n  server-count: 4\n",
            ("server-count", "1"),
            shape(3, 4, 1, 1),
            "3 processes, 3 before",
            true,
        ),
        (
            "nsd",
            nsd,
            ("reuseport", "yes"),
            shape(3, 4, 2, 1),
            "2 sockets at an address with SO_REUSEPORT, 1 without before",
            true,
        ),
        (
            "nsd",
            nsd,
            ("reuseport", "yes"),
            shape(3, 4, 1, 1),
            "1 socket at an address without SO_REUSEPORT, 1 before",
            false,
        ),
        (
            "unbound",
            "server:\n",
            ("so-reuseport", "no"),
            shape(3, 4, 2, 1),
            "2 sockets at an address with SO_REUSEPORT, 1 without before",
            false,
        ),
        // With one thread, too, Unbound sets the option.
        (
            "unbound",
            "server:\n",
            ("so-reuseport", "yes"),
            Shape { reuseport: true, ..shape(1, 1, 1, 1) },
            "1 socket at an address with SO_REUSEPORT, 1 without before",
            true,
        ),
        (
            "bind9",
            "options {\n};\n",
            ("reuseport", "no"),
            shape(1, 9, 1, 1),
            "1 socket at an address without SO_REUSEPORT, 1 before",
            true,
        ),
        (
            "knot",
            "server:\n    udp-workers: 1\n",
            ("udp-workers", "3"),
            shape(1, 9, 3, 1),
            "3 sockets at an address, 1 before",
            true,
        ),
        ("unbound", "server:\n", ("num-threads", "7"), shape(1, 7, 4, 1), "7 threads, 4 before", true),
        ("unbound", "server:\n", ("num-threads", "4"), shape(1, 6, 4, 1), "6 threads, 4 before", false),
        (
            "unbound",
            "server:\n  num-threads: 4\n",
            ("num-threads", "2"),
            shape(1, 2, 4, 1),
            "2 threads, 4 before",
            true,
        ),
        (
            "coturn",
            "relay-threads=2\n",
            ("relay-threads", "3"),
            shape(1, 5, 4, 1),
            "5 threads, 4 before",
            true,
        ),
        (
            "coturn",
            "relay-threads=2\n",
            ("relay-threads", "4"),
            shape(1, 5, 4, 1),
            "5 threads, 4 before",
            false,
        ),
        // It reads another file.
        (
            "coturn",
            "relay-threads=2\n",
            ("relay-threads", "3"),
            shape(1, 4, 4, 1),
            "4 threads, 4 before",
            false,
        ),
        (
            "knot",
            "server:\n",
            ("listen-xdp", "eth0@5300"),
            shape(1, 4, 4, 1),
            "its XDP program is on eth0",
            true,
        ),
        (
            "knot",
            "server:\n",
            ("listen-xdp", "eth1"),
            shape(1, 4, 4, 1),
            "its XDP program is not on eth1",
            false,
        ),
    ] {
        let expected = Outcome::of(seen.to_owned(), in_effect);
        assert_eq!(compared(server, text, change, (&shape(3, 4, 1, 425_984), &now)), expected, "{change:?}");
    }
}

#[test]
fn what_does_not_show_is_not_called_verified() {
    let (before, now) = (shape(3, 4, 1, 1), shape(3, 4, 1, 1));
    let stale = Shape { stale: true, ..before.clone() };
    let hidden = Shape { interfaces: None, ..now.clone() };
    let unbound = "server:\n";
    for (server, text, change, shapes, why) in [
        (
            "unbound",
            unbound,
            ("num-queries-per-thread", "4096"),
            (&before, &now),
            "does not show from outside",
        ),
        ("unbound", unbound, ("outgoing-range", "8192"), (&before, &now), "does not show from outside"),
        ("knot", unbound, ("socket-affinity", "on"), (&before, &now), "does not show from outside"),
        ("unbound", unbound, ("so-rcvbuf", "0"), (&before, &now), "asks for no size of its own"),
        // The file was changed after the start: what ran then is not known.
        (
            "coturn",
            "relay-threads=2\n",
            ("relay-threads", "3"),
            (&stale, &now),
            "makes no difference that shows (4 threads, 4 before)",
        ),
        (
            "coturn",
            "relay-threads=3\n",
            ("relay-threads", "3"),
            (&before, &now),
            "makes no difference that shows (4 threads, 4 before)",
        ),
        (
            "knot",
            unbound,
            ("udp-workers", "3"),
            (&before, &now),
            "does not show at the one socket that all threads share",
        ),
        (
            "knot",
            unbound,
            ("listen-xdp", "eth0"),
            (&before, &hidden),
            "cannot be seen, since the interfaces cannot be listed",
        ),
    ] {
        assert_eq!(compared(server, text, change, shapes), Outcome::unverified(why), "{change:?}");
    }
    let unseen = prepared("nsd", "server:\n", ("server-count", "2")).shown(None);
    let why = "cannot be seen, since nothing of the server was visible before the restart";
    assert_eq!(unseen, [Shown { change: "server-count=2".to_owned(), outcome: Outcome::unverified(why) }]);
    let same = prepared("nsd", "server:\n  server-count: 2\n", ("server-count", "2"));
    assert_eq!(same.shown(None), [], "no file changes, and nothing is restarted");
}

#[test]
fn a_buffer_is_in_effect_as_far_as_the_kernel_allows() {
    let profile = Profile::named("nsd").unwrap();
    for (name, what, limit) in [
        ("receive-buffer-size", "receive", "net.core.rmem_max"),
        ("send-buffer-size", "send", "net.core.wmem_max"),
    ] {
        let knob = profile.knobs.iter().find(|knob| knob.name == name).unwrap();
        let of = |buffer: u32, most: u64| {
            let shapes = (&shape(1, 1, 1, 1), &shape(1, 1, 1, buffer));
            let asked = Change { old: None, number: Some(4_194_304), value: "4194304" };
            let limits = Limits { receive: Some(most), send: Some(most) };
            knob.shows.unwrap().compared(knob, asked, shapes, limits)
        };
        let whole = format!("{what} buffers of 4194304 bytes");
        assert_eq!(of(8_388_608, 212_992), Outcome::InEffect(whole));
        let limited = format!("{what} buffers of 212992 bytes, all that {limit} allows");
        assert_eq!(of(425_984, 212_992), Outcome::InEffect(limited));
        assert!(matches!(of(425_984, 4_194_304), Outcome::NotInEffect(_)));
        assert!(matches!(of(16_777_216, 212_992), Outcome::NotInEffect(_)), "a smaller one was asked for");
    }
}

/// Every server's knobs: a new one has a row of `docs/services.md`.
#[test]
fn what_shows_of_each_knob_is_documented() {
    let page = include_str!("../../../../../docs/services.md");
    let table =
        page.split("| what shows | knobs |\n|---|---|\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let mut documented: Vec<String> = Vec::new();
    for row in table.lines() {
        let [what, knobs] = row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        for one in knobs.split("; ") {
            let (server, knobs) = one.split_once(' ').unwrap();
            documented
                .extend(knobs.split(", ").map(|knob| format!("{server} {} {what}", knob.trim_matches('`'))));
        }
    }
    let what = |shows: Option<Shows>| match shows {
        Some(Shows::Processes) => "processes",
        Some(Shows::Threads) => "threads",
        Some(Shows::Sockets) => "sockets at an address",
        Some(Shows::Reuseport) => "`SO_REUSEPORT` of the sockets",
        Some(Shows::ReceiveBuffer) => "receive buffers",
        Some(Shows::SendBuffer) => "send buffers",
        Some(Shows::XdpProgram) => "XDP programs of interfaces",
        None => "nothing",
    };
    // What is only read: texts, and the arguments of nfcapd.
    let is_set = |server: &str, knob: &KnobProfile| knob.kind != Kind::Text && server != "nfcapd";
    let profiles = Profile::names().into_iter().map(|name| Profile::named(name).unwrap());
    let mut known: Vec<String> = profiles
        .flat_map(|profile| {
            let name = &profile.name;
            let knobs = profile.knobs.iter().filter(move |knob| is_set(name, knob));
            knobs.map(move |knob| format!("{name} {} {}", knob.name, what(knob.shows)))
        })
        .collect();
    documented.sort();
    known.sort();
    assert_eq!(documented, known);
}
