//! The same addresses over TCP: a listener per worker and address, a thread per worker, so that the UDP path stays
//! exactly what it is without TCP.
//!
//! ```text
//! readable -> read into the worker's buffer -> StreamService -> write at once
//!                                                  what does not fit is kept; until it is gone the connection
//!                                                  is watched for writing only: a peer that does not read its
//!                                                  answers cannot send more requests
//! ```
//!
//! Bounds: [`MAX_CONNECTIONS`] per worker, and per connection at most one unsent reply.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::dispatch::{StreamDispatch, StreamOutcome};
use crate::error::{Error, Transport};
use crate::status::TcpCounts;

/// Most connections of one worker. Each may hold a reply of up to [`REPLY`] bytes that its peer does not read, so
/// this bounds a worker's memory at 64 MiB under attack. Fewer would turn away real clients, more are held by a
/// server that is built for connections.
const MAX_CONNECTIONS: usize = 1024;
/// Bytes read, and handled, at once.
const READ: usize = 32 << 10;
/// Room for the reply to one read.
const REPLY: usize = 64 << 10;
/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 1024;
/// How long connections get, when the server stops, to take what was written to them.
const FAREWELL: Duration = Duration::from_millis(500);
/// Pause after accepting failed for lack of descriptors or memory: the connection stays queued and would otherwise
/// make the worker spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Opens a listener per worker for `address`; all share its port.
pub(crate) fn listen(address: SocketAddr, workers: usize) -> Result<Vec<TcpListener>, Error> {
    let mut listeners: Vec<TcpListener> = Vec::with_capacity(workers);
    for worker in 0..workers {
        listeners.push(open(address, worker > 0)?);
    }
    Ok(listeners)
}

/// Opens one listener; `member`: one of ours has the port already.
fn open(address: SocketAddr, member: bool) -> Result<TcpListener, Error> {
    let failed = |operation| {
        move |errno: rustix::io::Errno| Error::Socket {
            operation,
            transport: Transport::Tcp,
            address,
            cause: errno.into(),
        }
    };
    let taken =
        |errno: rustix::io::Errno| Error::Bind { transport: Transport::Tcp, address, cause: errno.into() };
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(failed("open"))?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true).map_err(failed("restrict to IPv6"))?;
    }
    // Connections of a server that just ended must not keep the port.
    sockopt::set_socket_reuseaddr(&fd, true).map_err(failed("reuse the address of"))?;
    if member {
        sockopt::set_socket_reuseport(&fd, true).map_err(failed("share the port of"))?;
    }
    rustix::net::bind(&fd, &address).map_err(taken)?;
    if !member {
        // After binding, so that another server's group is not joined silently.
        sockopt::set_socket_reuseport(&fd, true).map_err(failed("share the port of"))?;
    }
    rustix::net::listen(&fd, BACKLOG).map_err(taken)?;
    Ok(TcpListener::from(fd))
}

/// One worker's TCP counters; only its thread writes them.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    accepted: AtomicU64,
    closed: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    received_bytes: AtomicU64,
    answered_bytes: AtomicU64,
}

/// Adds without a locked instruction: there is one writer.
fn add(counter: &AtomicU64, more: usize) {
    counter.store(counter.load(Relaxed) + more as u64, Relaxed);
}

impl Meter {
    pub(crate) fn add_to(&self, sum: &mut TcpCounts) {
        sum.accepted += self.accepted.load(Relaxed);
        sum.open += self.accepted.load(Relaxed).saturating_sub(self.closed.load(Relaxed));
        sum.refused += self.refused.load(Relaxed);
        sum.failed += self.failed.load(Relaxed);
        sum.received_bytes += self.received_bytes.load(Relaxed);
        sum.answered_bytes += self.answered_bytes.load(Relaxed);
    }
}

/// One worker's TCP side.
pub(crate) struct TcpWorker {
    listeners: Vec<TcpListener>,
    dispatch: StreamDispatch,
    meter: Arc<CachePadded<Meter>>,
    connections: HashMap<u64, Connection>,
    /// The name of the next connection; the listeners have the first numbers, and none is used twice.
    next: u64,
    input: Box<[u8]>,
    output: Box<[u8]>,
}

struct Connection {
    stream: TcpStream,
    /// What the peer has not taken yet. Empty: the connection is watched for reading.
    unsent: Vec<u8>,
}

/// The name under which the stop descriptor is watched.
const STOP: u64 = u64::MAX;

/// What a turn did to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Bytes moved; there may be more.
    Moved,
    /// Nothing to do until the peer sends, or takes what is unsent.
    Idle,
    /// The peer said it is done and has everything.
    Ended,
    Failed,
}

impl TcpWorker {
    pub(crate) fn new(
        listeners: Vec<TcpListener>,
        dispatch: StreamDispatch,
        meter: Arc<CachePadded<Meter>>,
    ) -> Self {
        let next = listeners.len() as u64;
        Self {
            listeners,
            dispatch,
            meter,
            connections: HashMap::new(),
            next,
            input: vec![0; READ].into(),
            output: vec![0; REPLY].into(),
        }
    }

    /// Serves until `stop` is readable; then writes out what is unsent, within [`FAREWELL`].
    pub(crate) fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let readable = epoll::EventFlags::IN;
        let first_connection = self.next;
        epoll::add(&poll, stop, epoll::EventData::new_u64(STOP), readable)?;
        for (name, listener) in (0..).zip(&self.listeners) {
            epoll::add(&poll, listener, epoll::EventData::new_u64(name), readable)?;
        }
        let mut events = Vec::with_capacity(256);
        let mut farewell: Option<Instant> = None;
        loop {
            let left = farewell.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero() || self.connections.is_empty()) {
                let names: Vec<u64> = self.connections.keys().copied().collect();
                names.into_iter().for_each(|name| self.close(name, Fate::Failed));
                return Ok(());
            }
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            events.clear();
            match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    STOP => {
                        epoll::delete(&poll, stop)?;
                        farewell = Some(Instant::now() + FAREWELL);
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
            if let Some(end) = farewell {
                self.say_goodbye(&poll, end);
            }
        }
    }

    /// Answers what has arrived and closes the connections that have nothing unsent.
    fn say_goodbye(&mut self, poll: &impl AsFd, end: Instant) {
        let names: Vec<u64> = self.connections.keys().copied().collect();
        for name in names {
            while self.turn(poll, name) == Fate::Moved && Instant::now() < end {}
            if self.connections.get(&name).is_some_and(|connection| connection.unsent.is_empty()) {
                self.close(name, Fate::Ended);
            }
        }
    }

    fn close(&mut self, name: u64, fate: Fate) {
        // Closing the descriptor ends the watching too.
        if self.connections.remove(&name).is_some() {
            add(&self.meter.failed, usize::from(fate == Fate::Failed));
            add(&self.meter.closed, 1);
        }
    }

    /// Takes the connections that wait at a listener.
    fn accept(&mut self, poll: &impl AsFd, listener: usize) {
        while let Some(listener) = self.listeners.get(listener) {
            match listener.accept() {
                Ok((stream, _)) if self.connections.len() >= MAX_CONNECTIONS => {
                    add(&self.meter.refused, 1);
                    drop(stream);
                }
                Ok((stream, _)) => {
                    let name = self.next;
                    // Requests are answered one by one: waiting to fill segments would only delay them.
                    let ready =
                        stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).and_then(|()| {
                            let data = epoll::EventData::new_u64(name);
                            Ok(epoll::add(poll, &stream, data, epoll::EventFlags::IN)?)
                        });
                    add(&self.meter.accepted, 1);
                    if ready.is_ok() {
                        self.next += 1;
                        self.connections.insert(name, Connection { stream, unsent: Vec::new() });
                    } else {
                        add(&self.meter.failed, 1);
                        add(&self.meter.closed, 1);
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    // The peer is gone already; the next one may be there.
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        std::thread::sleep(ACCEPT_PAUSE);
                        return;
                    }
                },
            }
        }
    }

    /// Gives a connection its turn.
    fn turn(&mut self, poll: &impl AsFd, name: u64) -> Fate {
        let Some(connection) = self.connections.get_mut(&name) else { return Fate::Ended };
        let waited = !connection.unsent.is_empty();
        let mut fate = connection.serve(&mut self.dispatch, &self.meter, &mut self.input, &mut self.output);
        let waits = !connection.unsent.is_empty();
        if matches!(fate, Fate::Moved | Fate::Idle) && waited != waits {
            let flags = if waits { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            if epoll::modify(poll, &connection.stream, epoll::EventData::new_u64(name), flags).is_err() {
                fate = Fate::Failed;
            }
        }
        if matches!(fate, Fate::Ended | Fate::Failed) {
            self.close(name, fate);
        }
        fate
    }
}

impl Connection {
    /// Writes what is unsent, then reads and answers once.
    fn serve(
        &mut self,
        dispatch: &mut StreamDispatch,
        meter: &Meter,
        input: &mut [u8],
        output: &mut [u8],
    ) -> Fate {
        if !self.unsent.is_empty() {
            match write_some(&mut self.stream, &self.unsent) {
                Ok(sent) => {
                    add(&meter.answered_bytes, sent);
                    self.unsent.drain(..sent);
                }
                Err(_) => return Fate::Failed,
            }
            if !self.unsent.is_empty() {
                return Fate::Idle;
            }
            // Nothing is kept for a peer that keeps up.
            self.unsent = Vec::new();
        }
        let read = match self.stream.read(input) {
            Ok(0) => return Fate::Ended,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Fate::Idle;
            }
            Err(_) => return Fate::Failed,
        };
        add(&meter.received_bytes, read);
        match dispatch.serve(&input[..read], output) {
            StreamOutcome::Reply(len) => match write_some(&mut self.stream, &output[..len]) {
                Ok(sent) => {
                    add(&meter.answered_bytes, sent);
                    self.unsent.extend_from_slice(&output[sent..len]);
                    if self.unsent.is_empty() { Fate::Moved } else { Fate::Idle }
                }
                Err(_) => Fate::Failed,
            },
            StreamOutcome::Continue => Fate::Moved,
            StreamOutcome::Close => Fate::Failed,
        }
    }
}

/// Writes as much as the peer takes now.
fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => sent += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}
