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
