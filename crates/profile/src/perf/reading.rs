//! The values of a group of counters, as a sample carries them (`struct read_format` in linux/perf_event.h).
//!
//! ```text
//! count u64, enabled u64, running u64, count x { value u64, id u64 }
//!            └── nanoseconds that the group was to run, and did: fewer where it had to share the processor's counters
//! ```

use perf_event_open_sys::bindings as uapi;

use super::fields::Fields;

/// The read format that a group's leader needs for this layout.
pub(super) const READ_FORMAT: u64 = (uapi::PERF_FORMAT_GROUP
    | uapi::PERF_FORMAT_ID
    | uapi::PERF_FORMAT_TOTAL_TIME_ENABLED
    | uapi::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;

/// Values since the group was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading<'a> {
    /// How long the group was enabled, nanoseconds.
    pub enabled: u64,
    /// How long it ran, nanoseconds.
    pub running: u64,
    values: &'a [u8],
}

impl<'a> Reading<'a> {
    pub(super) fn read(fields: &mut Fields<'a>) -> Option<Self> {
        let count = usize::try_from(fields.u64()?).ok()?;
        let (enabled, running) = (fields.u64()?, fields.u64()?);
        let values = fields.bytes(count.checked_mul(16)?)?;
        Some(Self { enabled, running, values })
    }

    /// The id and value of each event, the leader first.
    pub fn values(self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let (words, _) = self.values.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        pairs.iter().map(|[value, id]| (u64::from_ne_bytes(*id), u64::from_ne_bytes(*value)))
    }
}
