//! The kernel engine with several loops at once: targets of one protocol, and the parts of a mix. Needs root.

use std::io::Write;

use error_reporter::Report;
use udpath_load::plan::Plan;
use udpath_load::template::Protocol;
use udpath_protocols::echo::EchoLoad;
use udpath_protocols::{Options, mix};

use crate::kernel::{Bed, plan};
use crate::known::all_faults::{compare_order, compare_rare, rare_faults};
use crate::known::{Answering, Faults, Server, Truth};
use crate::prebuilt::{answering, ntp};

/// What two servers saw.
fn both(one: Truth, other: &Truth) -> Truth {
    Truth {
        received: one.received + other.received,
        dropped: one.dropped + other.dropped,
        duplicated: one.duplicated + other.duplicated,
        late: one.late + other.late,
        corrupted: one.corrupted + other.corrupted,
        misdirected: one.misdirected + other.misdirected,
        reordered: one.reordered + other.reordered,
        ..one
    }
}

#[test]
fn counts_of_several_targets_are_the_truth() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::in_order("several-targets");
    for ipv6 in [false, true] {
        let servers = [(); 2].map(|()| bed.answering(ipv6, rare_faults(), Answering::ECHO));
        let targets = servers.iter().map(|server| server.address).collect();
        let result = bed.load(&Plan { targets, ..plan(servers[0].address) }, &EchoLoad::new(7)).unwrap();
        let [one, other] = servers.map(Server::stop);
        assert_eq!((one.peers.len(), other.peers.len()), (4, 4), "half of the flows each");
        let truth = both(one, &other);
        compare_rare(&result, &truth);
        compare_order(&result, &truth);
        assert_eq!(result.targets.len(), 2);
    }
}

fn of_parts(parts: &str) -> Box<dyn Protocol> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(parts.as_bytes()).unwrap();
    let mut options = Options::default();
    options.push(&mix::ENTRY.load_options[0], file.path());
    (mix::ENTRY.load)(7, &options).unwrap()
}

/// Flows in proportion to the weights; replies of each part judged by its own rules, and counted by part.
#[test]
fn counts_of_a_mix_are_the_truth() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::in_order("several-parts");
    let servers = [
        bed.answering(false, rare_faults(), Answering::ECHO),
        bed.answering(false, rare_faults(), answering(|request| ntp(request).encode().to_vec())),
    ];
    let [echo, time] = [0, 1].map(|at: usize| servers[at].address);
    let load = of_parts(&format!("75 echo {echo} --size 64\n25 ntp {time}\n"));
    let plan = Plan { targets: load.targets(), ..plan(echo) };
    let result = bed.load(&plan, &*load).unwrap();
    let [one, other] = servers.map(Server::stop);
    assert_eq!((one.peers.len(), other.peers.len()), (6, 2));
    let intact = |truth: &Truth| {
        truth.received - truth.dropped + truth.duplicated - truth.corrupted - truth.misdirected
    };
    let expected = [(format!("echo {echo}"), intact(&one)), (format!("ntp {time}"), intact(&other))];
    for (kind, (name, count)) in result.kinds.iter().zip(expected) {
        assert_eq!(kind.name, name);
        // Each peer's last answer may still be held back at the end.
        assert!(kind.count <= count && kind.count + 8 >= count, "{name}: {} of {count}", kind.count);
    }
    assert_eq!((result.kinds.len(), result.protocol.as_str()), (2, "mix"));
    let truth = both(one, &other);
    compare_rare(&result, &truth);
    compare_order(&result, &truth);
    assert!(
        result.generator.notes[0].contains("replies were checked completely"),
        "{:?}",
        result.generator.notes
    );
}

#[test]
fn targets_that_one_program_cannot_serve_are_named() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let bed = Bed::new("several-cannot");
    let server = bed.answering(false, Faults::default(), Answering::ECHO);
    let two = vec![server.address; 2];
    let (source, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.3".parse().unwrap());
    for (spoilt, words) in [
        (
            Plan { targets: two.clone(), sources: vec![source, other], ..plan(server.address) },
            "remove all --source but one",
        ),
        (
            Plan { targets: vec![server.address; 101], flows: 101, ..plan(server.address) },
            "at most 100 targets",
        ),
        (
            Plan { targets: vec![server.address, "127.0.0.1:7".parse().unwrap()], ..plan(server.address) },
            "loopback",
        ),
    ] {
        let error = Report::new(bed.load(&spoilt, &EchoLoad::new(7)).unwrap_err()).to_string();
        assert!(error.contains(words), "{error}");
    }
    // The same target twice is two loops.
    let result = bed.load(&Plan { targets: two, ..plan(server.address) }, &EchoLoad::new(7)).unwrap();
    result.counts.check().unwrap();
    assert!(result.counts.ok > 1000 && result.counts.corrupt == 0, "{:?}", result.counts);
    server.stop();
}
