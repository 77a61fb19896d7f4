//! Holds the threads of a server back until it may answer ([`Config::hold`](crate::Config::hold)).
//!
//! ```text
//!  worker ─▸ probe ─▸ wait ───────────────────▸ serves what is queued meanwhile, and all that follows
//!  owner       ─▸ gives up privileges ─▸ open
//!                                      └ or shut: the server ends, and answers nothing
//! ```
//! Passed once per thread: nothing of it is on the packet path.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Waiting,
    Open,
    Shut,
}

impl Gate {
    /// Lets all threads serve, unless it was shut.
    pub(crate) fn open(&self) {
        self.change(State::Open);
    }

    /// Ends the wait without serving, unless it was opened.
    pub(crate) fn shut(&self) {
        self.change(State::Shut);
    }

    /// Waits until it is opened or shut. Returns whether to serve.
    pub(crate) fn pass(&self) -> bool {
        let waiting = |state: &mut State| *state == State::Waiting;
        let passed = self.changed.wait_while(self.lock(), waiting);
        *passed.unwrap_or_else(PoisonError::into_inner) == State::Open
    }

    fn change(&self, to: State) {
        let mut state = self.lock();
        if *state == State::Waiting {
            *state = to;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// A state is never half written.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_decision_holds() {
        let (opened, ended) = (Gate::default(), Gate::default());
        std::thread::scope(|scope| {
            let threads = [&opened, &opened, &ended].map(|gate| scope.spawn(|| gate.pass()));
            opened.open();
            opened.shut();
            ended.shut();
            ended.open();
            assert_eq!(threads.map(|thread| thread.join().unwrap()), [true, true, false]);
        });
    }
}
