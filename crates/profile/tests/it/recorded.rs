//! From a ring's bytes to a profile: for a real machine, and for one with many CPUs that is multiplied from it
//! (complete, truncated, damaged, in any order).

mod real;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use proptest::prelude::*;
use udpath_host::Snapshot;
use udpath_host::source::Folder;
use udpath_profile::Profile;
use udpath_profile::classes::Rules;
use udpath_profile::context::Context;
use udpath_profile::perf::{Clock, Record, records};
use udpath_profile::profile::Accounted;
use udpath_profile::recorder::{Recording, Wanted, record_with};
use udpath_profile::samples::Samples;
use udpath_profile::symbols::kernel::Kernel;

use crate::rings::recorded::{SAMPLE, kind, places};
use crate::rings::write::{Ring, Stamp, USER};
use crate::rings::{APART, BEGIN, LOST, Machine, SHORT_EACH_SECOND, around};

/// The recording of these bytes.
fn recording<'b>(parts: impl IntoIterator<Item = &'b [u8]>, machine: &Machine<'_>) -> Recording {
    let samples = Samples::new(Kernel::parse(&machine.recorded.kallsyms), BEGIN, 1_000_000_000);
    let mut recording = Recording {
        seconds: machine.seconds.into(),
        ..Recording::new(samples, Clock::CpuClock, machine.rate)
    };
    for bytes in parts {
        let malformed = records(bytes, |record| recording.take(0, &record));
        recording.malformed += malformed;
    }
    recording
}

fn profile<'b>(parts: impl IntoIterator<Item = &'b [u8]>, machine: &Machine<'_>) -> Profile {
    thread_local!(static NOTHING: Snapshot = around::nothing());
    NOTHING.with(|nothing| Profile::new(&recording(parts, machine), Rules::built_in(), nothing, nothing))
}

fn rings(machine: &Machine<'_>) -> Vec<Vec<u8>> {
    (0..machine.cpus).map(|cpu| machine.ring(cpu).0).collect()
}

/// Invariants of every profile.
fn sound(profile: &Profile) {
    let sum = |shares: Vec<f64>| shares.iter().sum::<f64>();
    if profile.busy() > 0 {
        let classes = sum(profile.classes.iter().map(|share| share.share).collect());
        assert!((classes - 1.0).abs() < 1e-9, "all classes are {classes}");
    }
    assert!(profile.locks.iter().map(|lock| lock.ns).sum::<u64>() <= profile.busy());
    assert!(profile.processes.iter().map(|process| process.ns).sum::<u64>() <= profile.busy());
    assert_eq!(profile.stacks.iter().map(|stack| stack.ns).sum::<u64>(), profile.busy());
    let mut contexts = BTreeMap::new();
    for line in &profile.cpus {
        let mut slices = BTreeMap::new();
        for (context, ns) in line.time_line.iter().flatten() {
            *slices.entry(*context).or_insert(0) += ns;
        }
        assert_eq!(slices, line.sampled, "the time line of CPU {} is all of its time", line.cpu);
        line.sampled.iter().for_each(|(context, ns)| *contexts.entry(*context).or_insert(0) += ns);
    }
    assert_eq!(contexts, profile.contexts);
}

#[test]
fn a_machine_of_many_cpus_is_profiled_completely() {
    let _turn = udpath_rig::together();
    let machine = Machine::small();
    let rings = rings(&machine);
    let profile = profile(rings.iter().map(Vec::as_slice), &machine);
    sound(&profile);
    let samples = |ring: &Vec<u8>| {
        places(ring).into_iter().filter(|place| kind(&ring[place.clone()]) == SAMPLE).count()
    };
    let samples = rings.iter().map(samples).sum::<usize>() as u64;
    assert_eq!((profile.samples.taken, profile.samples.lost), (samples, LOST));
    assert_eq!((profile.samples.throttled, profile.samples.malformed, profile.samples.nameless), (1, 0, 0));
    assert!(
        profile.notes.contains(&format!("{LOST} samples were lost: the rings were full")),
        "{:?}",
        profile.notes
    );
    // Each CPU does what its CPU of the recording did.
    let count = machine.recorded.cpus.len();
    assert_eq!((profile.cpus.len(), count), (128, 2));
    let interrupts = |cpu: usize| profile.cpus[cpu].sampled.get(&Context::Softirq).copied();
    for cpu in count..128 {
        assert_eq!(interrupts(cpu), interrupts(cpu % count), "CPU {cpu}");
    }
    let unclassified = profile.share(udpath_profile::classes::Class::Unclassified);
    assert!(unclassified < 0.01, "{:?}", profile.classes);
    // Each pair of CPUs has threads of its own, which all have their names.
    let server = profile.processes.iter().find(|process| process.pid == machine.server()).unwrap();
    assert!(server.name == "udpath" && server.threads.len() >= 64, "{} threads", server.threads.len());
    let original =
        |tid: u32| server.threads.iter().find(|thread| thread.tid == tid).map(|thread| &thread.name);
    for thread in &server.threads {
        let recorded = machine.server() + (thread.tid - machine.server()) % APART;
        assert_eq!(Some(&thread.name), original(recorded), "thread {}", thread.tid);
    }
    // Short processes ran on three CPUs, and the CPU that was read first had the last records.
    let logger: u64 = profile
        .stacks
        .iter()
        .filter(|stack| stack.process.as_deref() == Some("logger") && stack.frames == ["[logger]"])
        .map(|stack| stack.samples)
        .sum();
    assert_eq!(logger, u64::from(SHORT_EACH_SECOND * machine.seconds));
}

#[test]
fn memory_is_bounded_where_every_stack_is_another() {
    let _turn = udpath_rig::together();
    let mut samples = Samples::new(Kernel::default(), BEGIN, 1_000_000_000);
    let mut ring = Ring::default();
    for number in 0..600_000_u32 {
        let at = Stamp { pid: 1 + number % 5000, tid: number, time: BEGIN, cpu: number % 128 };
        ring.0.clear();
        ring.sample(USER, at, 10, &[], &[u64::from(number), 7]);
        records(&ring.0, |record| {
            let Record::Sample(sample) = record else { panic!("{record:?}") };
            samples.add(&sample);
        });
    }
    let (mut places, mut taken) = (0, 0);
    samples.tallies().for_each(|(_, tally)| (places, taken) = (places + 1, taken + tally.samples));
    assert_eq!(taken, 600_000);
    assert!(places < 250_000 && samples.chains() < 70_000, "{places} places, {} chains", samples.chains());
    assert!(samples.nameless() > 300_000, "{}", samples.nameless());
}

#[test]
fn a_name_and_a_file_may_come_after_the_samples() {
    let _turn = udpath_rig::together();
    let at = |tid, time| Stamp { pid: 8, tid, time: BEGIN + time, cpu: 0 };
    let (mut early, mut late) = (Ring::default(), Ring::default());
    early.sample(USER, at(9, 500), 1000, &[], &[0x5000_0010]);
    late.mapped(at(8, 100), 0x5000_0000, 0x1000, 0, "/usr/sbin/nsd");
    late.comm(at(8, 50), "nsd", true);
    late.comm(at(9, 200), "worker", false);
    let told = profile([early.0.as_slice(), &late.0], &Machine::few());
    assert_eq!(told.stacks[0].frames, ["[nsd]"]);
    let process = &told.processes[0];
    assert_eq!((process.name.as_str(), process.threads[0].name.as_str()), ("nsd", "worker"));
    // If it never comes, that is reported.
    let told = profile([early.0.as_slice()], &Machine::few());
    assert_eq!(
        (told.stacks[0].frames.as_slice(), told.processes[0].name.as_str()),
        (&["[unknown]".to_owned()][..], "")
    );
}

/// Compares this machine's samples with its own accounting; a difference is reported whatever the machine is doing.
#[test]
fn samples_are_held_against_proc_stat() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::together();
    let cpus = fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim().parse().unwrap();
    let wanted = Wanted { cpus, pid: None, length: Duration::from_millis(1500), rate: 997 };
    let (source, mut around) = (Folder::live(), Vec::new());
    let never = AtomicBool::new(false);
    let recording = record_with(&wanted, &never, |_| around.push(Snapshot::read(&source))).unwrap();
    let profile = Profile::new(&recording, Rules::built_in(), &around[0], &around[1]);
    sound(&profile);
    let mut differ = false;
    for line in &profile.cpus {
        let Accounted { usr, sys, irq, soft, steal, idle } =
            line.accounted.expect("it is there at both ends");
        assert!((usr + sys + irq + soft + steal + idle - 1.0).abs() < 1e-9, "{line:?}");
        let part = |contexts: &[Context]| {
            contexts.iter().filter_map(|context| line.sampled.get(context)).sum::<u64>() as f64
                / 1e9
                / profile.seconds
        };
        assert!(part(&Context::ALL) < 1.1, "{line:?}");
        differ |= (part(&[Context::Softirq, Context::HardIrq]) - soft - irq).abs() > 0.05;
    }
    let told = profile.notes.iter().any(|note| note.contains(" in interrupts by samples, "));
    assert_eq!(told, differ, "{:?}", profile.notes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rings_may_be_read_in_any_order(turns in proptest::collection::vec((0..6_usize, 1..9_usize), 0..200)) {
        let _turn = udpath_rig::together();
        let rings = rings(&Machine::few());
        let whole = profile(rings.iter().map(Vec::as_slice), &Machine::few());
        sound(&whole);
        // In turns, a few records of one CPU each time; the rest at the end, the last CPU first.
        let places: Vec<_> = rings.iter().map(|ring| places(ring)).collect();
        let (mut next, mut parts) = (vec![0_usize; rings.len()], Vec::new());
        let rest = (0..rings.len()).rev().map(|cpu| (cpu, usize::MAX));
        for (cpu, count) in turns.into_iter().chain(rest) {
            let end = next[cpu].saturating_add(count).min(places[cpu].len());
            parts.extend(places[cpu][next[cpu]..end].iter().map(|place| &rings[cpu][place.clone()]));
            next[cpu] = end;
        }
        prop_assert_eq!(profile(parts, &Machine::few()), whole);
    }

    #[test]
    fn a_ring_may_be_cut_anywhere(cpu in 0..6_u32, at in any::<prop::sample::Index>()) {
        let _turn = udpath_rig::together();
        let ring = Machine::few().ring(cpu).0;
        let cut = at.index(ring.len());
        let whole = places(&ring).into_iter().take_while(|place| place.end <= cut).last().map_or(0, |place| place.end);
        let mut expected = profile([&ring[..whole]], &Machine::few());
        let mut found = profile([&ring[..cut]], &Machine::few());
        sound(&found);
        prop_assert_eq!(found.samples.malformed, u64::from(cut > whole));
        found.samples.malformed = 0;
        (found.notes, expected.notes) = (Vec::new(), Vec::new());
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn damaged_bytes_are_counted_and_the_rest_is_sound(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let _turn = udpath_rig::together();
        let mut ring = Machine::few().ring(5).0;
        for (at, byte) in damage {
            let at = at.index(ring.len());
            ring[at] = byte;
        }
        sound(&profile([ring.as_slice()], &Machine::few()));
    }

    #[test]
    fn records_lost_by_the_kernel_are_counted(lost in proptest::collection::vec((0..30_usize, 1..6_usize), 0..8)) {
        let _turn = udpath_rig::together();
        // As in the kernel: a record with the number of lost records replaces them.
        let ring = Machine::few().ring(1).0;
        let (places, mut bytes, mut at) = (places(&ring), Ring::default(), 0);
        let all = profile([ring.as_slice()], &Machine::few()).samples;
        let is_sample = |place: &Range<usize>| matches!(Record::parse(&ring[place.clone()]), Ok(Record::Sample(_)));
        for (from, count) in lost {
            let from = from.max(at).min(places.len());
            places[at..from].iter().for_each(|place| bytes.0.extend_from_slice(&ring[place.clone()]));
            let gone = &places[from..(from + count).min(places.len())];
            at = from + gone.len();
            bytes.lost(Stamp { cpu: 1, ..Stamp::default() }, gone.iter().filter(|place| is_sample(place)).count() as u64);
        }
        places[at..].iter().for_each(|place| bytes.0.extend_from_slice(&ring[place.clone()]));
        let found = profile([bytes.0.as_slice()], &Machine::few());
        sound(&found);
        prop_assert_eq!(found.samples.taken + found.samples.lost, all.taken);
        let said = match found.samples.lost {
            1 => "1 sample was lost: a ring was full".to_owned(),
            lost => format!("{lost} samples were lost: the rings were full"),
        };
        prop_assert_eq!(found.notes.contains(&said), found.samples.lost > 0);
    }

    #[test]
    fn time_may_go_backwards(times in proptest::collection::vec(any::<u64>(), 200)) {
        let _turn = udpath_rig::together();
        let ring = Machine::few().ring(1).0;
        let (mut turned, mut times) = (ring.clone(), times.into_iter().cycle());
        for place in places(&ring) {
            if let Ok(Record::Sample(_)) = Record::parse(&ring[place.clone()]) {
                // After the header, the address and the thread; every third one near the interval.
                let time = times.next().unwrap();
                let time = if time.is_multiple_of(3) { BEGIN - 10_000 + time % 2_000_000_000 } else { time };
                turned[place.start + 24..place.start + 32].copy_from_slice(&time.to_ne_bytes());
            }
        }
        let (found, expected) = (profile([turned.as_slice()], &Machine::few()), profile([ring.as_slice()], &Machine::few()));
        sound(&found);
        prop_assert_eq!((found.classes, found.contexts, found.stacks), (expected.classes, expected.contexts, expected.stacks));
    }
}
