//! Opens events and their rings, for CPUs or for threads.
//!
//! ```text
//! of CPUs                                  of threads
//! CPU 0: event ──▸ ring                    CPU 0: event of thread 1 ──▸ ring
//!        └─ counters, read with it                event of thread 2 ──▸ the same
//! CPU 1: ...                               CPU 1: ...
//! ```
//! An event of a thread is for one CPU, so that new threads can inherit it: they are sampled from their first
//! instruction with their parent's events, and write to the same rings. A thread created between reading the list of
//! threads and opening its parent's event is missed, as in perf.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use perf_event_open_sys::bindings as uapi;
use udpath_files::kernel;
use udpath_steer::CpuSet;

use super::counters::{Absent, Counter};
use super::error::OpenError;
use super::how::{Clock, How, Sight};
use super::reading::READ_FORMAT;
use super::record::Layout;
use super::sys::{self, Ring, Target};

/// Size of all rings together, in bytes. Lower: on a machine with many CPUs, samples are lost when udpath waits for a
/// CPU. Higher: a profile of 128 CPUs exceeds its memory bound.
const RINGS: usize = 16 << 20;
/// Minimum and maximum size of one ring, in bytes. At 199 samples a second of 400 bytes, the minimum is full after 0.8
/// s, the maximum after 6 s; at 2,000, after 80 ms and 0.6 s. The maximum is what an unprivileged user may map per CPU
/// (`kernel.perf_event_mlock_kb`).
const RING: (usize, usize) = (64 << 10, 512 << 10);
/// Most frames of a chain. The kernel's own limit is 127; deeper user stacks are cut at their root.
const DEEPEST: u16 = 127;

/// One ring, and the events that write to it: those of one CPU.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) cpu: u32,
    pub(super) ring: Ring,
    /// The first one owns the ring.
    pub(super) events: Vec<OwnedFd>,
    /// The counters read with each sample, the sampled event first.
    pub(super) counters: Vec<Running>,
}

/// A counter of one CPU.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) counter: Counter,
    /// Its id in readings.
    pub(super) id: u64,
    /// For counters that are not sampled; it counts while this is open.
    _event: Option<OwnedFd>,
}

/// Opens an event on each CPU, with the counters that all of them have; returns also the counters left out, and why.
pub(super) fn cpu_sources(how: How, cpus: &CpuSet) -> Result<(Vec<Source>, Vec<Absent>), OpenError> {
    let mut sources: Vec<Source> = Vec::with_capacity(cpus.len());
    let mut beside = if how.layout() == Layout::Counted { Counter::ALL[1..].to_vec() } else { Vec::new() };
    let mut absent = Vec::new();
    for cpu in cpus.iter() {
        let target = Target { cpu, tid: None };
        let refused = |cause| refused(how, target, cause);
        let event = match sys::open(&mut attributes(how), target, None) {
            Err(cause) if went_away(cpu, &cause) => continue,
            opened => opened.map_err(refused)?,
        };
        let mut counters = Vec::new();
        if how.layout() == Layout::Counted {
            let id = sys::id(event.as_fd()).map_err(refused)?;
            counters.push(Running { counter: Counter::Cycles, id, _event: None });
            beside.retain(|&counter| match join(counter, target, event.as_fd()) {
                Ok(joined) => {
                    counters.push(joined);
                    true
                }
                Err(cause) => {
                    absent.push(Absent::new(counter, &cause));
                    // A count of some CPUs would be divided by the time of all. Closing the counter removes it from
                    // their groups.
                    sources
                        .iter_mut()
                        .for_each(|source| source.counters.retain(|has| has.counter != counter));
                    false
                }
            });
        }
        let ring = ring(event.as_fd(), cpu, cpus.len())?;
        sources.push(Source { cpu, ring, events: vec![event], counters });
    }
    Ok((sources, absent))
}

/// Opens an event of each thread on each CPU; those of a CPU share its ring.
pub(super) fn thread_sources(how: How, tids: &[u32], cpus: &CpuSet) -> Result<Vec<Source>, OpenError> {
    let mut sources: Vec<Source> = Vec::with_capacity(cpus.len());
    for cpu in cpus.iter() {
        let mut source: Option<Source> = None;
        for &tid in tids {
            let target = Target { cpu, tid: Some(tid) };
            let refused = |cause| refused(how, target, cause);
            let event = match sys::open(&mut attributes(how), target, None) {
                Err(cause) if has_ended(&cause) || went_away(cpu, &cause) => continue,
                opened => opened.map_err(refused)?,
            };
            match &mut source {
                Some(source) => {
                    let owner = source.events[0].as_fd();
                    sys::share_ring(event.as_fd(), owner).map_err(refused)?;
                    source.events.push(event);
                }
                None => {
                    let ring = ring(event.as_fd(), cpu, cpus.len())?;
                    source = Some(Source { cpu, ring, events: vec![event], counters: Vec::new() });
                }
            }
        }
        sources.extend(source);
    }
    Ok(sources)
}

/// Maps the ring of an event, one of `of` rings; smaller if the user may not map as much.
fn ring(event: BorrowedFd<'_>, cpu: u32, of: usize) -> Result<Ring, OpenError> {
    let size = (RINGS / of.max(1)).clamp(RING.0, RING.1);
    // The largest power of two up to the limit.
    let mut size = 1_usize << size.ilog2();
    loop {
        match Ring::map(event, size) {
            Err(cause) if cause.raw_os_error() == Some(libc::EPERM) && size > RING.0 => size /= 2,
            mapped => return mapped.map_err(|cause| OpenError::NoRing { cpu, kib: size >> 10, cause }),
        }
    }
}

/// Opens a counter as a member of a group.
fn join(counter: Counter, target: Target, leader: BorrowedFd<'_>) -> io::Result<Running> {
    let event = sys::open(&mut member(counter.event()), target, Some(leader))?;
    Ok(Running { counter, id: sys::id(event.as_fd())?, _event: Some(event) })
}

fn attributes(how: How) -> uapi::perf_event_attr {
    let mut attributes = uapi::perf_event_attr::default();
    (attributes.type_, attributes.config) = match how.clock {
        Clock::Cycles => Counter::Cycles.event(),
        Clock::CpuClock => (uapi::PERF_TYPE_SOFTWARE, uapi::PERF_COUNT_SW_CPU_CLOCK.into()),
    };
    attributes.set_freq(1);
    attributes.sample_freq = how.rate.into();
    attributes.sample_type = how.layout().fields().into();
    if how.layout() == Layout::Counted {
        attributes.read_format = READ_FORMAT;
    }
    attributes.sample_max_stack = DEEPEST;
    attributes.set_disabled(1);
    attributes.set_sample_id_all(1);
    clock(&mut attributes);
    // Record programs and mapped files as they appear, so that addresses can be resolved after they are gone.
    attributes.set_mmap(1);
    attributes.set_mmap2(1);
    attributes.set_comm(1);
    attributes.set_comm_exec(1);
    attributes.set_task(1);
    attributes.set_exclude_hv(1);
    attributes.set_exclude_guest(1);
    attributes.set_inherit((how.sight != Sight::Machine).into());
    attributes.set_exclude_kernel((how.sight == Sight::ProcessUser).into());
    attributes.set_exclude_callchain_kernel((how.sight == Sight::ProcessUser).into());
    attributes
}

/// An event that only counts, over the same work as its leader.
fn member((kind, config): (u32, u64)) -> uapi::perf_event_attr {
    let mut attributes = uapi::perf_event_attr::default();
    (attributes.type_, attributes.config) = (kind, config);
    attributes.read_format = READ_FORMAT;
    clock(&mut attributes);
    attributes.set_exclude_hv(1);
    attributes.set_exclude_guest(1);
    attributes
}

/// The clock of softirq and socket times, so that samples and tracepoints share a time line. A group has one clock.
fn clock(attributes: &mut uapi::perf_event_attr) {
    attributes.set_use_clockid(1);
    attributes.clockid = libc::CLOCK_MONOTONIC;
}

/// The thread ended.
fn has_ended(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// The CPU went offline.
fn went_away(cpu: u32, error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV) && running_cpus().is_some_and(|online| !online.contains(cpu))
}

/// The online CPUs; `None` if they cannot be read.
pub(crate) fn running_cpus() -> Option<CpuSet> {
    kernel::text("/sys/devices/system/cpu/online").ok()?.trim_end().parse().ok()
}

fn refused(how: How, target: Target, cause: io::Error) -> OpenError {
    let what = match target.tid {
        None => format!("CPU {}", target.cpu),
        Some(tid) => format!("thread {tid}"),
    };
    if !matches!(cause.raw_os_error(), Some(libc::EACCES | libc::EPERM)) {
        return OpenError::Refused { what, cause };
    }
    // What each level allows: CPUs up to 0, the kernel part of the user's own threads up to 1, their user part up to 2.
    let text = kernel::text("/proc/sys/kernel/perf_event_paranoid");
    let paranoid = text.map_or_else(|_| "not readable".to_owned(), |text| text.trim_end().to_owned());
    if how.sight == Sight::ProcessUser && paranoid.parse().is_ok_and(|level: i32| level <= 2) {
        return OpenError::NotOurs { what };
    }
    let enough = if target.tid.is_none() { 0 } else { 2 };
    OpenError::NotPermitted { what, paranoid, enough }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::record::Record;
    use super::super::ring::records_as;
    use super::*;

    /// The kernel's own layout of a group's values, with a group like that of the hardware counters but of counters
    /// that every machine has. It counts this thread, so it needs no further permissions.
    #[test]
    fn a_groups_values_come_with_each_sample() {
        let cpus = running_cpus().unwrap();
        let tid = Some(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        let software = |config: u32| member((uapi::PERF_TYPE_SOFTWARE, config.into()));
        let wanted = [uapi::PERF_COUNT_SW_TASK_CLOCK, uapi::PERF_COUNT_SW_PAGE_FAULTS];
        let groups: Vec<_> = cpus
            .iter()
            .map(|cpu| {
                let target = Target { cpu, tid };
                let how = How { clock: Clock::CpuClock, sight: Sight::ProcessUser, rate: 4000 };
                let mut leads = attributes(how);
                leads.sample_type = Layout::Counted.fields().into();
                leads.read_format = READ_FORMAT;
                leads.set_inherit(0);
                let leader = sys::open(&mut leads, target, None).unwrap();
                let members = wanted.map(|config| {
                    let mut member = software(config);
                    member.set_exclude_kernel(1);
                    sys::open(&mut member, target, Some(leader.as_fd())).unwrap()
                });
                let ring = Ring::map(leader.as_fd(), RING.0).unwrap();
                sys::enable(leader.as_fd()).unwrap();
                (leader, members, ring)
            })
            .collect();
        let begin = Instant::now();
        // New memory each time, so that there are page faults to count.
        while begin.elapsed() < Duration::from_millis(100) {
            std::hint::black_box(vec![1_u8; 1 << 20]);
        }
        let (mut samples, mut faults) = (0, 0);
        for (leader, members, mut ring) in groups {
            sys::disable(leader.as_fd()).unwrap();
            let ids: Vec<u64> = std::iter::once(&leader)
                .chain(&members)
                .map(|event| sys::id(event.as_fd()).unwrap())
                .collect();
            let mut bytes = Vec::new();
            ring.drain(&mut bytes);
            let mut last = (0, vec![0; ids.len()]);
            let malformed = records_as(Layout::Counted, &bytes, |record| {
                let Record::Sample(sample) = record else { return };
                let reading = sample.reading.expect("the values of the group");
                let (told, values): (Vec<u64>, Vec<u64>) = reading.values().unzip();
                assert_eq!(told, ids);
                assert!(reading.enabled >= last.0 && reading.running <= reading.enabled, "{reading:?}");
                assert!(
                    values.iter().zip(&last.1).all(|(now, then)| now >= then),
                    "{values:?} after {last:?}"
                );
                samples += 1;
                last = (reading.enabled, values);
            });
            assert_eq!(malformed, 0);
            faults += last.1[2];
        }
        assert!(samples > 10 && faults > 100, "{samples} samples, {faults} page faults");
    }
}
