//! One client's connection: a bounded request, its answer, the close. Never blocks.
//!
//! ```text
//! Reading ──headers are there──▸ Writing ──all is written──▸ Closing ──the client closed too──▸ Done
//! ```
//! `Closing` discards data that the client sent after the headers: closing a socket with unread data sends a reset,
//! which may discard the answer.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::PollFlags;
use udpath_report::MetricsFormat;

/// Longest request, bytes. Lower: a scraper with long headers is rejected. Higher: any client can make the server
/// allocate that much.
const REQUEST: usize = 8192;
/// Reads of one connection per turn. Higher: a client that sends a lot delays the others. Lower: more turns.
const READS: usize = 16;

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// `GET` of this path (without its query), in a format that the client accepts.
    Get { path: String, format: MetricsFormat },
    /// Another method, or not HTTP.
    Other,
    /// Headers that do not end within [`REQUEST`] bytes.
    TooLong,
}

/// The response to a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: Arc<str>,
}

#[derive(Debug)]
enum State {
    Reading(Vec<u8>),
    Writing { head: Vec<u8>, body: Arc<str>, sent: usize },
    Closing,
    Done,
}

/// A connection of a client.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    state: State,
    /// When it was accepted.
    pub(super) since: Instant,
    /// When it last made progress.
    pub(super) active: Instant,
}

impl Connection {
    /// A connection accepted at `now`.
    pub(super) fn new(stream: TcpStream, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, state: State::Reading(Vec::new()), since: now, active: now })
    }

    /// The events that it waits for.
    pub(super) fn events(&self) -> PollFlags {
        match self.state {
            State::Reading(_) | State::Closing | State::Done => PollFlags::IN,
            State::Writing { .. } => PollFlags::OUT,
        }
    }

    /// It has a request whose answer is not yet complete.
    pub(super) fn is_answering(&self) -> bool {
        matches!(self.state, State::Writing { .. })
    }

    /// The connection is finished.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Proceeds as far as possible without blocking; calls `answer` once the request is complete.
    pub(super) fn proceed(&mut self, now: Instant, answer: &mut dyn FnMut(&Request) -> Answer) {
        if let State::Reading(text) = &mut self.state {
            let before = text.len();
            // A client that disconnects is not an error.
            let Ok(request) = read_request(&mut self.stream, text) else {
                return self.state = State::Done;
            };
            if text.len() > before {
                self.active = now;
            }
            let Some(request) = request else { return };
            let Answer { status, content_type, body } = answer(&request);
            self.state = State::Writing { head: head(status, content_type, body.len()), body, sent: 0 };
        }
        if let State::Writing { head, body, sent } = &mut self.state {
            let before = *sent;
            match write_rest(&mut self.stream, head, body.as_bytes(), sent) {
                Ok(true) => {
                    self.active = now;
                    let shut = self.stream.shutdown(Shutdown::Write);
                    self.state = if shut.is_ok() { State::Closing } else { State::Done };
                }
                Ok(false) if *sent > before => self.active = now,
                Ok(false) => {}
                Err(_) => self.state = State::Done,
            }
        }
        if matches!(self.state, State::Closing) && drained(&mut self.stream) {
            self.state = State::Done;
        }
    }

    /// Answers without reading the request, as far as possible without blocking, and closes.
    pub(super) fn refuse(mut self, answer: &Answer) {
        // With unread data, the close would send a reset, which may overtake the answer.
        drained(&mut self.stream);
        let head = head(answer.status, answer.content_type, answer.body.len());
        // If this fails, the client sees only the closed connection.
        let _ = write_rest(&mut self.stream, &head, answer.body.as_bytes(), &mut 0);
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn head(status: &str, content_type: &str, length: usize) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )
    .into_bytes()
}

/// Continues to read; returns the request once its headers are complete, or once the client has finished sending.
fn read_request(stream: &mut TcpStream, text: &mut Vec<u8>) -> io::Result<Option<Request>> {
    let mut buffer = [0; 1024];
    for _ in 0..READS {
        let n = match stream.read(&mut buffer) {
            Ok(0) if text.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(0) => return Ok(Some(parse(text))),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        // The terminator may have started in the earlier bytes.
        let from = text.len().saturating_sub(3);
        text.extend_from_slice(&buffer[..n]);
        if text[from..].windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(parse(text)));
        }
        if text.len() >= REQUEST {
            return Ok(Some(Request::TooLong));
        }
    }
    Ok(None)
}

fn parse(text: &[u8]) -> Request {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some("GET"), Some(path)) = (words.next(), words.next()) else { return Request::Other };
    let takes_new = lines.map(str::to_ascii_lowercase).any(|line| {
        line.strip_prefix("accept:").is_some_and(|kinds| kinds.contains("application/openmetrics-text"))
    });
    let format = if takes_new { MetricsFormat::OpenMetrics } else { MetricsFormat::Text };
    Request::Get { path: path.split('?').next().unwrap_or_default().to_owned(), format }
}

/// Continues to write after `sent` bytes of head and body; true once all is written.
fn write_rest(stream: &mut TcpStream, head: &[u8], body: &[u8], sent: &mut usize) -> io::Result<bool> {
    while *sent < head.len() + body.len() {
        let rest = match sent.checked_sub(head.len()) {
            None => &head[*sent..],
            Some(of_body) => &body[of_body..],
        };
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => *sent += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Discards available data; true once the client has closed.
fn drained(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 1024];
    for _ in 0..READS {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn get(path: &str, format: MetricsFormat) -> Request {
        Request::Get { path: path.into(), format }
    }

    #[test]
    fn requests_are_understood() {
        for (text, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", get("/metrics", MetricsFormat::Text)),
            ("GET /metrics?a=b HTTP/1.0\r\n\r\n", get("/metrics", MetricsFormat::Text)),
            ("GET /metrics", get("/metrics", MetricsFormat::Text)),
            (
                "GET /metrics HTTP/1.1\r\nACCEPT: application/openmetrics-text;version=1.0.0\r\n\r\n",
                get("/metrics", MetricsFormat::OpenMetrics),
            ),
            ("POST /metrics HTTP/1.1\r\n\r\n", Request::Other),
            ("GET", Request::Other),
            ("\r\n\r\n", Request::Other),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_some_request(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
