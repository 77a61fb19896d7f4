//! What can be done about the readers of a socket and its buffer, as commands for the very server that reads.
//!
//! ```text
//! Diagnosis ── wants() ─▸ sockets, and what each wants ─▸ the caller looks who reads them, and what that server can be told
//!     ▴                                                                  │
//!     └──── offer(socket, want, levers) ◂── knobs, instances, policies, I/O ◂──┘
//! ```
//! The caller looks: this crate's diagnosis only gets data. A lever comes before what a rule advises, and has the rate
//! that the capacity says is carried when datagrams are read like that.

use super::{Capacity, Diagnosis};
use crate::finding::{Finding, Location, Netns, Remedy, Severity};

/// Findings that more readers, or ones that cost less, are the answer to.
const READERS: [&str; 5] =
    ["reader-limit", "reader-slow", "shared-socket", "receive-queue-lock", "one-socket"];
/// One that a larger buffer is the answer to.
const BUFFER: &str = "receive-buffer-small";
/// One that another selection in a reuseport group is the answer to.
const UNEVEN: &str = "group-uneven";

/// What the server that reads a socket should do differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// Read with more threads, or for less CPU time each.
    Readers,
    /// Have a receive buffer of so many bytes, as `ss -m` shows it.
    Buffer(u64),
    /// Give each reader of the socket's group equally much.
    Even,
}

/// Something that a running server, or who starts it, can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lever {
    /// What it does: an imperative without a full stop.
    pub what: String,
    /// The command, to be copied to a shell.
    pub command: String,
    /// How datagrams are read then, from which the rate to expect follows.
    pub reads: Reads,
}

/// How a server reads its datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// As now: no other rate is to be expected.
    AsNow,
    /// With so many threads, at most one on each CPU.
    With(usize),
    /// Past the kernel's sockets, with a thread for each CPU that receives packets.
    PastSockets,
}

impl Diagnosis {
    /// Says that the settings of its findings are there: the commands change them there.
    pub fn place(&mut self, there: &Netns) {
        for found in &mut self.findings {
            found.finding.place(there);
            found.commands = found.finding.remedies.iter().filter_map(Remedy::command).collect();
        }
    }

    /// What the sockets, by their inodes, want of who reads them. What only follows from something else is not among
    /// it.
    #[must_use]
    pub fn wants(&self) -> Vec<(u32, Want)> {
        let own =
            self.findings.iter().filter(|found| found.explained_by.is_none()).map(|found| &found.finding);
        let wanted = own.filter_map(|finding| Some((finding, want(finding)?)));
        let mut wants: Vec<(u32, Want)> =
            wanted.flat_map(|(finding, want)| sockets(finding).map(move |socket| (socket, want))).collect();
        wants.sort_unstable();
        wants.dedup();
        wants
    }

    /// Puts these commands before the advice of findings about a socket that wants this, the best first.
    pub fn offer(&mut self, socket: u32, wanted: Want, levers: &[Lever]) {
        let capacity = self.capacity.clone();
        for found in &mut self.findings {
            let about = want(&found.finding) == Some(wanted);
            if !about || !sockets(&found.finding).any(|one| one == socket) {
                continue;
            }
            let offered = levers.iter().map(|lever| lever.remedy(capacity.as_ref()));
            let first = found.finding.remedies.iter().take_while(|remedy| remedy.command().is_some()).count();
            found.finding.remedies.splice(first..first, offered);
            found.commands = found.finding.remedies.iter().filter_map(Remedy::command).collect();
        }
    }
}

impl Lever {
    fn remedy(&self, capacity: Option<&Capacity>) -> Remedy {
        let expected = capacity.and_then(|capacity| match self.reads {
            Reads::AsNow => None,
            Reads::With(readers) => capacity.with_readers(readers),
            Reads::PastSockets => capacity.past_sockets(),
        });
        Remedy::Command { what: self.what.clone(), command: self.command.clone(), expected }
    }
}

/// What a finding's sockets want; `None`: nothing that a server can be told.
fn want(finding: &Finding) -> Option<Want> {
    match finding.id.as_str() {
        _ if finding.severity >= Severity::Note => None,
        id if READERS.contains(&id) => Some(Want::Readers),
        BUFFER => finding.remedies.iter().flat_map(Remedy::settings).find_map(|setting| {
            setting
                .rsplit_once(":receive-buffer=")
                .and_then(|(_, bytes)| bytes.parse().ok())
                .map(Want::Buffer)
        }),
        UNEVEN => Some(Want::Even),
        _ => None,
    }
}

fn sockets(finding: &Finding) -> impl Iterator<Item = u32> {
    finding.locations.iter().filter_map(|location| match location {
        Location::Socket(inode) => Some(*inode),
        _ => None,
    })
}
