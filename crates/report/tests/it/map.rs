//! Machines of many kinds as `udpath show` draws them.

use std::net::SocketAddr;
use std::path::Path;

use udpath_advise::MapResult;
use udpath_host::map::Selection;
use udpath_host::sockets::{GroupOrder, Place, Selector};
use udpath_host::source::Folder;
use udpath_host::{Fact, Provenance, Snapshot};
use udpath_report::{Extent, Style, map_text};

use crate::machines::{self, Machine, list};

fn read(machine: &Machine) -> Snapshot {
    let folder = machines::folder();
    machine.write(folder.path());
    Snapshot::read(&Folder::captured(folder.path()))
}

#[test]
fn every_machine_is_drawn_as_it_was() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for machine in list::all() {
            let snapshot = read(&machine);
            let result = MapResult::new(&snapshot, None, &Selection::All).unwrap();
            let text = map_text(&result, Extent::Most, &Style { colour: false, width: 100 });
            insta::assert_snapshot!(machine.name, text);
            let json = serde_json::to_string(&result).unwrap();
            assert_eq!(serde_json::from_str::<MapResult>(&json).unwrap(), result, "{}", machine.name);
        }
    });
}

/// What Makita (LinuxCon Japan 2016) found on a 20-core server with sar and ethtool.
#[test]
fn a_server_as_found_has_the_findings_that_an_expert_made() {
    let found = |name: &str| {
        let machines = list::all();
        let machine = machines.iter().find(|machine| machine.name == name).unwrap();
        let result = MapResult::new(&read(machine), None, &Selection::Interface("ens1f0".into())).unwrap();
        result.findings.into_iter().map(|finding| finding.id).collect::<Vec<_>>()
    };
    let as_found = found("ixgbe-as-found");
    for rule in ["irqs-on-one-node", "hint-unused", "rss-table-short", "one-socket"] {
        assert!(as_found.iter().any(|found| found == rule), "{rule}: {as_found:?}");
    }
    // The RPS masks that he set, from four queues to the CPUs without one, include the interrupt's own CPU.
    let steered = found("ixgbe-steered");
    assert!(steered.iter().any(|found| found == "rps-on-irq-cpu"), "{steered:?}");
    assert!(
        !steered.iter().any(|found| found == "irqs-on-one-node" || found == "hint-unused"),
        "{steered:?}"
    );
}

/// A machine with 128 queues and ten thousand sockets fits on two screens; all of it is shown on request.
#[test]
fn a_big_machine_is_drawn_on_two_screens() {
    let snapshot = read(&machines::big::big(64, 64, 2000));
    let map = MapResult::new(&snapshot, None, &Selection::All).unwrap();
    let lines = |extent| map_text(&map, extent, &Style::default()).lines().count();
    assert!(lines(Extent::Most) < 110, "{}", lines(Extent::Most));
    assert!(lines(Extent::All) > 2000);
}

#[test]
fn a_program_that_selects_among_sockets_is_named() {
    let machines = list::all();
    let mut snapshot =
        machines.iter().map(read).find(|snapshot| !snapshot.sockets.groups.is_empty()).unwrap();
    let mut drawn = |selector| {
        let group = &mut snapshot.sockets.groups[0];
        let place = |&socket: &usize| Place { socket, incoming_cpu: None };
        let order = GroupOrder { selector, sockets: group.members.iter().map(place).collect() };
        group.order = Some(Fact::new(order, Provenance::Iterator("udp".into())));
        let name =
            format!("{} sockets of {}", group.members.len(), SocketAddr::from((group.address, group.port)));
        let result = MapResult::new(&snapshot, None, &Selection::All).unwrap();
        let text = map_text(&result, Extent::All, &Style::default());
        text.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}: ")).map(str::to_owned))
    };
    let by_cpu = drawn(Selector::Cpu { modulus: Some(4) });
    assert_eq!(by_cpu.as_deref(), Some("selected by CPU modulo 4 (classic BPF program)"));
    assert_eq!(drawn(Selector::Extended { id: 7 }).as_deref(), Some("selected by an eBPF program (id 7)"));
    assert_eq!(drawn(Selector::Kernel), None);
}
