//! What workers answer from, replaced as a whole while they answer.
//!
//! ```text
//! SIGHUP ─▸ a thread of its own: files ─▸ new Data ─▸ Current: swapped in, generation + 1 ─▸ old Data freed when nobody has it
//!                                 └▸ error: the old Data stays
//! worker ─▸ View::get: one load of the generation per query; another than before: takes the new Data
//! ```
//! No query is lost or held up: a worker that is at work keeps its Data alive. Another thread frees the old one when the last worker
//! has left it, so that no worker spends its time on it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::cookie::{SecretError, Secrets};
use super::index::Index;
use super::zone::{self, ZoneError};

/// How soon after a reload it is first looked at whether all workers have left the old data, and how often at last. A worker leaves with
/// its next query. Shorter: CPU time for nothing while a worker is idle; longer: twice the memory for that long.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LAST_LOOKS: Duration = Duration::from_secs(10);

/// All that may change while the server runs.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) index: Index,
    pub(super) secrets: Secrets,
}

/// Where the data come from.
#[derive(Debug, Clone, Default)]
pub(super) struct Sources {
    pub(super) zones: Vec<PathBuf>,
    pub(super) secrets: Option<PathBuf>,
}

/// Why data cannot be loaded. The message names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A zone.
    #[error(transparent)]
    Zone(#[from] ZoneError),
    /// The cookies' secrets.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The kernel has no random bytes for a secret.
    #[error("cannot make a secret for cookies: {0}")]
    Random(std::io::Error),
}

/// The data of all workers.
#[derive(Debug)]
pub(super) struct Current {
    generation: AtomicU64,
    data: Mutex<Arc<Data>>,
    /// Data that a worker may still have.
    retired: Mutex<Vec<Arc<Data>>>,
}

impl Current {
    /// Loads for the first time.
    pub(super) fn load(sources: &Sources) -> Result<Arc<Self>, LoadError> {
        let secrets = match &sources.secrets {
            Some(file) => Secrets::read(file)?,
            None => Secrets::random().map_err(LoadError::Random)?,
        };
        let index = Index::build(zone::load(&sources.zones)?)?;
        let data = Mutex::new(Arc::new(Data { index, secrets }));
        Ok(Arc::new(Self { generation: AtomicU64::new(0), data, retired: Mutex::default() }))
    }

    /// Loads again. On an error everything stays as it is.
    pub(super) fn reload(self: &Arc<Self>, sources: &Sources) -> Result<Arc<Data>, LoadError> {
        let secrets = match &sources.secrets {
            Some(file) => Secrets::read(file)?,
            None => self.latest().secrets.clone(),
        };
        let index = Index::build(zone::load(&sources.zones)?)?;
        let data = Arc::new(Data { index, secrets });
        self.replace(Arc::clone(&data));
        Ok(data)
    }

    /// The newest data. Takes a lock: not for the packet path.
    pub(super) fn latest(&self) -> Arc<Data> {
        Arc::clone(&lock(&self.data))
    }

    fn replace(self: &Arc<Self>, new: Arc<Data>) {
        let old = std::mem::replace(&mut *lock(&self.data), new);
        // After the swap: who sees the new number finds the new data.
        self.generation.fetch_add(1, Ordering::Release);
        let mut retired = lock(&self.retired);
        let is_looked_after = !retired.is_empty();
        retired.push(old);
        drop(retired);
        if !is_looked_after {
            let current = Arc::downgrade(self);
            std::thread::spawn(move || free_when_left(&current));
        }
    }

    /// Frees retired data that no worker has; true if none are left.
    fn free(&self) -> bool {
        let mut retired = lock(&self.retired);
        // Workers take data from `self.data` only, so a count of 1 stays 1.
        retired.retain(|data| Arc::strong_count(data) > 1);
        retired.is_empty()
    }
}

/// Looks until all retired data are freed, or the server has ended.
fn free_when_left(current: &Weak<Current>) {
    let mut pause = FIRST_LOOK;
    loop {
        std::thread::sleep(pause);
        pause = (2 * pause).min(LAST_LOOKS);
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
#[derive(Debug, Clone)]
pub(super) struct View {
    current: Arc<Current>,
    generation: u64,
    data: Arc<Data>,
}

impl View {
    pub(super) fn new(current: Arc<Current>) -> Self {
        let generation = current.generation.load(Ordering::Acquire);
        let data = current.latest();
        Self { current, generation, data }
    }

    /// What it is a view of.
    pub(super) fn current(&self) -> &Arc<Current> {
        &self.current
    }

    /// The data to answer from now.
    #[inline]
    pub(super) fn get(&mut self) -> &Data {
        let generation = self.current.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.renew(generation);
        }
        &self.data
    }

    /// Once per reload: the lock is held for as long as it takes to copy a pointer.
    #[cold]
    fn renew(&mut self, generation: u64) {
        self.data = self.current.latest();
        self.generation = generation;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const ZONE: &str = "$ORIGIN x.\n@ 1 SOA . . 1 1 1 1 1\na A 192.0.2.1\n";

    #[test]
    fn workers_see_new_data_and_the_old_ones_are_freed() {
        let mut file = zone::file(ZONE);
        let sources = Sources { zones: vec![file.path().into()], secrets: None };
        let current = Current::load(&sources).unwrap();
        let mut views = [View::new(Arc::clone(&current)), View::new(Arc::clone(&current))];
        let old = Arc::downgrade(&current.latest());
        assert_eq!(views[0].get().index.names(), 2);
        file.write_all(b"b A 192.0.2.2\n").unwrap();
        let asked = std::thread::scope(|scope| {
            let reload = scope.spawn(|| current.reload(&sources).unwrap().index.names());
            while views.iter_mut().any(|view| view.get().index.names() == 2) {
                std::thread::yield_now();
            }
            reload.join().unwrap()
        });
        assert_eq!(asked, 3);
        freed(&old);
    }

    fn freed(data: &Weak<Data>) {
        let begun = std::time::Instant::now();
        while data.strong_count() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(30), "it stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_wrong_file_changes_nothing() {
        let mut file = zone::file(ZONE);
        let sources = Sources { zones: vec![file.path().into()], secrets: None };
        let current = Current::load(&sources).unwrap();
        let mut view = View::new(Arc::clone(&current));
        file.write_all(b"b A nonsense\n").unwrap();
        let error = current.reload(&sources).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}:4:", file.path().display())), "{error}");
        assert_eq!((view.get().index.names(), view.generation), (2, 0));
    }

    /// An idle worker keeps the data it has; with its next query they go.
    #[test]
    fn an_idle_worker_holds_up_nothing() {
        let file = zone::file(ZONE);
        let sources = Sources { zones: vec![file.path().into()], secrets: None };
        let current = Current::load(&sources).unwrap();
        let mut idle = View::new(Arc::clone(&current));
        let old = Arc::downgrade(&idle.data);
        let newer = Arc::downgrade(&current.reload(&sources).unwrap());
        current.reload(&sources).unwrap();
        freed(&newer);
        assert_eq!(old.strong_count(), 2, "the worker's and the one that keeps it from freeing");
        idle.get();
        freed(&old);
    }
}
