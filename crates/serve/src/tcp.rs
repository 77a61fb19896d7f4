//! The same addresses over TCP: a listener per worker and address, and a separate thread per worker, so that TCP does not
//! change the UDP path.
//!
//! ```text
//! readable ─▸ read into the worker's buffer ─▸ StreamDispatch: message by message ─▸ write at once
//!                     what is no whole message is kept                          │
//!                                                  the rest is kept; until it is sent, the connection is polled
//!                                                  for writing only: a peer that does not read its replies
//!                                                  cannot send more requests
//! ```
//!
//! Limits: [`MAX_CONNECTIONS`] per worker, and per connection [`READ_LEN`] bytes of an unfinished message, [`REPLY_LEN`] of unsent
//! replies and the service's limit of silence.

use std::collections::HashMap;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use rustix::event::{Timespec, epoll};

use crate::dispatch::StreamDispatch;

mod connection;
mod counters;
mod listener;

pub(crate) use counters::TcpCounters;
pub(crate) use listener::listen;

use connection::{Connection, TurnResult};
use counters::add;

/// Maximum connections per worker. Each may keep replies of up to [`REPLY_LEN`] bytes that its peer does not read and [`READ_LEN`]
/// bytes of requests, so this limits a worker's memory to 160 MiB under attack. A lower limit rejects real clients.
const MAX_CONNECTIONS: usize = 1024;
/// Bytes read and handled at once.
const READ_LEN: usize = 32 << 10;
/// Size of the reply buffer for one read, in bytes.
const REPLY_LEN: usize = 128 << 10;
/// Room that a reply to one message finds, in bytes: the longest that a protocol with 16-bit lengths has, but for its length.
const MESSAGE_ROOM: usize = 64 << 10;
/// How often silent connections are looked for. Rarer: they stay longer than the service says; more often: CPU time.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How long peers may take to receive unsent replies when the server stops.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Pause after accepting failed for lack of descriptors or memory: the connection stays queued, and the worker would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The TCP thread of one worker.
pub(crate) struct TcpWorker {
    listeners: Vec<TcpListener>,
    dispatch: StreamDispatch,
    counters: Arc<CachePadded<TcpCounters>>,
    connections: HashMap<u64, Connection>,
    /// The epoll key of the next connection. Listeners have the first keys, and no key is reused.
    next: u64,
    input: Box<[u8]>,
    output: Box<[u8]>,
    /// The service's limit of a connection's silence.
    idle_timeout: Option<Duration>,
    swept: Instant,
}

/// The epoll key of the stop descriptor.
const STOP: u64 = u64::MAX;

impl TcpWorker {
    pub(crate) fn new(
        listeners: Vec<TcpListener>,
        mut dispatch: StreamDispatch,
        counters: Arc<CachePadded<TcpCounters>>,
    ) -> Self {
        let next = listeners.len() as u64;
        let idle_timeout = dispatch.idle_timeout();
        Self {
            listeners,
            dispatch,
            counters,
            connections: HashMap::new(),
            next,
            input: vec![0; READ_LEN].into(),
            output: vec![0; REPLY_LEN].into(),
            idle_timeout,
            swept: Instant::now(),
        }
    }

    /// Serves until `stop` is readable; then sends what is unsent, within [`CLOSE_TIMEOUT`].
    pub(crate) fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let readable = epoll::EventFlags::IN;
        let first_connection = self.next;
        epoll::add(&poll, stop, epoll::EventData::new_u64(STOP), readable)?;
        for (name, listener) in (0..).zip(&self.listeners) {
            epoll::add(&poll, listener, epoll::EventData::new_u64(name), readable)?;
        }
        let mut events = Vec::with_capacity(256);
        let mut deadline: Option<Instant> = None;
        loop {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero() || self.connections.is_empty()) {
                let names: Vec<u64> = self.connections.keys().copied().collect();
                names.into_iter().for_each(|name| self.close(name, TurnResult::Failed));
                return Ok(());
            }
            let sweep = self.idle_timeout.filter(|_| !self.connections.is_empty()).map(|_| SWEEP_INTERVAL);
            let timeout = left.or(sweep).and_then(|timeout| Timespec::try_from(timeout).ok());
            events.clear();
            match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    STOP => {
                        epoll::delete(&poll, stop)?;
                        deadline = Some(Instant::now() + CLOSE_TIMEOUT);
                        (0..self.listeners.len()).for_each(|listener| self.accept(&poll, listener));
                        self.listeners.clear();
                    }
                    name if name < first_connection => {
                        self.accept(&poll, usize::try_from(name).unwrap_or(usize::MAX));
                    }
                    name => {
                        self.turn(&poll, name);
                    }
                }
            }
            self.sweep();
            if let Some(end) = deadline {
                self.drain(&poll, end);
            }
        }
    }

    /// Closes connections that have been silent for too long, so that they do not keep others out.
    fn sweep(&mut self) {
        let Some(limit) = self.idle_timeout.filter(|_| self.swept.elapsed() >= SWEEP_INTERVAL) else {
            return;
        };
        self.swept = Instant::now();
        let silent = |connection: &Connection| connection.active.elapsed() >= limit;
        let names: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| silent(connection))
            .map(|(name, _)| *name)
            .collect();
        names.into_iter().for_each(|name| self.close(name, TurnResult::Ended));
    }

    /// Answers what has arrived, and closes connections without unsent bytes.
    fn drain(&mut self, poll: &impl AsFd, end: Instant) {
        let names: Vec<u64> = self.connections.keys().copied().collect();
        for name in names {
            while self.turn(poll, name) == TurnResult::Progressed && Instant::now() < end {}
            if self.connections.get(&name).is_some_and(|connection| !connection.is_waiting()) {
                self.close(name, TurnResult::Ended);
            }
        }
    }

    fn close(&mut self, name: u64, result: TurnResult) {
        // Closing the descriptor removes it from the epoll set.
        if self.connections.remove(&name).is_some() {
            add(&self.counters.failed, usize::from(result == TurnResult::Failed));
            add(&self.counters.closed, 1);
        }
    }

    /// Accepts the connections that wait at a listener.
    fn accept(&mut self, poll: &impl AsFd, listener: usize) {
        while let Some(listener) = self.listeners.get(listener) {
            match listener.accept() {
                Ok((stream, _)) if self.connections.len() >= MAX_CONNECTIONS => {
                    add(&self.counters.refused, 1);
                    drop(stream);
                }
                Ok((stream, peer)) => {
                    let name = self.next;
                    // Replies are written one by one: waiting to fill segments would only delay them.
                    let ready =
                        stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).and_then(|()| {
                            let data = epoll::EventData::new_u64(name);
                            Ok(epoll::add(poll, &stream, data, epoll::EventFlags::IN)?)
                        });
                    add(&self.counters.accepted, 1);
                    if ready.is_ok() {
                        self.next += 1;
                        self.connections.insert(name, Connection::new(stream, peer));
                    } else {
                        add(&self.counters.failed, 1);
                        add(&self.counters.closed, 1);
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    // This peer is gone already; another one may wait.
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        std::thread::sleep(ACCEPT_PAUSE);
                        return;
                    }
                },
            }
        }
    }

    /// Serves a connection once.
    fn turn(&mut self, poll: &impl AsFd, name: u64) -> TurnResult {
        let Some(connection) = self.connections.get_mut(&name) else { return TurnResult::Ended };
        let waited = connection.is_waiting();
        let mut result =
            connection.serve(&mut self.dispatch, &self.counters, &mut self.input, &mut self.output);
        let waits = connection.is_waiting();
        if matches!(result, TurnResult::Progressed | TurnResult::Idle) && waited != waits {
            let flags = if waits { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            if epoll::modify(poll, &connection.stream, epoll::EventData::new_u64(name), flags).is_err() {
                result = TurnResult::Failed;
            }
        }
        if matches!(result, TurnResult::Ended | TurnResult::Failed) {
            self.close(name, result);
        }
        result
    }
}
