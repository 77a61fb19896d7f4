//! Verdicts of `make bench`, whose own program has no tests: the whole interval decides.

#[path = "../../../benches/src/claim.rs"]
#[allow(dead_code, reason = "a part of it is tested")]
mod claim;

use claim::{Bound, Claim, Unit, Verdict};

#[test]
fn the_whole_interval_decides() {
    let cases = [
        (Bound::AtLeast(2.0), (2.0, 2.5), Verdict::Held),
        (Bound::AtLeast(2.0), (1.9, 2.5), Verdict::NotDecided),
        (Bound::AtLeast(2.0), (1.9, 2.0), Verdict::NotDecided),
        (Bound::AtLeast(2.0), (1.5, 1.9), Verdict::Missed),
        (Bound::Below(2.0), (1.0, 1.9), Verdict::Held),
        (Bound::Below(2.0), (1.9, 2.0), Verdict::NotDecided),
        (Bound::Below(2.0), (2.0, 2.1), Verdict::Missed),
        (Bound::Within(-1.0, 1.0), (-1.0, 1.0), Verdict::Held),
        (Bound::Within(-1.0, 1.0), (-1.5, 0.0), Verdict::NotDecided),
        (Bound::Within(-1.0, 1.0), (-5.0, 5.0), Verdict::NotDecided),
        (Bound::Within(-1.0, 1.0), (1.1, 1.2), Verdict::Missed),
        (Bound::Within(-1.0, 1.0), (-1.2, -1.1), Verdict::Missed),
        (Bound::Shown, (0.0, 1.0), Verdict::Shown),
    ];
    for (bound, (low, high), verdict) in cases {
        assert_eq!(bound.verdict(low, high), verdict, "{bound:?} and {low} to {high}");
    }
    for bound in [Bound::AtLeast(2.0), Bound::Below(2.0), Bound::Within(-1.0, 1.0)] {
        assert_eq!(bound.verdict(f64::NAN, f64::NAN), Verdict::Missed, "{bound:?} of no number");
        assert_eq!(bound.verdict(f64::NAN, 3.0), Verdict::Missed, "{bound:?} of half a number");
    }
}

#[test]
fn a_condition_that_was_not_met_is_a_miss_whatever_the_figure() {
    let claim = || Claim::new("x.y", "x / y", 3.0, Unit::Ratio, Bound::AtLeast(2.0));
    assert_eq!(claim().verdict(), Verdict::Held, "a figure without an interval decides by itself");
    assert_eq!(claim().within(1.0, 4.0).verdict(), Verdict::NotDecided);
    assert_eq!(claim().only_if(false, || "half was lost".to_owned()).verdict(), Verdict::Missed);
    assert_eq!(claim().within(1.0, 4.0).only_if(true, String::new).measured(), "3.00 (1.000-4.00)");
}
