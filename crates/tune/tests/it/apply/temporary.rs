//! Temporary changes: turned on and off, and as found at the end, or after a death at any write.

use std::mem::ManuallyDrop;
use std::path::Path;

use udpath_tune::temporary::{Temporary, TemporaryError, recover};
use udpath_tune::{Journal, Machine, Setting, Value};

use super::death::dies;
use super::sim::{Fault, Sim, faulty};
use super::undone;

/// Settings of a host, an interface, a socket and a thread.
const ONE: [&str; 3] = ["sysctl:net.core.rmem_max=4194304", "eth0:rps/rx-0=0-1", "thread:812/815:affinity=1"];
/// Loses the steering of all queues.
const RESETS: [&str; 2] = ["eth0:channels/combined=2", "eth0:rps/rx-1=1"];
/// Shares one setting with [`ONE`].
const OTHER: [&str; 2] = ["eth0:rps/rx-0=1", "socket:812/4026:receive-buffer=8388608"];

fn values(texts: &[&str]) -> Vec<(Setting, Value)> {
    let parsed = texts.iter().map(|text| {
        let (name, value) = text.rsplit_once('=').unwrap();
        let setting: Setting = name.parse().unwrap();
        let value = setting.value(value).unwrap();
        (setting, value)
    });
    parsed.collect()
}

/// Turns both sets on and off; returns what the machine was like under each.
fn alternate(machine: &dyn Machine, sim: &Sim, journal: &Path) -> Result<(), TemporaryError> {
    let lock = Journal::at(journal).lock().unwrap();
    // A program that is killed drops nothing.
    let mut temporary = ManuallyDrop::new(Temporary::begin(machine, &lock)?);
    let before = sim.values();
    for _ in 0..2 {
        temporary.set(&values(&ONE))?;
        assert_eq!(
            (sim.values()["eth0:rps/rx-0"].as_str(), sim.values()["thread:812/815:affinity"].as_str()),
            ("0-1", "1")
        );
        temporary.set(&values(&OTHER))?;
        assert_eq!(sim.values()["eth0:rps/rx-0"], "1");
        assert_eq!(sim.values()["thread:812/815:affinity"], before["thread:812/815:affinity"]);
        temporary.set(&values(&RESETS))?;
        let reset = sim.values();
        assert_eq!((reset["eth0:channels/combined"].as_str(), reset["eth0:rps/rx-1"].as_str()), ("2", "1"));
        assert_eq!(reset["eth0:rfs/rx-0"], before["eth0:rfs/rx-0"], "lost by the reset");
        assert_eq!(reset["eth0:xps/tx-0"], "none", "the driver's to choose");
        assert_eq!(reset.get("eth0:rps/rx-3"), None);
        // A reset on top of other temporary changes.
        temporary.set(&values(&[&ONE[..], &RESETS].concat()))?;
        assert_eq!(
            (sim.values()["eth0:rps/rx-0"].as_str(), sim.values()["eth0:rps/rx-1"].as_str()),
            ("0-1", "1")
        );
        temporary.set(&[])?;
        assert_eq!(sim.values(), before);
    }
    temporary.set(&values(&RESETS))?;
    temporary.set(&values(&ONE))?;
    let undone = ManuallyDrop::into_inner(temporary).end().unwrap();
    assert_eq!(undone.left, []);
    Ok(())
}

#[test]
fn sets_alternate_and_the_end_leaves_no_trace() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let before = sim.values();
    alternate(&sim, &sim, folder.path()).unwrap();
    assert_eq!(sim.values(), before);
    assert_eq!(Journal::at(folder.path()).ids().unwrap(), [] as [u64; 0]);
}

#[test]
fn a_death_at_any_write_is_recovered_by_undo_and_by_the_next_start() {
    let counting = Sim::new();
    let door = faulty(&counting, usize::MAX, Fault::Ignores);
    alternate(&door, &counting, tempfile::tempdir().unwrap().path()).unwrap();
    let writes = door.writes.get();
    assert!(writes > 10, "{writes}");
    for fault in [Fault::DiesBefore, Fault::DiesAfter] {
        for at in 0..writes {
            for by_undo in [false, true] {
                let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
                let before = sim.values();
                assert!(dies(|| alternate(&faulty(&sim, at, fault), &sim, folder.path()).unwrap()), "{at}");
                if by_undo {
                    assert_eq!(undone(&sim, folder.path()).unwrap(), []);
                } else {
                    let lock = Journal::at(folder.path()).lock().unwrap();
                    assert_eq!(recover(&sim, &lock).unwrap().len(), 1);
                    assert_eq!(recover(&sim, &lock).unwrap().len(), 0, "only once");
                }
                assert_eq!(sim.values(), before, "{at} {fault:?} {by_undo}");
            }
        }
    }
}

#[test]
fn a_refused_write_is_named_and_the_end_restores() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let before = sim.values();
    let lock = Journal::at(folder.path()).lock().unwrap();
    let door = faulty(&sim, 1, Fault::Refuses(libc::EBUSY));
    let mut temporary = Temporary::begin(&door, &lock).unwrap();
    let refused = temporary.set(&values(&ONE)).unwrap_err().to_string();
    assert!(refused.contains("eth0:rps/rx-0"), "{refused}");
    assert_eq!(temporary.end().unwrap().left, []);
    assert_eq!(sim.values(), before);
}

/// Dropped without an end, as after an error elsewhere.
#[test]
fn dropped_it_restores_as_well() {
    let (sim, folder) = (Sim::new(), tempfile::tempdir().unwrap());
    let before = sim.values();
    let lock = Journal::at(folder.path()).lock().unwrap();
    let mut temporary = Temporary::begin(&sim, &lock).unwrap();
    temporary.set(&values(&ONE)).unwrap();
    assert_ne!(sim.values(), before);
    drop(temporary);
    assert_eq!(sim.values(), before);
}
