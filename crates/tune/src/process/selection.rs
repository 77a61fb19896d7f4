//! What currently selects the socket in a reuseport group.
//!
//! No system call reports it, and detaching to find out is destructive; a BPF iterator over the kernel's sockets shows
//! it ([`udpath_bpf::ReuseportIterator`]): nothing is attached to the group, and no datagram is sent. If it is not
//! visible, it may be a program of the server's own, which a change would destroy and undo could not restore.

use error_reporter::Report;
use udpath_bpf::{Chooser, Installed, ReuseportGroup};

use udpath_host::process::{Selection, SocketId};

use super::rule::{self, group_of};
use crate::machine::Lost;

/// What selects the socket in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    /// The kernel, or a program equivalent to udpath's own: undo can restore it.
    By(Selection),
    /// Another program, described in words.
    Program(String),
    /// Unknown, and why.
    Unseen(String),
}

impl Chosen {
    /// What a change would destroy permanently; `None` if undo restores it.
    #[must_use]
    pub fn lost(&self) -> Option<Lost> {
        let (seen, words) = match self {
            Self::By(_) => return None,
            Self::Program(what) => {
                let words = format!(
                    "replaces the server's own {what}, which undo cannot restore: only a restart of the server can"
                );
                (true, words)
            }
            Self::Unseen(why) => {
                let words = format!(
                    "may replace the server's own BPF program, which undo cannot restore (whether it has one is \
                     unknown: {why})"
                );
                (false, words)
            }
        };
        Some(Lost { seen, words })
    }
}

/// What selects the socket in the group of a socket in the calling thread's network namespace.
#[must_use]
pub fn chosen(socket: SocketId) -> Chosen {
    match group_of(socket) {
        Err(error) => Chosen::Unseen(Report::new(error).to_string()),
        Ok(None) => Chosen::Unseen("the kernel lists the socket in no group".to_owned()),
        Ok(Some(group)) => of(&group),
    }
}

fn of(group: &ReuseportGroup) -> Chosen {
    match group.chooser {
        Chooser::Kernel => Chosen::By(Selection::ByFlow),
        Chooser::Cpu { modulus: Some(members) } if members == group.sockets => Chosen::By(Selection::ByCpu),
        Chooser::Cpu { modulus: Some(members) } => Chosen::By(Selection::ByCpuModulo(members)),
        Chooser::Cpu { modulus: None } => {
            Chosen::Program("classic BPF program (the CPU's number)".to_owned())
        }
        Chooser::Classic { length } => {
            let noun = if length == 1 { "instruction" } else { "instructions" };
            Chosen::Program(format!("classic BPF program ({length} {noun})"))
        }
        Chooser::Extended { id } => match Installed::read(id).ok().flatten() {
            // Cut short before it had its sockets: the kernel's hash selects.
            Some(ours) if ours.sockets.iter().all(Option::is_none) => Chosen::By(Selection::ByFlow),
            Some(ours) => rule::selection(ours.rule).map_or_else(
                || Chosen::Program(format!("program of udpath with slots (id {id})")),
                Chosen::By,
            ),
            None => Chosen::Program(format!("eBPF program (id {id})")),
        },
    }
}
