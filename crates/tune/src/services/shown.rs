//! Whether a knob is in effect at the running server, not only in its files: what a restart made of its processes,
//! threads, sockets, buffers and XDP programs.
//!
//! ```text
//!  prepared.shape() ─ before ─┐        apply: files, restart        ┌─ prepared.shown(before) ─▸ server-count=2: 4 processes, 3 before
//!                             └─────────────────────────────────────┘
//! ```
//! A file may be another than the one that the server reads, and a server may take less than it asked for. A knob that
//! does not show is in the list as well, with the reason: it is verified in the file only.

use std::time::{Duration, Instant};

use udpath_files::kernel;
use udpath_host::process::{self, SocketSetting, SocketValue};
use udpath_host::source::Folder;

use super::profile::{Kind, KnobProfile, Shows};
use super::{Origin, Prepared};

/// How long the threads of a server that answers already may take to start.
const SETTLES: Duration = Duration::from_secs(3);
/// Between two looks that must agree. Shorter: a process that only starts others (nsd has one for a moment) is counted.
/// Longer: an apply takes longer.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The limits of what a program without privileges gets as buffers.
const RECEIVE_LIMIT: &str = "net.core.rmem_max";
const SEND_LIMIT: &str = "net.core.wmem_max";

/// A running server, as far as knobs show in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    processes: usize,
    threads: usize,
    /// Sockets at the address that has most.
    sockets: usize,
    /// `SO_REUSEPORT` is set on each of its sockets.
    reuseport: bool,
    /// The smallest buffers of its sockets, bytes of the kernel's accounting: twice what was asked for.
    receive_buffer: Option<u32>,
    send_buffer: Option<u32>,
    /// Interfaces with its XDP program; `None`: it has none, or they cannot be listed.
    interfaces: Option<Vec<String>>,
    /// A file of its configuration was changed after its start: what ran may not be what the files said.
    stale: bool,
}

/// How a changed knob shows at the running server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The change: `server-count=2`.
    pub change: String,
    /// What was seen of it.
    pub outcome: Outcome,
}

/// What was seen of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// What the change should make of the server: `4 processes, 3 before`.
    InEffect(String),
    /// Something else.
    NotInEffect(String),
    /// Nothing, and why, after the change's name: `does not show from outside`.
    Unverified(String),
}

impl Outcome {
    fn of(seen: String, in_effect: bool) -> Self {
        if in_effect { Self::InEffect(seen) } else { Self::NotInEffect(seen) }
    }

    fn unverified(why: &str) -> Self {
        Self::Unverified(why.to_owned())
    }
}

/// What a knob had in the files, and what it is to have.
#[derive(Debug, Clone, Copy)]
struct Change<'a> {
    /// The number it had, if it was one.
    old: Option<u64>,
    /// The number it is to have, if it is one.
    number: Option<u64>,
    value: &'a str,
}

/// What programs without privileges get at most, bytes; `None`: not readable.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    receive: Option<u64>,
    send: Option<u64>,
}

impl Limits {
    fn read() -> Self {
        let of = |name: &str| {
            let path = format!("/proc/sys/{}", name.replace('.', "/"));
            String::from_utf8(kernel::start(&path, 64).ok()?).ok()?.trim().parse().ok()
        };
        Self { receive: of(RECEIVE_LIMIT), send: of(SEND_LIMIT) }
    }
}

impl Prepared {
    /// The server as it runs now, once it no longer changes; `None` if none of its files is to change, it does not
    /// serve, or nothing of it is visible.
    #[must_use]
    pub fn shape(&self) -> Option<Shape> {
        if self.files.is_empty() {
            return None;
        }
        let until = Instant::now() + SETTLES;
        let mut last = self.look();
        loop {
            std::thread::sleep(POLL_INTERVAL);
            let now = self.look();
            if now == last || Instant::now() >= until {
                return now;
            }
            last = now;
        }
    }

    fn look(&self) -> Option<Shape> {
        let address = self.restart.as_ref()?.address;
        let servers = process::answering(&Folder::live(), address).ok()?;
        let server = servers.first()?;
        let buffer = |socket: &process::Socket| match socket.value(SocketSetting::ReceiveBuffer) {
            Some(SocketValue::ReceiveBuffer(bytes)) => Some(bytes),
            _ => None,
        };
        let program = self.service.profile.xdp_program.as_deref();
        Some(Shape {
            processes: server.processes.len(),
            threads: server.threads.len(),
            sockets: server.groups.iter().map(|group| group.members.len()).max().unwrap_or(1),
            // Only sockets with the option are in a group.
            reuseport: server.sockets.iter().all(|socket| socket.group.is_some()),
            receive_buffer: server.sockets.iter().filter_map(buffer).min(),
            send_buffer: server.sockets.iter().map(|socket| socket.send_buffer).min(),
            interfaces: program.and_then(|program| udpath_bpf::interfaces_with(program).ok()),
            stale: !self.service.changed_since().is_empty(),
        })
    }

    /// How the changes show at the server that runs now: each of them, or none if no file changed. `before`: how the
    /// server was.
    #[must_use]
    pub fn shown(&self, before: Option<&Shape>) -> Vec<Shown> {
        if self.files.is_empty() {
            return Vec::new();
        }
        let Some(before) = before else { return self.unseen("before") };
        let until = Instant::now() + SETTLES;
        loop {
            let found = self.shape().map(|now| self.compared(before, &now));
            let lost = |one: &Shown| matches!(one.outcome, Outcome::NotInEffect(_));
            let settled = found.as_ref().is_some_and(|found| !found.iter().any(lost));
            if settled || Instant::now() >= until {
                return found.unwrap_or_else(|| self.unseen("after"));
            }
        }
    }

    /// Of a server of which nothing is visible.
    fn unseen(&self, when: &str) -> Vec<Shown> {
        let why = format!("cannot be seen, since nothing of the server was visible {when} the restart");
        let outcome = Outcome::Unverified(why);
        self.proposals
            .iter()
            .map(|proposal| Shown { change: proposal.id(), outcome: outcome.clone() })
            .collect()
    }

    fn compared(&self, before: &Shape, now: &Shape) -> Vec<Shown> {
        let limits = Limits::read();
        let knobs = &self.service.profile.knobs;
        let shown = self.proposals.iter().filter_map(|proposal| {
            let knob = knobs.iter().find(|knob| knob.name == proposal.knob)?;
            let number = self.service.number(knob, &proposal.value);
            let change = Change { old: self.old(knob), number, value: &proposal.value };
            let outcome = match knob.shows {
                Some(shows) => shows.compared(knob, change, (before, now), limits),
                None => Outcome::unverified("does not show from outside"),
            };
            Some(Shown { change: proposal.id(), outcome })
        });
        shown.collect()
    }

    /// The number that a knob had before, if it is one.
    fn old(&self, knob: &KnobProfile) -> Option<u64> {
        let known = self.service.knobs().into_iter().find(|known| known.name == knob.name)?;
        let text = match known.origin {
            Origin::Default => known.default.to_owned(),
            _ => known.value?,
        };
        if text == "cpus" {
            u64::try_from(self.service.cpus.len()).ok()
        } else {
            self.service.number(knob, &text)
        }
    }
}

impl Shows {
    fn compared(
        self,
        knob: &KnobProfile,
        change: Change<'_>,
        (before, now): (&Shape, &Shape),
        limits: Limits,
    ) -> Outcome {
        let counted =
            |words, was, is| counted(words, change, knob.besides, (was, is), before.stale || now.stale);
        match self {
            Self::Processes => counted(["process", "processes"], before.processes, now.processes),
            Self::Threads => counted(["thread", "threads"], before.threads, now.threads),
            Self::Sockets => {
                // Without an option of its own for each, all threads read the same one.
                if now.sockets == 1 && !now.reuseport && change.number.is_some_and(|wanted| wanted > 1) {
                    return Outcome::unverified("does not show at the one socket that all threads share");
                }
                let seen = format!("{}, {} before", at_an_address(now.sockets), before.sockets);
                Outcome::of(seen, u64::try_from(now.sockets).ok() == change.number)
            }
            Self::Reuseport => {
                let with = |on: bool| if on { "with" } else { "without" };
                let same = before.reuseport == now.reuseport;
                let earlier = if same { String::new() } else { format!(" {}", with(before.reuseport)) };
                let (now_at, was) = (at_an_address(now.sockets), before.sockets);
                let seen = format!("{now_at} {} SO_REUSEPORT, {was}{earlier} before", with(now.reuseport));
                Outcome::of(seen, Kind::is_on(change.value) == Some(now.reuseport))
            }
            Self::ReceiveBuffer => {
                buffered("receive", change, now.receive_buffer, (limits.receive, RECEIVE_LIMIT))
            }
            Self::SendBuffer => buffered("send", change, now.send_buffer, (limits.send, SEND_LIMIT)),
            Self::XdpProgram => {
                let name = change.value.split('@').next().unwrap_or_default();
                match &now.interfaces {
                    None => Outcome::unverified("cannot be seen, since the interfaces cannot be listed"),
                    Some(found) if found.iter().any(|one| one == name) => {
                        Outcome::InEffect(format!("its XDP program is on {name}"))
                    }
                    Some(_) => Outcome::NotInEffect(format!("its XDP program is not on {name}")),
                }
            }
        }
    }
}

/// Processes or threads. `besides`: how many there are beyond the value, if that is known.
fn counted(
    [one, more]: [&str; 2],
    change: Change<'_>,
    besides: Option<u64>,
    (before, now): (usize, usize),
    stale: bool,
) -> Outcome {
    let seen = format!("{now} {}, {before} before", if now == 1 { one } else { more });
    let as_many = |wanted: u64| u64::try_from(now).is_ok_and(|now| now == wanted);
    let grown = |from: u64, to: u64| i128::from(to) - i128::from(from);
    match (change.number, besides, change.old) {
        (Some(value), Some(besides), _) => Outcome::of(seen, as_many(value + besides)),
        (Some(value), None, Some(old)) if value != old && (now != before || !stale) => {
            let found =
                i128::try_from(now).unwrap_or(i128::MAX) - i128::try_from(before).unwrap_or(i128::MAX);
            let wanted = grown(old, value);
            Outcome::of(seen, if wanted < 0 { found <= wanted } else { found >= wanted })
        }
        // What ran before is not known: the file has another value than that, or a variable.
        _ => Outcome::Unverified(format!("makes no difference that shows ({seen})")),
    }
}

fn at_an_address(sockets: usize) -> String {
    let s = if sockets == 1 { "" } else { "s" };
    format!("{sockets} socket{s} at an address")
}

/// The smallest buffer of its sockets, `has` as the kernel counts it, and the most that a program without privileges
/// gets.
fn buffered(what: &str, change: Change<'_>, has: Option<u32>, limit: (Option<u64>, &str)) -> Outcome {
    let Some(asked) = change.number.filter(|asked| *asked > 0) else {
        return Outcome::unverified("asks for no size of its own");
    };
    let Some(has) = has else { return Outcome::unverified("cannot be seen at its sockets") };
    let (has, (allowed, name)) = (u64::from(has) / 2, limit);
    // A server with privileges may have more than that.
    let limited = has < asked && has >= allowed.unwrap_or(u64::MAX);
    let note = if limited { format!(", all that {name} allows") } else { String::new() };
    Outcome::of(format!("{what} buffers of {has} bytes{note}"), has == asked || limited)
}

#[cfg(test)]
mod tests;
