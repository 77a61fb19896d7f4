use std::path::Path;
use std::sync::OnceLock;

use udpath_host::Snapshot;
use udpath_host::source::Folder;
use udpath_profile::Profile;
use udpath_profile::classes::Rules;
use udpath_profile::counts::Counted;
use udpath_profile::folded::{self, Weights};
use udpath_profile::perf::{Clock, Counter, Layout, Record, records_as};
use udpath_profile::recorder::Recording;
use udpath_profile::samples::Samples;
use udpath_profile::symbols::kernel::Kernel;

use crate::presentable;

/// Bytes of perf rings, complete, truncated or damaged: every sample is counted once, whatever its content, and all
/// sums of the result are consistent. With counters and without.
pub fn perf_records(data: &[u8]) {
    ring(Layout::Plain, data);
    ring(Layout::Counted, data);
}

fn ring(layout: Layout, data: &[u8]) {
    // With small ids, so that random bytes match them too.
    let counters = (1..).zip(Counter::ALL);
    let samples = Samples::new(Kernel::default(), 0, 1_000_000_000);
    let mut recording = Recording { seconds: 1.0, ..Recording::new(samples, Clock::CpuClock, 997) };
    recording.counted = Some(Counted::new(counters, &[]));
    let (mut taken, mut readings) = (0, 0);
    recording.malformed = records_as(layout, data, |record| {
        if let Record::Sample(sample) = &record {
            taken += 1;
            assert_eq!(sample.reading.is_some(), layout == Layout::Counted);
            if let Some(reading) = sample.reading {
                readings += 1;
                assert!(reading.values().count() <= data.len() / 16);
            }
        }
        recording.take(0, &record);
    });
    // A record has at least 8 bytes.
    assert!(taken + recording.malformed <= data.len() as u64 / 8 + 1);
    let samples = &recording.samples;
    assert_eq!(samples.tallies().map(|(_, tally)| tally.samples).sum::<u64>(), taken);
    let counted = recording.counted.as_ref().expect("there are counters");
    assert!(counted.places().count() <= readings);
    assert!((0.0..=1.0).contains(&counted.running()), "{}", counted.running());
    for (place, _) in samples.tallies() {
        assert!(samples.chain(place.kernel).len() + samples.chain(place.user).len() <= data.len() / 8);
    }
    let profile = Profile::new(&recording, Rules::built_in(), nothing(), nothing());
    assert_eq!(profile.samples.taken, taken);
    assert_eq!(profile.stacks.iter().map(|stack| stack.ns).sum::<u64>(), profile.busy());
    let classes: f64 = profile.classes.iter().map(|share| share.share).sum();
    assert!(profile.busy() == 0 || (classes - 1.0).abs() < 1e-6, "all classes are {classes}");
    for line in &profile.cpus {
        let slices = line.time_line.iter().flat_map(|slice| slice.values()).sum::<u64>();
        assert_eq!(slices, line.sampled.values().sum::<u64>());
    }
    let whole = |line: &str| line.rsplit_once(' ').is_some_and(|(_, weight)| weight.parse::<u64>().is_ok());
    assert!(folded::text(&profile).lines().all(whole));
}

/// A machine without any information: a capture that does not exist.
fn nothing() -> &'static Snapshot {
    static NOTHING: OnceLock<Snapshot> = OnceLock::new();
    NOTHING.get_or_init(|| Snapshot::read(&Folder::captured(Path::new("/nowhere"))))
}

/// Folded stacks, the rules, and a list of the kernel's functions, separated by zero bytes: the classified weight does
/// not exceed the total, and every address resolves to the symbol before it.
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
