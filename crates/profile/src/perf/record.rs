//! Parses the records of a perf ring (linux/perf_event.h, `enum perf_event_type`).
//!
//! ```text
//! header: type u32, misc u16, size u16      size counts the header too
//! sample: ip u64, pid u32, tid u32, time u64, cpu u32, 0 u32, period u64, n u64, n x ip u64       (SAMPLE_FIELDS)
//!         with counters (Layout::Counted) a Reading stands between period and n
//! others: their own fields, then              pid u32, tid u32, time u64, cpu u32, 0 u32          (sample_id_all)
//! ```
//! Bytes come from the kernel, but a ring can be read late and a file can contain anything: a record that is too short,
//! or that counts more than it holds, is an error, never a panic.

use perf_event_open_sys::bindings as uapi;
use thiserror::Error;
use udpath_steer::CpuSet;

use super::fields::Fields;
use super::reading::Reading;

/// The fields of each sample, in the order the kernel writes them.
pub const SAMPLE_FIELDS: u32 = uapi::PERF_SAMPLE_IP
    | uapi::PERF_SAMPLE_TID
    | uapi::PERF_SAMPLE_TIME
    | uapi::PERF_SAMPLE_CPU
    | uapi::PERF_SAMPLE_PERIOD
    | uapi::PERF_SAMPLE_CALLCHAIN;

/// The layout of a ring's samples, as configured in their event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// [`SAMPLE_FIELDS`].
    #[default]
    Plain,
    /// The same with the values of the counters in the event's group.
    Counted,
}

impl Layout {
    /// `perf_event_attr.sample_type`.
    pub(super) const fn fields(self) -> u32 {
        match self {
            Self::Plain => SAMPLE_FIELDS,
            Self::Counted => SAMPLE_FIELDS | uapi::PERF_SAMPLE_READ,
        }
    }
}

/// Bytes of a header.
pub const HEADER: usize = 8;
/// Bytes at the end of every record except samples: pid, tid, time, cpu.
const SAMPLE_ID: usize = 24;
/// The highest addresses of a chain are markers: they give the context of the addresses that follow.
const CONTEXT_MAX: u64 = -4095_i64 as u64;
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    /// A sample of a CPU.
    Sample(Sample<'a>),
    /// Records lost because the ring was full.
    Lost(u64),
    /// Samples that the kernel did not take: a limit, or no room.
    LostSamples(u64),
    /// From here on, fewer samples are taken than requested: the kernel spent too much time on them.
    Throttled,
    /// From here on, all requested samples are taken again.
    Unthrottled,
    /// A thread has a new name.
    Comm {
        /// Its process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// Up to 15 bytes.
        name: &'a str,
        /// Because it executed another program: the old mappings are gone.
        exec: bool,
        /// Nanoseconds of `CLOCK_MONOTONIC`. Rings are read one after the other, so records of different CPUs are not
        /// in order.
        time: u64,
    },
    /// A process mapped a file as executable.
    Mapped(Mapped<'a>),
    /// A thread was created.
    Fork {
        /// Its process.
        pid: u32,
        /// The process that created it; differs from `pid` if it is a new process.
        parent: u32,
        /// The thread.
        tid: u32,
        /// Nanoseconds of `CLOCK_MONOTONIC`.
        time: u64,
    },
    /// A thread ended.
    Exit {
        /// Its process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// Not used here, or newer than this program.
    Other(u32),
}

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The CPU's mode.
    pub mode: Mode,
    /// The instruction address.
    pub ip: u64,
    /// The process that was on the CPU; 0 is idle.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The CPU.
    pub cpu: u32,
    /// The sample's weight: nanoseconds of a clock, or cycles.
    pub period: u64,
    /// The counter values; `None` without counters.
    pub reading: Option<Reading<'a>>,
    /// The call chain.
    pub chain: Chain<'a>,
}

/// The mode of the CPU when the sample was taken (`PERF_RECORD_MISC_CPUMODE_MASK`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// This machine's kernel.
    Kernel,
    /// A program.
    User,
    /// The hypervisor, or a virtual machine on this host.
    Guest,
}

/// Addresses of a call chain, innermost first, as written by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain<'a>(&'a [u8]);

/// An executable mapping of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped<'a> {
    /// The process.
    pub pid: u32,
    /// Start address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the file.
    pub offset: u64,
    /// The file's inode; 0 if the mapping is not of a file.
    pub inode: u64,
    /// The file's path, as seen by that process.
    pub path: &'a str,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
}

/// Why bytes are not a valid record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WrongRecord {
    /// The size in the header exceeds the data, or is smaller than a header.
    #[error("a record of {said} bytes in {there} bytes")]
    Size {
        /// The size in the header.
        said: usize,
        /// The size of the data.
        there: usize,
    },
    /// A field ends past the end of the record.
    #[error("a record of type {kind} with {bytes} bytes lacks fields")]
    Short {
        /// `enum perf_event_type`.
        kind: u32,
        /// Size of the record.
        bytes: usize,
    },
    /// A sample of a CPU number that is out of range.
    #[error("a sample of CPU {0}")]
    Cpu(u32),
}

impl<'a> Record<'a> {
    /// The first record of `bytes`, and the rest.
    ///
    /// # Errors
    /// Bytes that are not a whole record. After any error but [`WrongRecord::Size`], the next record begins after the
    /// size in the header.
    pub fn first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WrongRecord> {
        let size = size(bytes)?;
        let (record, rest) = bytes.split_at(size);
        Ok((Self::parse(record)?, rest))
    }

    /// Parses exactly one record of a ring without counters.
    ///
    /// # Errors
    /// The bytes are not a record.
    pub fn parse(record: &'a [u8]) -> Result<Self, WrongRecord> {
        Self::parse_as(Layout::Plain, record)
    }

    /// Parses exactly one record.
    ///
    /// # Errors
    /// The bytes are not a record.
    pub fn parse_as(layout: Layout, record: &'a [u8]) -> Result<Self, WrongRecord> {
        let there = record.len();
        if size(record)? != there {
            return Err(WrongRecord::Size { said: size(record)?, there });
        }
        let mut fields = Fields::of(record);
        let (kind, misc) = (fields.u32().unwrap_or(0), fields.u16().unwrap_or(0));
        let body = &record[HEADER..];
        match read(layout, kind, misc, body) {
            None => Err(WrongRecord::Short { kind, bytes: there }),
            Some(Self::Sample(sample)) if sample.cpu > CpuSet::MAX_CPU => Err(WrongRecord::Cpu(sample.cpu)),
            Some(record) => Ok(record),
        }
    }
}

/// The size of the first record of `bytes`.
///
/// # Errors
/// The record is incomplete.
pub fn size(bytes: &[u8]) -> Result<usize, WrongRecord> {
    let said = bytes.get(6..HEADER).map_or(0, |size| usize::from(u16::from_ne_bytes([size[0], size[1]])));
    match said {
        HEADER.. if said <= bytes.len() => Ok(said),
        _ => Err(WrongRecord::Size { said, there: bytes.len() }),
    }
}

fn read(layout: Layout, kind: u32, misc: u16, body: &[u8]) -> Option<Record<'_>> {
    // Remove the trailer that all records except samples have.
    let own = || body.len().checked_sub(SAMPLE_ID).map(|own| Fields::of(&body[..own]));
    let time = || {
        let mut id = Fields::of(&body[body.len().checked_sub(SAMPLE_ID)?..]);
        id.skip(8)?;
        id.u64()
    };
    Some(match kind {
        uapi::PERF_RECORD_SAMPLE => Record::Sample(sample(layout, misc, Fields::of(body))?),
        uapi::PERF_RECORD_LOST => {
            let mut fields = own()?;
            fields.u64()?;
            Record::Lost(fields.u64()?)
        }
        uapi::PERF_RECORD_LOST_SAMPLES => Record::LostSamples(own()?.u64()?),
        uapi::PERF_RECORD_THROTTLE => Record::Throttled,
        uapi::PERF_RECORD_UNTHROTTLE => Record::Unthrottled,
        uapi::PERF_RECORD_COMM => {
            let mut fields = own()?;
            let (pid, tid) = (fields.u32()?, fields.u32()?);
            let exec = u32::from(misc) & uapi::PERF_RECORD_MISC_COMM_EXEC != 0;
            Record::Comm { pid, tid, name: fields.text(), exec, time: time()? }
        }
        uapi::PERF_RECORD_MMAP2 => {
            let mut fields = own()?;
            let (pid, _tid) = (fields.u32()?, fields.u32()?);
            let (start, len, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
            // Device, inode (no build id was requested) and its generation, protection, flags.
            fields.skip(8)?;
            let inode = fields.u64()?;
            fields.skip(16)?;
            Record::Mapped(Mapped { pid, start, len, offset, inode, path: fields.text(), time: time()? })
        }
        uapi::PERF_RECORD_FORK | uapi::PERF_RECORD_EXIT => {
            let mut fields = own()?;
            let (pid, parent, tid) = (fields.u32()?, fields.u32()?, fields.u32()?);
            if kind == uapi::PERF_RECORD_FORK {
                Record::Fork { pid, parent, tid, time: time()? }
            } else {
                Record::Exit { pid, tid }
            }
        }
        other => Record::Other(other),
    })
}

fn sample(layout: Layout, misc: u16, mut fields: Fields<'_>) -> Option<Sample<'_>> {
    let mode = match u32::from(misc) & uapi::PERF_RECORD_MISC_CPUMODE_MASK {
        uapi::PERF_RECORD_MISC_KERNEL => Mode::Kernel,
        uapi::PERF_RECORD_MISC_USER => Mode::User,
        _ => Mode::Guest,
    };
    let ip = fields.u64()?;
    let (pid, tid) = (fields.u32()?, fields.u32()?);
    let time = fields.u64()?;
    let (cpu, _) = (fields.u32()?, fields.u32()?);
    let period = fields.u64()?;
    let reading = match layout {
        Layout::Plain => None,
        Layout::Counted => Some(Reading::read(&mut fields)?),
    };
    let count = usize::try_from(fields.u64()?).ok()?;
    let chain = fields.bytes(count.checked_mul(8)?)?;
    Some(Sample { mode, ip, pid, tid, time, cpu, period, reading, chain: Chain(chain) })
}

impl<'a> Chain<'a> {
    /// Raw entries, including the context markers.
    pub fn entries(self) -> impl Iterator<Item = u64> + 'a {
        let (words, _) = self.0.as_chunks::<8>();
        words.iter().map(|word| u64::from_ne_bytes(*word))
    }

    /// Appends the kernel's and the program's addresses, innermost first; a guest's are left out.
    pub fn split(self, kernel: &mut Vec<u64>, user: &mut Vec<u64>) {
        let mut whose = None;
        for entry in self.entries() {
            match (entry, whose) {
                (CONTEXT_KERNEL | CONTEXT_USER, _) => whose = Some(entry),
                (CONTEXT_MAX.., _) => whose = None,
                (address, Some(CONTEXT_KERNEL)) => kernel.push(address),
                (address, Some(_)) => user.push(address),
                (_, None) => (),
            }
        }
    }
}

#[cfg(test)]
mod tests;
