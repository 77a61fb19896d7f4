//! `udpath export --otlp`: pushes the metrics to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! A push that fails is not repeated: counters are cumulative, and the next push, an interval later, has everything
//! that this one had. A failure is reported once, and so is the first push that succeeds after it.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use udpath_report::{OTLP_CONTENT_TYPE, otlp_rejected};

use crate::args::endpoint::Endpoint;
use crate::exit::Done;

/// Longest time of a push, from the connection to the answer; the default timeout of OTLP's exporters. Lower: a busy
/// collector seems to fail. Higher: a collector that does not answer holds up the end of the program.
const LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of an answer that are read: a message of an error or of rejected metrics.
const ANSWER: usize = 64 << 10;
/// Interval at which the stop flag is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Why a push failed.
#[derive(Debug, thiserror::Error)]
enum PushError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The status line of the answer.
    #[error("the collector answers {0:?} (is this the path of its OTLP receiver?)")]
    Status(String),
    /// What the collector says of metrics that it did not take.
    #[error("the collector rejects metrics: {0:?}")]
    Rejected(String),
}

/// Pushes what `read` returns, every `interval`, until `stop`.
pub(super) fn push(
    endpoint: &Endpoint,
    interval: Duration,
    stop: &AtomicBool,
    mut read: impl FnMut() -> anyhow::Result<Vec<u8>>,
) -> Done {
    stderrln!("pushing to {endpoint} every {} s", interval.as_secs_f64());
    let mut failing = false;
    while !stop.load(Ordering::Relaxed) {
        let next = Instant::now() + interval;
        let request = read()?;
        let outcome = push_once(endpoint, &request);
        match &outcome {
            Ok(()) if failing => stderrln!("pushing to {endpoint} again"),
            Err(error) if !failing => {
                stderrln!(
                    "cannot push to {endpoint}, trying again every {} s: {error}",
                    interval.as_secs_f64()
                );
            }
            Ok(()) | Err(_) => {}
        }
        failing = outcome.is_err();
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(())
}

/// One request on a connection of its own: pushes are seconds apart, and collectors close idle connections.
fn push_once(endpoint: &Endpoint, request: &[u8]) -> Result<(), PushError> {
    let end = Instant::now() + LIMIT;
    let left = || {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(timed_out()) } else { Ok(left) }
    };
    let mut connection = connect(endpoint, &left)?;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: udpath/{}\r\nContent-Type: {OTLP_CONTENT_TYPE}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        endpoint.path,
        endpoint.authority,
        env!("CARGO_PKG_VERSION"),
        request.len()
    );
    connection.set_write_timeout(Some(left()?))?;
    connection.write_all(&[head.as_bytes(), request].concat())?;
    let mut answer = Vec::new();
    while answer.len() < ANSWER && !is_whole(&answer) {
        connection.set_read_timeout(Some(left()?))?;
        let mut part = [0; 4096];
        match connection.read(&mut part) {
            Ok(0) => break,
            Ok(bytes) => answer.extend_from_slice(&part[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What the kernel calls the end of the time that a read may take.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(timed_out().into()),
            Err(error) => return Err(error.into()),
        }
    }
    accepted(&answer)
}

/// Connects to the first of the host's addresses that accepts.
fn connect(endpoint: &Endpoint, left: &dyn Fn() -> io::Result<Duration>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in endpoint.authority.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left()?) {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", LIMIT.as_secs()))
}

/// Whether an answer has the length that its head says. Without one, the end of the connection is its end.
fn is_whole(answer: &[u8]) -> bool {
    let Some((head, body)) = split(answer) else { return false };
    let head = String::from_utf8_lossy(head);
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, length)| length.trim().parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}

/// Head and body of an answer whose head is there.
fn split(answer: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((&answer[..end], &answer[end + 4..]))
}

/// Whether an answer says that all metrics were taken.
fn accepted(answer: &[u8]) -> Result<(), PushError> {
    let text = String::from_utf8_lossy(answer);
    let line = text.lines().next().unwrap_or_default().chars().take(100).collect::<String>();
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
    if !status.is_some_and(|status| status.starts_with('2')) {
        return Err(PushError::Status(line));
    }
    let (_, body) = split(answer).unwrap_or_default();
    otlp_rejected(body).map_or(Ok(()), |message| Err(PushError::Rejected(message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_with_its_length_or_its_connection() {
        for (answer, whole) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\nab", true),
            ("HTTP/1.1 200 OK\r\nServer: x\r\n\r\nab", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", false),
            ("", false),
        ] {
            assert_eq!(is_whole(answer.as_bytes()), whole, "{answer:?}");
        }
    }

    #[test]
    fn only_an_answer_of_200_to_299_is_accepted() {
        for answer in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 202 Accepted\r\n\r\nnot a message"] {
            assert!(accepted(answer.as_bytes()).is_ok(), "{answer:?}");
        }
        for answer in ["HTTP/1.1 404 Not Found\r\n\r\n", "HTTP/1.1", "", "220 smtp\r\n", "\u{ff}\u{ff}"] {
            let error = accepted(answer.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("the collector answers"), "{answer:?}: {error}");
        }
    }
}
