//! Samples of CPUs or threads: by the event that this machine has, of what the user may see.

use std::io;
use std::os::fd::AsFd;

use udpath_steer::CpuSet;

use super::counters::{Absent, Counter};
use super::error::OpenError;
use super::how::{Clock, How, Sight};
use super::open::{Source, cpu_sources, thread_sources};
use super::record::Record;
use super::{ring, sys};

/// Samples of some CPUs, or of some threads, while this value lives.
#[derive(Debug)]
pub struct Event {
    how: How,
    sources: Vec<Source>,
    absent: Vec<Absent>,
    /// Threads without a descriptor.
    left_out: usize,
    /// Bytes of the rings drained last.
    bytes: Vec<u8>,
    malformed: u64,
}

impl Event {
    /// Opens an event on each of the CPUs, `rate` samples a second each, with the available counters. Not started.
    ///
    /// # Errors
    /// Not permitted, or the kernel refuses. A CPU that goes offline during the call is skipped.
    pub fn cpus(cpus: &CpuSet, rate: u32) -> Result<Self, OpenError> {
        let (how, (sources, absent)) = by_any_clock(Sight::Machine, rate, |how| cpu_sources(how, cpus))?;
        if sources.is_empty() {
            return Err(OpenError::NoCpu(cpus.clone()));
        }
        Ok(Self { absent, ..Self::of(how, sources) })
    }

    /// Opens an event for each of the threads on each of the CPUs, without the kernel if that is not permitted. Not
    /// started. Threads and processes that they create later are sampled too.
    ///
    /// Opens at most `most` descriptors; if they do not suffice, the last threads are left out.
    ///
    /// # Errors
    /// Not permitted, or the kernel refuses. A thread that ends during the call is skipped.
    pub fn threads(tids: &[u32], cpus: &CpuSet, rate: u32, most: usize) -> Result<Self, OpenError> {
        let enough = (most / cpus.len().max(1)).clamp(1, tids.len().max(1));
        let (tids, left_out) = tids.split_at(enough.min(tids.len()));
        let open = |sight| by_any_clock(sight, rate, |how| thread_sources(how, tids, cpus));
        let (how, sources) = match open(Sight::Process) {
            Err(OpenError::NotPermitted { .. }) => open(Sight::ProcessUser),
            opened => opened,
        }?;
        if sources.is_empty() {
            return Err(OpenError::NoThread);
        }
        Ok(Self { left_out: left_out.len(), ..Self::of(how, sources) })
    }

    fn of(how: How, sources: Vec<Source>) -> Self {
        let largest = sources.iter().map(|source| source.ring.size()).max().unwrap_or(0);
        let bytes = Vec::with_capacity(largest);
        Self { how, sources, absent: Vec::new(), left_out: 0, bytes, malformed: 0 }
    }

    /// Starts sampling.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn start(&self) -> Result<(), OpenError> {
        let mut events = self.sources.iter().flat_map(|source| &source.events);
        events.try_for_each(|event| sys::enable(event.as_fd())).map_err(|cause| Self::refused("start", cause))
    }

    /// Stops sampling; samples already taken can still be read.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop(&self) -> Result<(), OpenError> {
        let mut events = self.sources.iter().flat_map(|source| &source.events);
        events.try_for_each(|event| sys::disable(event.as_fd())).map_err(|cause| Self::refused("stop", cause))
    }

    fn refused(verb: &str, cause: io::Error) -> OpenError {
        OpenError::Refused { what: format!("any more: the events do not {verb}"), cause }
    }

    /// Calls `take` with every new record and the CPU that wrote it, one CPU after the other, each CPU's records in
    /// order.
    pub fn drain(&mut self, mut take: impl FnMut(u32, Record<'_>)) {
        let (layout, mut malformed) = (self.how.layout(), 0);
        self.drain_bytes(|cpu, bytes| {
            malformed += ring::records_as(layout, bytes, |record| take(cpu, record));
        });
        self.malformed += malformed;
    }

    /// The same as raw bytes, one ring after the other: for [`records`](super::records) without counters, or to be
    /// stored.
    pub fn drain_bytes(&mut self, mut take: impl FnMut(u32, &[u8])) {
        for source in &mut self.sources {
            self.bytes.clear();
            source.ring.drain(&mut self.bytes);
            take(source.cpu, &self.bytes);
        }
    }

    /// What triggers the samples.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.how.clock
    }

    /// What they show.
    #[must_use]
    pub const fn sight(&self) -> Sight {
        self.how.sight
    }

    /// Requested samples per second and CPU.
    #[must_use]
    pub const fn rate(&self) -> u32 {
        self.how.rate
    }

    /// The CPUs with an open event, whether or not they take samples: an idle one may take none.
    #[must_use]
    pub fn sampled_cpus(&self) -> CpuSet {
        self.sources.iter().map(|source| source.cpu).collect()
    }

    /// The counters beside the samples: each one's id in readings.
    pub fn counters(&self) -> impl Iterator<Item = (u64, Counter)> + '_ {
        self.sources
            .iter()
            .flat_map(|source| source.counters.iter().map(|running| (running.id, running.counter)))
    }

    /// Counters that are absent, if others are present.
    #[must_use]
    pub fn absent(&self) -> &[Absent] {
        &self.absent
    }

    /// Threads that are not sampled because there were too many.
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// Invalid records.
    #[must_use]
    pub const fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Memory of the rings, bytes.
    #[must_use]
    pub fn ring_bytes(&self) -> usize {
        self.sources.iter().map(|source| source.ring.size()).sum()
    }
}

/// Samples by the processor's cycles, or by a timer if that counter does not exist or is hidden from the virtual
/// machine.
fn by_any_clock<T>(
    sight: Sight,
    rate: u32,
    open: impl Fn(How) -> Result<T, OpenError>,
) -> Result<(How, T), OpenError> {
    let by = |clock| {
        let how = How { clock, sight, rate };
        open(how).map(|opened| (how, opened))
    };
    match by(Clock::Cycles) {
        Err(OpenError::Refused { cause, .. }) if is_absent(&cause) => by(Clock::CpuClock),
        opened => opened,
    }
}

/// The machine has no such counter.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::super::open::running_cpus;
    use super::*;

    fn own_tid() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
    }

    fn spin(length: Duration) -> u32 {
        let begin = Instant::now();
        while begin.elapsed() < length {
            std::hint::spin_loop();
        }
        own_tid()
    }

    /// The sampled threads.
    fn sampled(event: &mut Event) -> BTreeSet<u32> {
        let mut tids = BTreeSet::new();
        event.drain(|_, record| {
            if let Record::Sample(sample) = record {
                tids.insert(sample.tid);
            }
        });
        assert_eq!(event.malformed(), 0);
        tids
    }

    #[test]
    fn threads_that_come_later_are_sampled_and_those_of_others_are_not() {
        let cpus = running_cpus().unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (says, hears) = mpsc::channel();
            // A thread of this process that is not among those requested.
            let done = &done;
            scope.spawn(move || {
                let _ = says.send(own_tid());
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let other = hears.recv().unwrap();
            let mut event = Event::threads(&[own_tid()], &cpus, 2000, 1000).unwrap();
            assert_eq!(event.left_out(), 0);
            event.start().unwrap();
            let child = || thread::spawn(|| spin(Duration::from_millis(100))).join().unwrap();
            // Threads of a thread too; one after the other, each short.
            let late = [child(), child(), thread::spawn(child).join().unwrap()];
            spin(Duration::from_millis(50));
            event.stop().unwrap();
            done.store(true, Ordering::Relaxed);
            let tids = sampled(&mut event);
            assert!(
                tids.contains(&own_tid()) && late.iter().all(|tid| tids.contains(tid)),
                "{late:?} in {tids:?}"
            );
            assert!(!tids.contains(&other), "{other} in {tids:?}");
        });
    }

    #[test]
    fn threads_without_a_descriptor_are_left_out_from_the_end() {
        let cpus = running_cpus().unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (says, hears) = mpsc::channel();
            for _ in 0..3 {
                let (says, done) = (says.clone(), &done);
                scope.spawn(move || {
                    let _ = says.send(own_tid());
                    while !done.load(Ordering::Relaxed) {
                        spin(Duration::from_millis(5));
                    }
                });
            }
            let tids: Vec<u32> = hears.iter().take(3).collect();
            let mut event = Event::threads(&tids, &cpus, 2000, 2 * cpus.len()).unwrap();
            assert_eq!(event.left_out(), 1);
            event.start().unwrap();
            let deadline = Instant::now() + Duration::from_secs(30);
            let mut seen = BTreeSet::new();
            while seen.len() < 2 && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(20));
                seen.extend(sampled(&mut event));
            }
            done.store(true, Ordering::Relaxed);
            assert_eq!(seen, tids[..2].iter().copied().collect());
        });
    }

    #[test]
    fn a_thread_that_has_ended_is_reported() {
        let ended = thread::spawn(own_tid).join().unwrap();
        let error = Event::threads(&[ended], &running_cpus().unwrap(), 100, 100).unwrap_err();
        assert!(matches!(error, OpenError::NoThread), "{error}");
    }
}
