//! Real packets, aimed at queues with data read from the machine, counted there by queue and by CPU, and watched.
//!
//! ```text
//!  machine                        this test
//!  step NAME-rss: ethtool -x ───▸ predict --reverse QUEUE: source ports that lead to each queue
//!                           ◂──── NAME-moved: a few packets each, so that IRQs have moved
//!  step NAME-before: counters ──▸ the packets
//!       predict --verify watches
//!                           ◂──── NAME-sent
//!  steps NAME-after: counters, NAME-verified: what it saw of each
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use udpath_host::Snapshot;
use udpath_lab::Machine;
use udpath_rig::Run;
use udpath_rig::Vm;

use crate::{MACHINE, Recorded};

/// A port without a listener: only the queue that received a packet matters.
const PORT: u16 = 5300;
/// Allowed source ports. All of them: the hash is linear in the port's bits, and with only a few hundred consecutive
/// ports, one key in thirty leaves one of 16 queues without any.
const PORTS: &str = "1024-65535";
/// Packets sent to each queue in advance, so that its IRQ has moved.
const MOVED: usize = 10;
/// Source ports that share a queue's packets.
const FLOWS: usize = 4;
/// Packets of other origin, such as neighbour discovery, that a queue or CPU may receive during the exchange.
const OTHERS: i64 = 20;
/// CPUs of the machine.
const CPUS: u32 = 20;

/// Packets sent to some queues and counted.
pub(crate) struct Exchange {
    /// Prefix of its steps.
    pub(crate) name: &'static str,
    /// Target queues.
    queues: &'static [u32],
    /// Packets to each of them; many more than [`OTHERS`].
    packets: usize,
    /// The CPU that handles a queue's IRQ.
    cpu: fn(u32) -> u32,
}

/// In the order of the script.
pub(crate) const EXCHANGES: [Exchange; 3] = [
    // The IRQ of queue N is on CPU N, with 3 and 13 swapped. Aimed at both ends and some queues between.
    Exchange { name: "predicted", queues: &[0, 3, 9, 15], packets: 200, cpu: crossed },
    // Makita's server (LinuxCon Japan 2016): the RSS table covers too few queues, and all IRQs are on one node.
    Exchange {
        name: "found",
        queues: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        packets: 60,
        cpu: |queue| queue % 10,
    },
    // After the apply.
    Exchange {
        name: "better",
        queues: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        packets: 60,
        cpu: |queue| queue,
    },
];

fn crossed(queue: u32) -> u32 {
    match queue {
        3 => 13,
        13 => 3,
        other => other,
    }
}

impl Exchange {
    /// The host's part. `told` waits for a step of the machine; it returns false if the machine has exited instead.
    pub(crate) fn take_part(&self, folder: &Path, host: &Machine, told: impl Fn(&str) -> bool) {
        let answer = |what: &str| fs::write(folder.join(format!("{}-{what}", self.name)), "").unwrap();
        if told("rss") {
            let aimed = self.aim(folder, host);
            send(&aimed, MOVED);
            answer("moved");
            if told("before") {
                send(&aimed, self.packets);
                answer("sent");
            }
        }
    }

    /// For each queue, sockets on ports that `predict` maps to it.
    fn aim(&self, folder: &Path, host: &Machine) -> Vec<Vec<UdpSocket>> {
        let (key, table) =
            rss(&fs::read_to_string(folder.join(format!("steps/{}-rss.out", self.name))).unwrap());
        let file = folder.join("table.json");
        fs::write(&file, serde_json::to_string(&table).unwrap()).unwrap();
        let (queues, to) = (table.iter().max().unwrap() + 1, format!("{}:{PORT}", Vm::address(0)));
        let sockets = |queue: &u32| -> Vec<UdpSocket> {
            let (queue, queues, flows) = (queue.to_string(), queues.to_string(), FLOWS.to_string());
            let known =
                ["--key", &key, "--fields", "sdfn", "--table", file.to_str().unwrap(), "--queues", &queues];
            let asked = ["--reverse", &queue, "--ports", PORTS, "--count", &flows];
            let ended = Run::new(&[&["predict", "10.0.0.1", &to], &known[..], &asked[..]].concat()).finish();
            assert_eq!(ended.code(), Some(0), "{}{}", ended.out, ended.err);
            let ports = ended.out.lines().map(|line| line.parse::<u16>().unwrap());
            host.run(|| ports.map(|port| UdpSocket::bind(("10.0.0.1", port)).unwrap()).collect()).unwrap()
        };
        let aimed: Vec<Vec<UdpSocket>> = self.queues.iter().map(sockets).collect();
        assert!(aimed.iter().all(|sockets| sockets.len() == FLOWS));
        aimed
    }

    /// Each queue received its packets, each CPU those of the queues whose IRQs it handles, and the others none.
    fn came_as_aimed(&self, machine: &Recorded) {
        let [before, after] =
            ["before", "after"].map(|when| counters(machine, &format!("{}-{when}", self.name)));
        let grown = |name: &str| after[name] - before[name];
        let check = |what: String, aimed: i64| {
            let came = grown(&what);
            // A machine that waits for its host may lose some packets; none reaches another queue.
            assert!((aimed / 2..=aimed + OTHERS).contains(&came), "{}: {what}: {came} of {aimed}", self.name);
        };
        let packets = |queues: usize| (queues * self.packets) as i64;
        for queue in 0..16 {
            check(format!("queue {queue}"), packets(usize::from(self.queues.contains(&queue))));
        }
        for cpu in 0..CPUS {
            let queues = self.queues.iter().filter(|queue| (self.cpu)(**queue) == cpu).count();
            check(format!("CPU {cpu}"), packets(queues));
        }
        self.verified(machine);
    }

    /// Every packet took the path predicted on the machine in that state.
    fn verified(&self, machine: &Recorded) {
        let said: Value = serde_json::from_str(machine.fine(&format!("{}-verified", self.name))).unwrap();
        let verification = &said["verification"];
        let packets = verification["packets"].as_u64().unwrap();
        let sent = (self.queues.len() * self.packets) as u64;
        assert!((sent / 2..=sent).contains(&packets), "{packets} of {sent}: {verification}");
        assert_eq!(verification["flows"], self.queues.len() * FLOWS, "{verification}");
        for step in ["hash", "queue", "cpu"] {
            assert_eq!(verification[step]["right"], packets, "{step}: {verification}");
        }
        let places = said["spread"]["queue"]["places"].as_array().unwrap();
        let mut queues: Vec<u64> = places.iter().map(|place| place["place"].as_u64().unwrap()).collect();
        queues.sort_unstable();
        assert_eq!(queues, self.queues.iter().copied().map(u64::from).collect::<Vec<_>>(), "{said}");
    }
}

/// Sends `packets` to each queue, distributed over its sockets.
fn send(aimed: &[Vec<UdpSocket>], packets: usize) {
    for at in 0..packets {
        for sockets in aimed {
            // Refused: the ICMP answer to an earlier one, since nothing listens there.
            let _ = sockets[at % sockets.len()].send_to(b"which queue", (Vm::address(0), PORT));
        }
        // A queue's ring has 256 entries, and an emulated CPU is slow.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Packets by CPU, from the rows of softnet_stat, and by queue, as read by this program.
fn counters(machine: &Recorded, step: &str) -> BTreeMap<String, i64> {
    let text = machine.fine(step).trim_end();
    let (rows, snapshot) = text.rsplit_once('\n').unwrap();
    let row = |row: &str| u32::from_str_radix(row.split_whitespace().next().unwrap(), 16).unwrap();
    let cpus = rows.lines().enumerate().map(|(cpu, text)| (format!("CPU {cpu}"), i64::from(row(text))));
    let snapshot: Snapshot = serde_json::from_str(snapshot).unwrap();
    let interface = snapshot.interfaces.into_iter().find(|interface| interface.name == "eth0").unwrap();
    let queues = interface.rx.into_iter().map(|queue| {
        let packets = queue.counters.unwrap().value["packets"];
        (format!("queue {}", queue.id), i64::try_from(packets).unwrap())
    });
    cpus.chain(queues).collect()
}

/// Key and table from `ethtool -x`.
pub(crate) fn rss(text: &str) -> (String, Vec<u32>) {
    let entries = text.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    let entries = entries.filter_map(|line| Some(line.split_once(':')?.1)).flat_map(str::split_whitespace);
    let key = text.lines().skip_while(|line| *line != "RSS hash key:").nth(1).expect(text).to_owned();
    let table = entries.map_while(|entry| entry.parse().ok()).collect();
    (key, table)
}

/// The prediction is made here, from tables read there, and the packets are counted there.
#[test]
fn flows_reach_the_queues_that_were_predicted() {
    udpath_lab::needs_root!();
    let machine = &*MACHINE;
    assert!(machine.fine("fields").contains("L4 bytes 2 & 3"), "{}", machine.fine("fields"));
    let said: String = (0..16).map(|queue| format!("{queue} {}\n", crossed(queue))).collect();
    assert_eq!(machine.fine("affinity"), said);
    machine.fine("rxhash");
    EXCHANGES[0].came_as_aimed(machine);
}

/// The symptoms match a machine configured like that, and so do its packets; after the change, packets are spread.
#[test]
fn packets_are_spread_once_an_unspread_setup_is_fixed() {
    udpath_lab::needs_root!();
    let machine = &*MACHINE;
    for exchange in &EXCHANGES[1..] {
        exchange.came_as_aimed(machine);
    }
}
