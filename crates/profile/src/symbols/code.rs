//! Finds the file whose code is mapped at an address of a process.
//!
//! ```text
//! /proc/PID/maps when a process is first seen ──▸ seen     ┐
//! mmap, exec and fork records, each with its time ─▸ changes ┴─▸ eras: in the order of time, a new one with each program
//! ```
//! Rings are read one after the other, so changes come in any order, and samples may come before the mapping that they
//! hit. Therefore addresses are resolved at the end: an address is looked up in the process's last era, then in the
//! earlier ones. Programs are mapped at different addresses, and samples do not keep their time.

use std::collections::HashMap;

/// Changes of all processes together, after which those of processes that ended without a sample are dropped; each
/// takes about 60 bytes. Lower: they are scanned more often; higher: an hour on a machine that starts programs all the
/// time takes more memory.
const MANY: usize = 65_536;
/// Most changes kept. Further ones are dropped, and their mappings have no names. Only code that is generated and
/// mapped endlessly at run time gets here.
const MOST: usize = 4 * MANY;
/// Most parents followed. Only a deliberate chain of forks without exec is that long.
const GENERATIONS: usize = 16;

/// A part of a process's memory that holds a file's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
    /// The file, by the caller's number.
    pub(super) file: usize,
}

/// A change of a process's memory. At equal times, the first of these comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// It starts as a copy of another process.
    Copied(u32),
    /// It executes another program: all mappings are dropped.
    Replaced,
    /// A file is mapped, replacing earlier mappings there.
    Mapped(Mapping),
}

#[derive(Debug, Default)]
struct Process {
    /// Mappings from /proc.
    seen: Vec<Mapping>,
    changes: Vec<(u64, Change)>,
    /// /proc was read, or need not be.
    asked: bool,
    sampled: bool,
    ended: bool,
}

/// The code of every process.
#[derive(Debug, Default)]
pub(super) struct Code {
    processes: HashMap<u32, Process>,
    /// Changes of all of them.
    changes: usize,
    /// Number of changes at which unused ones are dropped next.
    full: usize,
}

impl Code {
    /// A sample is of this process.
    pub(super) fn meet(&mut self, pid: u32) {
        self.processes.entry(pid).or_default().sampled = true;
    }

    /// Must a process's mappings be read from /proc? Once, and not if its start was seen: then the records are
    /// complete.
    pub(super) fn asks(&mut self, pid: u32) -> bool {
        let process = self.processes.entry(pid).or_default();
        !std::mem::replace(&mut process.asked, true) && !process.began()
    }

    /// Sets a process's mappings from /proc; all known changes are later or included.
    pub(super) fn saw(&mut self, pid: u32, mappings: Vec<Mapping>) {
        let process = self.processes.entry(pid).or_default();
        mappings.into_iter().for_each(|mapping| overlay(&mut process.seen, mapping));
    }

    /// Adds a change of a process.
    pub(super) fn change(&mut self, pid: u32, time: u64, change: Change) {
        if self.changes > self.full.max(MANY) {
            self.processes.retain(|_, process| process.sampled || !process.ended);
            self.changes = self.processes.values().map(|process| process.changes.len()).sum();
            self.full = 2 * self.changes;
        }
        if self.changes < MOST {
            self.processes.entry(pid).or_default().changes.push((time, change));
            self.changes += 1;
        }
    }

    /// A process has ended.
    pub(super) fn ended(&mut self, pid: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.ended = true;
        }
    }

    /// A process's mappings in its last era and in earlier ones, last first.
    pub(super) fn eras(&self, pid: u32) -> Vec<Vec<Mapping>> {
        let mut eras = self.until(pid, u64::MAX, GENERATIONS);
        eras.reverse();
        eras
    }

    fn until(&self, pid: u32, until: u64, generations: usize) -> Vec<Vec<Mapping>> {
        let Some(process) = self.processes.get(&pid) else { return Vec::new() };
        let mut changes: Vec<_> =
            process.changes.iter().filter(|(time, _)| *time <= until).copied().collect();
        changes.sort_unstable();
        // An earlier process with the same pid is unrelated.
        let began = changes.iter().rposition(|(_, change)| matches!(change, Change::Copied(_)));
        let mut era = process.seen.clone();
        let mut eras = Vec::new();
        for (at, (time, change)) in changes.into_iter().enumerate() {
            match change {
                Change::Mapped(mapping) => overlay(&mut era, mapping),
                Change::Copied(parent) if Some(at) == began && generations > 0 => {
                    let copy = self.until(parent, time, generations - 1).pop().unwrap_or_default();
                    if !copy.is_empty() {
                        eras.push(std::mem::replace(&mut era, copy));
                    }
                }
                Change::Copied(_) | Change::Replaced => eras.push(std::mem::take(&mut era)),
            }
        }
        eras.push(era);
        eras
    }
}

impl Process {
    /// Was its start seen, so that its records are complete?
    fn began(&self) -> bool {
        self.changes.iter().any(|(_, change)| !matches!(change, Change::Mapped(_)))
    }
}

/// The mapping of an address.
pub(super) fn find(list: &[Mapping], address: u64) -> Option<&Mapping> {
    let behind = list.partition_point(|mapping| mapping.start <= address);
    list[..behind].last().filter(|mapping| address < mapping.end)
}

/// A new mapping replaces what was there.
fn overlay(list: &mut Vec<Mapping>, mapping: Mapping) {
    list.retain(|old| old.end <= mapping.start || old.start >= mapping.end);
    let place = list.partition_point(|old| old.start < mapping.start);
    list.insert(place, mapping);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn mapping(start: u64, file: usize) -> Mapping {
        Mapping { start, end: start + 100, offset: 0, file }
    }

    fn file(code: &Code, pid: u32, address: u64) -> Option<usize> {
        code.eras(pid).iter().find_map(|era| find(era, address)).map(|mapping| mapping.file)
    }

    #[test]
    fn an_exec_does_not_drop_later_mappings() {
        // The records of one process in two rings; the ring with the later ones is read first.
        let mut code = Code::default();
        code.meet(8);
        assert!(code.asks(8));
        code.saw(8, vec![mapping(1000, 1), mapping(5000, 2)]);
        code.change(8, 20, Change::Mapped(mapping(1050, 3)));
        code.change(8, 10, Change::Replaced);
        assert_eq!(file(&code, 8, 1060), Some(3));
        // Of the earlier program.
        assert_eq!((file(&code, 8, 1010), file(&code, 8, 5010)), (Some(1), Some(2)));
        assert_eq!(file(&code, 8, 9000), None);
        assert!(!code.asks(8));
    }

    #[test]
    fn a_child_inherits_the_mappings_of_its_parent_at_the_fork() {
        let mut code = Code::default();
        code.change(9, 15, Change::Copied(8));
        code.change(8, 20, Change::Mapped(mapping(3000, 3)));
        code.change(8, 10, Change::Mapped(mapping(1000, 1)));
        assert_eq!((file(&code, 9, 1000), file(&code, 9, 3000)), (Some(1), None));
        // Its start was seen, so /proc has nothing to add.
        assert!(!code.asks(9) && code.asks(8));
        // Its own child, and an unknown parent.
        code.change(10, 16, Change::Copied(9));
        code.change(11, 16, Change::Copied(7));
        assert_eq!((file(&code, 10, 1000), file(&code, 11, 1000)), (Some(1), None));
        // A process that is its own parent must not cause an endless loop.
        code.change(12, 1, Change::Copied(12));
        assert_eq!(file(&code, 12, 1000), None);
    }

    #[test]
    fn processes_that_came_and_went_do_not_fill_memory() {
        let mut code = Code::default();
        code.change(1, 0, Change::Mapped(mapping(1000, 1)));
        for pid in 2..300_000 {
            code.change(pid, 1, Change::Copied(1));
            code.change(pid, 2, Change::Replaced);
            code.ended(pid);
        }
        assert!(code.processes.len() <= MANY, "{}", code.processes.len());
        assert_eq!(file(&code, 1, 1000), Some(1));
        // And a process that maps endlessly.
        (0..2 * MOST as u64).for_each(|time| code.change(1, time, Change::Mapped(mapping(1000, 1))));
        assert!(code.changes <= MOST);
    }

    proptest! {
        #[test]
        fn the_order_in_which_changes_come_does_not_matter(
            changes in proptest::collection::vec((0..4_u32, 0..9_u64, 0..40_u64, 0..6_u32), 0..24),
            shuffled in any::<u64>(),
        ) {
            let change = |kind: u32, place: u64| match kind {
                0 => Change::Copied((place % 4) as u32),
                1 => Change::Replaced,
                _ => Change::Mapped(mapping(place * 40, place as usize)),
            };
            let all: Vec<_> = changes
                .iter()
                .enumerate()
                // Each at its own time, as in the kernel's clock.
                .map(|(at, (pid, time, place, kind))| (*pid, time * 100 + at as u64, change(*kind, *place)))
                .collect();
            let mut other = all.clone();
            // Shuffles by sorting by a hash.
            other.sort_by_key(|(_, time, _)| (time ^ shuffled).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
            let eras = |changes: &[(u32, u64, Change)]| {
                let mut code = Code::default();
                changes.iter().for_each(|(pid, time, what)| code.change(*pid, *time, *what));
                (0..4).map(|pid| code.eras(pid)).collect::<Vec<_>>()
            };
            prop_assert_eq!(eras(&all), eras(&other));
        }
    }
}
