use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use udpath_steer::Flow;
use udpath_steer::flow_limit::FlowLimit;
use udpath_steer::predict::{Path, Predictor, Tables, Wanted};
use udpath_steer::rfs::{FlowTable, SockFlowTable};
use udpath_steer::rps::{Backlogs, RpsMap, SteerDecision, steer};

use crate::presentable;

/// The tables of a machine as JSON: a valid document round-trips, and a prediction from it never gives a queue or a
/// socket that does not exist.
pub fn tables_json(data: &[u8]) {
    // serde_json's message may quote the input, so the program that shows it sanitises it.
    let Ok(tables) = serde_json::from_slice::<Tables>(data) else { return };
    let again = serde_json::to_vec(&tables).expect("tables are JSON");
    assert_eq!(serde_json::from_slice::<Tables>(&again).expect("own JSON is read again"), tables);
    let predictor = match Predictor::new(&tables) {
        Ok(predictor) => predictor,
        Err(error) => return presentable(&error, data.len()),
    };
    let sockets = tables.sockets.as_ref().map_or(0, |sockets| sockets.cpus.len());
    for flow in flows() {
        let path = predictor.decide(&flow);
        serde_json::to_vec(&path).expect("a path is JSON");
        for step in steps(&path) {
            presentable(&step.why, 0);
        }
        let queues = tables.queues.unwrap_or(u32::MAX);
        assert!(path.queue.value.is_none_or(|queue| queue < queues), "{path:?} of {queues} queues");
        assert!(path.socket.value.is_none_or(|at| (at as usize) < sockets), "{path:?} of {sockets} sockets");
        let online = |cpu| tables.online.as_ref().is_none_or(|online| online.contains(cpu));
        let moved = path.rps.value != path.cpu.value;
        assert!(!moved || path.rps.value.is_none_or(online), "{path:?}: that CPU is offline");
        let wanted = Wanted { queue: path.queue.value, cpu: path.rps.value, socket: path.socket.value };
        if wanted == Wanted::default() {
            continue;
        }
        // The prediction for this port is found again.
        let port = flow.source_port;
        match predictor.source_ports(&flow, &wanted, port..=port, 1) {
            Ok(found) => assert_eq!((found.ports, found.tried), (vec![port], 1)),
            Err(error) => panic!("{error}: {path:?}"),
        }
    }
}

fn steps(path: &Path) -> [udpath_steer::predict::Step; 6] {
    [path.hash, path.queue, path.irq, path.cpu, path.rps, path.socket]
}

fn flows() -> [Flow; 2] {
    let v4 = |last, port| SocketAddr::new(Ipv4Addr::new(192, 0, 2, last).into(), port);
    let v6 = |last, port| SocketAddr::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into(), port);
    [(v4(7, 4000), v4(1, 53)), (v6(7, 4000), v6(1, 53))]
        .map(|(source, destination)| Flow::udp(source, destination).expect("one family"))
}

/// Backlogs of a machine as plain queues of (flow, number of the packet in the flow).
struct Machine {
    backlogs: Vec<VecDeque<(u32, u32)>>,
    heads: Vec<u32>,
    tails: Vec<u32>,
}

impl Backlogs for Machine {
    fn head(&self, cpu: u16) -> u32 {
        self.heads[usize::from(cpu)]
    }

    fn is_online(&self, cpu: u16) -> bool {
        usize::from(cpu) < self.backlogs.len()
    }
}

/// The steering tables under a sequence of events: 4 bytes of sizes, then 3 bytes per event. With RFS, packets of a
/// flow are never reordered, whatever the sizes and whichever flows share an entry; no decision gives a CPU that does
/// not exist; flow limit drops nothing from a backlog that is less than half full.
pub fn steering(data: &[u8]) {
    /// Room in a backlog.
    const BOUND: usize = 16;
    let Some((&[sock, flow, cpus, start], events)) = data.split_first_chunk::<4>() else { return };
    let cpus = u16::from(cpus % 8) + 1;
    let wanted = SockFlowTable::new(1 << (sock % 9), cpus);
    let mut present = FlowTable::new(1 << (flow % 9));
    let map = RpsMap::new(&(0..u32::from(cpus)).collect(), None);
    // For some inputs, close to the wrap.
    let start = u32::from(start).wrapping_neg();
    let len = usize::from(cpus);
    let mut machine =
        Machine { backlogs: vec![VecDeque::new(); len], heads: vec![start; len], tails: vec![start; len] };
    let mut limits: Vec<FlowLimit> = (0..len).map(|_| FlowLimit::new(u32::from(flow))).collect();
    let (mut sent, mut taken) = (BTreeMap::<u32, u32>::new(), BTreeMap::<u32, u32>::new());
    for event in events.chunks_exact(3).take(4096) {
        let (hash, cpu) = (u32::from(event[1]).wrapping_mul(0x0101_4001), u16::from(event[2]) % cpus);
        let at = usize::from(cpu);
        match event[0] % 4 {
            0 => wanted.record(hash, cpu),
            1 => {
                if let Some((flow, number)) = machine.backlogs[at].pop_front() {
                    machine.heads[at] = machine.heads[at].wrapping_add(1);
                    let before = taken.insert(flow, number);
                    assert!(before.is_none_or(|before| before < number), "{flow:#x} overtook itself");
                }
            }
            _ => match steer(hash, Some((&mut present, &wanted)), map.as_ref(), &machine) {
                SteerDecision::Rfs { cpu, slot } => {
                    let at = usize::from(cpu);
                    let backlog = machine.backlogs[at].len();
                    if limits[at].drops(hash, backlog, BOUND) {
                        assert!(backlog >= BOUND / 2, "dropped at {backlog}");
                        continue;
                    }
                    let number = sent.entry(hash).and_modify(|number| *number += 1).or_insert(0);
                    machine.backlogs[at].push_back((hash, *number));
                    machine.tails[at] = machine.tails[at].wrapping_add(1);
                    present.queued(slot, machine.tails[at]);
                }
                decision => assert!(decision.cpu().is_none_or(|cpu| machine.is_online(cpu)), "{decision:?}"),
            },
        }
    }
}
