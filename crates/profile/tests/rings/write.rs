//! Writes records in the kernel's format of a perf ring (linux/perf_event.h, `enum perf_event_type`), with the fields
//! that a profile requests.

#![allow(dead_code, reason = "each test program writes its own kinds of records")]

/// `PERF_RECORD_MISC_KERNEL`, `_USER` and `_GUEST_USER`: the mode of a CPU.
pub(crate) const KERNEL: u16 = 1;
pub(crate) const USER: u16 = 2;
pub(crate) const GUEST: u16 = 5;
/// `PERF_RECORD_MISC_COMM_EXEC`.
const EXEC: u16 = 1 << 13;
/// `PERF_CONTEXT_KERNEL`, `PERF_CONTEXT_USER`: the context of the addresses that follow in a chain.
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

/// The trailer of every record except samples (`sample_id_all`).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stamp {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// Nanoseconds.
    pub(crate) time: u64,
    pub(crate) cpu: u32,
}

/// The bytes of one CPU's ring.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ring(pub(crate) Vec<u8>);

impl Ring {
    /// Any record: header, then fields.
    pub(crate) fn record(&mut self, kind: u32, misc: u16, fields: &[&[u8]]) {
        let size = 8 + fields.iter().map(|field| field.len()).sum::<usize>();
        let size = u16::try_from(size).expect("a record is 64 KiB at most");
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(&misc.to_ne_bytes());
        self.0.extend_from_slice(&size.to_ne_bytes());
        fields.iter().for_each(|field| self.0.extend_from_slice(field));
    }

    fn with_id(&mut self, kind: u32, misc: u16, at: Stamp, fields: &[&[u8]]) {
        let id = [pair(at.pid, at.tid), at.time.to_ne_bytes(), pair(at.cpu, 0)].concat();
        self.record(kind, misc, &[fields, &[&id]].concat());
    }

    /// `PERF_RECORD_SAMPLE` with a chain, the innermost address first.
    pub(crate) fn sample(&mut self, mode: u16, at: Stamp, period: u64, kernel: &[u64], user: &[u64]) {
        let mut chain = Vec::with_capacity(kernel.len() + user.len() + 2);
        for (mark, addresses) in [(CONTEXT_KERNEL, kernel), (CONTEXT_USER, user)] {
            if !addresses.is_empty() {
                chain.push(mark);
                chain.extend_from_slice(addresses);
            }
        }
        let ip = kernel.first().or(user.first()).copied().unwrap_or(0);
        let (before, behind) = (words(&[ip]), words(&[period, chain.len() as u64]));
        let fields: [&[u8]; 6] = [
            &before,
            &pair(at.pid, at.tid),
            &at.time.to_ne_bytes(),
            &pair(at.cpu, 0),
            &behind,
            &words(&chain),
        ];
        self.record(9, mode, &fields);
    }

    /// `PERF_RECORD_COMM`.
    pub(crate) fn comm(&mut self, at: Stamp, name: &str, exec: bool) {
        let misc = if exec { EXEC } else { 0 };
        self.with_id(3, misc, at, &[&pair(at.pid, at.tid), &text(name)]);
    }

    /// `PERF_RECORD_MMAP2` of a part of a file's code.
    pub(crate) fn mapped(&mut self, at: Stamp, start: u64, len: u64, offset: u64, path: &str) {
        // Device and inode with its generation; PROT_READ and PROT_EXEC, MAP_PRIVATE.
        let inode = [pair(8, 1).to_vec(), words(&[4711, 0]), pair(5, 2).to_vec()].concat();
        self.with_id(
            10,
            USER,
            at,
            &[&pair(at.pid, at.tid), &words(&[start, len, offset]), &inode, &text(path)],
        );
    }

    /// `PERF_RECORD_FORK`: `at` is of the new thread.
    pub(crate) fn fork(&mut self, at: Stamp, parent: u32) {
        let fields = [pair(at.pid, parent), pair(at.tid, parent), at.time.to_ne_bytes()].concat();
        self.with_id(7, 0, at, &[&fields]);
    }

    /// `PERF_RECORD_EXIT`.
    pub(crate) fn exit(&mut self, at: Stamp, parent: u32) {
        let fields = [pair(at.pid, parent), pair(at.tid, parent), at.time.to_ne_bytes()].concat();
        self.with_id(4, 0, at, &[&fields]);
    }

    /// `PERF_RECORD_LOST`.
    pub(crate) fn lost(&mut self, at: Stamp, count: u64) {
        self.with_id(2, 0, at, &[&words(&[1, count])]);
    }

    /// `PERF_RECORD_THROTTLE`.
    pub(crate) fn throttle(&mut self, at: Stamp) {
        self.with_id(5, 0, at, &[&words(&[at.time, 1, 1])]);
    }

    /// `PERF_RECORD_UNTHROTTLE`.
    pub(crate) fn unthrottle(&mut self, at: Stamp) {
        self.with_id(6, 0, at, &[&words(&[at.time, 1, 1])]);
    }
}

pub(crate) fn words(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

pub(crate) fn pair(low: u32, high: u32) -> [u8; 8] {
    [low.to_ne_bytes(), high.to_ne_bytes()].concat().try_into().expect("eight bytes")
}

/// A name padded with zeros to a multiple of eight bytes, at least one.
fn text(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((bytes.len() / 8 + 1) * 8, 0);
    bytes
}
