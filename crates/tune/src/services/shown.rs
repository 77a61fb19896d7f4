//! Whether a knob is in effect at the running server, not only in its files: what a restart made of its processes, threads, sockets and
//! buffers.
//!
//! ```text
//!  prepared.shape() ─ before ─┐        apply: files, restart        ┌─ prepared.shown(before) ─▸ server-count=2: 4 processes, 3 before
//!                             └─────────────────────────────────────┘
//! ```
//! A file may be another than the one that the server reads, and a server may take less than it asked for.

use std::time::{Duration, Instant};

use udpath_files::kernel;
use udpath_host::process::{self, SocketSetting, SocketValue};
use udpath_host::source::Folder;

use super::profile::{Kind, KnobProfile, Shows};
use super::{Origin, Prepared};

/// How long the threads of a server that answers already may take to start.
const SETTLES: Duration = Duration::from_secs(3);
/// Between two looks that must agree. Shorter: a process that only starts others (nsd has one for a moment) is counted. Longer: an apply
/// takes longer.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The limit of what a program without privileges gets as receive buffer.
const MOST: &str = "/proc/sys/net/core/rmem_max";

/// A running server, as far as knobs show in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    processes: usize,
    threads: usize,
    /// Sockets at the address that has most.
    sockets: usize,
    /// The smallest receive buffer of its sockets, bytes of the kernel's accounting: twice what was asked for.
    receive_buffer: Option<u32>,
}

/// How a changed knob shows at the running server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The change: `server-count=2`.
    pub change: String,
    /// What was seen: `4 processes, 3 before`.
    pub seen: String,
    /// Whether that is what the change should make of it.
    pub in_effect: bool,
}

impl Prepared {
    /// The server as it runs now, once it no longer changes; `None` if none of its files is to change, it does not serve, or nothing of
    /// it is visible.
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
        Some(Shape {
            processes: server.processes.len(),
            threads: server.threads.len(),
            sockets: server.groups.iter().map(|group| group.members.len()).max().unwrap_or(1),
            receive_buffer: server.sockets.iter().filter_map(buffer).min(),
        })
    }

    /// How the changes show at the server that runs now. `before`: how it was. Nothing of what does not show.
    #[must_use]
    pub fn shown(&self, before: Option<&Shape>) -> Vec<Shown> {
        let Some(before) = before else { return Vec::new() };
        let until = Instant::now() + SETTLES;
        loop {
            let found = self.shape().map_or_else(Vec::new, |now| self.compared(before, &now));
            let settled = !found.is_empty() && found.iter().all(|one| one.in_effect);
            if settled || Instant::now() >= until {
                return found;
            }
        }
    }

    fn compared(&self, before: &Shape, now: &Shape) -> Vec<Shown> {
        let most =
            kernel::start(MOST, 64).ok().and_then(|text| String::from_utf8(text).ok()?.trim().parse().ok());
        let knobs = &self.service.profile.knobs;
        let shown = self.proposals.iter().filter_map(|proposal| {
            let knob = knobs.iter().find(|knob| knob.name == proposal.knob)?;
            let old = self.old(knob);
            let wanted = (self.service.number(knob, &proposal.value), proposal.value.as_str());
            let (seen, in_effect) = knob.shows?.compared(knob, (old, wanted), (before, now), most)?;
            Some(Shown { change: proposal.id(), seen, in_effect })
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
    /// What is seen, and whether it is what the change should make of it; `None`: that is not known.
    fn compared(
        self,
        knob: &KnobProfile,
        (old, (number, value)): (Option<u64>, (Option<u64>, &str)),
        (before, now): (&Shape, &Shape),
        most: Option<u64>,
    ) -> Option<(String, bool)> {
        let kind = knob.kind;
        let counted = |what: &str, before: usize, now: usize| {
            let (now, before) = (u64::try_from(now).ok()?, u64::try_from(before).ok()?);
            let value = number?;
            let right = match knob.besides {
                Some(besides) => now == value + besides,
                // The file may have said something else than what ran: it may have changed since the start.
                None if now == before => return None,
                None => {
                    let grown = |from: u64, to: u64| i128::from(to) - i128::from(from);
                    let (wanted, found) = (grown(old?, value), grown(before, now));
                    if wanted < 0 { found <= wanted } else { found >= wanted }
                }
            };
            Some((format!("{now} {what}, {before} before"), right))
        };
        match self {
            Self::Processes => counted("processes", before.processes, now.processes),
            Self::Threads => counted("threads", before.threads, now.threads),
            Self::Sockets => {
                let s = if now.sockets == 1 { "" } else { "s" };
                let seen = format!("{} socket{s} at an address, {} before", now.sockets, before.sockets);
                let right = match Kind::is_on(value).filter(|_| kind == Kind::Switch) {
                    Some(on) => (now.sockets > 1) == on,
                    None => u64::try_from(now.sockets).ok() == number,
                };
                Some((seen, right))
            }
            Self::ReceiveBuffer => {
                let asked = number.filter(|asked| *asked > 0)?;
                let has = u64::from(now.receive_buffer?) / 2;
                let allowed = most.unwrap_or(u64::MAX);
                // A server with privileges may have more than that.
                let limited = has < asked && has >= allowed;
                let note = if limited { ", all that net.core.rmem_max allows" } else { "" };
                Some((format!("receive buffers of {has} bytes{note}"), has == asked || limited))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::{Profile, Service};

    fn shape(processes: usize, threads: usize, sockets: usize, buffer: u32) -> Shape {
        Shape { processes, threads, sockets, receive_buffer: Some(buffer) }
    }

    fn compared(server: &str, text: &str, (knob, value): (&str, &str), now: &Shape) -> (String, bool) {
        let service = Service::of_text(Profile::named(server).unwrap(), text);
        let proposals = vec![service.propose(knob, value).unwrap()];
        let prepared = service.prepare(proposals, Some("true")).unwrap();
        let found = prepared.compared(&shape(3, 4, 1, 425_984), now);
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!(one.change, format!("{knob}={value}"));
        (one.seen.clone(), one.in_effect)
    }

    #[test]
    fn a_knob_shows_in_what_it_makes_more_or_fewer() {
        let nsd = "server:\n  server-count: 1\n";
        for (server, text, change, now, seen, in_effect) in [
            ("nsd", nsd, ("server-count", "2"), shape(4, 4, 1, 1), "4 processes, 3 before", true),
            ("nsd", nsd, ("server-count", "3"), shape(4, 4, 1, 1), "4 processes, 3 before", false),
            ("nsd", nsd, ("server-count", "2"), shape(3, 4, 1, 1), "3 processes, 3 before", false),
            // The file had changed since the start.
            (
                "nsd",
                "server:\n  server-count: 4\n",
                ("server-count", "1"),
                shape(3, 4, 1, 1),
                "3 processes, 3 before",
                true,
            ),
            ("nsd", nsd, ("reuseport", "yes"), shape(3, 4, 2, 1), "2 sockets at an address, 1 before", true),
            ("nsd", nsd, ("reuseport", "yes"), shape(3, 4, 1, 1), "1 socket at an address, 1 before", false),
            ("unbound", "server:\n", ("num-threads", "7"), shape(1, 7, 4, 1), "7 threads, 4 before", true),
            ("unbound", "server:\n", ("num-threads", "4"), shape(1, 6, 4, 1), "6 threads, 4 before", false),
            (
                "unbound",
                "server:\n  num-threads: 4\n",
                ("num-threads", "2"),
                shape(1, 2, 4, 1),
                "2 threads, 4 before",
                true,
            ),
            (
                "coturn",
                "relay-threads=2\n",
                ("relay-threads", "3"),
                shape(1, 5, 4, 1),
                "5 threads, 4 before",
                true,
            ),
            (
                "coturn",
                "relay-threads=2\n",
                ("relay-threads", "4"),
                shape(1, 5, 4, 1),
                "5 threads, 4 before",
                false,
            ),
        ] {
            assert_eq!(compared(server, text, change, &now), (seen.to_owned(), in_effect), "{change:?}");
        }
    }

    #[test]
    fn a_buffer_is_in_effect_as_far_as_the_kernel_allows() {
        let profile = Profile::named("nsd").unwrap();
        let knob = profile.knobs.iter().find(|knob| knob.name == "receive-buffer-size").unwrap();
        let of = |buffer: u32, most: u64| {
            let shapes = (&shape(1, 1, 1, 1), &shape(1, 1, 1, buffer));
            let asked = (Some(4_194_304), "4194304");
            Shows::ReceiveBuffer.compared(knob, (None, asked), shapes, Some(most)).unwrap()
        };
        assert_eq!(of(8_388_608, 212_992), ("receive buffers of 4194304 bytes".to_owned(), true));
        let limited = "receive buffers of 212992 bytes, all that net.core.rmem_max allows";
        assert_eq!(of(425_984, 212_992), (limited.to_owned(), true));
        assert!(!of(425_984, 4_194_304).1);
        assert!(!of(16_777_216, 212_992).1, "a smaller one was asked for");
    }
}
