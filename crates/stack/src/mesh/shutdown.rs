//! How workers that hand frames over to each other end: in two steps, each of which all of them take before any takes the next.
//!
//! ```text
//! 1  hands over nothing more      when all have: what is in the backlogs is all that will ever be
//! 2  serves nothing more          when all have: what is on its way home is all that will ever be
//! ```

use crate::primitive::{Arc, AtomicUsize, Ordering};

/// One worker's part. Dropped before its end, as by a panic, it counts as having taken both steps: nobody waits for it.
pub(crate) struct Shutdown {
    shared: Arc<Shared>,
    taken: Step,
}

/// The last step that a worker took.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    None,
    HandsOver,
    Serves,
}

/// How many workers still do it.
struct Shared {
    handing_over: AtomicUsize,
    serving: AtomicUsize,
}

impl Shutdown {
    /// The parts of so many workers.
    pub(crate) fn of(workers: usize) -> Vec<Self> {
        let shared = Shared { handing_over: AtomicUsize::new(workers), serving: AtomicUsize::new(workers) };
        let shared = Arc::new(shared);
        (0..workers).map(|_| Self { shared: Arc::clone(&shared), taken: Step::None }).collect()
    }

    /// The worker hands over nothing more.
    pub(crate) fn stop_handing_over(&mut self) {
        if self.taken < Step::HandsOver {
            self.taken = Step::HandsOver;
            // Release: the frames that it handed over are in the rings before.
            self.shared.handing_over.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The worker serves nothing more that others handed over.
    pub(crate) fn stop_serving(&mut self) {
        self.stop_handing_over();
        if self.taken < Step::Serves {
            self.taken = Step::Serves;
            // Release: the frames that it served are in the rings home before.
            self.shared.serving.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether some worker may still hand frames over. To be asked before looking into the backlogs.
    pub(crate) fn is_handing_over(&self) -> bool {
        self.shared.handing_over.load(Ordering::Acquire) > 0
    }

    /// Whether some worker may still send frames home. To be asked before looking into the rings home.
    pub(crate) fn is_serving(&self) -> bool {
        self.shared.serving.load(Ordering::Acquire) > 0
    }
}

impl Drop for Shutdown {
    fn drop(&mut self) {
        self.stop_serving();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_taken_when_all_have_taken_it() {
        let mut all = Shutdown::of(3);
        all[0].stop_handing_over();
        all[0].stop_handing_over();
        all[1].stop_handing_over();
        assert!(all[0].is_handing_over(), "one is left");
        all[2].stop_handing_over();
        assert!(!all[0].is_handing_over() && all[0].is_serving());
        all[0].stop_serving();
        all[1].stop_serving();
        assert!(all[0].is_serving());
        // One that panics.
        drop(all.pop());
        assert!(!all[0].is_serving());
        drop(all.pop());
        assert!(!all[0].is_serving(), "counted once");
    }
}
