//! Two published experiments on a machine of the published shape, 20 CPUs in two nodes and 16 queues: their settings
//! are applied, and packets are counted by CPU, queue and socket. Timings of an emulated machine mean nothing and are
//! not shown.
//!
//! ```text
//!  machine (experiment.sh)                          this test
//!  settings, server, step NAME-ready         ─────▸ a few packets from each flow, so that IRQs have moved
//!  step NAME-before: counts by CPU and queue ◂──── NAME-moved
//!                                            ─────▸ the packets
//!  step NAME-after, NAME-served              ◂──── NAME-sent
//! ```
//! The counts are tables of the experiment `emulated`, written to `out/experiments-emulated.json` by `make soak`.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use udpath_experiment::description::Source;
use udpath_experiment::outcome::{ExperimentResult, Outcome, SCHEMA, Table};
use udpath_host::Snapshot;
use udpath_lab::Machine;
use udpath_rig::{Vm, campaign};

use crate::Recorded;
use crate::machine::EXPERIMENT;

/// Port of the server.
const PORT: u16 = 7400;
/// Flows. The kernel picks their ports and the hash key, so chance spreads them. A CPU that shares a queue with another
/// gets 24 on average, and fewer than four once in ten million rounds; with 256 flows it got one or none once in three
/// hundred.
const FLOWS: usize = 768;
/// Packets of each flow in a round, and before it.
const PACKETS: usize = 4;
const MOVED: usize = 2;
/// CPUs, and CPUs of the first node.
const CPUS: usize = 20;
const NODE: usize = 10;
const QUEUES: usize = 16;
/// Packets on their way at a time: a queue's ring has 256 entries. Fewer: more waits; more: a ring overflows.
const BATCH: usize = 64;
/// How long an answer is waited for. Shorter: a busy machine gets more than it can take; longer: each loss costs so
/// much.
const ANSWER: Duration = Duration::from_secs(1);

/// A state of the machine.
pub(crate) struct Round {
    /// Prefix of its steps, and heading of its column.
    name: &'static str,
    /// What it is.
    what: &'static str,
}

/// In the order of the script.
pub(crate) const ROUNDS: [Round; 7] = [
    Round { name: "one-node", what: "one socket, all IRQs on node 0, as irqbalance had left them" },
    Round { name: "hints", what: "one socket, the IRQ of queue N on CPU N" },
    Round {
        name: "spread",
        what: "the same, and RPS from queues 6-9 to CPUs 6-9 and 16-19 with the published masks",
    },
    Round { name: "reuseport", what: "the same, with a socket per worker chosen by flow hash" },
    Round { name: "by-cpu", what: "the same, with a socket per worker chosen by CPU, workers pinned" },
    Round {
        name: "one-queue",
        what: "an RSS table of one queue, as a card with one queue; a socket per worker",
    },
    Round { name: "one-queue-rps", what: "the same, with RPS over all CPUs" },
];

impl Round {
    /// The host's part. `told` waits for a step of the machine; it returns false if the machine has exited instead.
    pub(crate) fn take_part(&self, folder: &Path, host: &Machine, told: impl Fn(&str) -> bool) {
        let answer = |what: &str| fs::write(folder.join(format!("{}-{what}", self.name)), "").unwrap();
        if told("ready") {
            let bind = |_| UdpSocket::bind(("10.0.0.1", 0)).unwrap();
            let sockets: Vec<UdpSocket> = host.run(|| (0..FLOWS).map(bind).collect()).unwrap();
            send(&sockets, MOVED);
            answer("moved");
            if told("before") {
                send(&sockets, PACKETS);
                answer("sent");
            }
        }
    }

    /// Name of this round's steps.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }
}

/// Sends a packet from every flow, so many times, as fast as the machine answers: emulated CPUs that interrupt each
/// other for each packet are slow, and slower beside other programs.
fn send(sockets: &[UdpSocket], packets: usize) {
    sockets.iter().for_each(|socket| socket.set_read_timeout(Some(ANSWER)).unwrap());
    for batch in (0..packets).flat_map(|_| sockets.chunks(BATCH)) {
        for socket in batch {
            // The machine drops what its rings have no room for; the counts show it.
            let _ = socket.send_to(b"counted, not timed", (Vm::address(0), PORT));
        }
        // After one that is lost, or late, the rest has had its time.
        let _ = batch.iter().try_for_each(|socket| socket.recv(&mut [0; 32]).map(drop));
    }
}

/// What one round counted.
struct Counts {
    /// By CPU: packets that the protocols saw, interrupts by which RPS woke it, NET_RX softirqs, function-call
    /// interrupts.
    packets: Vec<i64>,
    rps: Vec<i64>,
    softirqs: Vec<i64>,
    calls: Vec<i64>,
    /// By queue.
    queues: Vec<i64>,
    /// Datagrams by worker; of a shared socket, by the worker that read them.
    workers: Vec<i64>,
    sockets: usize,
    /// Datagrams that reached workers.
    served: i64,
}

impl Counts {
    fn of(machine: &Recorded, round: &Round) -> Self {
        let at = |when: &str| -> Snapshot {
            serde_json::from_str(machine.fine(&format!("{}-{when}", round.name))).unwrap()
        };
        let (before, after) = (at("before"), at("after"));
        let both = [&before, &after];
        let summary: Value = serde_json::from_str(machine.fine(&format!("{}-served", round.name))).unwrap();
        let workers: Vec<i64> = summary["workers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|worker| worker["received"].as_i64().unwrap())
            .collect();
        Self {
            packets: grown_by_cpu(packets, both),
            rps: grown_by_cpu(woken, both),
            softirqs: grown_by_cpu(softirqs, both),
            calls: grown_by_cpu(calls, both),
            queues: queues(&after)
                .iter()
                .zip(queues(&before))
                .map(|(after, before)| after - before)
                .collect(),
            sockets: summary["sockets"].as_array().unwrap().len(),
            served: workers.iter().sum(),
            workers,
        }
    }

    fn on_node(counts: &[i64], node: usize) -> i64 {
        counts.iter().skip(node * NODE).take(NODE).sum()
    }
}

/// Growth of a count of each CPU.
fn grown_by_cpu(of: impl Fn(&Snapshot, u32) -> u32, [before, after]: [&Snapshot; 2]) -> Vec<i64> {
    // 32 bits wide in the kernel.
    (0..CPUS as u32).map(|cpu| i64::from(of(after, cpu).wrapping_sub(of(before, cpu)))).collect()
}

fn packets(snapshot: &Snapshot, cpu: u32) -> u32 {
    snapshot.softnet.cpus[&cpu].processed
}

fn woken(snapshot: &Snapshot, cpu: u32) -> u32 {
    snapshot.softnet.cpus[&cpu].received_rps.unwrap()
}

fn softirqs(snapshot: &Snapshot, cpu: u32) -> u32 {
    snapshot.softirqs.iter().find(|softirq| softirq.name == "NET_RX").unwrap().counts[&cpu]
}

fn calls(snapshot: &Snapshot, cpu: u32) -> u32 {
    snapshot.processor_interrupts.iter().find(|interrupt| interrupt.name == "CAL").unwrap().counts[&cpu]
}

/// Packets of each receive queue of the card.
fn queues(snapshot: &Snapshot) -> Vec<i64> {
    let card = snapshot.interfaces.iter().find(|interface| interface.name == "eth0").unwrap();
    card.rx.iter().map(|queue| queue.counters.as_ref().unwrap().value["packets"] as i64).collect()
}

fn all(machine: &Recorded) -> BTreeMap<&'static str, Counts> {
    ROUNDS.iter().map(|round| (round.name, Counts::of(machine, round))).collect()
}

#[test]
#[ignore = "in make soak: an emulated machine of its own, for settings that machine:: applies in make test"]
fn experiments_are_counted_where_their_settings_send_packets() {
    udpath_lab::needs_root!();
    let rounds = all(&EXPERIMENT);
    let sent = (FLOWS * PACKETS) as i64;
    for (name, counts) in &rounds {
        assert!(counts.served > sent / 2, "{name}: {} of {sent} reached the server", counts.served);
        assert_eq!(
            counts.sockets,
            if ["one-node", "hints", "spread"].contains(name) { 1 } else { CPUS },
            "{name}"
        );
    }
    let used = |counts: &[i64]| counts.iter().filter(|count| **count > sent / 200).count();
    // All interrupts on one node: the other one's CPUs see no packet. With one IRQ for each CPU, 16 of 20 see some.
    let one_node = &rounds["one-node"];
    assert!(Counts::on_node(&one_node.packets, 1) < sent / 20, "{:?}", one_node.packets);
    assert_eq!(used(&rounds["hints"].packets[..QUEUES]), QUEUES, "{:?}", rounds["hints"].packets);
    assert!(rounds["hints"].packets[QUEUES..].iter().sum::<i64>() < sent / 20);
    // The published masks bring the last four CPUs in, by interrupts that RPS sends.
    for name in ["spread", "reuseport", "by-cpu"] {
        let counts = &rounds[name];
        assert_eq!(used(&counts.packets), CPUS, "{name}: {:?}", counts.packets);
        assert!(counts.rps[QUEUES..].iter().all(|woken| *woken > 0), "{name}: {:?}", counts.rps);
    }
    assert!(rounds["hints"].rps.iter().sum::<i64>() < rounds["spread"].rps[QUEUES..].iter().sum::<i64>());
    // A socket by CPU gets what its CPU's softirq processed.
    let by_cpu = &rounds["by-cpu"];
    for cpu in 0..CPUS {
        let (processed, read) = (by_cpu.packets[cpu], by_cpu.workers[cpu]);
        // The worker's count has the packets before the round too.
        assert!(
            read >= processed / 2 && read <= 2 * processed + sent / 10,
            "CPU {cpu}: {processed} and {read}"
        );
    }
    // One queue, one CPU; RPS brings in all.
    assert_eq!(used(&rounds["one-queue"].packets), 1, "{:?}", rounds["one-queue"].packets);
    assert!(used(&rounds["one-queue-rps"].packets) >= CPUS - 2, "{:?}", rounds["one-queue-rps"].packets);
    write(&EXPERIMENT, &rounds);
}

/// The result that joins the committed one, in target/tmp; in a campaign also where `make experiment-docs` finds it.
fn write(machine: &Recorded, rounds: &BTreeMap<&'static str, Counts>) {
    let columns = |first: &str| -> Vec<String> {
        std::iter::once(first).chain(ROUNDS.iter().map(|round| round.name)).map(str::to_owned).collect()
    };
    let by = |what: &str, count: usize, title: &str, of: fn(&Counts) -> &Vec<i64>| {
        let figure =
            |round: &Round, at: usize| of(&rounds[round.name]).get(at).map_or("–".to_owned(), i64::to_string);
        let row = |at: usize| {
            std::iter::once(format!("{what} {at}")).chain(ROUNDS.iter().map(move |round| figure(round, at)))
        };
        let rows = (0..count).map(|at| row(at).collect()).collect();
        Table { title: title.to_owned(), columns: columns(what), rows }
    };
    let nodes = |title: &str, of: fn(&Counts) -> &Vec<i64>| {
        let row = |node: usize| {
            let figures =
                ROUNDS.iter().map(|round| Counts::on_node(of(&rounds[round.name]), node).to_string());
            std::iter::once(format!("node {node}")).chain(figures).collect()
        };
        Table { title: title.to_owned(), columns: columns("node"), rows: (0..2).map(row).collect() }
    };
    let states = ROUNDS.iter().map(|round| vec![round.name.to_owned(), round.what.to_owned()]).collect();
    let snapshot: Snapshot = serde_json::from_str(machine.fine("hints-before")).unwrap();
    let outcome = Outcome {
        name: "emulated".to_owned(),
        title: "Twenty CPUs, two nodes, sixteen queues: where each packet goes".to_owned(),
        question: "Which CPUs, queues and sockets do the settings of the first two experiments use on a machine of the published size?"
            .to_owned(),
        topology: format!(
            "An emulated machine with 20 CPUs in two nodes (CPUs 0-9 and 10-19) and a card with 16 queues and an RSS table, as in the ladder's \
             document. The settings of both documents are applied to a server with 20 workers, and {FLOWS} flows send {PACKETS} packets each. \
             Everything is counted and nothing is timed: an emulated CPU's speed means nothing."
        ),
        source: Source {
            title: "Boost UDP Transaction Performance; rps: Receive Packet Steering".to_owned(),
            by: "Toshiaki Makita, 2016; Tom Herbert, 2010".to_owned(),
            machine: "20 cores in two nodes, Intel 82599ES with an RSS table of 16 queues; cards with one queue".to_owned(),
        },
        seconds: 0.0,
        cases: Vec::new(),
        comparisons: Vec::new(),
        sweeps: Vec::new(),
        tables: vec![
            Table { title: "States of the machine".to_owned(), columns: ["state", "what"].map(str::to_owned).into(), rows: states },
            nodes("Packets that protocols processed, by node", |counts| &counts.packets),
            by("CPU", CPUS, "Packets that protocols processed, by CPU", |counts| &counts.packets),
            by("CPU", CPUS, "Interrupts by which RPS woke a CPU", |counts| &counts.rps),
            by("CPU", CPUS, "Function-call interrupts, by the CPU that got them", |counts| &counts.calls),
            by("CPU", CPUS, "NET_RX softirqs, by CPU", |counts| &counts.softirqs),
            by("queue", QUEUES, "Packets by receive queue", |counts| &counts.queues),
            by("worker", CPUS, "Datagrams by worker, with those sent before the count", |counts| &counts.workers),
        ],
        notes: vec![
            "one-node, hints and spread have one socket, which all workers read; the others have a socket per worker.".to_owned(),
            format!("Counted under Linux {}, with a virtio-net device.", snapshot.kernel.release),
        ],
    };
    let mut facts =
        udpath_advise::machine_facts(QUEUES as u32, "virtio-net of an emulated machine".to_owned());
    (facts.cpus, facts.kernel) = (CPUS as u32, snapshot.kernel.release);
    facts.hostname.clear();
    let result = ExperimentResult {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: snapshot.taken / 1000,
        seconds: 0.0,
        machine: facts,
        experiments: vec![outcome],
        command: None,
    };
    let text = serde_json::to_string(&result).unwrap();
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("experiments-emulated.json"), &text).unwrap();
    if campaign::rounds(0, 1) > 0 {
        let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../out");
        fs::create_dir_all(&out).unwrap();
        fs::write(out.join("experiments-emulated.json"), text).unwrap();
    }
}
