//! The state of the kernel's clock, as the daemon that disciplines it reported it (`adjtimex(2)`, RFC 5905 appendix
//! A.5.6).
//!
//! The kernel knows the leap indicator, whether the clock is synchronized, and its largest error, which is the root
//! distance: half of the root delay plus the root dispersion. It does not know stratum, reference id and root delay. So
//! the server announces the whole error as root dispersion with a root delay of 0, which gives a client the same root
//! distance.

mod sys;

use std::time::Duration;

use super::packet::{ALARM, Timestamp};

/// Whether the clock is right, and by how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStatus {
    /// Leap indicator: 0 none, 1 a second is inserted at the end of the day, 2 one is deleted, 3 not synchronized.
    pub leap: u8,
    /// Largest error.
    pub max_error: Duration,
}

impl ClockStatus {
    /// From the kernel's return value, status bits and error in microseconds.
    fn of(state: i32, status: i32, max_error: i64) -> Self {
        let leap = match state {
            _ if status & libc::STA_UNSYNC != 0 => ALARM,
            libc::TIME_INS | libc::TIME_OOP => 1,
            libc::TIME_DEL => 2,
            libc::TIME_OK | libc::TIME_WAIT => 0,
            // TIME_ERROR: not synchronized.
            _ => ALARM,
        };
        Self { leap, max_error: Duration::from_micros(u64::try_from(max_error).unwrap_or(0)) }
    }

    /// The error in the units of the header, 2^-16 s, rounded up; at most 16 s, which means unusable (RFC 5905, 5).
    pub(super) fn root_dispersion(self) -> u32 {
        let units = (self.max_error.as_micros() << 16).div_ceil(1_000_000);
        u32::try_from(units).unwrap_or(u32::MAX).min(16 << 16)
    }
}

/// How long a status is used before it is read again. A shorter time makes system calls more frequent; a longer one
/// announces an old error: the kernel adds 500 us to it each second.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// A worker's copy of the status.
#[derive(Debug, Clone, Copy)]
pub struct ClockState {
    status: ClockStatus,
    /// When it was read: the time of day, and the time since boot after which it is read again.
    read: Timestamp,
    next: Duration,
}

impl Default for ClockState {
    /// Not read yet.
    fn default() -> Self {
        let status = ClockStatus { leap: ALARM, max_error: Duration::ZERO };
        Self { status, read: Timestamp::default(), next: Duration::ZERO }
    }
}

impl ClockState {
    /// The status and when it was read. Asks the kernel at most once per second: one system call for a second's
    /// requests.
    #[inline]
    pub(super) fn at(&mut self, since_boot: Duration) -> (ClockStatus, Timestamp) {
        if since_boot >= self.next {
            self.refresh(since_boot);
        }
        (self.status, self.read)
    }

    #[cold]
    fn refresh(&mut self, since_boot: Duration) {
        self.status = sys::clock_status();
        self.read = Timestamp::of(now());
        self.next = since_boot + REFRESH_INTERVAL;
    }
}

/// The time of day since the Unix epoch. Read from memory shared with the kernel (vDSO), not by a system call.
#[inline]
pub(super) fn now() -> Duration {
    Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::Realtime)).unwrap_or_default()
}

/// Log2 of the time that one reading of the clock takes, in seconds: RFC 5905's precision.
pub(super) fn precision() -> i8 {
    /// Pairs of readings, of which the fastest counts: others were interrupted. With fewer, a busy machine seems
    /// imprecise; more take longer without a better result.
    const READINGS: usize = 64;
    let fastest = (0..READINGS).map(|_| now().abs_diff(now())).filter(|time| !time.is_zero()).min();
    // Rounded up: the clock is not more precise than announced. 2^-30 s is about 1 ns.
    fastest.map_or(-30, |time| time.as_secs_f64().log2().ceil().clamp(-30.0, 0.0) as i8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leap_indicator_is_the_kernels() {
        for (state, status, leap) in [
            (libc::TIME_OK, 0, 0),
            (libc::TIME_OK, libc::STA_PLL, 0),
            (libc::TIME_INS, libc::STA_INS, 1),
            (libc::TIME_OOP, libc::STA_INS, 1),
            (libc::TIME_WAIT, libc::STA_INS, 0),
            (libc::TIME_DEL, libc::STA_DEL, 2),
            (libc::TIME_ERROR, libc::STA_UNSYNC, 3),
            (libc::TIME_OK, libc::STA_UNSYNC, 3),
            (libc::TIME_ERROR, libc::STA_CLOCKERR, 3),
            (-1, 0, 3),
        ] {
            assert_eq!(ClockStatus::of(state, status, 0).leap, leap, "{state} {status:#x}");
        }
    }

    #[test]
    fn the_error_is_rounded_up_and_bounded() {
        let units = |micros| ClockStatus::of(0, 0, micros).root_dispersion();
        assert_eq!((units(0), units(1), units(1_000_000), units(15)), (0, 1, 65_536, 1));
        assert_eq!((units(16_000_000), units(i64::MAX), units(-5)), (16 << 16, 16 << 16, 0));
    }

    #[test]
    fn the_kernel_is_asked_once_per_second() {
        let mut state = ClockState::default();
        let (status, read) = state.at(Duration::from_secs(5));
        assert!(Timestamp::of(now()).seconds_since(read).abs() < 60.0);
        assert!(status.leap <= 3);
        assert_eq!(state.at(Duration::from_millis(5999)).1, read);
        std::thread::sleep(Duration::from_millis(1));
        assert_ne!(state.at(Duration::from_secs(6)).1, read);
    }

    #[test]
    fn the_precision_is_that_of_reading_the_clock() {
        // Between 1 ns and 1 ms on any machine that runs this.
        assert!((-30..=-10).contains(&precision()), "{}", precision());
    }
}
