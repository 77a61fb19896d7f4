//! The kernel's rules against second implementations that are too simple to be wrong.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use udpath_steer::CpuSet;
use udpath_steer::flow_limit::FlowLimit;
use udpath_steer::hash::{fold, reciprocal_scale};
use udpath_steer::reuseport::Group;
use udpath_steer::rfs::{FlowTable, SockFlowTable};
use udpath_steer::rps::{Backlogs, RpsMap, SteerDecision, steer};
use udpath_steer::rss::IndirectionTable;
use udpath_steer::xps::{Choice, Map, Xps};

/// Backlogs as queues of (flow, number in the flow).
#[derive(Default)]
struct SimulatedCpus {
    queues: Vec<VecDeque<(u32, u32)>>,
    heads: Vec<u32>,
    tails: Vec<u32>,
}

impl SimulatedCpus {
    fn new(cpus: usize, start: u32) -> Self {
        Self { queues: vec![VecDeque::new(); cpus], heads: vec![start; cpus], tails: vec![start; cpus] }
    }
}

impl Backlogs for SimulatedCpus {
    fn head(&self, cpu: u16) -> u32 {
        self.heads[usize::from(cpu)]
    }

    fn is_online(&self, cpu: u16) -> bool {
        usize::from(cpu) < self.queues.len()
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// A packet of a flow arrives.
    Packet(u32),
    /// A CPU takes a packet off its backlog.
    Take(usize),
    /// The reader of a flow runs on a CPU.
    Read(u32, u16),
}

const CPUS: u16 = 3;

fn event() -> impl Strategy<Value = Event> {
    // Few flows in few entries: they meet.
    let flow = (0..12_u32).prop_map(|flow| 0x1_0000 * flow + flow % 5 + 1);
    prop_oneof![
        3 => flow.clone().prop_map(Event::Packet),
        2 => (0..usize::from(CPUS)).prop_map(Event::Take),
        1 => (flow, 0..CPUS).prop_map(|(flow, cpu)| Event::Read(flow, cpu)),
    ]
}

proptest! {
    /// Packets of a flow are taken in the order in which they came, whatever readers do; with RFS on for every packet
    /// of the flow. (Only the flow's first packets may go by RPS, before anybody reads it.)
    #[test]
    fn rfs_keeps_the_order_of_a_flow(events in prop::collection::vec(event(), 1..400), start in any::<u32>()) {
        // One entry per flow: the promise of the rule is for flows that do not share one.
        let (wanted, mut flows) = (SockFlowTable::new(1 << 12, CPUS), FlowTable::new(1 << 12));
        let mut cpus = SimulatedCpus::new(CPUS.into(), start);
        let mut sent: BTreeMap<u32, u32> = BTreeMap::new();
        let mut taken: BTreeMap<u32, u32> = BTreeMap::new();
        for event in events {
            match event {
                Event::Read(flow, cpu) => wanted.record(distinct(flow), cpu),
                Event::Take(cpu) => {
                    if let Some((flow, number)) = cpus.queues[cpu].pop_front() {
                        cpus.heads[cpu] = cpus.heads[cpu].wrapping_add(1);
                        let before = taken.insert(flow, number);
                        prop_assert!(before.is_none_or(|before| before < number), "flow {flow:#x} overtook itself");
                    }
                }
                Event::Packet(flow) => {
                    let decision = steer(distinct(flow), Some((&mut flows, &wanted)), None, &cpus);
                    let SteerDecision::Rfs { cpu, slot } = decision else {
                        prop_assert_eq!(decision, SteerDecision::Stay);
                        continue;
                    };
                    let number = sent.entry(flow).and_modify(|number| *number += 1).or_insert(0);
                    cpus.queues[usize::from(cpu)].push_back((flow, *number));
                    let tail = &mut cpus.tails[usize::from(cpu)];
                    *tail = tail.wrapping_add(1);
                    flows.queued(slot, *tail);
                }
            }
        }
    }

    /// Once a flow's packets are gone, the next one goes to the reader's CPU.
    #[test]
    fn rfs_follows_the_reader(hash in 1..=u32::MAX, from in 0..CPUS, to in 0..CPUS, packets in 0..5_u32) {
        let (wanted, mut flows) = (SockFlowTable::new(64, CPUS), FlowTable::new(64));
        let mut cpus = SimulatedCpus::new(CPUS.into(), 0);
        wanted.record(hash, from);
        for _ in 0..packets {
            let (cpu, slot) = flows.steer(hash, &wanted, &cpus).unwrap();
            prop_assert_eq!(cpu, from);
            cpus.tails[usize::from(cpu)] += 1;
            flows.queued(slot, cpus.tails[usize::from(cpu)]);
        }
        wanted.record(hash, to);
        let stays = flows.steer(hash, &wanted, &cpus).unwrap().0;
        prop_assert_eq!(stays, if packets > 0 { from } else { to });
        cpus.heads = cpus.tails.clone();
        prop_assert_eq!(flows.steer(hash, &wanted, &cpus).unwrap().0, to);
    }

    #[test]
    fn flow_limit_is_a_count_over_the_last_packets(
        packets in prop::collection::vec((0..6_u32, 0..20_usize), 0..600), buckets in 0..9_u32
    ) {
        let mut limit = FlowLimit::new(buckets);
        let bits = buckets.max(1).next_power_of_two().trailing_zeros();
        // As in the kernel the history begins as packets of bucket 0 that were never counted.
        let mut history: VecDeque<u32> = vec![0; FlowLimit::HISTORY].into();
        let (mut counts, mut dropped) = (BTreeMap::<u32, usize>::new(), 0);
        for (hash, backlog) in packets {
            let mut expected = false;
            if backlog >= 5 {
                let (new, old) = (fold(hash, bits), history.pop_front().unwrap());
                history.push_back(new);
                counts.entry(old).and_modify(|count| *count = count.saturating_sub(1));
                let count = counts.entry(new).or_default();
                *count += 1;
                expected = *count > FlowLimit::HISTORY / 2;
            }
            prop_assert_eq!(limit.drops(hash, backlog, 10), expected);
            dropped += u64::from(expected);
        }
        prop_assert_eq!(limit.dropped(), dropped);
    }

    #[test]
    fn weights_are_what_ethtool_makes_of_them(bits in 0..9_u32, weights in prop::collection::vec(0..40_u32, 1..12)) {
        let size = 1_usize << bits;
        let sum: u32 = weights.iter().sum();
        let table = IndirectionTable::weight(size, &weights);
        if sum == 0 || sum as usize > size {
            prop_assert!(table.is_err());
            return Ok(());
        }
        // ethtool's loop, as it stands.
        let (mut queue, mut partial, mut expected) = (-1_i32, 0, Vec::new());
        for entry in 0..size as u32 {
            while entry >= size as u32 * partial / sum {
                queue += 1;
                partial += weights[queue as usize];
            }
            expected.push(queue as u32);
        }
        let table = table.unwrap();
        prop_assert_eq!(table.entries(), &expected);
        prop_assert_eq!(table.check(weights.len() as u32), Ok(()));
    }

    #[test]
    fn every_hash_has_the_queue_of_its_low_bits(bits in 0..12_u32, queues in 1..200_u32, hash in any::<u32>()) {
        let table = IndirectionTable::spread(1 << bits, queues).unwrap();
        prop_assert_eq!(table.queue(hash), hash % (1 << bits) % queues);
        let json = serde_json::to_string(&table).unwrap();
        prop_assert_eq!(serde_json::from_str::<IndirectionTable>(&json).unwrap(), table);
    }

    #[test]
    fn rps_takes_an_online_cpu_of_the_map(map in cpus(), online in cpus(), hash in 1..u32::MAX) {
        let usable = map.intersection(&online);
        match RpsMap::new(&map, Some(&online)) {
            None => prop_assert!(usable.is_empty()),
            Some(map) => {
                let nth = (u64::from(hash) * usable.len() as u64) >> 32;
                prop_assert_eq!(Some(map.cpu(hash).into()), usable.iter().nth(nth as usize));
            }
        }
    }

    #[test]
    fn places_are_even(len in 1..100_u32, hash in any::<u32>(), bits in 0..=32_u32) {
        prop_assert!(reciprocal_scale(hash, len) < len);
        prop_assert!(u64::from(fold(hash, bits)) < 1 << bits);
        // 50 hashes for each place, at even distances.
        let hashes = (0..u64::from(len) * 50).map(|at| ((at << 32) / (u64::from(len) * 50)) as u32);
        let first = hashes.filter(|hash| reciprocal_scale(*hash, len) == 0).count();
        prop_assert!((49..=51).contains(&first), "{first}");
    }

    /// The group against a plain list.
    #[test]
    fn a_group_is_a_list_with_holes_filled_from_the_end(
        steps in prop::collection::vec((any::<bool>(), 0..8_u32, prop::option::of(0..4_u32)), 0..40),
        hash in any::<u32>(), cpu in 0..4_u32, index in 0..10_u32
    ) {
        let mut group = Group::new();
        let mut list: Vec<(u32, Option<u32>)> = Vec::new();
        for (bind, name, cpu) in steps {
            let there = list.iter().position(|(other, _)| *other == name);
            match (bind, there) {
                (true, None) => {
                    prop_assert_eq!(group.bind(name, cpu), list.len());
                    list.push((name, cpu));
                }
                (false, Some(at)) => {
                    prop_assert!(group.close(&name));
                    let last = list.pop().unwrap();
                    if at < list.len() {
                        list[at] = last;
                    }
                }
                (false, None) => prop_assert!(!group.close(&name)),
                (true, Some(_)) => {}
            }
        }
        prop_assert_eq!((group.len(), group.is_empty()), (list.len(), list.is_empty()));
        let own = (!list.is_empty()).then(|| reciprocal_scale(hash, list.len() as u32) as usize);
        prop_assert_eq!(group.by_hash(hash), own);
        let mut named = own;
        if let Some(own) = own {
            let round = (0..list.len()).map(|turn| (own + turn) % list.len());
            named = round.into_iter().find(|at| list[*at].1 == Some(cpu)).or(Some(own));
        }
        prop_assert_eq!(group.by_cpu(hash, cpu), named);
        prop_assert_eq!(group.by_index(hash, index), if (index as usize) < list.len() { Some(index as usize) } else { own });
        for (at, (name, _)) in list.iter().enumerate() {
            prop_assert_eq!(group.get(at), Some(name));
        }
    }

    /// XPS against a search through the files.
    #[test]
    fn xps_takes_a_queue_whose_file_names_the_cpu(
        files in prop::collection::vec(cpus(), 1..6), rxqs in prop::collection::vec(cpus(), 1..6),
        real in 1..6_u32, cpu in 0..10_u32, rx in prop::option::of(0..10_u32), hash in any::<u32>()
    ) {
        let xps = Xps { real_queues: real, rxqs: Some(Map::new(&rxqs)), cpus: Some(Map::new(&files)) };
        let choose = |files: &[CpuSet], number| {
            let queues: Vec<u32> = (0..).zip(files).filter(|(_, file)| file.contains(number)).map(|(q, _)| q).collect();
            let place = reciprocal_scale(hash, queues.len() as u32) as usize;
            queues.get(place).copied().filter(|queue| *queue < real)
        };
        let expected = match (rx.and_then(|rx| choose(&rxqs, rx)), choose(&files, cpu)) {
            (Some(queue), _) => Choice::Rxqs(queue),
            (None, Some(queue)) => Choice::Cpus(queue),
            (None, None) => Choice::Hash(reciprocal_scale(hash, real)),
        };
        prop_assert_eq!(xps.choose(cpu, rx, hash), expected);
        prop_assert!(expected.queue() < real);
    }
}

fn cpus() -> impl Strategy<Value = CpuSet> {
    prop::collection::btree_set(0..10_u32, 0..8).prop_map(|cpus| cpus.into_iter().collect())
}

/// A hash for each flow of [`event`], no two in one entry of either table.
fn distinct(flow: u32) -> u32 {
    // Upper bits tell flows apart, lower bits are the entry.
    (flow >> 16) + 1 + (flow << 20)
}

#[test]
fn readers_on_many_threads_write_one_table() {
    let table = SockFlowTable::new(256, 4);
    std::thread::scope(|scope| {
        for cpu in 0..4_u16 {
            let table = &table;
            scope.spawn(move || {
                (1..10_000_u32).for_each(|hash| table.record(hash.wrapping_mul(0x9e37_79b9), cpu));
            });
        }
    });
    // Every entry is whole: it names a flow that was recorded there, and one of the CPUs.
    let found = (1..10_000_u32).filter_map(|hash| table.wanted(hash.wrapping_mul(0x9e37_79b9)));
    let cpus: Vec<u16> = found.collect();
    assert!(cpus.len() >= 200 && cpus.iter().all(|cpu| *cpu < 4), "{}", cpus.len());
}
