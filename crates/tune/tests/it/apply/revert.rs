//! Applies that await confirmation: confirming them, reverting them, and events in between.

use std::time::Duration;

use udpath_tune::apply::ApplyError;
use udpath_tune::confirm::{self, confirm};
use udpath_tune::journal::State;
use udpath_tune::machine::Machine;
use udpath_tune::status::Status;
use udpath_tune::undo::{UndoError, Undone};
use udpath_tune::{Journal, apply, undo};

use super::death::dead;
use super::sim::{Fault, Sim, faulty_from};
use super::{REQUESTS, applied, plan, undone};

/// No signal arrives here.
fn revert(machine: &dyn Machine, journal: &Journal, id: u64) -> Result<Option<Undone>, UndoError> {
    confirm::revert(machine, journal, id, || Ok(()))
}

#[test]
fn a_confirmation_is_taken_once_and_only_where_it_is_awaited() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let journal = Journal::at(folder.path());
    assert!(confirm(&journal.lock().unwrap(), None).unwrap_err().to_string().contains("no apply"));
    let plan = plan(&sim, &REQUESTS);
    let minute = Some(Duration::from_secs(60));
    let done = apply(&sim, &journal.lock().unwrap(), &plan, minute, |_| Ok(())).unwrap();
    let entry = journal.entry(done.id).unwrap();
    assert_eq!((entry.state, entry.deadline()), (State::Awaiting, Some(entry.applied.unwrap() + 60_000)));
    assert_eq!(confirm(&journal.lock().unwrap(), None).unwrap().state, State::Applied);
    assert!(
        confirm(&journal.lock().unwrap(), Some(done.id))
            .unwrap_err()
            .to_string()
            .contains("is confirmed already")
    );
}

#[test]
fn unconfirmed_applies_are_reverted_and_confirmed_ones_stay() {
    for confirmed in [false, true] {
        let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
        let (journal, before) = (Journal::at(folder.path()), sim.values());
        let plan = plan(&sim, &REQUESTS);
        let second = Some(Duration::from_secs(1));
        let done = apply(&sim, &journal.lock().unwrap(), &plan, second, |_| Ok(())).unwrap();
        let after = sim.values();
        let said = confirmed.then(|| {
            let journal = journal.clone();
            std::thread::spawn(move || confirm(&journal.lock().unwrap(), Some(1)).unwrap())
        });
        let reverted = revert(&sim, &journal, done.id).unwrap();
        assert_eq!(reverted.is_some(), !confirmed);
        assert_eq!(sim.values(), if confirmed { after } else { before });
        said.into_iter().for_each(|said| assert_eq!(said.join().unwrap().state, State::Applied));
    }
    // An apply that dies is reverted at once, whatever the confirmation timeout.
    let folder = tempfile::tempdir().unwrap();
    let (sim, before) = dead(2, Fault::DiesAfter, folder.path());
    assert!(revert(&sim, &Journal::at(folder.path()), 1).unwrap().unwrap().left.is_empty());
    assert_eq!(sim.values(), before);
    assert!(revert(&sim, &Journal::at(folder.path()), 2).unwrap().is_none());
}

#[test]
fn what_another_udpath_is_undoing_is_not_reported_as_lost() {
    let request = ["eth0:rps/rx-0=0"];
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let (journal, before) = (Journal::at(folder.path()), sim.values());
    applied(&sim, folder.path(), &request).unwrap();
    // The setting is restored; the journal does not have it yet.
    sim.put("eth0:rps/rx-0", &before["eth0:rps/rx-0"]);
    assert_eq!(Status::settled(&sim, &journal).unwrap().drifted().count(), 1, "nobody is undoing it");
    let (locked, is_locked) = std::sync::mpsc::channel();
    let undoing = {
        let journal = journal.clone();
        std::thread::spawn(move || {
            let lock = journal.lock().unwrap();
            locked.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            undo(&Sim::new(), &lock, None, "test", false).unwrap();
        })
    };
    is_locked.recv().unwrap();
    let settled = Status::settled(&sim, &journal).unwrap();
    undoing.join().unwrap();
    assert_eq!(settled, Status::of(&sim, &journal).unwrap());
    assert!(settled.applies.is_empty());
    // One that hangs is not waited for.
    applied(&sim, folder.path(), &request).unwrap();
    sim.put("eth0:rps/rx-0", &before["eth0:rps/rx-0"]);
    let _hangs = journal.lock().unwrap();
    assert_eq!(Status::settled(&sim, &journal).unwrap().drifted().count(), 1);
}

/// An apply that awaits confirmation for one second.
fn awaiting(sim: &Sim, journal: &Journal, requests: &[&str]) {
    let second = Some(Duration::from_secs(1));
    apply(sim, &journal.lock().unwrap(), &plan(sim, requests), second, |_| Ok(())).unwrap();
}

#[test]
fn an_overlapping_apply_waits_for_the_confirmation() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let (journal, before) = (Journal::at(folder.path()), sim.values());
    awaiting(&sim, &journal, &["eth0:rps/rx-0=0", "group:812/4026:selection=by-cpu"]);
    let first = sim.values();
    // Also through another member of the group.
    for request in ["eth0:rps/rx-0=1", "group:812/4027:selection=by-flow"] {
        sim.put("group:812/4027:selection", "by-flow");
        let error = applied(&sim, folder.path(), &["eth0:rps/rx-1=1", request]).unwrap_err();
        assert!(matches!(&error, ApplyError::Awaiting { id: 1, .. }), "{error}");
        assert!(error.to_string().contains("udpath confirm 1"), "{error}");
    }
    sim.remove("group:812/4027:selection");
    assert_eq!(sim.values(), first);
    // A plan that does not overlap is applied, and the revert leaves it alone.
    applied(&sim, folder.path(), &["eth0:rps/rx-1=1"]).unwrap();
    assert!(revert(&sim, &journal, 1).unwrap().unwrap().left.is_empty());
    assert_eq!(sim.values()["eth0:rps/rx-1"], "1");
    assert_eq!(undone(&sim, folder.path()).unwrap(), []);
    assert_eq!(sim.values(), before);
    // Once confirmed, it blocks no other apply.
    awaiting(&sim, &journal, &["eth0:rps/rx-0=0"]);
    confirm(&journal.lock().unwrap(), None).unwrap();
    applied(&sim, folder.path(), &["eth0:rps/rx-0=1"]).unwrap();
}

#[test]
fn a_revert_undoes_what_it_can_and_names_the_rest() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let (journal, before) = (Journal::at(folder.path()), sim.values());
    awaiting(&sim, &journal, &["eth0:rps/rx-0=0", "eth0:rps/rx-1=1", "sysctl:net.core.rmem_max=5"]);
    sim.put("eth0:rps/rx-1", "3");
    let left = revert(&sim, &journal, 1).unwrap().unwrap().left;
    assert_eq!((left.len(), left[0].setting.as_str()), (1, "eth0:rps/rx-1"));
    assert_eq!(sim.values()["eth0:rps/rx-0"], before["eth0:rps/rx-0"]);
    assert_eq!(sim.values()["sysctl:net.core.rmem_max"], before["sysctl:net.core.rmem_max"]);
    let reverted = || Status::of(&sim, &journal).unwrap().reverted;
    assert_eq!((reverted().len(), reverted()[0].left.len()), (1, 1), "{:?}", reverted());
    assert!(reverted()[0].why.contains("not confirmed"), "{:?}", reverted());
    // It is shown until it is closed, whatever comes later.
    sim.put("eth0:rps/rx-1", &before["eth0:rps/rx-1"]);
    awaiting(&sim, &journal, &["eth0:rps/rx-0=0"]);
    revert(&sim, &journal, 2).unwrap();
    assert_eq!(reverted().iter().map(|reverted| reverted.id).collect::<Vec<_>>(), [1, 2]);
    undo::forget(&journal.lock().unwrap(), 1, false).unwrap();
    assert_eq!(reverted().iter().map(|reverted| reverted.id).collect::<Vec<_>>(), [2]);
    // A complete revert is shown as long as it is the last.
    applied(&sim, folder.path(), &["eth0:rps/rx-0=0"]).unwrap();
    assert_eq!(reverted(), []);
}

#[test]
fn a_failed_revert_is_half_undone_and_names_the_rest() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let (journal, before) = (Journal::at(folder.path()), sim.values());
    awaiting(&sim, &journal, &REQUESTS);
    let broken = faulty_from(&sim, 1, Fault::Refuses(libc::EIO));
    assert!(!revert(&broken, &journal, 1).unwrap().unwrap().complete);
    let status = Status::of(&sim, &journal).unwrap();
    assert_eq!(status.applies[0].state, State::HalfUndone);
    assert!(!status.applies[0].left.is_empty(), "{status:?}");
    // The restarted process continues.
    assert!(revert(&sim, &journal, 1).unwrap().unwrap().complete);
    assert_eq!(sim.values(), before);
}

#[test]
fn a_revert_works_despite_damaged_entries() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let (journal, before) = (Journal::at(folder.path()), sim.values());
    applied(&sim, folder.path(), &["eth0:rps/rx-1=1"]).unwrap();
    assert_eq!(undone(&sim, folder.path()).unwrap(), []);
    awaiting(&sim, &journal, &REQUESTS);
    std::thread::scope(|scope| {
        let damage = journal.clone();
        scope.spawn(move || {
            std::fs::write(damage.path(1), "").unwrap();
            // Wait until the revert has read the entry and the one-second timeout is running.
            std::thread::sleep(Duration::from_millis(300));
            let text = std::fs::read_to_string(damage.path(2)).unwrap();
            std::fs::write(damage.path(2), text.replace("asked for", "other")).unwrap();
        });
        let reverted = revert(&sim, &journal, 2).unwrap().unwrap();
        assert!(reverted.complete && reverted.left.is_empty(), "{reverted:?}");
    });
    assert_eq!(sim.values(), before);
    assert_eq!(journal.entry(2).unwrap().state, State::Undone);
    assert_eq!(Status::of(&sim, &journal).unwrap().unreadable.len(), 1);
}

#[test]
fn the_reverting_process_is_visible_until_it_ends() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let journal = Journal::at(folder.path());
    awaiting(&sim, &journal, &["eth0:rps/rx-0=0"]);
    let attended = || Status::of(&sim, &journal).unwrap().applies[0].attended;
    assert_eq!(attended(), Some(false));
    let attending = confirm::attended_by_this(&journal, 1).unwrap();
    assert_eq!(attended(), Some(true));
    drop(attending);
    assert_eq!(attended(), Some(false));
}
