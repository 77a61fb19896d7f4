//! Which file's code is where in a process's memory.
//!
//! ```text
//! /proc/PID/maps when a process is first seen ──▸ seen     ┐
//! mmap, exec and fork records, each with its time ─▸ changes ┴─▸ eras: in the order of time, a new one with each program
//! ```
//! Rings are read one after the other, so changes come in any order, and samples before the file they are in. So nothing is
//! decided before the end. An address is looked for in what the process was last, then in what it was before: programs lie
//! at places of their own, and samples do not keep their time.

use std::collections::HashMap;

/// Changes of all processes together before those of processes that ended without a sample are forgotten; each takes some 60
/// bytes. Fewer: they are looked through more often; more: an hour of a machine that starts programs all the time takes
/// memory.
const MANY: usize = 65_536;
/// Changes kept at most. Further ones are passed over, and what they map has no name. Only code made and mapped at run time,
/// without end, comes here.
const MOST: usize = 4 * MANY;
/// Parents that are gone back to. A chain of forks without exec is as long only by intent.
const GENERATIONS: usize = 16;

/// A part of a process's memory that holds a file's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
    /// The file, by a number of the caller's.
    pub(super) file: usize,
}

/// What becomes of a process's memory. Of equal times the first of these comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// It begins as a copy of another.
    Copied(u32),
    /// It runs another program: nothing of what was mapped is left.
    Replaced,
    /// A file is mapped, in the place of what was there.
    Mapped(Mapping),
}

#[derive(Debug, Default)]
struct Process {
    /// What /proc showed.
    seen: Vec<Mapping>,
    changes: Vec<(u64, Change)>,
    /// /proc was asked, or need not be.
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
    /// Changes from which on those without use are forgotten.
    full: usize,
}

impl Code {
    /// A sample is of this process.
    pub(super) fn meet(&mut self, pid: u32) {
        self.processes.entry(pid).or_default().sampled = true;
    }

    /// Is /proc to be asked what a process has mapped? Once, and not where it was seen to begin: then records say all.
    pub(super) fn asks(&mut self, pid: u32) -> bool {
        let process = self.processes.entry(pid).or_default();
        !std::mem::replace(&mut process.asked, true) && !process.began()
    }

    /// A process has this, as /proc shows; all changes that are known are later or in it.
    pub(super) fn saw(&mut self, pid: u32, mappings: Vec<Mapping>) {
        let process = self.processes.entry(pid).or_default();
        mappings.into_iter().for_each(|mapping| overlay(&mut process.seen, mapping));
    }

    /// Something becomes of a process.
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

    /// What a process had mapped in its last era and in those before, the last first.
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
        // Whoever had the number before has nothing to do with it.
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
    /// Was it seen to begin, so that its records say all of it?
    fn began(&self) -> bool {
        self.changes.iter().any(|(_, change)| !matches!(change, Change::Mapped(_)))
    }
}

/// The mapping of an address.
pub(super) fn find(list: &[Mapping], address: u64) -> Option<&Mapping> {
    let behind = list.partition_point(|mapping| mapping.start <= address);
    list[..behind].last().filter(|mapping| address < mapping.end)
}

/// A new mapping takes the place of what was there.
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
    fn an_exec_does_not_take_what_came_after_it() {
        // The records of one process in two rings, and the ring with the later ones is read first.
        let mut code = Code::default();
        code.meet(8);
        assert!(code.asks(8));
        code.saw(8, vec![mapping(1000, 1), mapping(5000, 2)]);
        code.change(8, 20, Change::Mapped(mapping(1050, 3)));
        code.change(8, 10, Change::Replaced);
        assert_eq!(file(&code, 8, 1060), Some(3));
        // Of the program before.
        assert_eq!((file(&code, 8, 1010), file(&code, 8, 5010)), (Some(1), Some(2)));
        assert_eq!(file(&code, 8, 9000), None);
        assert!(!code.asks(8));
    }

    #[test]
    fn a_child_has_what_its_parent_had_then() {
        let mut code = Code::default();
        code.change(9, 15, Change::Copied(8));
        code.change(8, 20, Change::Mapped(mapping(3000, 3)));
        code.change(8, 10, Change::Mapped(mapping(1000, 1)));
        assert_eq!((file(&code, 9, 1000), file(&code, 9, 3000)), (Some(1), None));
        // It was seen to begin, so /proc has nothing to add.
        assert!(!code.asks(9) && code.asks(8));
        // Its own child, and a parent that nobody knows.
        code.change(10, 16, Change::Copied(9));
        code.change(11, 16, Change::Copied(7));
        assert_eq!((file(&code, 10, 1000), file(&code, 11, 1000)), (Some(1), None));
        // A process is its own parent: never without end.
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
        // And one that maps without end.
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
                // Each at its own time, as the kernel's clock has it.
                .map(|(at, (pid, time, place, kind))| (*pid, time * 100 + at as u64, change(*kind, *place)))
                .collect();
            let mut other = all.clone();
            // A shuffle by sorting under a hash.
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
