//! The journal's disk operations: each one fails, and the program dies before, in the middle of and after each one;
//! unreadable entries; and ownership and permissions of the folder.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use udpath_tune::apply::{ApplyError, apply_until};
use udpath_tune::journal::{Journal, JournalError, Moment, State, When};
use udpath_tune::status::Status;
use udpath_tune::undo::{UndoError, forget};
use udpath_tune::{Machine, apply, undo};

use super::death::{dead, dies};
use super::sim::{Death, Fault, Sim, faulty};
use super::{REQUESTS, applied, plan, undone};

/// In memory if possible: these tests do not depend on what a sync does, and there are thousands.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A journal that calls `strike` at its n-th step point.
fn struck(
    folder: &Path,
    at: usize,
    strike: impl Fn(Moment) -> io::Result<()> + Send + Sync + 'static,
) -> (Journal, Arc<AtomicUsize>) {
    let moments = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&moments);
    let watcher = move |moment: Moment| match counted.fetch_add(1, Ordering::Relaxed) == at {
        true => strike(moment),
        false => Ok(()),
    };
    (Journal::watched(folder, Arc::new(watcher)), moments)
}

fn death(_: Moment) -> io::Result<()> {
    std::panic::resume_unwind(Box::new(Death))
}

fn apply_all(machine: &dyn Machine, journal: &Journal) -> Result<apply::Applied, ApplyError> {
    apply(machine, &journal.lock().unwrap(), &plan(machine, &REQUESTS), None, |_| Ok(()))
}

/// Applies again and undoes: both must work.
fn goes_on(sim: &Sim, folder: &Path, why: &str) {
    let before = sim.values();
    applied(sim, folder, &REQUESTS).unwrap_or_else(|error| panic!("{why}: {error:?}"));
    assert_eq!(undone(sim, folder).unwrap(), [], "{why}");
    assert_eq!(sim.values(), before, "{why}");
}

#[test]
fn a_death_at_any_journal_step_is_undone_exactly() {
    let mut deaths = 0;
    for at in 0.. {
        let (sim, folder) = (Sim::new(), folder());
        let before = sim.values();
        let (journal, _) = struck(folder.path(), at, death);
        if !dies(|| drop(apply_all(&sim, &journal))) {
            break;
        }
        deaths += 1;
        let status = Status::of(&sim, &Journal::at(folder.path())).unwrap();
        assert_eq!(status.unreadable, [], "{at}");
        match undone(&sim, folder.path()) {
            Ok(left) => assert_eq!(left, [], "{at}"),
            // It died before the first change, or after the last line.
            Err(UndoError::Nothing(_)) => assert_eq!(sim.values(), before, "{at}"),
            Err(error) => panic!("{at}: {error:?}"),
        }
        assert_eq!(sim.values(), before, "{at}");
        goes_on(&sim, folder.path(), &at.to_string());
    }
    // A write, a sync and the points around them for each of ten changes, plus the surrounding steps.
    assert!(deaths > 80, "{deaths}");
    println!("died {deaths} times, undone to equality each time");
}

#[test]
fn a_death_at_any_journal_step_of_an_undo_is_completed_by_the_next_undo() {
    for at in 0.. {
        let folder = folder();
        let (sim, before) = dead(6, Fault::DiesAfter, folder.path());
        let (journal, _) = struck(folder.path(), at, death);
        let work = || drop(undo(&sim, &journal.lock().unwrap(), None, "test", false).unwrap());
        let died = dies(work);
        if died {
            match undone(&sim, folder.path()) {
                Ok(left) => assert_eq!(left, [], "{at}"),
                Err(UndoError::Nothing(_)) => {}
                Err(error) => panic!("{at}: {error:?}"),
            }
        }
        assert_eq!(sim.values(), before, "{at}");
        goes_on(&sim, folder.path(), &at.to_string());
        if !died {
            break;
        }
    }
}

#[test]
fn a_failed_journal_step_leaves_nothing_half_done() {
    for errno in [libc::ENOSPC, libc::EIO, libc::EROFS] {
        for at in 0.. {
            let (sim, folder) = (Sim::new(), folder());
            let before = sim.values();
            let refuse = move |_: Moment| Err(io::Error::from_raw_os_error(errno));
            let (journal, moments) = struck(folder.path(), at, refuse);
            let done = apply_all(&sim, &journal);
            if done.is_err() {
                assert_eq!(sim.values(), before, "{at}");
            } else {
                assert_eq!(undone(&sim, folder.path()).unwrap(), [], "{at}");
                assert_eq!(sim.values(), before, "{at}");
            }
            goes_on(&sim, folder.path(), &at.to_string());
            if moments.load(Ordering::Relaxed) <= at {
                break;
            }
        }
    }
}

#[test]
fn a_step_is_watched_before_halfway_and_after() {
    let (sim, folder) = (Sim::new(), folder());
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let list = Arc::clone(&seen);
    let watcher = move |moment| {
        list.lock().unwrap().push(moment);
        Ok(())
    };
    apply_all(&sim, &Journal::watched(folder.path(), Arc::new(watcher))).unwrap();
    let seen = seen.lock().unwrap();
    let count = |when| seen.iter().filter(|moment| moment.when == when).count();
    assert_eq!(count(When::Before), count(When::After));
    assert!(count(When::Halfway) > REQUESTS.len(), "{seen:?}");
}

/// Unreadable entries: empty, truncated, edited, of a newer version, not text.
fn damage(text: &str) -> Vec<Vec<u8>> {
    let lines: Vec<&str> = text.lines().collect();
    let without = |at: usize| {
        let rest: Vec<&str> =
            lines.iter().enumerate().filter(|(line, _)| *line != at).map(|(_, line)| *line).collect();
        rest.join("\n") + "\n"
    };
    let json = lines[0].split_once(' ').unwrap().1.replace("udpath.journal/1", "udpath.journal/9");
    let sum = json
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let newer = format!("{sum:016x} {json}\n");
    let texts = [
        text.replace("256", "257"),
        without(0),
        without(lines.len() - 2),
        String::new(),
        "x\n".into(),
        newer,
    ];
    texts.into_iter().map(String::into_bytes).chain([vec![0xff, b'\n'], vec![0; 100]]).collect()
}

#[test]
fn an_unreadable_entry_blocks_only_itself_and_can_be_closed() {
    for undone_before in [false, true] {
        let folder = folder();
        let (sim, _) = dead(3, Fault::DiesAfter, folder.path());
        if undone_before {
            assert_eq!(undone(&sim, folder.path()).unwrap(), []);
        }
        let journal = Journal::at(folder.path());
        let (path, values) = (journal.path(1), sim.values());
        let text = std::fs::read_to_string(&path).unwrap();
        for bytes in damage(&text) {
            std::fs::write(&path, &bytes).unwrap();
            // The error names the entry and a fix; nothing is changed based on it.
            for id in [None, Some(1)] {
                let error = undo(&sim, &journal.lock().unwrap(), id, "test", true).unwrap_err().to_string();
                assert!(error.contains("000001.journal") && error.lines().count() == 1, "{error}");
                assert!(error.contains("udpath undo --forget 1"), "{error}");
            }
            assert_eq!(sim.values(), values);
            let status = Status::of(&sim, &journal).unwrap();
            assert_eq!((status.unreadable.len(), status.unreadable[0].id), (1, 1));
            // Everything else still works: apply, confirm and undo.
            let second = applied(&sim, folder.path(), &["sysctl:net.core.rmem_max=5"]).unwrap().id;
            assert!(second > 1);
            assert_eq!(undone(&sim, folder.path()).unwrap(), []);
            assert_eq!(sim.values(), values);
            // Once closed, it no longer blocks anything, and its number is not reused.
            assert_eq!(forget(&journal.lock().unwrap(), 1, false).unwrap(), Vec::<String>::new());
            assert_eq!(Status::of(&sim, &journal).unwrap().unreadable, []);
            assert!(matches!(
                forget(&journal.lock().unwrap(), 1, false),
                Err(UndoError::Journal(JournalError::Unknown { .. }))
            ));
            assert!(applied(&sim, folder.path(), &["sysctl:net.core.rmem_max=5"]).unwrap().id > second);
            assert_eq!(undone(&sim, folder.path()).unwrap(), []);
            std::fs::remove_file(folder.path().join("000001.closed")).unwrap();
        }
        std::fs::write(&path, text).unwrap();
    }
}

#[test]
fn the_number_of_a_closed_entry_is_not_reused() {
    let (sim, folder) = (Sim::new(), folder());
    let journal = Journal::at(folder.path());
    applied(&sim, folder.path(), &["sysctl:net.core.rmem_max=5"]).unwrap();
    // An entry that can still be undone is not closed by accident.
    let refused = forget(&journal.lock().unwrap(), 1, false);
    assert!(matches!(refused, Err(UndoError::Undoable(1))), "{refused:?}");
    let given_up = forget(&journal.lock().unwrap(), 1, true).unwrap();
    assert_eq!(given_up, ["sysctl:net.core.rmem_max (was 212992)"]);
    assert_eq!(journal.entry(1).unwrap().state, State::Closed);
    assert!(matches!(undone(&sim, folder.path()), Err(UndoError::Nothing(_))));
    std::fs::write(journal.path(2), "").unwrap();
    forget(&journal.lock().unwrap(), 2, false).unwrap();
    assert_eq!(journal.next_id().unwrap(), 3);
}

#[test]
fn a_request_to_stop_rolls_back_all_changes() {
    for stop_at in 0..=REQUESTS.len() + 1 {
        let (sim, folder) = (Sim::new(), folder());
        let before = sim.values();
        let asked = AtomicUsize::new(0);
        let interrupted = || {
            (asked.fetch_add(1, Ordering::Relaxed) >= stop_at).then(|| "interrupted by SIGTERM".to_owned())
        };
        let counting = faulty(&sim, usize::MAX, Fault::Ignores);
        let lock = Journal::at(folder.path()).lock().unwrap();
        let done = apply_until(&counting, &lock, &plan(&sim, &REQUESTS), None, |_| Ok(()), &interrupted);
        drop(lock);
        match done {
            Err(ApplyError::Nothing(why)) => {
                assert!(stop_at == 0 && why.contains("SIGTERM"), "{stop_at} {why}");
            }
            Err(ApplyError::Reverted { cause, changes }) => {
                assert!(cause.contains("SIGTERM") && changes > 0, "{stop_at} {cause}");
            }
            Err(other) => panic!("{stop_at}: {other}"),
            Ok(_) => {
                assert!(stop_at > REQUESTS.len(), "{stop_at}");
                assert_eq!(undone(&sim, folder.path()).unwrap(), []);
            }
        }
        assert_eq!(sim.values(), before, "{stop_at}");
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn folder_and_files_are_private_and_old_ones_are_tightened() {
    udpath_lab::needs_root!();
    let (sim, above) = (Sim::new(), folder());
    let folder = above.path().join("journal");
    applied(&sim, &folder, &["sysctl:net.core.rmem_max=5"]).unwrap();
    let files = || ["lock", "000001.journal"].map(|name| mode(&folder.join(name)));
    assert_eq!((mode(&folder), files()), (0o700, [0o600; 2]));
    // As created by earlier versions.
    for (path, mode) in
        [(folder.clone(), 0o755), (folder.join("lock"), 0o644), (folder.join("000001.journal"), 0o644)]
    {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(undone(&sim, &folder).unwrap(), []);
    assert_eq!((mode(&folder), files()), (0o700, [0o600; 2]));
    // Another user's folder is not accepted as root's journal.
    std::os::unix::fs::chown(&folder, Some(65534), None).unwrap();
    let error = Journal::at(&folder).lock().unwrap_err().to_string();
    assert!(error.contains("belongs to user 65534") && error.contains("chown 0 "), "{error}");
}
