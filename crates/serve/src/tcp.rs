//! The same addresses over TCP: a listener per worker and address, and a separate thread per worker, so that TCP does
//! not change the UDP path.
//!
//! ```text
//! readable ─▸ read into the worker's buffer ─▸ StreamDispatch: message by message ─▸ write at once
//!                     what is no whole message is kept                          │
//!                                                  the rest is kept; until it is sent, the connection is polled
//!                                                  for writing only: a peer that does not read its replies
//!                                                  cannot send more requests
//! ```
//! Per turn, a connection has at most [`READ_LEN`] bytes of requests and [`REPLY_LEN`] of replies, and a listener
//! [`ACCEPTS_PER_TURN`] new connections. What slow connections may do is in `tcp/limits.rs`.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use rustix::event::{Timespec, epoll};

use crate::dispatch::StreamDispatch;

mod connection;
mod counters;
mod limits;
mod listener;
mod table;

pub(crate) use counters::TcpCounters;
pub use limits::TcpLimits;
pub(crate) use listener::listen;

use connection::{Connection, Expired, TurnResult};
use counters::add;
use limits::Network;
use table::ConnectionTable;

/// Bytes read and handled at once.
const READ_LEN: usize = 32 << 10;
/// Size of the reply buffer for one read, in bytes.
const REPLY_LEN: usize = 128 << 10;
/// Room that a reply to one message finds, in bytes: the longest that a protocol with 16-bit lengths has, but for its
/// length.
const MESSAGE_ROOM: usize = 64 << 10;
/// Connections accepted from a listener before the open ones have their turn. Fewer: more polls while many come; more:
/// clients that connect all the time hold up those that are connected.
const ACCEPTS_PER_TURN: usize = 64;
/// How long peers may take to receive unsent replies when the server stops.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Pause of a worker's listeners after accepting failed for lack of descriptors or memory: connections stay queued.
/// Shorter: more calls that fail; longer: they wait for longer. Open connections are served meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A connection that has made progress since is not closed for lack of descriptors. Shorter: clients that are being
/// served lose their connections; longer: new ones wait for longer.
const SPARED: Duration = Duration::from_secs(1);

/// The TCP thread of one worker.
pub(crate) struct TcpWorker {
    poll: OwnedFd,
    listeners: Vec<TcpListener>,
    dispatch: StreamDispatch,
    counters: Arc<CachePadded<TcpCounters>>,
    connections: ConnectionTable,
    /// The epoll key of the first connection. Listeners have the keys below.
    first: u64,
    /// The epoll key of the next connection. No key is reused.
    next: u64,
    input: Box<[u8]>,
    output: Box<[u8]>,
    limits: TcpLimits,
    /// When connections that have waited for too long are looked for next.
    sweep: Instant,
    /// Until when no connection is accepted.
    paused: Option<Instant>,
    /// Read once per turn.
    now: Instant,
}

/// The epoll key of the stop descriptor.
const STOP: u64 = u64::MAX;

impl TcpWorker {
    pub(crate) fn new(
        listeners: Vec<TcpListener>,
        mut dispatch: StreamDispatch,
        counters: Arc<CachePadded<TcpCounters>>,
        mut limits: TcpLimits,
    ) -> io::Result<Self> {
        let first = listeners.len() as u64;
        limits.idle_timeout = dispatch.idle_timeout().unwrap_or(Duration::MAX).min(limits.idle_timeout);
        let now = Instant::now();
        Ok(Self {
            poll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listeners,
            dispatch,
            counters,
            connections: ConnectionTable::default(),
            first,
            next: first,
            input: vec![0; READ_LEN].into(),
            output: vec![0; REPLY_LEN].into(),
            sweep: now + limits.sweep_interval(),
            limits,
            paused: None,
            now,
        })
    }

    /// Serves until `stop` is readable; then sends what is unsent, within [`CLOSE_TIMEOUT`].
    pub(crate) fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        epoll::add(&self.poll, stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        self.poll_listeners()?;
        let mut events = Vec::with_capacity(256);
        let mut deadline: Option<Instant> = None;
        loop {
            if deadline.is_some_and(|end| self.now >= end || self.connections.is_empty()) {
                self.connections.names().into_iter().for_each(|name| self.close(name, TurnResult::Failed));
                return Ok(());
            }
            let timeout = self.timeout(deadline).and_then(|timeout| Timespec::try_from(timeout).ok());
            events.clear();
            match epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.now = Instant::now();
            for event in &events {
                match event.data.u64() {
                    STOP => {
                        epoll::delete(&self.poll, stop)?;
                        deadline = Some(self.now + CLOSE_TIMEOUT);
                        (0..self.listeners.len()).for_each(|listener| self.accept(listener));
                        self.listeners.clear();
                    }
                    name if name < self.first => self.accept(usize::try_from(name).unwrap_or(usize::MAX)),
                    name => {
                        self.turn(name);
                    }
                }
            }
            self.close_expired();
            if self.paused.is_some_and(|end| self.now >= end) {
                self.paused = None;
                self.poll_listeners()?;
            }
            if let Some(end) = deadline {
                self.drain(end);
            }
        }
    }

    /// How long to wait for events at most.
    fn timeout(&self, deadline: Option<Instant>) -> Option<Duration> {
        let sweep = (!self.connections.is_empty()).then_some(self.sweep);
        let next = [deadline, sweep, self.paused].into_iter().flatten().min();
        next.map(|next| next.saturating_duration_since(self.now))
    }

    fn poll_listeners(&self) -> io::Result<()> {
        for (name, listener) in (0..).zip(&self.listeners) {
            let data = epoll::EventData::new_u64(name);
            epoll::add(&self.poll, listener, data, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// Accepts nothing for a while.
    fn pause(&mut self) {
        if self.paused.is_none() {
            for listener in &self.listeners {
                // It is in the set, as none is removed twice.
                let _ = epoll::delete(&self.poll, listener);
            }
        }
        self.paused = Some(self.now + ACCEPT_PAUSE);
    }

    /// Closes connections that have waited for too long, so that they do not keep others out.
    fn close_expired(&mut self) {
        if self.now < self.sweep {
            return;
        }
        self.sweep = self.now + self.limits.sweep_interval();
        let (now, limits) = (self.now, &self.limits);
        let expired =
            |(name, connection): (u64, &mut Connection)| Some((name, connection.expired(now, limits)?));
        let expired: Vec<_> = self.connections.iter_mut().filter_map(expired).collect();
        for (name, why) in expired {
            let counter = match why {
                Expired::Idle => &self.counters.idle,
                Expired::Slow => &self.counters.slow,
            };
            add(counter, 1);
            self.close(name, TurnResult::Ended);
        }
    }

    /// Answers what has arrived, and closes connections without unsent bytes.
    fn drain(&mut self, end: Instant) {
        for name in self.connections.names() {
            while self.turn(name) == TurnResult::Progressed && Instant::now() < end {}
            if self.connections.get(name).is_some_and(|connection| !connection.is_waiting()) {
                self.close(name, TurnResult::Ended);
            }
        }
    }

    fn close(&mut self, name: u64, result: TurnResult) {
        // Closing the descriptor removes it from the epoll set.
        if self.connections.remove(name) {
            add(&self.counters.failed, usize::from(result == TurnResult::Failed));
            add(&self.counters.closed, 1);
        }
    }

    /// Closes a connection so that one of `network`, or of any, has its place. Returns whether there was one.
    fn evict(&mut self, network: Option<Network>) -> bool {
        let Some(name) = self.connections.victim(network, self.limits.per_network) else { return false };
        add(&self.counters.evicted, 1);
        self.close(name, TurnResult::Ended);
        true
    }

    /// Closes a connection that has made no progress for a while. Returns whether there was one.
    fn evict_idle(&mut self) -> bool {
        let victim = self.connections.victim(None, self.limits.per_network);
        let progress =
            victim.and_then(|name| self.connections.get(name)).map(|connection| connection.progress);
        let idle = progress.is_some_and(|last| self.now.saturating_duration_since(last) >= SPARED);
        idle && self.evict(None)
    }

    /// Accepts connections that wait at a listener.
    fn accept(&mut self, listener: usize) {
        let mut made_room = false;
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.listeners.get(listener) else { return };
            match listener.accept() {
                Ok((stream, peer)) => self.add(Connection::new(stream, peer, self.now)),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    // This peer is gone already; another one may wait.
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        add(&self.counters.accept_errors, 1);
                        // Once per turn: somebody else may take the descriptor.
                        let full = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
                        if made_room || !full || !self.evict_idle() {
                            return self.pause();
                        }
                        made_room = true;
                    }
                },
            }
        }
    }

    /// Adds a connection, in the place of another one if all are taken.
    fn add(&mut self, connection: Connection) {
        if self.connections.len() >= self.limits.connections {
            self.evict(Some(connection.network));
        }
        let stream = &connection.stream;
        // Replies are written one by one: waiting to fill segments would only delay them.
        let ready = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).and_then(|()| {
            let data = epoll::EventData::new_u64(self.next);
            Ok(epoll::add(&self.poll, stream, data, epoll::EventFlags::IN)?)
        });
        add(&self.counters.accepted, 1);
        if ready.is_ok() {
            self.connections.insert(self.next, connection);
            self.next += 1;
        } else {
            add(&self.counters.failed, 1);
            add(&self.counters.closed, 1);
        }
    }

    /// Serves a connection once.
    fn turn(&mut self, name: u64) -> TurnResult {
        let Some(connection) = self.connections.get_mut(name) else { return TurnResult::Ended };
        let waited = connection.is_waiting();
        let (input, output) = (&mut self.input, &mut self.output);
        let mut result = connection.serve(self.now, &mut self.dispatch, &self.counters, input, output);
        let waits = connection.is_waiting();
        if matches!(result, TurnResult::Progressed | TurnResult::Idle) && waited != waits {
            let flags = if waits { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            let data = epoll::EventData::new_u64(name);
            if epoll::modify(AsFd::as_fd(&self.poll), &connection.stream, data, flags).is_err() {
                result = TurnResult::Failed;
            }
        }
        if matches!(result, TurnResult::Ended | TurnResult::Failed) {
            self.close(name, result);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};

    use super::*;
    use crate::outcome::Outcome;
    use crate::reply::Reply;
    use crate::service::{StreamService, WorkerId};

    /// A service to which nobody sends anything.
    struct Silent;

    impl StreamService for Silent {
        fn message_len(&self, _: &[u8]) -> Option<usize> {
            None
        }

        fn serve(&mut self, _: &[u8], _: &mut Reply<'_>) -> Outcome {
            unreachable!("there is no message")
        }
    }

    #[test]
    fn those_that_are_connected_have_their_turn_between_new_ones() {
        let listeners = listen(SocketAddr::from(([127, 0, 0, 1], 0)), 1, None).unwrap();
        let address = listeners[0].local_addr().unwrap();
        let dispatch = StreamDispatch::new(WorkerId(0), Arc::new(|_| Box::new(Silent)));
        let counters = Arc::default();
        let mut worker =
            TcpWorker::new(listeners, dispatch, Arc::clone(&counters), TcpLimits::default()).unwrap();
        let more = 10;
        let waiting: Vec<_> =
            (0..2 * ACCEPTS_PER_TURN + more).map(|_| TcpStream::connect(address).unwrap()).collect();
        let accepted = || {
            worker.accept(0);
            let mut counts = crate::TcpCounts::default();
            counters.add_to(&mut counts);
            usize::try_from(counts.accepted).unwrap()
        };
        let turns: Vec<usize> = std::iter::repeat_with(accepted).take(4).collect();
        assert_eq!(turns, [ACCEPTS_PER_TURN, 2 * ACCEPTS_PER_TURN, waiting.len(), waiting.len()]);
    }
}
