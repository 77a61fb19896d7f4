//! Measures a profile of this machine, from start to end.
//!
//! ```text
//! snapshot ─▸ samples, tracepoints, UDP counters at begin and end ─▸ snapshot ─▸ Profile
//! ```
//! Changes nothing on the machine and leaves nothing behind.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use udpath_host::{Snapshot, Source, udp};

use crate::Profile;
use crate::classes::Rules;
use crate::perf::OpenError;
use crate::recorder::{self, Moment, Wanted};
use crate::trace;

/// Samples `wanted` and traces `traced` until the time is over or `stop` is set. `before` is a snapshot taken just
/// before, of `source`'s network namespace; `at` is called when sampling begins and ends.
///
/// # Errors
/// Nothing can be sampled; the error says why.
pub fn measure(
    wanted: &Wanted,
    traced: &BTreeSet<trace::Source>,
    source: &dyn Source,
    mut before: Snapshot,
    stop: &AtomicBool,
    mut at: impl FnMut(Moment),
) -> Result<Profile, OpenError> {
    let tracing = trace::start(traced);
    let mut udp = None;
    let recording = recorder::record_with(wanted, stop, |moment| {
        at(moment);
        // The snapshots list what cannot be read.
        let counted = udp::read(source, &mut Vec::new());
        match moment {
            Moment::Begin => before.udp = counted,
            Moment::End => udp = Some(counted),
        }
    })?;
    let mut after = Snapshot::read(source);
    after.udp = udp.unwrap_or(after.udp);
    let rules = Rules::built_in();
    let mut profile = Profile::new(&recording, rules, &before, &after);
    profile.traces = tracing.finish(recording.samples.kernel(), rules);
    profile.facts.name_packet_sockets(source);
    Ok(profile)
}
