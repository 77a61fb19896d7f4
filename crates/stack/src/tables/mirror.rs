//! The thread that keeps the tables in step with the kernel.
//!
//! ```text
//! kernel --notices--> socket --> Model (mutable state) ----------at most every 20 ms--> Tables (immutable)
//!        <--lists----            fresh Model, during a full read                        under epochs, for workers
//!        <--NTF_USE--  requests <--------------------------------------------- Resolver (workers, applications)
//! ```
//! # Nothing is missed
//! - The socket subscribes before the first list is requested. A change during a list is in the list, or in a notice,
//!   or in both.
//! - Notices that arrive during a list are kept until it is complete and then applied, in order. Part of a list may
//!   be older than a notice before it: an entry that was removed just after the kernel had copied it would otherwise
//!   come back permanently. The last notice about an object is never older than its list entry.
//! - A list that changed while the kernel was dumping it (`NLM_F_DUMP_INTR`) may lack entries: it is read again.
//! - If the socket overran (`ENOBUFS`), notices are lost: everything is read again. Until that is done the old tables
//!   stay, and they are replaced as a whole.
//! - IPv4 routes disappear with their interface without a notice. After any event that may cause this, the routes are
//!   read again ([`fib`]).
//!
//! # Never on the packet path
//! It has a thread of its own because the work is bursty (a routing daemon that starts, a resync) and would hold up a
//! worker for milliseconds. Workers only see pointers change.

mod fib;
mod handle;
mod model;
mod netlink;
mod status;

use std::io;
use std::time::{Duration, Instant};

use error_reporter::Report;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use udpath_netlink::Received;
use udpath_netlink::rtnetlink::Update;

use super::Tables;
use super::resolve::Requests;
use crate::epoch::{Domain, PublishError, Stalled};
use crate::primitive::{Arc, Mutex, lock};
use model::Model;
use netlink::{Item, Kind, Netlink};

pub use handle::Mirror;
pub use status::{MirrorError, State, Status};

/// The minimum interval between two publications; changes in between are combined.
///
/// Shorter: in a storm of changes every worker gets a new epoch more often, and the tables in its cache are
/// invalidated. Longer: frames go to a neighbour's old address for that much longer; the first change after a quiet
/// period is never delayed.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(20);

/// How many times its own duration a publication, or a read of lists, pauses afterwards, if that is longer than
/// [`PUBLISH_INTERVAL`]: so the thread uses at most a tenth of a core, however large the tables are.
///
/// Lower: a storm takes a core away from the workers. Higher: large tables follow more slowly.
const REST_FACTOR: u32 = 9;

/// Datagrams read before tables are published and the stop flag is checked. Lower: more iterations in a storm.
/// Higher: an endless storm delays publication; this many take a few milliseconds.
const MAX_READS: usize = 1024;

/// Notices that may be pending while a list is read. Lower: fewer changes are tolerated during a read. Higher: more
/// memory, about 500 bytes each. Exceeding it is treated as an overrun.
const MAX_NOTICES: usize = 16_384;

/// How often a list that changed while it was read is retried at once. Lower: a busy machine cannot be mirrored.
/// Higher: [`Mirror::start`] tries longer before it fails; later reads are retried indefinitely anyway.
const MAX_ATTEMPTS: u32 = 10;

/// How long the kernel may take for the next part of a list. It answers within the system call; only a hung kernel
/// exceeds this. Lower: a machine under heavy load fails for no reason. Higher: a hang is reported late.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// How often replaced tables are checked for whether they can be freed, when nothing else happens. More often:
/// useless wake-ups. Less often: a large table's memory is held for longer.
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);

/// Everything that is mirrored, in the order in which it is read: a route is useful only when its interface is known.
const EVERYTHING: [Kind; 4] = [Kind::Links, Kind::Addresses, Kind::Neighbours, Kind::Routes];

/// The state of the mirror's thread.
struct Follower {
    netlink: Netlink,
    model: Model,
    tables: Arc<Tables>,
    domain: Domain,
    requests: Arc<Requests>,
    status: Status,
    /// The published copy of `status`.
    shown: Arc<Mutex<Status>>,
    generation: u64,
    /// Whether notices were lost since the last full read.
    lost: bool,
    /// When tables may be published next.
    publish_at: Instant,
    /// When lists may be read next.
    read_at: Instant,
}

/// The result of reading lists.
enum Read {
    Done,
    /// The mirror is to stop.
    Stopped,
    /// Notices were lost during the read, or too many were pending, or a list kept changing.
    Overrun(&'static str),
    Failed(MirrorError),
}

impl Follower {
    fn run(mut self) {
        if let Err(error) = self.follow() {
            self.status.state = State::Ended(Report::new(error).to_string());
            // Nothing handles requests any more.
            self.requests.stop();
        }
        self.show();
    }

    /// Runs until it is stopped.
    fn follow(&mut self) -> Result<(), MirrorError> {
        loop {
            let Some(asked) = self.requests.take() else { return Ok(()) };
            for (interface, address) in asked {
                self.status.asked += 1;
                // A request that cannot be sent counts as refused: the requester retries.
                self.status.refused += u64::from(self.netlink.resolve(interface, address).is_err());
            }
            let more = self.notices()?;
            let now = Instant::now();
            if (self.lost || self.model.fib.is_unsure()) && now >= self.read_at {
                self.read_anew()?;
            }
            if self.model.dirty.any() && now >= self.publish_at {
                self.publish();
            }
            let waiting = self.domain.collect();
            self.show();
            if !more {
                self.wait(waiting > 0)?;
            }
        }
    }

    /// Reads pending notices; returns whether there may be more.
    fn notices(&mut self) -> Result<bool, MirrorError> {
        for _ in 0..MAX_READS {
            match self.netlink.receive() {
                Ok(Received::Datagram) => {
                    let (model, status) = (&mut self.model, &mut self.status);
                    self.netlink.items(|item| match item {
                        Item::Noticed(flags, message) => model.notice(&message, flags),
                        Item::NextHops => model.fib.doubt(),
                        Item::Undecodable => status.undecodable += 1,
                        Item::Unasked => status.refused += 1,
                        // From a list that was abandoned.
                        Item::Listed(_) | Item::End { .. } | Item::Refused(_) => {}
                    });
                }
                Ok(Received::Nothing) => return Ok(false),
                Ok(Received::Overrun) => self.overrun(),
                Err(cause) => return Err(MirrorError::System { what: "read rtnetlink's notices", cause }),
            }
        }
        Ok(true)
    }

    fn overrun(&mut self) {
        self.status.overruns += 1;
        self.lost = true;
    }

    /// Reads everything, or only the routes if no notices were lost.
    fn read_anew(&mut self) -> Result<(), MirrorError> {
        let began = Instant::now();
        let everything = self.lost;
        if everything {
            self.status.state = State::Behind;
            self.show();
            self.lost = false;
        }
        let kinds: &[Kind] = if everything { &EVERYTHING } else { &[Kind::Routes] };
        match self.read(kinds) {
            Read::Done if everything => {
                self.status.resyncs += 1;
                self.status.state = State::Following;
            }
            Read::Done => self.status.route_readings += 1,
            Read::Stopped => {}
            Read::Overrun(_) => self.lost = true,
            Read::Failed(error) => return Err(error),
        }
        self.read_at = rested(began);
        Ok(())
    }

    /// Reads lists, adopts them as a whole, and applies the notices that arrived during the read.
    fn read(&mut self, kinds: &[Kind]) -> Read {
        let mut fresh = Model::default();
        let mut notices = Vec::new();
        for kind in kinds {
            match self.read_list(*kind, &mut fresh, &mut notices) {
                Read::Done => {}
                other => return other,
            }
        }
        for kind in kinds {
            self.model.adopt(*kind, &mut fresh);
        }
        for notice in notices {
            match notice {
                Some((flags, message)) => self.model.notice(&message, flags),
                None => self.model.fib.doubt(),
            }
        }
        Read::Done
    }

    /// Reads one list into `fresh`. `notices`: those that arrived during the read; `None` for a change
    /// of next hop objects.
    fn read_list(&mut self, kind: Kind, fresh: &mut Model, notices: &mut Vec<Option<(u16, Update)>>) -> Read {
        let what = match kind {
            Kind::Links => "read the list of links",
            Kind::Addresses => "read the list of addresses",
            Kind::Neighbours => "read the list of neighbours",
            Kind::Routes => "read the list of routes",
        };
        let failed = |cause| Read::Failed(MirrorError::System { what, cause });
        for _ in 0..MAX_ATTEMPTS {
            if let Err(cause) = self.netlink.list(kind) {
                return failed(cause);
            }
            let mut end = None;
            while end.is_none() {
                match self.netlink.receive() {
                    Ok(Received::Datagram) => {
                        let status = &mut self.status;
                        self.netlink.items(|item| match item {
                            Item::Listed(message) => fresh.list(&message),
                            Item::End { interrupted } => end = Some(Ok(interrupted)),
                            Item::Refused(cause) => end = Some(Err(cause)),
                            Item::Noticed(flags, message) => notices.push(Some((flags, message))),
                            Item::NextHops => notices.push(None),
                            Item::Unasked => status.refused += 1,
                            Item::Undecodable => status.undecodable += 1,
                        });
                    }
                    Ok(Received::Nothing) => {
                        if self.requests.is_stopped() {
                            return Read::Stopped;
                        }
                        match readable(&[PollFd::new(&self.netlink, PollFlags::IN)], Some(REPLY_TIMEOUT)) {
                            Ok(true) => {}
                            Ok(false) => return Read::Failed(MirrorError::NoAnswer { what }),
                            Err(cause) => return failed(cause),
                        }
                    }
                    Ok(Received::Overrun) => {
                        self.status.overruns += 1;
                        return Read::Overrun(what);
                    }
                    Err(cause) => return failed(cause),
                }
                if notices.len() > MAX_NOTICES {
                    self.status.overruns += 1;
                    return Read::Overrun(what);
                }
            }
            match end {
                // The previous list was abandoned, and the kernel is still dumping it.
                Some(Err(cause)) if cause.raw_os_error() == Some(libc::EBUSY) => return Read::Overrun(what),
                Some(Err(cause)) => return failed(cause),
                Some(Ok(true)) => {
                    self.status.interrupted += 1;
                    fresh.forget(kind);
                }
                _ => return Read::Done,
            }
        }
        Read::Overrun(what)
    }

    /// Publishes the tables that are out of date.
    fn publish(&mut self) {
        let began = Instant::now();
        let published = self.publish_dirty();
        self.publish_at = rested(began);
        match published {
            Ok(()) => {
                self.status.publications += 1;
                if matches!(self.status.state, State::Held(_)) {
                    self.status.state = State::Following;
                }
            }
            Err(stalled) => self.status.state = State::Held(stalled),
        }
    }

    fn publish_dirty(&mut self) -> Result<(), Stalled> {
        fn stalled<T>(refused: PublishError<T>) -> Stalled {
            refused.stalled
        }
        let model = &mut self.model;
        if model.dirty.interfaces {
            self.generation += 1;
            self.tables.interfaces.publish(model.interfaces(self.generation)).map_err(stalled)?;
            model.dirty.interfaces = false;
        }
        if model.dirty.addresses {
            self.tables.addresses.publish(model.addresses()).map_err(stalled)?;
            model.dirty.addresses = false;
        }
        if model.dirty.neighbours {
            self.tables.neighbours.publish(model.neighbours()).map_err(stalled)?;
            model.dirty.neighbours = false;
        }
        if model.dirty.routes {
            self.tables.routes.publish(model.routes()).map_err(stalled)?;
            model.dirty.routes = false;
        }
        Ok(())
    }

    fn show(&self) {
        let mut shown = lock(&self.shown);
        if *shown != self.status {
            shown.clone_from(&self.status);
        }
    }

    /// Sleeps until there is something to do.
    fn wait(&self, garbage: bool) -> Result<(), MirrorError> {
        let reading = (self.lost || self.model.fib.is_unsure()).then_some(self.read_at);
        let publishing = self.model.dirty.any().then_some(self.publish_at);
        let now = Instant::now();
        let collecting = garbage.then_some(now + COLLECT_INTERVAL);
        let next = [reading, publishing, collecting].into_iter().flatten().min();
        let timeout = next.map(|next| next.saturating_duration_since(now));
        let fds =
            [PollFd::new(&self.netlink, PollFlags::IN), PollFd::new(&self.requests.event, PollFlags::IN)];
        readable(&fds, timeout)
            .map(|_| ())
            .map_err(|cause| MirrorError::System { what: "wait for rtnetlink's notices", cause })
    }
}

/// When work that started at `began` may be done again.
fn rested(began: Instant) -> Instant {
    let now = Instant::now();
    now + PUBLISH_INTERVAL.max(now.duration_since(began) * REST_FACTOR)
}

/// Waits until one of `fds` is readable or has an error, for at most `timeout`. A Unix signal counts as readable.
fn readable(fds: &[PollFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut fds.to_vec(), timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(cause) => Err(cause.into()),
    }
}

#[cfg(test)]
mod tests;
