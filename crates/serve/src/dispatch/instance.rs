//! A worker's service instance, and its replacement after a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::service::WorkerId;

/// See the module.
pub(super) struct Instance<S, F: ?Sized> {
    /// `None` after a panic, until the next call.
    service: Option<S>,
    worker: WorkerId,
    factory: Arc<F>,
}

/// Why a call did not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The service panicked.
    Panicked,
    /// The instance was lost to an earlier panic, and the factory panicked making a new one. The call was not made.
    NoInstance,
}

impl<S, F: Fn(WorkerId) -> S + ?Sized> Instance<S, F> {
    /// Makes an instance, on the calling thread. A panic of the factory is not caught.
    pub(super) fn new(worker: WorkerId, factory: Arc<F>) -> Self {
        Self { service: Some(factory(worker)), worker, factory }
    }

    pub(super) fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Calls the service and catches a panic, which loses the instance.
    #[inline(always)]
    pub(super) fn call<T>(&mut self, call: impl FnOnce(&mut S) -> T) -> Result<T, Failure> {
        if self.service.is_none() {
            self.replace();
        }
        let Some(service) = &mut self.service else { return Err(Failure::NoInstance) };
        let result = catch_unwind(AssertUnwindSafe(|| call(service)));
        result.map_err(|_panic| {
            self.service = None;
            Failure::Panicked
        })
    }

    #[cold]
    fn replace(&mut self) {
        let (factory, worker) = (&self.factory, self.worker);
        self.service = catch_unwind(AssertUnwindSafe(|| factory(worker))).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn a_panic_replaces_the_instance_and_a_failing_factory_is_tried_again() {
        let made = AtomicUsize::new(0);
        let factory = |_| {
            let number = made.fetch_add(1, Relaxed) + 1;
            assert_ne!(number, 2, "expected by the test");
            number
        };
        let mut instance = Instance::new(WorkerId(0), Arc::new(factory));
        assert_eq!(instance.call(|number| *number), Ok(1));
        assert_eq!(
            instance.call(|number| assert_eq!(*number, 0, "expected by the test")),
            Err(Failure::Panicked)
        );
        assert_eq!(instance.call(|number| *number), Err(Failure::NoInstance));
        assert_eq!(instance.call(|number| *number), Ok(3));
    }
}
