//! Which event samples this machine, and what whoever asks may see.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use perf_event_open_sys::bindings as uapi;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use udpath_steer::CpuSet;

use super::record::{Record, SAMPLE_FIELDS};
use super::ring;
use super::sys::{self, Ring, Target};

/// Bytes that all rings together may have, in bytes. Less: samples of a machine with many CPUs are lost when this program
/// waits for a CPU. More: a profile of 128 CPUs leaves its bound of memory.
const RINGS: usize = 16 << 20;
/// Bytes of one ring, least and most, in bytes. At 293 samples a second of 400 bytes the least is full after 0.5 s, the
/// most after 4 s; at 2,000 after 80 ms and 0.6 s.
const RING: (usize, usize) = (64 << 10, 512 << 10);
/// Frames of a chain at most. The kernel's own limit is 127; deeper user stacks are cut at their root.
const DEEPEST: u16 = 127;

/// What makes the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The processor's own count of cycles: sees interrupts, too, where its interrupt cannot be masked.
    Cycles,
    /// A timer of the kernel: where the processor's counters are not there, as on most virtual machines.
    CpuClock,
}

impl Clock {
    /// The kernel's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::CpuClock => "cpu-clock",
        }
    }

    /// What samples of it cannot show; nothing when they show all.
    #[must_use]
    pub const fn blind(self) -> Option<&'static str> {
        match self {
            Self::Cycles => None,
            Self::CpuClock => Some(
                "no hardware counters: samples are of a timer, which waits while interrupts are off; hard interrupts and \
                 spinlocks held with interrupts off show where they end",
            ),
        }
    }
}

/// What the samples show, by the rights of whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sight {
    /// Every CPU, kernel and programs.
    Machine,
    /// Threads of one process, kernel included.
    Process,
    /// Threads of one process, without the kernel.
    ProcessUser,
}

/// Why nothing can be sampled.
#[derive(Debug, Error)]
pub enum OpenError {
    /// By this user.
    #[error(
        "may not sample {what}: perf_event_paranoid is {paranoid}; run as root, or with CAP_PERFMON, or set \
         kernel.perf_event_paranoid to {enough} or less"
    )]
    NotPermitted {
        /// CPUs, or a process.
        what: String,
        /// As /proc/sys/kernel/perf_event_paranoid says.
        paranoid: String,
        /// What would do.
        enough: i32,
    },
    /// The kernel has no such thing, or no memory for it.
    #[error("cannot sample {what}: {cause}")]
    Refused {
        /// A CPU, or a thread.
        what: String,
        /// Why.
        cause: io::Error,
    },
    /// There is nothing to sample.
    #[error("none of the CPUs {0} runs")]
    NoCpu(CpuSet),
}

/// One event and its ring.
#[derive(Debug)]
struct Source {
    event: OwnedFd,
    ring: Ring,
    /// The CPU or the thread, for errors.
    target: Target,
}

/// Samples of some CPUs, or of some threads, while this value lives.
#[derive(Debug)]
pub struct Event {
    sources: Vec<Source>,
    clock: Clock,
    sight: Sight,
    rate: u32,
    /// Bytes of the rings drained last.
    bytes: Vec<u8>,
    malformed: u64,
}

impl Event {
    /// Opens an event on each of the CPUs, `rate` samples a second of each. Not started.
    ///
    /// # Errors
    /// Not permitted, or the kernel refuses. A CPU that went away meanwhile is passed over.
    pub fn cpus(cpus: &CpuSet, rate: u32) -> Result<Self, OpenError> {
        let targets: Vec<Target> = cpus.iter().map(Target::Cpu).collect();
        let event = Self::open(&targets, Sight::Machine, rate)?;
        if event.sources.is_empty() { Err(OpenError::NoCpu(cpus.clone())) } else { Ok(event) }
    }

    /// Opens an event for each of the threads, without the kernel where that is not permitted. Not started.
    ///
    /// # Errors
    /// Not permitted, or the kernel refuses. A thread that ended meanwhile is passed over.
    pub fn threads(tids: &[u32], rate: u32) -> Result<Self, OpenError> {
        let targets: Vec<Target> = tids.iter().copied().map(Target::Thread).collect();
        match Self::open(&targets, Sight::Process, rate) {
            Err(OpenError::NotPermitted { .. }) => Self::open(&targets, Sight::ProcessUser, rate),
            opened => opened,
        }
    }

    fn open(targets: &[Target], sight: Sight, rate: u32) -> Result<Self, OpenError> {
        match Self::open_by(Clock::Cycles, targets, sight, rate) {
            // No such counter: not there, or not for a virtual machine.
            Err(OpenError::Refused { cause, .. }) if is_absent(&cause) => {
                Self::open_by(Clock::CpuClock, targets, sight, rate)
            }
            opened => opened,
        }
    }

    fn open_by(clock: Clock, targets: &[Target], sight: Sight, rate: u32) -> Result<Self, OpenError> {
        let size = (RINGS / targets.len().max(1)).clamp(RING.0, RING.1);
        // The largest power of two that is no more.
        let size = 1 << size.ilog2();
        let mut sources = Vec::with_capacity(targets.len());
        for &target in targets {
            let refused = |cause| refused(target, cause);
            let event = match sys::open(&mut attributes(clock, sight, rate), target) {
                Err(cause) if is_gone(&cause) => continue,
                opened => opened.map_err(refused)?,
            };
            let ring = Ring::map(event.as_fd(), size).map_err(refused)?;
            sources.push(Source { event, ring, target });
        }
        let bytes = Vec::with_capacity(size);
        Ok(Self { sources, clock, sight, rate, bytes, malformed: 0 })
    }

    /// Starts sampling.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn start(&self) -> Result<(), OpenError> {
        self.sources.iter().try_for_each(|source| {
            sys::enable(source.event.as_fd()).map_err(|cause| refused(source.target, cause))
        })
    }

    /// Stops sampling; what was sampled can still be read.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop(&self) -> Result<(), OpenError> {
        self.sources.iter().try_for_each(|source| {
            sys::disable(source.event.as_fd()).map_err(|cause| refused(source.target, cause))
        })
    }

    /// Calls `take` with every record written since the last time: of each CPU in its order, one CPU after the other.
    pub fn drain(&mut self, mut take: impl FnMut(Record<'_>)) {
        for source in &mut self.sources {
            self.bytes.clear();
            source.ring.drain(&mut self.bytes);
            self.malformed += ring::records(&self.bytes, &mut take);
        }
    }

    /// What makes the samples.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// What they show.
    #[must_use]
    pub const fn sight(&self) -> Sight {
        self.sight
    }

    /// Samples asked for, each second of each CPU.
    #[must_use]
    pub const fn rate(&self) -> u32 {
        self.rate
    }

    /// Records that made no sense.
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

fn attributes(clock: Clock, sight: Sight, rate: u32) -> uapi::perf_event_attr {
    let mut attributes = uapi::perf_event_attr::default();
    (attributes.type_, attributes.config) = match clock {
        Clock::Cycles => (uapi::PERF_TYPE_HARDWARE, uapi::PERF_COUNT_HW_CPU_CYCLES.into()),
        Clock::CpuClock => (uapi::PERF_TYPE_SOFTWARE, uapi::PERF_COUNT_SW_CPU_CLOCK.into()),
    };
    attributes.set_freq(1);
    attributes.sample_freq = rate.into();
    attributes.sample_type = SAMPLE_FIELDS.into();
    attributes.sample_max_stack = DEEPEST;
    attributes.set_disabled(1);
    attributes.set_sample_id_all(1);
    // The clock of softirq and socket times, so that samples and tracepoints share a time line.
    attributes.set_use_clockid(1);
    attributes.clockid = libc::CLOCK_MONOTONIC;
    // Programs and their files as they come, so that addresses can still be named when they are gone.
    attributes.set_mmap(1);
    attributes.set_mmap2(1);
    attributes.set_comm(1);
    attributes.set_comm_exec(1);
    attributes.set_task(1);
    attributes.set_exclude_hv(1);
    attributes.set_exclude_guest(1);
    attributes.set_exclude_kernel((sight == Sight::ProcessUser).into());
    attributes.set_exclude_callchain_kernel((sight == Sight::ProcessUser).into());
    attributes
}

/// The machine has no such counter.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL))
}

/// The CPU was taken away, or the thread ended.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH))
}

fn refused(target: Target, cause: io::Error) -> OpenError {
    let what = match target {
        Target::Cpu(cpu) => format!("CPU {cpu}"),
        Target::Thread(tid) => format!("thread {tid}"),
    };
    if !matches!(cause.raw_os_error(), Some(libc::EACCES | libc::EPERM)) {
        return OpenError::Refused { what, cause };
    }
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let paranoid = paranoid.map_or_else(|_| "not readable".to_owned(), |text| text.trim_end().to_owned());
    let enough = match target {
        Target::Cpu(_) => -1,
        Target::Thread(_) => 2,
    };
    OpenError::NotPermitted { what, paranoid, enough }
}
