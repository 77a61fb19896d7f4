//! Names of threads: from the kernel's records of changes, and from /proc for threads that never change theirs.
//!
//! Rings are read one after the other, so a name may come before an older one, and long after its thread's samples: the
//! latest name is kept, whatever the order.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use udpath_files::kernel;

/// Threads whose names are kept before those that ended without a sample are dropped. Each takes about 60 bytes. Lower:
/// they are scanned more often; higher: an hour on a machine that starts programs all the time takes more memory.
const MANY: usize = 16_384;

/// Most bytes of a name that are read. The kernel has 15, and more for its own threads.
const MAX_NAME: usize = 64;

/// The names of threads.
#[derive(Debug, Default)]
pub struct Threads {
    /// Are they threads of this machine, so that /proc can be read?
    live: bool,
    known: HashMap<u32, Thread>,
    /// Number of entries at which unused ones are dropped next.
    full: usize,
}

#[derive(Debug, Default)]
struct Thread {
    name: String,
    /// When it got this name.
    since: u64,
    sampled: bool,
    ended: bool,
}

impl Threads {
    /// Threads of this machine. The default uses records only.
    #[must_use]
    pub fn live() -> Self {
        Self { live: true, ..Self::default() }
    }

    /// A sample of a thread was taken at `time`.
    pub fn meet(&mut self, pid: u32, tid: u32, time: u64) {
        let live = self.live;
        match self.known.entry(tid) {
            Entry::Occupied(mut known) => known.get_mut().sampled = true,
            Entry::Vacant(place) => {
                // Fails if the thread has ended.
                let path = || format!("/proc/{pid}/task/{tid}/comm");
                let name =
                    if live { kernel::start(path(), MAX_NAME).unwrap_or_default() } else { Vec::new() };
                // It may be any bytes.
                let name = String::from_utf8_lossy(&name).trim_end().to_owned();
                place.insert(Thread { name, since: time, sampled: true, ended: false });
            }
        }
        self.forget();
    }

    /// A thread has this name from `time` on.
    pub fn renamed(&mut self, tid: u32, name: &str, time: u64) {
        let known = self.known.entry(tid).or_default();
        if known.name.is_empty() || (time, name) > (known.since, known.name.as_str()) {
            name.clone_into(&mut known.name);
            known.since = time;
        }
        self.forget();
    }

    /// A thread has ended. Its name is kept while samples of it may still come.
    pub fn ended(&mut self, tid: u32) {
        if let Some(known) = self.known.get_mut(&tid) {
            known.ended = true;
        }
    }

    /// The name of a thread; empty if unknown.
    #[must_use]
    pub fn name(&self, tid: u32) -> &str {
        self.known.get(&tid).map_or("", |thread| thread.name.as_str())
    }

    fn forget(&mut self) {
        if self.known.len() > self.full.max(MANY) {
            self.known.retain(|_, thread| thread.sampled || !thread.ended);
            self.full = 2 * self.known.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_youngest_name_stays_in_whatever_order_they_come() {
        let names = [(10, "sh"), (20, "worker"), (15, "knotd")];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut threads = Threads::default();
            threads.meet(8, 9, 12);
            order.iter().for_each(|at| threads.renamed(9, names[*at].1, names[*at].0));
            assert_eq!(threads.name(9), "worker", "{order:?}");
        }
    }

    #[test]
    fn a_name_may_come_after_the_samples_and_after_the_end() {
        let mut threads = Threads::default();
        threads.meet(8, 9, 12);
        threads.ended(9);
        assert_eq!(threads.name(9), "");
        threads.renamed(9, "late", 5);
        assert_eq!((threads.name(9), threads.name(10)), ("late", ""));
    }

    #[test]
    fn threads_that_came_and_went_do_not_fill_memory() {
        let mut threads = Threads::default();
        threads.meet(1, 1, 0);
        threads.renamed(1, "kept", 0);
        for tid in 2..400_000 {
            threads.renamed(tid, "short", 1);
            threads.ended(tid);
        }
        assert!(threads.known.len() <= 2 * MANY, "{}", threads.known.len());
        assert_eq!(threads.name(1), "kept");
    }

    #[test]
    fn own_threads_have_names() {
        let (pid, tid) =
            (std::process::id(), rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        let mut threads = Threads::live();
        threads.meet(pid, tid, 0);
        let own = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        assert_eq!(threads.name(tid), own.trim_end());
    }
}
