//! What a recording shows: shares of contexts and classes, by CPU, process and thread, and the stacks behind them.
//!
//! Weights are nanoseconds of CPU time where the clock is one. Where samples count cycles, a CPU's are as long as the time
//! that the kernel accounts as busy.
//!
//! The stacks keep every frame, of interrupts those of the kernel; [`Stack::own_frames`] are those of the work itself, without
//! what an interrupt interrupted.

mod charged;
mod hardware;
mod named;
mod notes;
mod result;
mod sums;

use udpath_host::snapshot::Snapshot;

use crate::classes::Rules;
use crate::facts::{Facts, Focus};
use crate::recorder::Recording;
use crate::trace::Traces;
pub use hardware::{ClassCounts, Hardware, HardwareCounts};
use named::Named;
pub use result::{Accounted, Counted, CpuLine, Datagrams, ProcessShare, Profile, Share, Stack, ThreadShare};
use sums::{Sums, Units, accounted, cpu_lines, datagrams, processes, sorted, stacks};

impl Profile {
    /// Puts a recording together. `before` and `after` are the machine at its beginning and end.
    #[must_use]
    pub fn new(recording: &Recording, rules: &Rules, before: &Snapshot, after: &Snapshot) -> Self {
        let named = Named::new(recording, rules);
        let accounted = accounted(before, after);
        let units = Units::new(recording, &accounted);
        let mut sums = Sums::default();
        for (place, tally) in recording.samples.tallies() {
            sums.add(place, *tally, &named, &units);
        }
        let busy = sums.busy.max(1) as f64;
        let share = |ns: u64| ns as f64 / busy;
        let mut profile = Self {
            seconds: recording.seconds,
            cpus: cpu_lines(&sums, recording, &accounted, &units),
            clock: recording.clock,
            sight: recording.sight,
            samples: Counted {
                rate: recording.rate,
                taken: sums.taken,
                lost: recording.lost,
                throttled: recording.throttled,
                malformed: recording.malformed,
                nameless: recording.samples.nameless(),
            },
            contexts: sums.contexts.clone(),
            classes: sorted(sums.classes.iter().map(|(of, ns)| Share {
                of: *of,
                ns: *ns,
                share: share(*ns),
                others: 0,
            })),
            locks: sorted(sums.locks.iter().map(|(of, ns)| Share {
                of: (*of).to_owned(),
                ns: *ns,
                share: share(*ns),
                others: 0,
            })),
            processes: processes(&sums, recording, share),
            hardware: recording.counted.as_ref().map(|counted| Hardware::new(counted, &named)),
            datagrams: datagrams(before, after),
            stacks: stacks(sums.stacks, &named),
            traces: Traces::default(),
            facts: Facts::new(before, after),
            notes: Vec::new(),
        };
        profile.notes = notes::all(&profile, recording);
        profile
    }

    /// What it is about: these processes come first, findings name their sockets, and other programs' time is charged to
    /// no datagram.
    #[must_use]
    pub fn about(mut self, focus: Focus) -> Self {
        // Stable: otherwise the order stays.
        self.processes.sort_by_key(|process| !focus.pids.contains(&process.pid));
        self.facts.focus = focus;
        self.charge();
        self
    }
}
