//! A run with some of every fault, and the comparison of its counts with the truth.

use std::time::Duration;

use udpath_load::result::LoadResult;

use super::{Faults, Truth, near};

/// The plans' timeout.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

/// Some of every fault. Late by 1.5 timeouts: distinguished from lost, because the drain lasts two.
pub(crate) fn all_faults() -> Faults {
    Faults {
        drop: 0.03,
        duplicate: 0.04,
        delayed: 0.05,
        delay: Duration::from_millis(20),
        late: 0.02,
        late_by: TIMEOUT * 3 / 2,
        swap: 0.05,
        corrupt: 0.03,
        misdirect: 0.02,
        vanish_after: None,
    }
}

/// A few of every fault that does not delay, for loads of hundreds of thousands of transactions.
pub(crate) fn rare_faults() -> Faults {
    Faults { drop: 0.002, duplicate: 0.02, swap: 0.02, corrupt: 0.002, misdirect: 0.002, ..Faults::default() }
}

/// The kernel engine's counts are exactly those of the server's own record, and every rare fault occurred.
pub(crate) fn compare_rare(result: &LoadResult, truth: &Truth) {
    assert!(truth.dropped > 10 && truth.duplicated > 100, "{truth:?}");
    assert!(truth.corrupted > 10 && truth.misdirected > 10, "{truth:?}");
    let counts = &result.counts;
    counts.check().unwrap();
    assert_eq!(counts.sent, truth.received, "the server got every request");
    assert_eq!(counts.duplicate, truth.duplicated);
    assert_eq!(counts.corrupt, truth.corrupted);
    assert_eq!(counts.wrong_flow, truth.misdirected);
    // An answer held back until the next one may be late.
    assert!(counts.late <= truth.reordered / 10, "{} late", counts.late);
    // Each peer's last answer may still be held back at the end.
    let lost = truth.dropped + truth.corrupted + truth.misdirected;
    assert!(counts.lost >= lost && counts.lost <= lost + 8, "{} lost of {lost}", counts.lost);
}

/// The load counts as many reordered replies as the server sent. Only comparable on a link with one queue: with two,
/// requests overtake each other on the way, and the server knows only the order in which they arrive. A late reply is
/// reordered if a request sent within the timeout has been answered: where nothing was, for as long, its place is not
/// known (`late` of bpf/closed_loop.h).
pub(crate) fn compare_order(result: &LoadResult, truth: &Truth) {
    let (counted, reordered) = (result.counts.reordered, truth.reordered);
    let unknown = reordered / 100 + 2 + result.counts.late;
    assert!(counted.abs_diff(reordered) <= unknown, "{counted} of {reordered}, {} late", result.counts.late);
}

/// Answers later than `timeout` are late, and those that never came are lost. There are 32 slots.
pub(crate) fn compare_late(result: &LoadResult, truth: &Truth, timeout: Duration) {
    let counts = &result.counts;
    counts.check().unwrap();
    assert!(truth.late > 20 && counts.sent == truth.received, "{truth:?}");
    // Replies after the end of the run are lost. A slot has one more in flight each time that a reply takes a timeout
    // longer: three, or more if the server waited for a CPU.
    let longest = truth.delays.iter().max().copied().unwrap_or(0);
    let at_the_end = 32 * longest.div_ceil(timeout.as_nanos() as u64);
    assert!(
        counts.late <= truth.late && counts.late + at_the_end >= truth.late,
        "{} of {}",
        counts.late,
        truth.late
    );
    assert_eq!(counts.late + counts.lost, truth.late + truth.dropped);
}

/// The counts are those of the server's own record, and every fault occurred.
pub(crate) fn compare(result: &LoadResult, truth: &Truth) {
    let c = &result.counts;
    assert_eq!(c.sent, truth.received, "the link lost something: this says nothing of the load");
    near("lost", c.lost, truth.dropped + truth.corrupted + truth.misdirected);
    near("duplicate", c.duplicate, truth.duplicated);
    near("late", c.late, truth.late);
    near("corrupt", c.corrupt, truth.corrupted);
    near("wrong flow", c.wrong_flow, truth.misdirected);
    near("reordered", c.reordered, truth.reordered);
    near("ok", c.ok, truth.received - truth.dropped - truth.corrupted - truth.misdirected - truth.late);
    for (what, n) in [
        ("dropped", truth.dropped),
        ("duplicated", truth.duplicated),
        ("late", truth.late),
        ("corrupted", truth.corrupted),
        ("misdirected", truth.misdirected),
        ("reordered", truth.reordered),
    ] {
        assert!(n >= 20, "{what}: {n}");
    }
}
