use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::perf::{Layout, Record, records_as};
use crate::samples::Samples;
use crate::symbols::kernel::Kernel;

/// The id of a CPU's counter in the readings below.
fn id(cpu: u32, counter: Counter) -> u64 {
    100 * u64::from(cpu) + counter as u64
}

/// Three CPUs with cycles and instructions.
const CPUS: u32 = 3;
const BOTH: [Counter; 2] = [Counter::Cycles, Counter::Instructions];

pub(crate) fn counted() -> Counted {
    let counters = (0..CPUS).flat_map(|cpu| BOTH.map(|counter| (id(cpu, counter), counter)));
    Counted::new(counters, &[])
}

/// The content of a sample record with counters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    pub(crate) cpu: u32,
    /// The process; 0 is idle.
    pub(crate) pid: u32,
    /// A different chain is a different kind of work.
    pub(crate) work: u64,
    pub(crate) enabled: u64,
    pub(crate) running: u64,
    pub(crate) values: [u64; 2],
}

/// A record in the kernel's layout: type, misc and size, then ip, pid and tid, time, cpu and 0, period, [count,
/// enabled, running, count x (value, id)], chain length, chain.
pub(crate) fn record(said: &Said) -> Vec<u8> {
    const KERNEL: u64 = -128_i64 as u64;
    let mut words = vec![
        7,
        u64::from(said.pid) << 32 | u64::from(said.pid),
        5,
        said.cpu.into(),
        1000,
        2,
        said.enabled,
        said.running,
    ];
    for (counter, value) in BOTH.into_iter().zip(said.values) {
        words.extend([value, id(said.cpu, counter)]);
    }
    words.extend([2, KERNEL, 1 << 63 | said.work]);
    let size = u16::try_from(8 + 8 * words.len()).unwrap();
    let mut record = [&9_u32.to_ne_bytes()[..], &1_u16.to_ne_bytes(), &size.to_ne_bytes()].concat();
    record.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    record
}

/// An event of a ring.
enum Event {
    Said(Said),
    Lost(u32),
}

/// Counts by kind of work, and counts without one.
fn count(events: &[Event]) -> (BTreeMap<u64, Counts>, Counts, Counted) {
    let (mut counted, mut samples) = (counted(), Samples::new(Kernel::default(), 0, 1));
    let mut works = HashMap::new();
    for event in events {
        match event {
            Event::Lost(cpu) => counted.lost(*cpu),
            Event::Said(said) => {
                let malformed = records_as(Layout::Counted, &record(said), |record| {
                    let Record::Sample(sample) = record else { panic!("{record:?}") };
                    let place = samples.add(&sample);
                    works.insert(place.kernel, said.work);
                    counted.add(&place, sample.reading.expect("a reading"));
                });
                assert_eq!(malformed, 0);
            }
        }
    }
    let by_work = counted.places().map(|(_, chain, counts)| (works[&chain], counts)).collect();
    (by_work, counted.unplaced(), counted)
}

fn said(cpu: u32, work: u64, time: u64, values: [u64; 2]) -> Event {
    Event::Said(Said { cpu, pid: 8, work, enabled: time, running: time, values })
}

fn pair(cycles: u64, instructions: u64) -> Counts {
    Counts([cycles, instructions, 0, 0, 0])
}

#[test]
fn counts_belong_to_the_place_of_the_second_sample() {
    let (works, unplaced, counted) = count(&[
        said(0, 1, 10, [900, 400]),
        said(1, 2, 10, [50, 70]),
        said(0, 1, 20, [1700, 500]),
        said(0, 2, 30, [2100, 1500]),
    ]);
    // Of two CPUs: each counts from its own last value.
    assert_eq!(works, BTreeMap::from([(1, pair(1700, 500)), (2, pair(450, 1070))]));
    assert_eq!((unplaced, counted.running()), (Counts::default(), 1.0));
    assert_eq!(counted.counters(), BOTH);
}

#[test]
fn counts_while_samples_were_lost_belong_to_no_work() {
    let (works, unplaced, _) = count(&[
        said(0, 1, 10, [900, 400]),
        said(1, 1, 10, [10, 10]),
        Event::Lost(0),
        said(0, 2, 50, [5900, 3400]),
        said(1, 1, 20, [30, 20]),
        said(0, 2, 60, [6000, 3500]),
    ]);
    assert_eq!(works, BTreeMap::from([(1, pair(930, 420)), (2, pair(100, 100))]));
    assert_eq!(unplaced, pair(5000, 3000));
}

#[test]
fn shared_counters_are_extrapolated() {
    // Half of the first step, a quarter of the second.
    let step =
        |time, running, values| Event::Said(Said { cpu: 0, pid: 8, work: 1, enabled: time, running, values });
    let (works, _, counted) = count(&[step(100, 50, [1000, 600]), step(200, 75, [1500, 700])]);
    assert_eq!(works[&1], pair(2000 + 2000, 1200 + 400));
    assert_eq!(counted.running(), 75.0 / 200.0);
    // A counter that never ran counted nothing, whatever its value.
    let (works, ..) = count(&[step(100, 0, [1000, 600])]);
    assert!(works.is_empty());
}

#[test]
fn a_counter_that_wraps_continues_and_one_that_restarts_does_not() {
    let high = u64::MAX - 9;
    // The first reading is not a count since zero.
    let (works, ..) = count(&[said(0, 1, 10, [high, high]), said(0, 1, 20, [90, 40])]);
    assert_eq!(works[&1], pair(100, 50));
    let (works, ..) =
        count(&[said(0, 1, 10, [5000, 5000]), said(0, 1, 20, [100, 6000]), said(0, 1, 30, [150, 6100])]);
    // The step in which one counter restarted is dropped for both; afterwards their ratio is valid again.
    assert_eq!(works[&1], pair(5050, 5100));
}

/// An event of a CPU's counters.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// They count on, and a sample reports them.
    On { work: u64, by: [u64; 2] },
    /// A sample is lost.
    Lost,
    /// They restart at zero.
    Anew,
}

fn steps() -> impl Strategy<Value = Vec<(u32, Step)>> {
    let on = (0_u64..4, [0_u64..1 << 40, 0_u64..1 << 40]).prop_map(|(work, by)| Step::On { work, by });
    let step = prop_oneof![8 => on, 1 => Just(Step::Lost), 1 => Just(Step::Anew)];
    proptest::collection::vec((0..CPUS, step), 0..200)
}

proptest! {
    /// Compared with numbers that cannot wrap: every step is counted once, or not at all if it is unknown.
    #[test]
    fn sums_are_those_of_the_steps(begin in prop_oneof![Just(0), Just(u64::MAX - (1 << 41))], steps in steps()) {
        let (mut now, mut last) = ([[begin; 2]; CPUS as usize], [[0_u64; 2]; CPUS as usize]);
        let mut lost = [false; CPUS as usize];
        let (mut events, mut works, mut unplaced) = (Vec::new(), BTreeMap::<u64, Counts>::new(), Counts::default());
        for (time, (cpu, step)) in (1..).zip(steps) {
            let at = cpu as usize;
            match step {
                Step::Lost => {
                    events.push(Event::Lost(cpu));
                    lost[at] = true;
                }
                Step::Anew => now[at] = [0; 2],
                Step::On { work, by } => {
                    now[at] = [now[at][0].wrapping_add(by[0]), now[at][1].wrapping_add(by[1])];
                    events.push(said(cpu, work, time, now[at]));
                    let passed = [0, 1].map(|which| {
                        (i128::from(now[at][which]) - i128::from(last[at][which])).rem_euclid(1 << 64)
                    });
                    if passed.iter().all(|passed| *passed <= i128::from(LEAP)) {
                        let of = if lost[at] { &mut unplaced } else { works.entry(work).or_default() };
                        of.add(pair(passed[0] as u64, passed[1] as u64));
                    }
                    (last[at], lost[at]) = (now[at], false);
                }
            }
        }
        let (found, nobodys, counted) = count(&events);
        prop_assert_eq!((found, nobodys, counted.running()), (works, unplaced, 1.0));
    }
}
