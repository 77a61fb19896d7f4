//! What a schedule still had to send when the window ended.

use std::iter::Peekable;

use crate::plan::{Plan, Schedule};

/// Most schedule entries walked to count what was left unsent; beyond that it is the rate times the time.
const WALK: usize = 1_000_000;

/// How many requests a schedule still has for the window between `window` and `ended`.
pub(crate) fn left_over(
    schedule: Option<&mut Peekable<Schedule>>,
    plan: &Plan,
    window: u64,
    ended: u64,
) -> u64 {
    let Some(schedule) = schedule else { return 0 };
    let (mut walked, mut count, mut reached) = (0, 0, window);
    for due in schedule.take(WALK).take_while(|t| t.at < ended) {
        walked += 1;
        count += u64::from(due.at >= window);
        reached = due.at.max(window);
    }
    if walked == WALK {
        let rate = plan.offered().unwrap_or(0.0) / plan.threads as f64;
        count += (rate * (ended - reached) as f64 / 1e9) as u64;
    }
    count
}
