//! How workers that hand frames to each other shut down: in two steps. No worker takes a step before all have taken
//! the one before.
//!
//! ```text
//! 1  stop handing over      once all have: the backlogs hold everything that will ever be in them
//! 2  stop serving           once all have: the return rings hold everything that will ever be in them
//! ```

use crate::primitive::{Arc, AtomicUsize, Ordering};

/// One worker's part. If it is dropped early, for example by a panic, it counts as having taken both steps, so that
/// no worker waits for it.
pub(crate) struct Shutdown {
    shared: Arc<Shared>,
    taken: Step,
}

/// The last step that a worker has taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    None,
    HandsOver,
    Serves,
}

/// The number of workers that have not taken each step.
struct Shared {
    handing_over: AtomicUsize,
    serving: AtomicUsize,
}

impl Shutdown {
    /// The parts of this many workers.
    pub(crate) fn of(workers: usize) -> Vec<Self> {
        let shared = Shared { handing_over: AtomicUsize::new(workers), serving: AtomicUsize::new(workers) };
        let shared = Arc::new(shared);
        (0..workers).map(|_| Self { shared: Arc::clone(&shared), taken: Step::None }).collect()
    }

    /// The worker will hand over no more frames.
    pub(crate) fn stop_handing_over(&mut self) {
        if self.taken < Step::HandsOver {
            self.taken = Step::HandsOver;
            // Release: the frames it handed over are in the rings before.
            self.shared.handing_over.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The worker will serve no more frames that others handed over.
    pub(crate) fn stop_serving(&mut self) {
        self.stop_handing_over();
        if self.taken < Step::Serves {
            self.taken = Step::Serves;
            // Release: the frames it served are in the return rings before.
            self.shared.serving.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether any worker may still hand frames over. Check it before checking the backlogs.
    pub(crate) fn is_handing_over(&self) -> bool {
        self.shared.handing_over.load(Ordering::Acquire) > 0
    }

    /// Whether any worker may still return frames. Check it before checking the return rings.
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
