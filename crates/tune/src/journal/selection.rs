//! The reuseport selections udpath has set, from its journal: for kernels without an iterator over sockets, which shows
//! what selects ([`udpath_host::sockets::GroupOrder`]).
//!
//! The journal identifies a group by its sockets' cookies at that time. If a socket has joined or left since, the order
//! differs from the one the program was made for, and the selection is reported as unknown.

use std::collections::BTreeSet;

use udpath_steer::reuseport::By;

use crate::context;
use crate::journal::{Entry, Intent, Journal, JournalError};
use crate::machine::Identity;
use crate::settings::{Setting, Value};
use udpath_host::process::{Selection, SocketSetting, SocketValue};
use udpath_host::sockets::Sockets;
use udpath_host::{Fact, Provenance};

/// Fills in the selection of the groups in the caller's network namespace, as far as the journal knows it.
///
/// # Errors
/// The journal cannot be read.
pub fn selections(journal: &Journal, sockets: &mut Sockets) -> Result<(), JournalError> {
    let (boot, here) = (context::boot(), context::namespace().ok());
    let mut entries = journal.entries()?;
    let same = |entry: &Entry| here.as_ref().is_some_and(|here| here.is(&entry.begun.namespace));
    entries.retain(|entry| entry.begun.boot == boot && same(entry));
    tell(&entries, journal, sockets);
    Ok(())
}

/// A selection that was set, restored, or possibly set.
struct Event {
    /// When, milliseconds since 1970.
    time: u64,
    /// The entry's number.
    id: u64,
    /// Cookies of the group's sockets at that time.
    sockets: BTreeSet<u64>,
    /// `None`: the program died during the change.
    selection: Option<Selection>,
}

/// A group has the selection that was set last.
fn tell(entries: &[Entry], journal: &Journal, sockets: &mut Sockets) {
    let mut events: Vec<Event> = entries
        .iter()
        .flat_map(|entry| entry.intents.iter().flat_map(|intent| events(entry, intent)))
        .collect();
    events.sort_by_key(|event| (event.time, event.id));
    let Sockets { list, groups, .. } = sockets;
    for group in groups {
        let now: BTreeSet<u64> = group.members.iter().filter_map(|&at| list[at].cookie).collect();
        let Some(last) = events.iter().rev().find(|event| !event.sockets.is_disjoint(&now)) else { continue };
        let by = match last.selection {
            Some(Selection::ByFlow) => By::Hash,
            Some(Selection::ByCpu) if last.sockets == now => By::CpuModulo,
            // Which socket a datagram gets does not depend on the flow alone.
            Some(
                Selection::ByCpu
                | Selection::ByCpuModulo(_)
                | Selection::RoundRobin
                | Selection::LeastLoaded
                | Selection::Field { .. },
            )
            | None => By::Unknown,
        };
        let file = journal.path(last.id).display().to_string();
        group.selection = Some(Fact::new(by, Provenance::File(file)));
    }
}

/// One event for the set, one for the restore.
fn events(entry: &Entry, intent: &Intent) -> Vec<Event> {
    let Some(Identity::Sockets(cookies)) = &intent.identity else { return Vec::new() };
    let Ok((Setting::Socket { setting: SocketSetting::Selection, .. }, old, new)) = intent.parsed() else {
        return Vec::new();
    };
    let event = |time, value: &Value| {
        let selection = match value.for_socket(SocketSetting::Selection) {
            Some(SocketValue::Selection(selection)) => Some(selection),
            _ => None,
        };
        Event { time, id: entry.id, sockets: cookies.iter().copied().collect(), selection }
    };
    let mut set = event(entry.begun.time, &new);
    set.selection = set.selection.filter(|_| intent.done.is_some());
    let back = entry.undoing.filter(|_| intent.restored).map(|time| event(time, &old));
    std::iter::once(set).chain(back).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::journal::{Begun, Namespace, SCHEMA, State};
    use udpath_host::sockets::Socket;

    fn intent(cookies: &[u64], old: &str, new: &str) -> Intent {
        Intent {
            setting: "group:8/9:selection".to_owned(),
            identity: Some(Identity::Sockets(cookies.to_vec())),
            old: Some(old.to_owned()),
            new: Some(new.to_owned()),
            reason: String::new(),
            lost: None,
            done: Some(Some("unknown".to_owned())),
            restored: false,
            replaced: false,
        }
    }

    /// Made at `time`, undone at `undoing`.
    fn entry(time: u64, intent: Intent, undoing: Option<u64>) -> Entry {
        let begun = Begun {
            schema: SCHEMA.to_owned(),
            id: time,
            time,
            user: String::new(),
            version: String::new(),
            boot: String::new(),
            namespace: Namespace { device: 1, inode: 2, cookie: None },
            confirm: None,
            temporary: false,
            persists: Vec::new(),
        };
        let intents = vec![Intent { restored: undoing.is_some(), ..intent }];
        Entry {
            id: time,
            begun,
            state: State::Applied,
            kept: Vec::new(),
            intents,
            applied: None,
            undoing,
            why: None,
            left: Vec::new(),
            carried: 0,
            adopted_again: false,
        }
    }

    fn said(entries: &[Entry], cookies: &[u64]) -> Option<By> {
        let mut list: Vec<Socket> =
            (1..).zip(cookies).map(|(inode, cookie)| socket(inode, *cookie)).collect();
        let groups = udpath_host::sockets::groups(&mut list);
        let mut sockets = Sockets { list, groups, ..Sockets::default() };
        tell(entries, &Journal::at(Path::new("/j")), &mut sockets);
        sockets.groups[0].selection.as_ref().map(|fact| fact.value)
    }

    fn socket(inode: u32, cookie: u64) -> Socket {
        let text = r#"{"local": "10.0.0.1:53", "uid": 0, "receive_queue": 0, "send_queue": 0, "drops": 0, "inode": 0}"#;
        Socket { inode, cookie: Some(cookie), ..serde_json::from_str(text).unwrap() }
    }

    #[test]
    fn a_group_is_identified_by_its_cookies() {
        let of = |cookies: &[u64]| said(&[entry(1, intent(&[5, 6], "by-flow", "by-cpu"), None)], cookies);
        assert_eq!((of(&[5, 6]), of(&[6, 5])), (Some(By::CpuModulo), Some(By::CpuModulo)));
        assert_eq!(of(&[7, 8]), None, "a server that came later");
        assert_eq!(
            (of(&[5, 6, 7]), of(&[5, 7])),
            (Some(By::Unknown), Some(By::Unknown)),
            "one came, or left"
        );
    }

    #[test]
    fn the_last_selection_wins() {
        let made = |old: &str, new: &str| intent(&[5, 6], old, new);
        let of = |entries: &[Entry]| said(entries, &[5, 6]);
        let (to_cpu, again) = (made("by-flow", "by-cpu"), made("by-cpu", "by-cpu"));
        assert_eq!(of(&[entry(1, to_cpu.clone(), Some(2))]), Some(By::Hash));
        assert_eq!(
            of(&[entry(1, to_cpu.clone(), Some(2)), entry(3, to_cpu.clone(), None)]),
            Some(By::CpuModulo)
        );
        assert_eq!(
            of(&[entry(1, to_cpu.clone(), None), entry(2, made("by-cpu", "by-flow"), None)]),
            Some(By::Hash)
        );
        // Undone in order, and the first only: that also detaches what the second has attached.
        assert_eq!(
            of(&[entry(1, to_cpu.clone(), None), entry(2, again.clone(), Some(3))]),
            Some(By::CpuModulo)
        );
        assert_eq!(of(&[entry(1, to_cpu.clone(), Some(3)), entry(2, again, None)]), Some(By::Hash));
        let died = Intent { done: None, ..to_cpu };
        assert_eq!(of(&[entry(1, died.clone(), None)]), Some(By::Unknown));
        assert_eq!(of(&[entry(1, died, Some(2))]), Some(By::Hash));
        let other = Intent { setting: "socket:8/9:busy-poll".to_owned(), ..made("0", "1") };
        assert_eq!(of(&[entry(1, other, None)]), None);
    }
}
