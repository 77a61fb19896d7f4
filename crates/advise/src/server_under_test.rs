//! One configuration, ready to be measured: a server running in the lab, and the settings its trials need.
//!
//! The server is this program's own `udpath serve echo`, a process of its own, so that its CPU time, its sockets and
//! its death are its own. Several can be up at once on different ports; one that is not measured sleeps in receive.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use udpath_lab::Lab;

use crate::Error;
use crate::boost::Config;
use crate::ladder::Settings;

/// Machine that servers over kernel sockets run on.
pub(crate) const SERVER: &str = "server";
/// Machines that servers over AF_XDP run on: an interface has one XDP program, and two of them are measured in turn.
pub(crate) const FAST: [&str; 2] = ["fast-a", "fast-b"];
/// The same, with a link of one queue.
pub(crate) const NARROW: [&str; 2] = ["narrow-a", "narrow-b"];
/// Machine the load comes from.
pub(crate) const CLIENT: &str = "client";

/// How long a server may take from its start to its `ready` line. Its own probe gives up long before.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// How long a server may take to answer what is queued and end.
const END_WITHIN: Duration = Duration::from_secs(5);
/// What is kept of a server's talk, for the reason if it fails.
const TALK_LINES: usize = 20;

/// A configuration and the server that runs it.
#[derive(Debug)]
pub(crate) struct Competitor {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    /// The machine it runs on.
    pub(crate) machine: &'static str,
    pub(crate) address: SocketAddr,
    server: Child,
}

impl Competitor {
    /// Starts a server with `settings` on `machine`, at `port`, and waits until it says that it is ready.
    pub(crate) fn start(
        lab: &Lab,
        config: &Config,
        machine: &'static str,
        name: &str,
        settings: Settings,
        port: u16,
    ) -> Result<Self, Error> {
        let addresses = lab.address_of(machine, CLIENT)?;
        let ip = if config.ipv6 { IpAddr::V6(addresses.ipv6) } else { IpAddr::V4(addresses.ipv4) };
        let address = SocketAddr::new(ip, port);
        let mut command = lab.machine(machine)?.command(&config.program);
        command
            .args(["serve", "echo", "--json"])
            .args(["--bind", &address.to_string()])
            .args(["--io", settings.io.name()])
            .args(["--workers", &settings.workers.to_string()])
            .args(["--batch", &settings.batch.to_string()])
            .args(["--rcvbuf", &settings.receive_buffer.to_string()])
            .arg(if settings.gso { "--gso" } else { "--no-gso" })
            .args(settings.steer.then_some("--steer"))
            .args(settings.busy_poll.then_some("--busy-poll"))
            .arg(if settings.pin { "--pin" } else { "--no-pin" })
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut server = lab.spawn(command)?;
        let ready = server
            .stderr
            .take()
            .ok_or_else(|| "its stderr is missing".to_owned())
            .and_then(|stderr| wait_ready(stderr, READY_WITHIN));
        if let Err(reason) = ready {
            end(&mut server);
            return Err(Error::NotReady { competitor: name.into(), reason });
        }
        Ok(Self { name: name.into(), settings, machine, address, server })
    }

    /// The server's.
    pub(crate) fn pid(&self) -> u32 {
        self.server.id()
    }

    /// Has the server ended by itself?
    pub(crate) fn ended(&mut self) -> bool {
        !matches!(self.server.try_wait(), Ok(None))
    }
}

impl Drop for Competitor {
    fn drop(&mut self) {
        end(&mut self.server);
    }
}

/// Asks the server to end, and makes it if it does not.
fn end(server: &mut Child) {
    if let Some(pid) = i32::try_from(server.id()).ok().and_then(Pid::from_raw) {
        // Not reaped yet, so the pid is still the server's; it may have ended already.
        let _ = kill_process(pid, Signal::TERM);
    }
    let deadline = Instant::now() + END_WITHIN;
    while matches!(server.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            let _ = server.kill();
            let _ = server.wait();
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Reads the server's talk until it says `ready`; then keeps reading it away, so that it never blocks on a full pipe.
fn wait_ready(stderr: impl Read + Send + 'static, within: Duration) -> Result<(), String> {
    let (lines, talk) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            // Nobody listens any more once it is ready.
            let _ = lines.send(line);
        }
    });
    let deadline = Instant::now() + within;
    let mut said = Vec::new();
    loop {
        match talk.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if line.starts_with("ready") => return Ok(()),
            Ok(line) => {
                said.push(line);
                said.truncate(TALK_LINES);
            }
            Err(RecvTimeoutError::Disconnected) if said.is_empty() => {
                return Err("it ended without a word".into());
            }
            Err(RecvTimeoutError::Disconnected) => return Err(said.join(" ")),
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("not ready after {} s; it said: {}", within.as_secs(), said.join(" ")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_ready_when_it_says_so() {
        assert_eq!(wait_ready(&b"udpath: probing\nready io=shared\n"[..], READY_WITHIN), Ok(()));
    }

    #[test]
    fn a_server_that_ends_has_its_words_passed_on() {
        let said = wait_ready(&b"udpath: cannot bind 10.0.0.1:7: address in use\n"[..], READY_WITHIN);
        assert_eq!(said, Err("udpath: cannot bind 10.0.0.1:7: address in use".into()));
        assert_eq!(wait_ready(&b""[..], READY_WITHIN), Err("it ended without a word".into()));
    }

    #[test]
    fn a_server_that_says_nothing_is_not_waited_for_forever() {
        let (silent, _open) = std::io::pipe().unwrap();
        let said = wait_ready(silent, Duration::from_millis(50)).unwrap_err();
        assert!(said.starts_with("not ready"), "{said}");
    }
}
