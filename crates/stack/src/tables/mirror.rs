//! The thread that keeps the tables as the kernel's are.
//!
//! ```text
//! kernel --notices--> socket --> Model (what was said, changeable) --at most every 20 ms--> Tables (immutable)
//!        <--lists----            fresh Model, while all is read anew                        under epochs, for workers
//!        <--NTF_USE--  asks <------------------------------------------------- Resolver (workers, applications)
//! ```
//! # Nothing is missed
//! - The socket is subscribed before the first list is asked for. A change while a list is read is in the list, or in a
//!   notice, or in both.
//! - Notices that arrive while a list is read wait until it is complete and are applied to it then, in their order. A
//!   list's part may be older than a notice before it: an entry that was removed just after the kernel had copied it
//!   would come back for ever. The last notice on a thing is never older than what a list says of it.
//! - A list that changed under the kernel's hands (`NLM_F_DUMP_INTR`) may lack entries: it is read again.
//! - If the socket overran (`ENOBUFS`), notices are lost: everything is read anew. Until that is done the old tables
//!   stay, and they are replaced whole.
//! - IPv4 routes go in silence with their interface. After whatever may do that, routes are read anew ([`fib`]).
//!
//! # Never on the packet path
//! It has a thread of its own because the work comes in lumps (a routing daemon that starts, a resync) that would hold
//! up a worker for milliseconds. Workers only see pointers change.

mod fib;
mod model;
mod netlink;

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use udpath_netlink::Received;
use udpath_netlink::rtnetlink::Update;

use super::Tables;
use super::resolve::{Requests, Resolver};
use crate::epoch::{Domain, PublishError, Stalled};
use crate::primitive::{Arc, Mutex, lock};
use model::Model;
use netlink::{Item, Kind, Netlink};

/// The shortest time from one making of tables to the next; changes in between are taken together.
///
/// Shorter: in a storm of changes every worker gets a new epoch more often, and the tables it has in its cache are thrown
/// away. Longer: frames go to where a neighbour was before for that much longer; the first change after a quiet time is
/// never held back.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(20);

/// For how many times its own duration a making of tables, or a reading of lists, rests afterwards, if that is longer
/// than [`PUBLISH_INTERVAL`]: so the thread takes at most a tenth of a core for it, however large the tables are.
///
/// Lower: a storm takes a core away from the workers. Higher: large tables follow more slowly.
const REST_FACTOR: u32 = 9;

/// Datagrams read before tables are made and the stop is looked at. Lower: more turns in a storm. Higher: a storm
/// without end holds tables back; these many take some milliseconds.
const MAX_READS: usize = 1024;

/// Notices that may wait for a list to be complete. Lower: the storm in which a list is read must be calmer. Higher: more
/// memory, some 500 bytes each. Beyond, it counts as an overrun.
const MAX_NOTICES: usize = 16_384;

/// How often a list that changed while it was read is read again at once. Lower: a busy machine cannot be mirrored.
/// Higher: [`Mirror::start`] tries longer before it says so; afterwards it is tried again all the time anyway.
const MAX_ATTEMPTS: u32 = 10;

/// How long the kernel may take for the next part of a list. It answers within the system call; only a hung kernel lets
/// this run out. Lower: a machine under heavy load fails for nothing. Higher: a hang is told late.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// How often tables that were replaced are looked at, whether they can be freed, when nothing else happens. More often:
/// wake-ups for nothing. More seldom: a large table's memory stays for longer.
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);

/// All that there is to follow, in the order in which it is read: a route is of use when its interface is known.
const EVERYTHING: [Kind; 4] = [Kind::Links, Kind::Addresses, Kind::Neighbours, Kind::Routes];

/// Why the kernel cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// A system call failed, or the kernel refused a request.
    #[error("cannot {what}: {cause}")]
    System {
        /// The operation.
        what: &'static str,
        /// Why.
        cause: io::Error,
    },
    /// The kernel did not answer.
    #[error("cannot {what}: no answer from the kernel for {} s", REPLY_TIMEOUT.as_secs())]
    NoAnswer {
        /// The operation.
        what: &'static str,
    },
    /// Interfaces, addresses, neighbours or routes change all the time, faster than they can be read.
    #[error(
        "cannot {what}: it changed while it was read, {MAX_ATTEMPTS} times in a row; try again when the machine is calmer"
    )]
    Unsettled {
        /// The operation.
        what: &'static str,
    },
    /// A reader does not let go of old tables.
    #[error("cannot publish the tables: {0}")]
    Stalled(Stalled),
}

/// How the mirror is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    /// The tables are what the kernel said, at most some 20 ms ago, or longer if they are large.
    #[default]
    Following,
    /// Notices were lost; the tables are as before until all has been read anew.
    Behind,
    /// New tables cannot be published, since this reader does not let go of old ones. Tried again all the time.
    Held(Stalled),
    /// The socket died, for this reason. The tables **stay as they are now**; to follow again, start another mirror.
    Ended(String),
}

/// How the mirror is, and what happened since it started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// How it is.
    pub state: State,
    /// How often everything was read anew since notices were lost.
    pub resyncs: u64,
    /// How often the socket had lost notices.
    pub overruns: u64,
    /// How often the routes alone were read anew, since they may have changed in silence.
    pub route_readings: u64,
    /// How often a list was read again, since it changed meanwhile.
    pub interrupted: u64,
    /// How often tables were made and published.
    pub publications: u64,
    /// Messages that made no sense. A link's or an address's may be missing in the tables.
    pub undecodable: u64,
    /// Neighbours the kernel was asked for.
    pub asked: u64,
    /// Requests for neighbours that the kernel refused: no right to ask, its table is full, the interface is gone.
    pub refused: u64,
}

/// Keeps tables as the kernel's are, for the network namespace it was started in, until it is dropped.
#[derive(Debug)]
pub struct Mirror {
    tables: Arc<Tables>,
    requests: Arc<Requests>,
    status: Arc<Mutex<Status>>,
    thread: Option<JoinHandle<()>>,
}

impl Mirror {
    /// Begins to follow the calling thread's network namespace. When it returns the tables are complete. `domain` is
    /// the one that the tables' readers are registered with.
    ///
    /// # Errors
    /// The socket or the thread cannot be made, or the kernel's tables cannot be read.
    pub fn start(domain: &Domain) -> Result<Self, MirrorError> {
        let netlink = Netlink::open()
            .map_err(|cause| MirrorError::System { what: "open and subscribe an rtnetlink socket", cause })?;
        let tables = Arc::new(Tables::new(domain));
        let requests = Arc::new(
            Requests::new().map_err(|cause| MirrorError::System { what: "make an eventfd", cause })?,
        );
        let status = Arc::new(Mutex::new(Status::default()));
        let mut follower = Follower {
            netlink,
            model: Model::default(),
            tables: Arc::clone(&tables),
            domain: domain.clone(),
            requests: Arc::clone(&requests),
            status: Status::default(),
            shown: Arc::clone(&status),
            generation: 0,
            lost: false,
            publish_at: Instant::now(),
            read_at: Instant::now(),
        };
        match follower.read(&EVERYTHING) {
            Read::Done | Read::Stopped => {}
            Read::Failed(error) => return Err(error),
            Read::Overrun(what) => return Err(MirrorError::Unsettled { what }),
        }
        follower.publish();
        if let State::Held(stalled) = follower.status.state {
            return Err(MirrorError::Stalled(stalled));
        }
        follower.show();
        let thread = std::thread::Builder::new()
            .name("udpath-mirror".to_owned())
            .spawn(move || follower.run())
            .map_err(|cause| MirrorError::System { what: "start the mirror's thread", cause })?;
        Ok(Self { tables, requests, status, thread: Some(thread) })
    }

    /// The tables, for workers to keep: they stay, though they no longer change, when the mirror is gone.
    #[must_use]
    pub fn tables(&self) -> Arc<Tables> {
        Arc::clone(&self.tables)
    }

    /// Who asks the kernel for neighbours.
    #[must_use]
    pub fn resolver(&self) -> Resolver {
        Resolver::new(Arc::clone(&self.requests), Arc::clone(&self.tables))
    }

    /// How it is, and what happened so far.
    #[must_use]
    pub fn status(&self) -> Status {
        // Looked at first: a thread that ends says so before it ends.
        let gone = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let mut status = lock(&self.status).clone();
        if gone && !matches!(status.state, State::Ended(_)) {
            status.state = State::Ended("the mirror's thread panicked".to_owned());
        }
        status
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.requests.stop();
        if let Some(thread) = self.thread.take() {
            // It panicked, then: what it knew is gone, what it published stays.
            let _ = thread.join();
        }
    }
}

/// The thread's own.
struct Follower {
    netlink: Netlink,
    model: Model,
    tables: Arc<Tables>,
    domain: Domain,
    requests: Arc<Requests>,
    status: Status,
    /// Where others see `status`.
    shown: Arc<Mutex<Status>>,
    generation: u64,
    /// Whether notices were lost since all was read.
    lost: bool,
    /// From when on tables may be made again.
    publish_at: Instant,
    /// From when on lists may be read again.
    read_at: Instant,
}

/// How the reading of lists ended.
enum Read {
    Done,
    /// The mirror is to stop.
    Stopped,
    /// Notices were lost meanwhile, or there were too many to keep, or the list never stood still.
    Overrun(&'static str),
    Failed(MirrorError),
}

impl Follower {
    fn run(mut self) {
        if let Err(error) = self.follow() {
            self.status.state = State::Ended(error.to_string());
            // Nobody is there to hear what is asked.
            self.requests.stop();
        }
        self.show();
    }

    /// Turn after turn, until it is to stop.
    fn follow(&mut self) -> Result<(), MirrorError> {
        loop {
            let Some(asked) = self.requests.take() else { return Ok(()) };
            for (interface, address) in asked {
                self.status.asked += 1;
                // A request that cannot be sent is like one refused: whoever asked will ask again.
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

    /// Reads the notices there are; says whether there may be more.
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
                        // Of a list that was given up.
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

    /// Reads everything, or the routes only if nothing was lost.
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

    /// Reads lists, takes them over whole, and applies the notices that came meanwhile.
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

    /// Reads one list into `fresh`. `notices`: what came meanwhile; `None` for one on next hop objects.
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
                // The list before was given up, and the kernel is still at it.
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

    /// Makes the tables that are not up to date, and publishes them.
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

/// When work that began then may be done again.
fn rested(began: Instant) -> Instant {
    let now = Instant::now();
    now + PUBLISH_INTERVAL.max(now.duration_since(began) * REST_FACTOR)
}

/// Waits until one of `fds` is readable or broken, for at most `timeout`. A Unix signal counts as readable.
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
