//! The start of a run at a time by the machine's clock, so that several machines start together.
//!
//! ```text
//!   flows open ── sleep in slices: a stop takes effect ──▶ T - LEAD ── each thread sleeps ──▶ T
//!                                                            └─ T on the monotonic clock, by which the plan runs
//! ```
//! The time is translated to the monotonic clock late, because the two drift apart while the machine's clock is being
//! corrected (by up to 500 ppm, adjtimex(2)). Threads sleep with a timer slack of a nanosecond and do not poll: of many
//! senders on one machine, those that poll would delay the others by more than a wake-up takes. How far the start was
//! off by the machine's clock is measured and in the result; how far that clock itself is off, the kernel states as a
//! bound if something synchronises it.

mod sys;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

pub use sys::clock_error;

use crate::Error;
use crate::plan::{MAX_TIME, Plan, PlanError};

/// Time between the creation of the threads and the start of the plan: by then all of them are waiting.
const START_DELAY: Duration = Duration::from_millis(5);
/// How long before the start the time is translated. Shorter: creating the threads makes the start late. Longer: the
/// clocks drift apart: 25 us in 50 ms at most.
const LEAD: Duration = Duration::from_millis(50);
/// Longest time until a stop is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until shortly before the start of `plan`; returns when it is, by the monotonic clock.
///
/// # Errors
/// The start has passed, or is more than [`MAX_TIME`] away, or `stop` was set before it.
pub(crate) fn await_start(plan: &Plan, stop: &AtomicBool) -> Result<Instant, Error> {
    let Some(at) = own_time(plan) else { return Ok(Instant::now() + START_DELAY) };
    let mut in_time = false;
    loop {
        let (now, clock) = (Instant::now(), SystemTime::now());
        let left = match at.duration_since(clock) {
            Ok(left) => left,
            // The machine is busy: what was due since then is sent late, and the result says so.
            Err(passed) if in_time => return Ok(now.checked_sub(passed.duration()).unwrap_or(now)),
            Err(passed) => return Err(Error::StartPassed(passed.duration())),
        };
        in_time = true;
        if left > MAX_TIME {
            return Err(PlanError::TooLong { what: "time until the start", time: left }.into());
        }
        if left <= LEAD {
            return Ok(now + left);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Error::StoppedBeforeStart);
        }
        thread::sleep(POLL_INTERVAL.min(left - LEAD));
    }
}

/// When `plan` starts, by this machine's clock.
fn own_time(plan: &Plan) -> Option<SystemTime> {
    let ahead = Duration::from_nanos(plan.clock_ahead_ns.unsigned_abs());
    let at = plan.start_at?;
    // A time beyond what the clock can show is far away, or passed: the caller reports it.
    if plan.clock_ahead_ns < 0 { at.checked_sub(ahead) } else { at.checked_add(ahead) }.or(Some(at))
}

/// Sleeps until `start`.
pub(crate) fn sleep_until(start: Instant) {
    thread::sleep(start.saturating_duration_since(Instant::now()));
}

/// How much later than the start of `plan` it is now, by the machine's clock, nanoseconds; negative before it.
pub(crate) fn skew(plan: &Plan) -> Option<i64> {
    let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let at = own_time(plan)?;
    Some(SystemTime::now().duration_since(at).map_or_else(|early| -nanos(early.duration()), nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(start_at: SystemTime) -> Plan {
        Plan { start_at: Some(start_at), ..Plan::new("192.0.2.1:7".parse().unwrap()) }
    }

    #[test]
    fn a_start_is_awaited_by_the_machines_clock() {
        let plan = plan(SystemTime::now() + Duration::from_millis(60));
        let start = await_start(&plan, &AtomicBool::new(false)).unwrap();
        assert!(start > Instant::now(), "there is time left for the threads");
        assert!(skew(&plan).unwrap() < 0);
        sleep_until(start);
        let late = skew(&plan).unwrap();
        // No bound from above: the machine may be busy.
        assert!(late >= -1_000_000, "{late} ns");
    }

    #[test]
    fn a_start_that_cannot_be_kept_is_an_error() {
        let stop = AtomicBool::new(true);
        let passed = plan(SystemTime::now() - Duration::from_secs(3));
        let sentence = await_start(&passed, &stop).unwrap_err().to_string();
        assert!(sentence.contains("--start-at") && sentence.contains("3.0 s"), "{sentence}");
        let behind = Plan { clock_ahead_ns: 60_000_000_000, ..passed.clone() };
        assert!(
            skew(&behind).unwrap() < -50_000_000_000,
            "by a clock that is a minute ahead, it is still to come"
        );
        let far = plan(SystemTime::now() + MAX_TIME + Duration::from_secs(60));
        assert!(matches!(await_start(&far, &stop), Err(Error::Plan(PlanError::TooLong { .. }))));
        let later = plan(SystemTime::now() + Duration::from_secs(60));
        assert!(matches!(await_start(&later, &stop), Err(Error::StoppedBeforeStart)));
    }
}
