//! Every kind of setting on real drivers: set by one plan, verified with other tools, undone to the byte; driver
//! refusals; and ways an apply ends early. The machine's part is settings.sh.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use udpath_host::Snapshot;
use udpath_host::interfaces::{Interface, LinkState, Qdisc};

use crate::{MACHINE, Recorded};

/// One setting: the request, the command that reads it, and its expected output.
type Row = (&'static str, &'static str, &'static str);

/// Settings that one plan changes together.
struct Group {
    name: &'static str,
    rows: &'static [Row],
}

const GROUPS: [Group; 5] = [
    // Settings that reset nothing.
    Group {
        name: "eth0",
        rows: &[
            (
                "eth0:rss/table=equal:5",
                "ethtool -x eth0 | grep '^ *8:'",
                "8:      3     4     0     1     2     3     4     0",
            ),
            (
                "eth0:rss/key=6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:ae:7b:30:b4:77:cb:2d:a3:80:30:f2:0c:\
                 6a:42:b7:3b:be:ac:01:fa",
                "ethtool -x eth0 | grep ..:..:",
                "6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:ae:7b:30:b4:77:cb:2d:a3:80:30:f2:0c:\
                 6a:42:b7:3b:be:ac:01:fa",
            ),
            ("eth0:hash/udp4=sd", "ethtool -n eth0 rx-flow-hash udp4 | grep -c L4", "0"),
            ("eth0:irq/rx-3=17", "cat /proc/irq/$(irq_of input.3)/smp_affinity_list", "17"),
            ("eth0:rps/rx-1=4-7", "cat /sys/class/net/eth0/queues/rx-1/rps_cpus", "000f0"),
            ("eth0:rfs/rx-1=3000", "cat /sys/class/net/eth0/queues/rx-1/rps_flow_cnt", "4096"),
            ("eth0:xps/tx-0=2,12", "cat /sys/class/net/eth0/queues/tx-0/xps_cpus", "01004"),
            ("eth0:xps-rxqs/tx-1=5", "cat /sys/class/net/eth0/queues/tx-1/xps_rxqs", "0020"),
            ("eth0:napi/threaded=on", "cat /sys/class/net/eth0/threaded", "1"),
            ("eth0:napi/defer-hard-irqs=2", "cat /sys/class/net/eth0/napi_defer_hard_irqs", "2"),
            ("eth0:napi/gro-flush-timeout=20000", "cat /sys/class/net/eth0/gro_flush_timeout", "20000"),
            ("eth0:qdisc=fq", "ip link show eth0 | grep -o 'qdisc [a-z]*'", "qdisc fq"),
            (
                "sysctl:net.core.rps_sock_flow_entries=32768",
                "cat /proc/sys/net/core/rps_sock_flow_entries",
                "32768",
            ),
        ],
    },
    // The driver redistributes IRQs and XPS. The table uses 12 queues, and is applied first.
    Group {
        name: "channels",
        rows: &[
            ("eth0:channels/combined=8", "ethtool -l eth0 | grep Combined | tail -n 1", "Combined:\t8"),
            (
                "eth0:rss/table=equal:8",
                "ethtool -x eth0 | grep '^ *8:'",
                "8:      0     1     2     3     4     5     6     7",
            ),
            ("eth0:irq/rx-7=15", "cat /proc/irq/$(irq_of input.7)/smp_affinity_list", "15"),
        ],
    },
    Group {
        name: "device",
        rows: &[
            ("eth0:ring/rx=128", "ethtool -g eth0 | grep RX: | tail -n 1", "RX:\t\t128"),
            (
                "eth0:feature/gro=off",
                "ethtool -k eth0 | grep generic-receive",
                "generic-receive-offload: off",
            ),
        ],
    },
    Group {
        name: "eth1",
        rows: &[
            ("eth1:ring/rx=512", "ethtool -g eth1 | grep RX: | tail -n 1", "RX:\t\t512"),
            ("eth1:feature/lro=off", "ethtool -k eth1 | grep large-receive", "large-receive-offload: off"),
            ("eth1:irq/rx-2=11", "cat /proc/irq/$(irq_of eth1-rxtx-2)/smp_affinity_list", "11"),
            (
                "eth1:rss/table=equal:3",
                "ethtool -x eth1 | grep '^ *0:'",
                "0:      0     1     2     0     1     2     0     1",
            ),
            ("eth1:rps/rx-0=1,19", "cat /sys/class/net/eth1/queues/rx-0/rps_cpus", "80002"),
            ("eth1:xps/tx-1=8-9", "cat /sys/class/net/eth1/queues/tx-1/xps_cpus", "00300"),
            ("eth1:napi/gro-flush-timeout=50000", "cat /sys/class/net/eth1/gro_flush_timeout", "50000"),
        ],
    },
    Group {
        name: "eth2",
        rows: &[
            ("eth2:ring/tx=512", "ethtool -g eth2 | grep TX: | tail -n 1", "TX:\t\t512"),
            ("eth2:coalesce/rx-usecs=50", "ethtool -c eth2 | grep ^rx-usecs:", "rx-usecs: 50"),
            ("eth2:irq/rx-0=15", "cat /proc/irq/$(irq_of eth2-rx-0)/smp_affinity_list", "15"),
            ("eth2:rps/rx-0=0-19", "cat /sys/class/net/eth2/queues/rx-0/rps_cpus", "fffff"),
        ],
    },
];

/// Refused requests: name, request, exit code, and part of the sentence.
const REFUSED: [(&str, &str, i32, &str); 18] = [
    // The driver has the channels, rings and offloads, and reports its limits.
    ("channels", "eth0:channels/combined=17", 2, "the driver of eth0 accepts at most 16"),
    ("ring", "eth0:ring/rx=512", 2, "the driver of eth0 accepts at most 256"),
    ("table", "eth0:rss/table=equal:17", 2, "eth0 has no receive queue 16"),
    ("cpu", "eth0:irq/rx-0=20", 2, "this machine has no CPU 20, only 0-19"),
    ("ntuple", "eth0:feature/ntuple=on", 3, "the driver of eth0 has it off and cannot change it"),
    // The driver reports no limit, and rejects the change.
    (
        "usecs",
        "eth0:coalesce/rx-usecs=20",
        3,
        "cannot set eth0:coalesce/rx-usecs: the driver does not support it",
    ),
    (
        "frames",
        "eth0:coalesce/tx-frames=4",
        3,
        "cannot set eth0:coalesce/tx-frames: the driver does not accept this value",
    ),
    ("function", "eth0:rss/function=xor", 3, "cannot set eth0:rss/function: the driver does not support it"),
    // A user-defined table uses 12 queues; the kernel reports that.
    ("fewer", "eth0:channels/combined=8", 3, "too low for existing indirection table"),
    // The driver reports success, but does nothing, or something else.
    ("adaptive", "eth0:coalesce/adaptive-rx=on", 4, "eth0:coalesce/adaptive-rx was set to on and is off"),
    ("rounds", "eth1:ring/rx=500", 4, "eth1:ring/rx was set to 500 and is 512: the driver rounds"),
    (
        "eth1-channels",
        "eth1:channels/combined=4",
        3,
        "cannot set eth1:channels/combined: the driver does not support it",
    ),
    ("eth1-usecs", "eth1:coalesce/rx-usecs=20", 3, "eth1:coalesce/rx-usecs: the driver does not support it"),
    ("eth1-fields", "eth1:hash/udp4=sdfn", 3, "eth1:hash/udp4: the driver does not support it"),
    ("eth1-key", "eth1:rss/key=6d:5a", 3, "eth1:rss/key: the driver does not support it"),
    (
        "eth2-channels",
        "eth2:channels/combined=2",
        3,
        "eth2:channels/combined: the driver does not support it",
    ),
    ("eth2-table", "eth2:rss/table=equal:1", 3, "eth2:rss/table: the driver does not support it"),
    // Changes made before the refusal, including a link reset, are undone.
    (
        "on-the-way",
        "eth0:ring/rx=128 eth0:irq/rx-0=15 eth0:rss/table=equal:4 eth0:rss/function=xor eth0:rps/rx-3=2",
        4,
        "cannot set eth0:rss/function: the driver does not support it (Operation not supported (os error 95)); \
         3 changes were undone and verified",
    ),
];

/// Writes the requests where the machine finds them.
pub(crate) fn write(folder: &Path) {
    let groups = folder.join("groups");
    fs::create_dir(&groups).unwrap();
    for Group { name, rows } in &GROUPS {
        let lines = rows.iter().fold(String::new(), |mut text, (request, look, _)| {
            writeln!(text, "{request}\t{look}").unwrap();
            text
        });
        fs::write(groups.join(name), lines).unwrap();
    }
    let refused = REFUSED.iter().fold(String::new(), |mut text, (name, requests, ..)| {
        writeln!(text, "{name}\t{requests}").unwrap();
        text
    });
    fs::write(groups.join("refused"), refused).unwrap();
}

/// Output of the command that reads a request's setting in a group, trimmed.
fn looked<'a>(machine: &'a Recorded, step: &str, request: &str) -> &'a str {
    let text = machine.fine(step);
    let (_, rest) =
        text.split_once(&format!("== {request}\n")).unwrap_or_else(|| panic!("{step}: {request}: {text}"));
    rest.split("\n== ").next().unwrap().trim()
}

#[test]
fn every_kind_of_setting_is_set_seen_by_others_and_undone() {
    udpath_lab::needs_root!();
    let machine = &*MACHINE;
    machine.fine("custom");
    for Group { name, rows } in &GROUPS {
        let applied = machine.fine(&format!("{name}-apply"));
        for (request, _, says) in *rows {
            let at = |when: &str| looked(machine, &format!("{name}-{when}"), request);
            assert_ne!(at("was"), *says, "{request} was so before");
            assert_eq!(at("is"), *says, "{request}");
            assert_eq!(at("back"), at("was"), "{request} undone");
            // An offload may have been requested by ethtool's name.
            let setting = request.split('=').next().unwrap();
            assert!(applied.contains(setting) || setting.contains(":feature/"), "{request}: {applied}");
        }
        machine.fine(&format!("{name}-undo"));
        same(machine, "before", &format!("{name}-restored"));
    }
}

#[test]
fn driver_refusals_give_a_sentence_and_leave_nothing() {
    udpath_lab::needs_root!();
    let machine = &*MACHINE;
    for (name, requests, code, part) in REFUSED {
        machine.refused(&format!("refused-{name}"), code, part, requests);
    }
    same(machine, "before", "refused");
}

/// All settings of two snapshots are identical, to the byte.
#[track_caller]
fn same(machine: &Recorded, before: &str, after: &str) {
    let [old, new] = [before, after].map(|step| settings(machine.fine(step)));
    assert_eq!(old.len(), new.len(), "{after} has not as many things as {before}");
    for (old, new) in old.iter().zip(&new) {
        let at = old.bytes().zip(new.bytes()).position(|(one, other)| one != other);
        let around = |line: &str, at: usize| -> String {
            line.chars()
                .take(60)
                .chain(" ... ".chars())
                .chain(line.chars().skip(at.saturating_sub(60)).take(120))
                .collect()
        };
        let at = at.unwrap_or(old.len().min(new.len()));
        assert!(old == new, "{after} is not as {before}:\n{}\n{}", around(old, at), around(new, at));
    }
}

/// The settings of a snapshot, one line of JSON for each interface, IRQ and so on: without counters, values that
/// change spontaneously, and numbers that the kernel reassigns.
fn settings(snapshot: &str) -> Vec<String> {
    let Snapshot { interfaces, steering, irqs, sysctls, netfilter, limits, .. } =
        serde_json::from_str(snapshot).unwrap();
    let mut lines = vec![serde_json::to_string(&(steering, sysctls, netfilter, limits)).unwrap()];
    for interface in interfaces {
        lines.push(serde_json::to_string(&still(interface)).unwrap());
    }
    for mut irq in irqs {
        irq.counts.clear();
        // It changes with the next interrupt.
        irq.effective = None;
        lines.push(serde_json::to_string(&irq).unwrap());
    }
    lines
}

/// An interface without counters, and without the ids of its NAPIs and their threads.
fn still(mut interface: Interface) -> Interface {
    interface.statistics.clear();
    interface.driver_counters = None;
    // After a reset the link needs time to come up.
    interface.link = LinkState {
        up: interface.link.up,
        tx_queue_len: interface.link.tx_queue_len,
        ..LinkState::default()
    };
    for queue in &mut interface.rx {
        (queue.counters, queue.napi) = (None, None);
    }
    for queue in &mut interface.tx {
        (queue.counters, queue.napi) = (None, None);
    }
    for napi in interface.napis.iter_mut().flat_map(|napis| &mut napis.value) {
        (napi.id, napi.thread) = (0, None);
    }
    for qdisc in interface.qdiscs.iter_mut().flat_map(|qdiscs| &mut qdiscs.value) {
        let Qdisc { interface, kind, handle, parent, .. } = std::mem::take(qdisc);
        *qdisc = Qdisc { interface, kind, handle, parent, ..Qdisc::default() };
    }
    interface
}

/// It reverts without a terminal, and with a link reset among the changes.
#[test]
fn unconfirmed_changes_revert_when_the_terminal_closes() {
    udpath_lab::needs_root!();
    let machine = &*MACHINE;
    let said = machine.fine("unconfirmed");
    assert!(said.contains("reverts in 3 s unless confirmed with `udpath confirm"), "{said}");
    assert!(machine.fine("unconfirmed-is").contains("Combined:\t8"), "{}", machine.fine("unconfirmed-is"));
    same(machine, "before", "unconfirmed-reverted");
}

/// A partial apply blocks further applies; one undo restores everything.
#[test]
fn an_apply_that_is_killed_on_the_way_is_undone_to_the_byte() {
    udpath_lab::needs_root!();
    let machine = &*MACHINE;
    assert_eq!(machine.fine("killed"), "137\n");
    let seen = machine.fine("killed-is");
    assert!(seen.contains("Combined:\t8"), "{seen}");
    machine.refused(
        "killed-again",
        3,
        "did not finish: some of its changes may be in effect; run `udpath undo",
        "apply",
    );
    machine.fine("killed-undo");
    same(machine, "before", "killed-restored");
}

/// By default, it moves the IRQ; while the IRQ is banned, it leaves it alone, even when it places all IRQs again and
/// over many rounds; undo lifts the ban, and it moves the IRQ again.
#[test]
fn a_running_irqbalance_is_detected_banned_and_released() {
    udpath_lab::needs_root!();
    let machine = &*MACHINE;
    let before: Snapshot = serde_json::from_str(machine.fine("balanced")).unwrap();
    let actor = before.actors.list.iter().find(|actor| actor.name == "irqbalance").unwrap();
    assert!(actor.pid.is_some(), "{actor:?}");
    let moves = |step: &str| {
        let (from, to) = machine.fine(step).trim().split_once(" -> ").unwrap();
        assert_ne!(from, to, "{step}");
    };
    moves("balanced-moves");
    let plan = machine.fine("balanced-plan");
    assert!(plan.contains("irqbalance:ban  none -> "), "{plan}");
    let applied = machine.fine("balanced-apply");
    assert!(applied.contains("irqbalance:ban  none -> "), "{applied}");
    assert_eq!(machine.fine("balanced-stays"), "17\n");
    machine.fine("balanced-undo");
    // Another plan would have to notify it again: nothing is banned.
    let again = machine.fine("balanced-let-go");
    assert_eq!(again.lines().next(), plan.lines().next());
    moves("balanced-moves-again");
}
