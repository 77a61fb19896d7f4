//! Completed steps, each with its inverse.

use crate::Error;

type Inverse = Box<dyn FnOnce() -> Result<(), Error> + Send + Sync>;

/// A stack of inverse actions. Dropping it runs them, the last one first; so does [`unwind`](Self::unwind), which also
/// reports errors.
#[derive(Default)]
pub(crate) struct Undo {
    steps: Vec<Inverse>,
}

impl Undo {
    /// Adds the inverse of a completed step.
    pub(crate) fn push(&mut self, inverse: impl FnOnce() -> Result<(), Error> + Send + Sync + 'static) {
        self.steps.push(Box::new(inverse));
    }

    /// Undoes everything, last first. After a failure the remaining steps still run, except the bottom one: the record
    /// of all the others, which must stay for the next sweep while something is left.
    pub(crate) fn unwind(&mut self) -> Result<(), Error> {
        let mut first = Ok(());
        while let Some(inverse) = self.steps.pop() {
            if self.steps.is_empty() && first.is_err() {
                break;
            }
            first = first.and(inverse());
        }
        first
    }

    /// Never runs the inverse of the first step.
    pub(crate) fn keep_first(&mut self) {
        if !self.steps.is_empty() {
            drop(self.steps.remove(0));
        }
    }

    /// Keeps everything that was done.
    pub(crate) fn forget(&mut self) {
        self.steps.clear();
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        // The error cannot be reported; what remains is in the record, and the next run removes it.
        let _ = self.unwind();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn logged(fails: &'static [u32]) -> (Undo, Arc<Mutex<Vec<u32>>>) {
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut undo = Undo::default();
        for step in 0..4 {
            let log = Arc::clone(&log);
            undo.push(move || {
                log.lock().unwrap().push(step);
                if fails.contains(&step) { Err(Error::KeptNeedsRoot) } else { Ok(()) }
            });
        }
        (undo, log)
    }

    #[test]
    fn steps_are_undone_in_reverse_and_once() {
        let (mut undo, log) = logged(&[]);
        undo.unwind().unwrap();
        drop(undo);
        assert_eq!(*log.lock().unwrap(), [3, 2, 1, 0]);
        let (undo, log) = logged(&[]);
        drop(undo);
        assert_eq!(*log.lock().unwrap(), [3, 2, 1, 0]);
    }

    #[test]
    fn the_record_stays_when_a_step_above_it_fails() {
        let (mut undo, log) = logged(&[2]);
        undo.unwind().unwrap_err();
        drop(undo);
        assert_eq!(*log.lock().unwrap(), [3, 2, 1]);
    }

    #[test]
    fn forgetting_undoes_nothing() {
        let (mut undo, log) = logged(&[]);
        undo.forget();
        drop(undo);
        assert!(log.lock().unwrap().is_empty());
    }
}
