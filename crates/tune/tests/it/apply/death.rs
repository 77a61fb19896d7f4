//! A program that dies in an apply or an undo, at any write, and in the middle of a line.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use udpath_tune::Journal;
use udpath_tune::apply::ApplyError;
use udpath_tune::journal::State;

use super::sim::{Death, Fault, Sim, Values, faulty};
use super::{REQUESTS, applied, undone, writes};

/// Runs `work` and returns whether the program died in it.
pub(crate) fn dies(work: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(()) => false,
        Err(payload) if payload.is::<Death>() => true,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// An apply that dies at a write, and the machine it leaves behind.
pub(crate) fn dead(at: usize, fault: Fault, journal: &Path) -> (Sim, Values) {
    let sim = Sim::new();
    let before = sim.values();
    assert!(dies(|| drop(applied(&faulty(&sim, at, fault), journal, &REQUESTS))), "{at} {fault:?}");
    (sim, before)
}

#[test]
fn a_death_at_any_write_is_undone_exactly() {
    for fault in [Fault::DiesBefore, Fault::DiesAfter] {
        for at in 0..writes() {
            let folder = tempfile::tempdir().unwrap();
            let (sim, before) = dead(at, fault, folder.path());
            let journal = Journal::at(folder.path());
            assert_eq!(journal.entry(1).unwrap().state, State::Unfinished);
            assert!(matches!(applied(&sim, folder.path(), &REQUESTS), Err(ApplyError::Unfinished { id: 1 })));
            assert_eq!(undone(&sim, folder.path()).unwrap(), [], "{at} {fault:?}");
            assert_eq!(sim.values(), before, "{at} {fault:?}");
            assert_eq!(journal.entry(1).unwrap().state, State::Undone);
        }
    }
}

#[test]
fn a_death_in_an_undo_is_completed_by_the_next_undo() {
    for fault in [Fault::DiesBefore, Fault::DiesAfter] {
        for first in 0..writes() {
            for second in 0.. {
                let folder = tempfile::tempdir().unwrap();
                let (sim, before) = dead(first, fault, folder.path());
                let died = dies(|| drop(undone(&faulty(&sim, second, fault), folder.path())));
                if died {
                    assert_eq!(undone(&sim, folder.path()).unwrap(), [], "{first} {second} {fault:?}");
                }
                assert_eq!(sim.values(), before, "{first} {second} {fault:?}");
                if !died {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_line_cut_short_at_any_byte_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let (sim, before) = dead(2, Fault::DiesBefore, folder.path());
    let (journal, values) = (Journal::at(folder.path()), sim.values());
    let whole = std::fs::read(journal.path(1)).unwrap();
    // The last line is the intent of the write that never happened.
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for end in last..whole.len() {
        std::fs::write(journal.path(1), &whole[..end]).unwrap();
        assert_eq!(undone(&sim, folder.path()).unwrap(), [], "{end}");
        assert_eq!(sim.values(), before, "{end}");
        assert_eq!(journal.entry(1).unwrap().state, State::Undone, "{end}");
        values.iter().for_each(|(name, value)| sim.put(name, value));
    }
}
