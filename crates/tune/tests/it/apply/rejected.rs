//! Writes that the kernel rejects or ignores.

use super::*;

#[test]
fn a_rejected_write_rolls_back_everything_and_is_named() {
    let writes = writes();
    assert_eq!(writes, REQUESTS.len());
    for errno in [libc::EIO, libc::EPERM, libc::ENOSPC, libc::EBUSY, libc::EOPNOTSUPP] {
        for at in 0..writes {
            let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
            let before = sim.values();
            let faulty = faulty(&sim, at, Fault::Refuses(errno));
            let names: Vec<String> =
                plan(&sim, &REQUESTS).changes.iter().map(|change| change.setting.to_string()).collect();
            let error = applied(&faulty, folder.path(), &REQUESTS).unwrap_err();
            assert!(error.to_string().contains(&names[at]), "{at} {errno}: {error}");
            match error {
                ApplyError::Nothing(_) => assert_eq!(at, 0),
                ApplyError::Reverted { changes, .. } => assert_eq!(changes, at),
                other => panic!("{at} {errno}: {other}"),
            }
            assert_eq!(sim.values(), before, "{at} {errno}");
            // Nothing is in effect, so the next apply is not blocked.
            applied(&sim, folder.path(), &REQUESTS).unwrap();
        }
    }
}

#[test]
fn an_ignored_write_is_detected_by_reading_back() {
    for at in 0..writes() {
        let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
        let before = sim.values();
        let ignoring = faulty(&sim, at, Fault::Ignores);
        if plan(&sim, &REQUESTS).changes[at].setting.assumed().is_some() {
            // An ignored write is undetectable if the kernel does not report the value.
            applied(&ignoring, folder.path(), &REQUESTS).unwrap();
            continue;
        }
        let error = applied(&ignoring, folder.path(), &REQUESTS).unwrap_err();
        assert!(error.to_string().contains("was set to"), "{error}");
        assert_eq!(sim.values(), before, "{at}");
    }
}

#[test]
fn a_failed_rollback_is_reported_and_left_to_the_next_undo() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let before = sim.values();
    let faulty = faulty_from(&sim, 3, Fault::Refuses(libc::EIO));
    let error = applied(&faulty, folder.path(), &REQUESTS).unwrap_err();
    assert!(matches!(&error, ApplyError::HalfReverted { id: 1, left, .. } if left.len() >= 3), "{error}");
    let next = applied(&sim, folder.path(), &REQUESTS).unwrap_err();
    assert!(matches!(next, ApplyError::Unfinished { id: 1 }), "{next}");
    assert_eq!(undone(&sim, folder.path()).unwrap(), []);
    assert_eq!(sim.values(), before);
}
