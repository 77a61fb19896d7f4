use udpath_profile::classes::Rules;
use udpath_profile::counts::Counted;
use udpath_profile::folded::{self, Weights};
use udpath_profile::perf::{Counter, Layout, Record, records_as};
use udpath_profile::samples::Samples;
use udpath_profile::symbols::kernel::Kernel;
use udpath_profile::symbols::user::Programs;

use crate::presentable;

/// Bytes of a perf ring, whole, cut or damaged: every sample is counted once, whatever it says. With counters and without.
pub fn perf_records(data: &[u8]) {
    ring(Layout::Plain, data);
    ring(Layout::Counted, data);
}

fn ring(layout: Layout, data: &[u8]) {
    // By small numbers, which bytes that are made up hit as well.
    let counters = (1..).zip(Counter::ALL);
    let (mut counted, mut readings) = (Counted::new(counters, &[]), 0);
    let mut samples = Samples::new(Kernel::default(), 0, 1_000_000_000);
    let mut programs = Programs::default();
    let mut taken = 0;
    let malformed = records_as(layout, data, |record| match record {
        Record::Sample(sample) => {
            taken += 1;
            let place = samples.add(&sample);
            assert_eq!(sample.reading.is_some(), layout == Layout::Counted);
            if let Some(reading) = sample.reading {
                readings += 1;
                assert!(reading.values().count() <= data.len() / 16);
                counted.add(&place, reading);
            }
        }
        Record::Lost(_) => counted.lost(0),
        Record::Mapped(mapped) => programs.mapped(&mapped),
        Record::Comm { pid, exec: true, .. } => programs.replaced(pid),
        _ => (),
    });
    // A record is 8 bytes at least.
    assert!(taken + malformed <= data.len() as u64 / 8 + 1);
    assert_eq!(samples.tallies().map(|(_, tally)| tally.samples).sum::<u64>(), taken);
    assert!(counted.places().count() <= readings);
    assert!((0.0..=1.0).contains(&counted.running()), "{}", counted.running());
    for (place, _) in samples.tallies() {
        assert!(samples.chain(place.kernel).len() + samples.chain(place.user).len() <= data.len() / 8);
    }
}

/// Folded stacks, the rules, and a list of the kernel's functions, parted by zero bytes: what is classed is no more than
/// what there is, and every address has the name before it.
pub fn profile_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut parts = text.split('\0');
    let (stacks, rules, symbols) = (parts.next(), parts.next(), parts.next());
    let rules = rules.map_or_else(|| Ok(Rules::built_in().clone()), Rules::parse);
    if let Err(error) = &rules {
        presentable(error, data.len());
    }
    match folded::parse(stacks.unwrap_or_default()) {
        Err(error) => presentable(&error, data.len()),
        Ok(lines) => {
            let weights = Weights::of(&lines, rules.as_ref().unwrap_or(Rules::built_in()));
            let most = lines.iter().fold(0_u64, |sum, line| sum.saturating_add(line.weight));
            assert_eq!(weights.all, most);
            assert!(weights.classes.values().all(|weight| *weight <= most));
            assert!(weights.locks.values().all(|weight| *weight <= most));
        }
    }
    let kernel = Kernel::parse(symbols.unwrap_or_default());
    assert!(kernel.len() <= symbols.unwrap_or_default().lines().count());
    assert_eq!(kernel.frame(0), None);
}
