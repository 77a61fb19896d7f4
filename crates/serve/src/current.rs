//! Data that workers answer from, replaced as a whole while they answer: for services with files.
//!
//! ```text
//! reload ─▸ new data ─▸ Current: swapped in, generation + 1 ─▸ old data freed once no worker has it
//! worker ─▸ View::get: one load of the generation per request; if it changed: takes the new data
//! ```
//! No request is lost or held up: a worker keeps the data that it works with alive. Another thread frees the old data
//! when the last worker has left it, so that no worker spends its time on that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Time from a replacement to the first check whether all workers have left the old data. A worker leaves with its next
/// request. Shorter: CPU time for nothing. Longer: twice the memory for that long.
const FIRST_CHECK: Duration = Duration::from_millis(10);
/// Longest time between two checks; it doubles until then. Longer: an old copy stays longer after an idle worker has
/// left it.
const LAST_CHECKS: Duration = Duration::from_secs(10);

/// The data of all workers.
///
/// ```
/// use udpath_serve::{Current, View};
///
/// let current = Current::new(1);
/// let mut worker = View::new(&current);
/// assert_eq!(*worker.get(), 1);
/// current.replace(2);
/// assert_eq!(*worker.get(), 2);
/// ```
#[derive(Debug)]
pub struct Current<T> {
    generation: AtomicU64,
    data: Mutex<Arc<T>>,
    retired: Mutex<Retired<T>>,
}

/// Data that a worker may still have.
#[derive(Debug)]
struct Retired<T> {
    data: Vec<Arc<T>>,
    /// Whether a thread looks after them.
    is_watched: bool,
}

impl<T: Send + Sync + 'static> Current<T> {
    /// The first data.
    #[must_use]
    pub fn new(data: T) -> Arc<Self> {
        let data = Mutex::new(Arc::new(data));
        let retired = Mutex::new(Retired { data: Vec::new(), is_watched: false });
        Arc::new(Self { generation: AtomicU64::new(0), data, retired })
    }

    /// The newest data. Takes a lock: not for the packet path.
    #[must_use]
    pub fn latest(&self) -> Arc<T> {
        Arc::clone(&lock(&self.data))
    }

    /// Replaces the data and returns the new ones. Requests that arrive from now on are answered from them. If no
    /// thread can be started to free the old data, they stay until the next replacement.
    pub fn replace(self: &Arc<Self>, new: T) -> Arc<T> {
        let new = Arc::new(new);
        let old = std::mem::replace(&mut *lock(&self.data), Arc::clone(&new));
        // After the swap: whoever sees the new generation finds the new data.
        self.generation.fetch_add(1, Ordering::Release);
        let mut retired = lock(&self.retired);
        retired.data.push(old);
        if !retired.is_watched {
            let current = Arc::downgrade(self);
            let watcher = std::thread::Builder::new().name("free-old-data".into());
            retired.is_watched = watcher.spawn(move || free_when_left(&current)).is_ok();
        }
        drop(retired);
        new
    }

    /// Frees retired data that no worker has; true if none are left.
    fn free(&self) -> bool {
        let mut retired = lock(&self.retired);
        // Workers take data from `self.data` only, so a count of 1 stays 1.
        retired.data.retain(|data| Arc::strong_count(data) > 1);
        retired.is_watched = !retired.data.is_empty();
        !retired.is_watched
    }
}

/// Checks until all retired data are freed, or the server has ended.
fn free_when_left<T: Send + Sync + 'static>(current: &Weak<Current<T>>) {
    let mut pause = FIRST_CHECK;
    loop {
        std::thread::sleep(pause);
        pause = (2 * pause).min(LAST_CHECKS);
        if current.upgrade().is_none_or(|current| current.free()) {
            return;
        }
    }
}

/// Nothing can be left half done under these locks: a panic elsewhere does not matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A worker's view of the data.
#[derive(Debug)]
pub struct View<T> {
    current: Arc<Current<T>>,
    generation: u64,
    data: Arc<T>,
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        let Self { current, generation, data } = self;
        Self { current: Arc::clone(current), generation: *generation, data: Arc::clone(data) }
    }
}

impl<T: Send + Sync + 'static> View<T> {
    /// A view of `current`.
    #[must_use]
    pub fn new(current: &Arc<Current<T>>) -> Self {
        let generation = current.generation.load(Ordering::Acquire);
        Self { current: Arc::clone(current), generation, data: current.latest() }
    }

    /// What it is a view of.
    #[must_use]
    pub fn current(&self) -> &Arc<Current<T>> {
        &self.current
    }

    /// The data to answer from now.
    #[inline]
    pub fn get(&mut self) -> &T {
        let generation = self.current.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.renew(generation);
        }
        &self.data
    }

    /// Once per replacement: the lock is held for as long as it takes to copy a pointer.
    #[cold]
    fn renew(&mut self, generation: u64) {
        self.data = self.current.latest();
        self.generation = generation;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_see_new_data_and_the_old_ones_are_freed() {
        let current = Current::new(1);
        let mut views = [View::new(&current), View::new(&current)];
        let old = Arc::downgrade(&current.latest());
        std::thread::scope(|scope| {
            scope.spawn(|| current.replace(2));
            while views.iter_mut().any(|view| *view.get() == 1) {
                std::thread::yield_now();
            }
        });
        freed(&old);
    }

    /// An idle worker keeps the data it has; with its next request they go.
    #[test]
    fn an_idle_worker_holds_up_nothing() {
        let current = Current::new(1);
        let mut idle = View::new(&current);
        let old = Arc::downgrade(&idle.data);
        let newer = Arc::downgrade(&current.replace(2));
        current.replace(3);
        freed(&newer);
        assert_eq!(old.strong_count(), 2, "the worker's and the one that keeps it from freeing");
        idle.get();
        freed(&old);
    }

    fn freed(data: &Weak<i32>) {
        let begun = std::time::Instant::now();
        while data.strong_count() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(30), "it stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
