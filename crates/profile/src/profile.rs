//! The result of a recording: shares of contexts and classes, by CPU, process and thread, and the stacks behind them.
//!
//! Weights are nanoseconds of CPU time if the event is a clock. If samples count cycles, they are scaled so that a
//! CPU's cycles add up to the time that the kernel accounts as busy.
//!
//! The stacks keep every frame; those of interrupts keep the kernel's frames. [`Stack::own_frames`] are those of the
//! work itself, without the interrupted code.

mod charged;
mod datagrams;
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
use sums::{Sums, Units, accounted, cpu_lines, processes, sorted, stacks};

impl Profile {
    /// Builds a profile from a recording. `before` and `after` are snapshots of the machine at its beginning and end.
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
            datagrams: datagrams::datagrams(before, after),
            stacks: stacks(sums.stacks, &named),
            traces: Traces::default(),
            facts: Facts::new(before, after),
            notes: Vec::new(),
        };
        profile.notes = notes::all(&profile, recording);
        profile.notes.extend(datagrams::note(after));
        profile
    }

    /// Sets the focus: its processes come first, findings name their sockets, and other programs' time is not charged
    /// to the datagrams.
    #[must_use]
    pub fn about(mut self, focus: Focus) -> Self {
        // A stable sort keeps the order otherwise.
        self.processes.sort_by_key(|process| !focus.pids.contains(&process.pid));
        self.facts.focus = focus;
        self.charge();
        self
    }
}
