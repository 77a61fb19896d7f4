//! Re-applies a kept plan after a boot, under the same journal entry.
//!
//! ```text
//! boot ─▸ systemd-sysctl, udevd: our files ─▸ the unit: `udpath apply /etc/udpath/7.json --adopt 7`
//!                                               entry 7: adopted ─▸ each change no file covers: intent, write, done
//! ```
//! A plan therefore has one journal entry, however many boots it spans; `status` and `undo` find everything there. Undo
//! restores a setting written after this boot to its value earlier in this boot, and a setting written by a file to its
//! value when the file was created. If a change fails, the others of this boot are rolled back; the entry and its files
//! stay, and `status` lists what differs.

use error_reporter::Report;

use crate::apply::{Applied, ApplyError, Around, change_all};
use crate::context::{self, now};
use crate::journal::{Line, Lock, State};
use crate::link_reset::keep;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::restore::{Left, back_to};

/// Moves entry `id` to the current boot and adds the changes of `plan` to it. Writes nothing if the entry already
/// belongs to this boot and there is nothing to change.
///
/// # Errors
/// The entry cannot be adopted, or a change failed; the error lists what happened to the changes before it.
pub fn adopt(machine: &dyn Machine, lock: &Lock, id: u64, plan: &Plan) -> Result<Applied, ApplyError> {
    let boot = context::boot();
    let entries = lock.journal().entries()?;
    let (entry, mut writing) = lock.resume(id)?;
    let unfit = match entry.state {
        State::Undone => Some("has been undone; remove the unit that applies it"),
        State::Closed => Some("has been closed; remove the unit that applies it"),
        State::Unfinished | State::HalfUndone => Some("did not finish; undo it"),
        State::Awaiting => Some("is not confirmed, and is not in a file yet"),
        State::Applied if !entry.persists() => Some("was applied without --persist"),
        State::Applied => None,
    };
    if let Some(why) = unfit {
        return Err(ApplyError::Nothing(format!("apply {id} cannot be adopted: it {why}")));
    }
    // A setting also changed by a later apply of this boot belongs to that apply.
    let later: Vec<&str> = entries
        .iter()
        .filter(|other| other.id > id && other.stands() && other.begun.boot == boot)
        .flat_map(|other| other.intents.iter().map(|intent| intent.setting.as_str()))
        .collect();
    let mut plan = plan.clone();
    plan.changes.retain(|change| !later.contains(&change.setting.to_string().as_str()));
    if plan.is_empty() && entry.begun.boot == boot {
        return Ok(Applied { id, changes: Vec::new() });
    }
    let namespace = context::namespace().map_err(|error| ApplyError::Nothing(error.to_string()))?;
    writing.append(&Line::Adopted { time: now(), boot: boot.clone(), namespace })?;
    keep(machine, &mut writing, &plan)?;
    let mut made = Vec::new();
    let (first, earlier) =
        (entry.intents.len(), Around { entries: &entries, boot: &boot, interrupted: &|| None });
    let Err(stop) = change_all(machine, &mut writing, &plan, &earlier, first, &mut made) else {
        writing.sync()?;
        for made in made.iter_mut().filter(|made| made.note.is_none()) {
            made.note = machine.pending(&made.setting, &made.to);
        }
        return Ok(Applied { id, changes: made });
    };
    let cause = stop.cause;
    let (entry, mut writing) = match lock.resume(id) {
        Ok(resumed) => resumed,
        Err(error) => {
            let left = vec![Left { setting: "everything".to_owned(), why: Report::new(error).to_string() }];
            return Err(ApplyError::HalfReverted { id, cause, left });
        }
    };
    let left = back_to(machine, &entry, &mut writing, first, true).left;
    match (left.is_empty(), made.len()) {
        (false, _) => Err(ApplyError::HalfReverted { id, cause, left }),
        (true, 0) => Err(ApplyError::Nothing(cause)),
        (true, changes) => Err(ApplyError::Reverted { cause, changes }),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::journal::{Begun, Intent, SCHEMA};
    use crate::machine::{Identity, Refusal};
    use crate::plan::{Consent, SettingRequest};
    use crate::status::{Hold, Status};
    use crate::undo::Undone;
    use crate::{Journal, Live, Setting, Value, undo};
    use udpath_host::Source;

    const KEPT: &str = "sysctl:net.core.rmem_max";
    const REST: [&str; 2] = ["sysctl:net.core.wmem_max", "sysctl:net.core.optmem_max"];
    const FILE: &str = "file:/etc/sysctl.d/90-udpath-000001.conf";

    /// A file-backed machine that rejects writes after a given number of them.
    #[derive(Debug)]
    struct Files {
        live: Live,
        writes: Cell<usize>,
    }

    impl Machine for Files {
        fn source(&self) -> &dyn Source {
            self.live.source()
        }
        fn read(&self, setting: &Setting) -> Result<Value, Refusal> {
            self.live.read(setting)
        }
        fn write(&self, setting: &Setting, value: &Value) -> Result<(), Refusal> {
            let left = self.writes.get().checked_sub(1);
            self.writes.set(left.ok_or_else(|| Refusal::because("set", setting, "no more"))?);
            self.live.write(setting, value)
        }
        fn identity(&self, setting: &Setting) -> Result<Option<Identity>, Refusal> {
            self.live.identity(setting)
        }
        fn renamed(&self, setting: &Setting, identity: &Identity) -> Option<Setting> {
            self.live.renamed(setting, identity)
        }
        fn irq(&self, setting: &Setting) -> Result<u32, Refusal> {
            self.live.irq(setting)
        }
        fn pending(&self, setting: &Setting, value: &Value) -> Option<String> {
            self.live.pending(setting, value)
        }
    }

    struct Place {
        folder: tempfile::TempDir,
        machine: Files,
        journal: Journal,
    }

    fn path(name: &str) -> String {
        format!("proc/sys/{}", name.trim_start_matches("sysctl:").replace('.', "/"))
    }

    impl Place {
        /// After a boot: entry 1 is from the previous boot, its file has set its sysctl, and the kernel chose the rest.
        fn booted() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let write = |path: &str, text: &str| {
                let path = folder.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            // Only in the initial network namespace.
            write("proc/sys/net/core/netdev_max_backlog", "1000\n");
            write(&path(KEPT), "400\n");
            REST.iter().for_each(|name| write(&path(name), "150\n"));
            write("etc/sysctl.d/90-udpath-000001.conf", "ours\n");
            let journal = Journal::at(&folder.path().join("journal"));
            let lock = journal.lock().unwrap();
            let begun = |id| Begun {
                schema: SCHEMA.to_owned(),
                id,
                time: 1,
                user: "root".into(),
                version: "0".into(),
                boot: "earlier".into(),
                namespace: context::namespace().unwrap(),
                confirm: None,
                temporary: false,
                persists: Vec::new(),
            };
            let (_, mut writing) = lock.begin(begun).unwrap();
            let all =
                [(KEPT, Some("100"), "400"), (REST[0], Some("100"), "400"), (REST[1], Some("100"), "400")];
            for (at, (setting, old, new)) in all.into_iter().chain([(FILE, None, "ours\n")]).enumerate() {
                let intent = Intent {
                    setting: setting.into(),
                    // Objects recreated by the boot have a different identity.
                    identity: (setting != FILE).then_some(Identity::Device(1)),
                    old: old.map(str::to_owned),
                    new: Some(new.into()),
                    reason: String::new(),
                    lost: None,
                    done: None,
                    restored: false,
                    replaced: false,
                };
                writing.append(&Line::Intent(intent)).unwrap();
                writing.append(&Line::Done { at, found: Some(new.into()) }).unwrap();
            }
            writing.append(&Line::Applied { time: 2 }).unwrap();
            drop(lock);
            let machine = Files { live: Live::at(folder.path()), writes: Cell::new(usize::MAX) };
            Self { folder, machine, journal }
        }

        fn adopt(&self) -> Result<Applied, ApplyError> {
            let requests = REST.map(|name| SettingRequest::parse(&format!("{name}=400"), "").unwrap());
            let plan = Plan::resolve(&self.machine, requests.to_vec(), &Consent::default()).unwrap();
            adopt(&self.machine, &self.journal.lock().unwrap(), 1, &plan)
        }

        /// The sysctls, and whether the file exists.
        fn look(&self) -> ([u32; 3], bool) {
            let read = |name: &str| -> u32 {
                fs::read_to_string(self.folder.path().join(path(name))).unwrap().trim().parse().unwrap()
            };
            let file = self.folder.path().join("etc/sysctl.d/90-udpath-000001.conf");
            ([read(KEPT), read(REST[0]), read(REST[1])], file.exists())
        }

        fn holds(&self) -> Vec<Hold> {
            let status = Status::of(&self.machine, &self.journal).unwrap();
            status.applies.iter().flat_map(|apply| &apply.settings).map(|held| held.state).collect()
        }

        fn undo(&self) -> Undone {
            self.machine.writes.set(usize::MAX);
            let lock = self.journal.lock().unwrap();
            undo(&self.machine, &lock, None, "a test", false).unwrap()
        }

        fn set(&self, name: &str, value: &str) {
            fs::write(Path::new(self.folder.path()).join(path(name)), value).unwrap();
        }
    }

    #[test]
    fn before_adoption_objects_are_known_by_name() {
        let place = Place::booted();
        assert_eq!(place.holds(), [Hold::Holds, Hold::Drifted, Hold::Drifted, Hold::Holds]);
        // Neither the applied nor the old value: set by another program or by the boot.
        let undone = place.undo();
        assert_eq!((undone.id, undone.left.len(), undone.complete), (1, 2, true));
        assert_eq!(place.look(), ([100, 150, 150], false));
    }

    #[test]
    fn in_another_network_namespace_it_is_neither_checked_nor_undone() {
        let place = Place::booted();
        fs::remove_file(place.folder.path().join("proc/sys/net/core/netdev_max_backlog")).unwrap();
        assert_eq!(place.holds(), []);
        let lock = place.journal.lock().unwrap();
        let said = undo(&place.machine, &lock, None, "a test", true).unwrap_err().to_string();
        assert!(said.contains("nsenter -t 1 -n udpath undo 1"), "{said}");
        assert_eq!(place.look(), ([400, 150, 150], true));
    }

    #[test]
    fn an_adopted_plan_is_one_entry_and_undo_restores_this_boots_values() {
        let place = Place::booted();
        assert_eq!(place.adopt().unwrap().changes.len(), 2);
        assert_eq!(place.holds(), [Hold::Holds; 4]);
        assert_eq!(place.journal.ids().unwrap(), [1]);
        // A second run in the same boot: nothing to change, nothing written.
        let text = fs::read(place.journal.path(1)).unwrap();
        assert_eq!(place.adopt().unwrap().changes.len(), 0);
        assert_eq!(fs::read(place.journal.path(1)).unwrap(), text);
        // A changed value is set again, and the original value is still remembered.
        place.set(REST[0], "777\n");
        assert_eq!(place.adopt().unwrap().changes.len(), 1);
        assert_eq!(place.holds(), [Hold::Holds; 4]);
        let undone = place.undo();
        assert_eq!((undone.left, undone.complete, undone.gone_with_boot.len()), (Vec::new(), true, 0));
        assert_eq!(place.look(), ([100, 150, 150], false));
        assert!(place.adopt().unwrap_err().to_string().contains("has been undone"));
    }

    #[test]
    fn undo_restores_everything_after_any_failure() {
        // A change that was never reached has the boot's value, neither applied nor old, and is left alone.
        for (writes, left) in [(0, vec![REST[1]]), (1, vec![])] {
            let place = Place::booted();
            place.machine.writes.set(writes);
            place.adopt().unwrap_err();
            assert!(place.look().1, "the files stay");
            assert!(place.holds().contains(&Hold::Drifted), "and status says what is not as applied");
            let undone = place.undo();
            let found: Vec<&str> = undone.left.iter().map(|left| left.setting.as_str()).collect();
            assert_eq!((found, undone.complete), (left, true), "after {writes} writes");
            assert_eq!(place.look(), ([100, 150, 150], false), "after {writes} writes");
        }
    }
}
