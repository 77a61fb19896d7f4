//! The HTTP server of the metrics: one thread, many clients; no client delays another.
//!
//! Each turn waits for any of the connections, reads and writes as far as possible without blocking, and reads the
//! machine at most once: all requests of a turn share that reading, and so do later ones within [`SHARED`].

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use udpath_report::MetricsFormat;

use super::connection::{Answer, Connection, Request};

/// Most connections at once. Lower: simultaneous scrapers are rejected. Higher: more memory, 8 KiB each, for idle
/// clients.
const CONNECTIONS: usize = 64;
/// Longest time of one connection, from its first to its last byte: Prometheus's default timeout. Lower: an answer over
/// a slow link is cut off. Higher: a slow client occupies a connection for longer.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// A client that has not read its answer for this long may be closed in favour of a new one.
const STALLED: Duration = Duration::from_secs(1);
/// Longest time for which a reading of the machine is reused. Lower: clients that poll continuously cost more CPU time.
/// Higher: metrics are older than they appear.
const SHARED: Duration = Duration::from_millis(100);
/// Time for pending answers after the program is stopped.
const DRAIN: Duration = Duration::from_secs(2);
/// Longest wait before `stop` is checked; also the pause after accept fails.
const TURN: Duration = Duration::from_millis(100);

/// Formats the metrics of a reading.
pub(super) type Format<'a> = Box<dyn Fn(MetricsFormat) -> Result<String, String> + 'a>;
/// Reads the machine.
pub(super) type Look<'a> = dyn FnMut() -> Result<Format<'a>, String> + 'a;

/// Serves until `stop` is set and pending answers are written. No connection lasts longer than `limit`.
///
/// # Errors
/// Waiting for clients fails.
pub(super) fn serve(
    listener: &TcpListener,
    stop: &AtomicBool,
    limit: Duration,
    look: &mut Look<'_>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut connections = Vec::with_capacity(CONNECTIONS);
    let mut metrics = Metrics { look, seen: None };
    let mut accepting = Accepting::default();
    let mut ends: Option<Instant> = None;
    loop {
        let open = ends.is_none() && accepting.is_due();
        wait(open.then_some(listener), &connections)?;
        let now = Instant::now();
        metrics.forget(now);
        if open {
            accepting.accept(listener, &mut connections, &mut metrics, now);
        }
        for connection in &mut connections {
            connection.proceed(now, &mut |request| metrics.answer(request));
        }
        connections.retain(|connection| !connection.is_done() && now < connection.since + limit);
        if stop.load(Ordering::Relaxed) {
            let ends = *ends.get_or_insert(now + DRAIN);
            connections.retain(Connection::is_answering);
            if connections.is_empty() || now >= ends {
                return Ok(());
            }
        }
    }
}

/// Waits for a new client or an existing one.
fn wait(listener: Option<&TcpListener>, connections: &[Connection]) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> = listener.iter().map(|fd| PollFd::new(*fd, PollFlags::IN)).collect();
    fds.extend(connections.iter().map(|connection| PollFd::new(connection, connection.events())));
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(TURN.subsec_nanos()) };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Accepts clients, except for a while after a failure.
#[derive(Debug, Default)]
struct Accepting {
    failed: Option<(Instant, io::ErrorKind)>,
}

impl Accepting {
    fn is_due(&self) -> bool {
        self.failed.is_none_or(|(at, _)| at.elapsed() >= TURN)
    }

    fn accept(
        &mut self,
        listener: &TcpListener,
        connections: &mut Vec<Connection>,
        metrics: &mut Metrics<'_, '_>,
        now: Instant,
    ) {
        for _ in 0..CONNECTIONS {
            let accepted = listener.accept().and_then(|(stream, _)| Connection::new(stream, now));
            let mut connection = match accepted {
                Ok(connection) => connection,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The client disconnected before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return self.fail(&error, now),
            };
            if !make_room(connections, now) {
                connection.refuse(&busy());
                continue;
            }
            // Reads a request that has already arrived, so that this client does not count as idle.
            connection.proceed(now, &mut |request| metrics.answer(request));
            connections.push(connection);
        }
        self.failed = None;
    }

    /// Without free descriptors, the listener stays readable: pauses, and logs one line for the whole time.
    fn fail(&mut self, error: &io::Error, now: Instant) {
        if self.failed.is_none_or(|(_, kind)| kind != error.kind()) {
            stderrln!("cannot accept a client: {error}");
        }
        self.failed = Some((now, error.kind()));
    }
}

/// Is there room for one more client? If necessary, closes the one that has been idle longest: one without a request or
/// with its complete answer, otherwise one that does not read its answer.
fn make_room(connections: &mut Vec<Connection>, now: Instant) -> bool {
    if connections.len() < CONNECTIONS {
        return true;
    }
    let goes = |connection: &Connection| !connection.is_answering() || connection.active + STALLED <= now;
    let candidates = connections.iter().enumerate().filter(|(_, connection)| goes(connection));
    let oldest = candidates.min_by_key(|(_, connection)| (connection.is_answering(), connection.active));
    let Some((index, _)) = oldest else { return false };
    connections.remove(index);
    true
}

fn busy() -> Answer {
    plain("503 Service Unavailable", &format!("{CONNECTIONS} clients are being answered; try again\n"))
}

fn plain(status: &'static str, body: &str) -> Answer {
    Answer { status, content_type: "text/plain", body: body.into() }
}

/// The last reading and the metrics formatted from it.
struct Metrics<'a, 'b> {
    look: &'a mut Look<'b>,
    seen: Option<Seen<'b>>,
}

struct Seen<'a> {
    /// Time of the reading.
    at: Instant,
    format: Result<Format<'a>, String>,
    texts: Vec<(MetricsFormat, Arc<str>)>,
}

impl Metrics<'_, '_> {
    /// Called at the start of a turn: drops a reading that is too old.
    fn forget(&mut self, now: Instant) {
        if self.seen.as_ref().is_some_and(|seen| seen.at + SHARED <= now) {
            self.seen = None;
        }
    }

    fn answer(&mut self, request: &Request) -> Answer {
        let format = match request {
            Request::Get { path, format } if path == "/metrics" => *format,
            Request::Get { .. } => return plain("404 Not Found", "the metrics are at /metrics\n"),
            Request::Other => return plain("400 Bad Request", "only GET is understood\n"),
            Request::TooLong => {
                return plain("431 Request Header Fields Too Large", "the request is too long\n");
            }
        };
        let seen = self.seen.get_or_insert_with(|| {
            let format = (self.look)();
            Seen { at: Instant::now(), format, texts: Vec::new() }
        });
        match seen.text(format) {
            Ok(body) => Answer { status: "200 OK", content_type: format.content_type(), body },
            Err(error) => plain("500 Internal Server Error", &format!("{error}\n")),
        }
    }
}

impl Seen<'_> {
    fn text(&mut self, format: MetricsFormat) -> Result<Arc<str>, String> {
        let write = self.format.as_ref().map_err(String::clone)?;
        if let Some((_, text)) = self.texts.iter().find(|(written, _)| *written == format) {
            return Ok(Arc::clone(text));
        }
        let text: Arc<str> = write(format)?.into();
        self.texts.push((format, Arc::clone(&text)));
        Ok(text)
    }
}

#[cfg(test)]
mod tests;
