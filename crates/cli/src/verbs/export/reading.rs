//! The process that reads the machine: started by the user, asked by the process that answers clients.
//!
//! A request is one byte; an answer is a byte that says whether it worked, a length of four bytes (little endian), and
//! a text. The formats of a reading are asked for after it, so that a reading is formatted only as clients want it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use udpath_report::MetricsFormat;

use super::{POLL_INTERVAL, Seen};
use crate::confine::Choice;
use crate::exit::Done;

/// Requests: read the machine; format the last reading.
pub(super) const READ: u8 = b'l';
pub(super) const OPEN_METRICS: u8 = b'o';
pub(super) const TEXT: u8 = b't';

/// The process that answers clients, and the connection to it. It is ended when this is dropped.
pub(super) struct Answering {
    child: Child,
    requests: UnixStream,
}

impl Answering {
    /// Starts it. It becomes `user`, as this process does: it could not be ended otherwise.
    pub(super) fn start(listener: TcpListener, user: &Choice, required: bool) -> anyhow::Result<Self> {
        let (requests, theirs) = UnixStream::pair().context("cannot make a socket pair")?;
        requests.set_read_timeout(Some(POLL_INTERVAL)).context("cannot set a timeout")?;
        // Not the path: a newer version may have replaced the file.
        let mut command = Command::new("/proc/self/exe");
        command.arg("export-answer").stdin(OwnedFd::from(listener)).stdout(OwnedFd::from(theirs));
        if let Some(user) = user.argument() {
            command.args(["--user", user]);
        }
        if required {
            command.arg("--require-confinement");
        }
        let child = command.spawn().context("cannot run /proc/self/exe")?;
        Ok(Self { child, requests })
    }

    /// Answers requests until the process has ended, after a signal to either.
    pub(super) fn serve(mut self, stop: &AtomicBool, look: &mut dyn FnMut() -> anyhow::Result<Seen>) -> Done {
        let (mut seen, mut told) = (None, false);
        loop {
            if stop.load(Ordering::Relaxed) && !told {
                told = true;
                // Fails only if it has ended.
                let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            }
            let mut request = [0];
            match self.requests.read(&mut request) {
                Ok(0) => break,
                Ok(_) => {
                    let answer = match request[0] {
                        READ => look().map(|new| {
                            seen = Some(new);
                            String::new()
                        }),
                        OPEN_METRICS => text(seen.as_ref(), MetricsFormat::OpenMetrics),
                        TEXT => text(seen.as_ref(), MetricsFormat::Text),
                        other => Err(anyhow!("unknown request {other}")),
                    };
                    let sent = send(&mut self.requests, answer.map_err(|error| format!("{error:#}")));
                    // Otherwise it has ended: the next read says so.
                    if let Err(error) = sent
                        && error.kind() != ErrorKind::BrokenPipe
                    {
                        return Err(anyhow!(error)
                            .context("cannot answer the process that serves clients")
                            .into());
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // It ended with a request that was not read.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => {
                    return Err(anyhow!(error).context("cannot hear the process that serves clients").into());
                }
            }
        }
        let status = self.child.wait().context("cannot wait for the process that serves clients")?;
        if status.success() || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(anyhow!("the process that serves clients ended: {status}").into())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(seen: Option<&Seen>, format: MetricsFormat) -> anyhow::Result<String> {
    Ok(seen.context("nothing was read before")?.text(format))
}

fn send(to: &mut UnixStream, answer: Result<String, String>) -> io::Result<()> {
    let (worked, text) = match answer {
        Ok(text) => (1, text),
        Err(why) => (0, why),
    };
    let length = u32::try_from(text.len()).map_err(|_long| io::Error::from(ErrorKind::FileTooLarge))?;
    let mut head = [worked, 0, 0, 0, 0];
    head[1..].copy_from_slice(&length.to_le_bytes());
    to.write_all(&head)?;
    to.write_all(text.as_bytes())
}

/// Sends a request and receives its answer.
pub(super) fn ask(mut reader: &UnixStream, request: u8) -> io::Result<Result<String, String>> {
    reader.write_all(&[request])?;
    let mut head = [0; 5];
    reader.read_exact(&mut head)?;
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    let mut text = String::new();
    reader.take(length.into()).read_to_string(&mut text)?;
    if text.len() < length as usize {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(if head[0] == 1 { Ok(text) } else { Err(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_arrives_as_it_was_sent_and_a_cut_one_is_an_error() {
        let (mut reading, answering) = UnixStream::pair().unwrap();
        for answer in [Ok("x".repeat(100_000)), Ok(String::new()), Err("no such file".to_owned())] {
            let sent = answer.clone();
            let asked = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut request = [0];
                    reading.read_exact(&mut request).unwrap();
                    assert_eq!(request, [READ]);
                    send(&mut reading, sent).unwrap();
                });
                ask(&answering, READ).unwrap()
            });
            assert_eq!(asked, answer);
        }
        reading.write_all(&[1, 9, 0, 0, 0, b'a']).unwrap();
        drop(reading);
        // Its request finds nobody, or its answer is cut.
        ask(&answering, TEXT).unwrap_err();
    }
}
