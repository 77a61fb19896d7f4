//! Selections for which a program of udpath has a slot for each socket of the group: round robin, least loaded, by
//! field.
//!
//! ```text
//!  select ─▸ load ─▸ empty the slots of an earlier program ─▸ a socket into each slot ─▸ attach
//!                    └── the kernel's hash selects until ────────────────────────────────┘
//! ```
//! A socket is in the slots of one program only. The program stays with the group; a socket that joins the group
//! later is in no slot and gets no datagrams: [`unselected`].

use std::io;

use error_reporter::Report;
use udpath_bpf::{
    Chooser, Installed, ReuseportGroup, ReuseportIterator, Selection as Program, SelectionRule,
};
use udpath_host::process::{Error, Selection, SocketId, group, members, with_socket};

/// The rule of a selection; `None` for those that need no slots.
pub(super) fn of(selection: Selection) -> Option<SelectionRule> {
    match selection {
        Selection::ByFlow | Selection::ByCpu | Selection::ByCpuModulo(_) => None,
        Selection::RoundRobin => Some(SelectionRule::RoundRobin),
        Selection::LeastLoaded => Some(SelectionRule::LeastLoaded),
        Selection::Field { offset, length } => Some(SelectionRule::Field { offset, length }),
    }
}

/// The selection of a rule; `None` for those that no setting has.
pub(super) fn selection(rule: SelectionRule) -> Option<Selection> {
    match rule {
        SelectionRule::Hash | SelectionRule::Cpu => None,
        SelectionRule::RoundRobin => Some(Selection::RoundRobin),
        SelectionRule::LeastLoaded => Some(Selection::LeastLoaded),
        SelectionRule::Field { offset, length } => Some(Selection::Field { offset, length }),
    }
}

/// The group of a socket as the kernel has it; `None` without one.
pub(super) fn group_of(socket: SocketId) -> Result<Option<ReuseportGroup>, udpath_bpf::Error> {
    let groups = ReuseportIterator::load()?.groups()?;
    let cookie = Some(socket.cookie);
    let ours = |group: &ReuseportGroup| group.members.iter().any(|member| member.cookie == cookie);
    Ok(groups.into_iter().find(ours))
}

/// Makes `rule` select in the group of a socket. If that fails, what selected before does so again.
///
/// # Errors
/// The socket has no group, other processes have a part of it, permission is denied, or the kernel rejects it.
pub(super) fn select(pid: u32, socket: SocketId, rule: SelectionRule) -> Result<(), Error> {
    let before = installed(socket);
    let done = replace(pid, socket, rule);
    match (done, before) {
        (Err(error), Some(before)) if installed(socket).is_some_and(|now| now.sockets != before.sockets) => {
            // The first error is the one to report; without a program the kernel's hash selects.
            let _ = replace(pid, socket, before.rule);
            Err(error)
        }
        (done, _) => done,
    }
}

fn replace(pid: u32, socket: SocketId, rule: SelectionRule) -> Result<(), Error> {
    let named = || format!("socket {} of process {pid}", socket.inode);
    let members = members(pid, socket)?.ok_or_else(|| Error::NoGroup { socket: named() })?;
    let failed = |error: udpath_bpf::Error| Error::System {
        what: format!("select in the reuseport group of {}", named()),
        cause: io::Error::other(Report::new(error).to_string()),
    };
    let slots = u32::try_from(members.len()).unwrap_or(u32::MAX);
    let mut program = Program::load(rule, slots).map_err(failed)?;
    if let Some(mut earlier) = installed(socket) {
        earlier.release().map_err(failed)?;
    }
    for (slot, (pid, member)) in (0..).zip(members) {
        with_socket(pid, member, |held| program.set(slot, Some(held)).map_err(failed))?;
    }
    with_socket(pid, socket, |held| program.attach_to(held).map_err(failed))
}

/// The program of udpath that selects in the socket's group.
fn installed(socket: SocketId) -> Option<Installed> {
    match group_of(socket).ok()??.chooser {
        Chooser::Extended { id } => Installed::read(id).ok()?,
        _ => None,
    }
}

/// Why a group's selection does not have its whole effect; `None` if it has.
#[must_use]
pub fn unselected(pid: u32, socket: SocketId) -> Option<String> {
    // Without any, the kernel's hash selects among all.
    let program = installed(socket).filter(|program| program.sockets.iter().any(Option::is_some))?;
    let members = group(pid, socket).ok()??;
    let without = members.iter().filter(|member| !program.sockets.contains(&Some(member.cookie))).count();
    (without > 0).then(|| {
        format!(
            "{without} of {} sockets of the group get no datagrams: they were bound after it was set; apply it again",
            members.len()
        )
    })
}
