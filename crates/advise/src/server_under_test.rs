//! A server under test: one configuration, running in the lab, with the settings its trials need.
//!
//! It is `udpath serve` in its own process, so that its CPU time, its sockets and a crash are separate from the climb.
//! Several run at once on different ports; those that are not measured sleep in receive.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use udpath_lab::Lab;
use udpath_load::template::Protocol;
use udpath_steer::CpuSet;

use crate::Error;
use crate::config::Launch;
use crate::ladder::Settings;

/// A server's machine; with duets, on each side.
pub(crate) type Home = [&'static str; 2];
/// The machine of servers over kernel sockets.
pub(crate) const SERVER: Home = ["server", "server-2"];
/// The same, with a link of one queue.
pub(crate) const RSS_OFF: Home = ["rss-off", "rss-off-2"];
/// The machines of servers over AF_XDP: an interface has one XDP program, and two servers are measured.
pub(crate) const FAST: [Home; 2] = [["fast-a", "fast-a-2"], ["fast-b", "fast-b-2"]];
/// Those, with a link of one queue.
pub(crate) const NARROW: [Home; 2] = [["narrow-a", "narrow-a-2"], ["narrow-b", "narrow-b-2"]];
/// The machine that sends the load.
pub const CLIENT: &str = "client";

/// Limit from a server's start to its `ready` line. Its own probe gives up long before.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Limit for a server to answer queued requests and exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Lines of a server's output kept for the error message.
const OUTPUT_LINES: usize = 20;

/// A configuration and the server that runs it.
#[derive(Debug)]
pub struct ServerUnderTest {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    /// The machine it runs on.
    pub(crate) machine: &'static str,
    /// The CPUs that it and its load have for themselves, in duets.
    pub(crate) cpus: Option<CpuSet>,
    /// The CPUs of its RPS mask, instead of all.
    rps_cpus: Option<CpuSet>,
    pub(crate) address: SocketAddr,
    process: Child,
}

impl ServerUnderTest {
    /// Starts a server with `settings` on a machine, at `port`, on these CPUs or on all, and waits until it says that
    /// it is ready.
    pub(crate) fn start(
        lab: &Lab,
        launch: &Launch<'_>,
        protocol: &dyn Protocol,
        (machine, cpus): (&'static str, Option<&CpuSet>),
        name: &str,
        settings: Settings,
        port: u16,
    ) -> Result<Self, Error> {
        let addresses = lab.address_of(machine, CLIENT)?;
        let ip = if launch.ipv6 { IpAddr::V6(addresses.ipv6) } else { IpAddr::V4(addresses.ipv4) };
        let address = SocketAddr::new(ip, port);
        let mut command = lab.machine(machine)?.command(launch.program);
        command
            .args(["serve", protocol.name(), "--json"])
            .args(launch.service)
            .args(["--bind", &address.to_string()])
            .args(["--io", settings.io.name()])
            .args(["--workers", &settings.workers.to_string()])
            .args(["--batch", &settings.batch.to_string()])
            .args(["--rcvbuf", &settings.receive_buffer.to_string()])
            .arg(if settings.gso { "--gso" } else { "--no-gso" })
            .args(settings.steer.then_some("--steer"))
            .args(settings.busy_poll.then_some("--busy-poll"))
            .args((!settings.live_frames).then_some("--no-live-frames"))
            .arg(if settings.pin { "--pin" } else { "--no-pin" })
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = match cpus {
            Some(cpus) => lab.spawn_on(command, cpus)?,
            None => lab.spawn(command)?,
        };
        let ready = process
            .stderr
            .take()
            .ok_or_else(|| "its stderr is missing".to_owned())
            .and_then(|stderr| wait_ready(stderr, READY_TIMEOUT));
        if let Err(reason) = ready {
            end(&mut process);
            return Err(Error::NotReady { rung: name.into(), reason });
        }
        let (name, cpus, rps_cpus) = (name.to_owned(), cpus.cloned(), None);
        Ok(Self { name, settings, machine, cpus, rps_cpus, address, process })
    }

    /// From the next trial on, its RPS masks name these CPUs instead of all.
    pub fn set_rps_cpus(&mut self, cpus: CpuSet) {
        self.rps_cpus = Some(cpus);
    }

    /// The CPUs of its RPS masks; none: all.
    pub(crate) fn rps_cpus(&self) -> Option<&CpuSet> {
        self.rps_cpus.as_ref().or(self.cpus.as_ref())
    }

    /// Its address and port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// True if the server has exited without being asked to.
    pub fn ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }
}

impl Drop for ServerUnderTest {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// Terminates the server, and kills it if it does not exit.
fn end(process: &mut Child) {
    if let Some(pid) = i32::try_from(process.id()).ok().and_then(Pid::from_raw) {
        // Not reaped yet, so the pid is still the server's. It may have exited already.
        let _ = kill_process(pid, Signal::TERM);
    }
    let deadline = Instant::now() + EXIT_TIMEOUT;
    while matches!(process.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            let _ = process.kill();
            let _ = process.wait();
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the server's `ready` line. Its output is read to the end, so that it never blocks on a full pipe.
fn wait_ready(stderr: impl Read + Send + 'static, timeout: Duration) -> Result<(), String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            // Fails once it is ready: then no line is wanted.
            let _ = sender.send(line);
        }
    });
    let deadline = Instant::now() + timeout;
    let mut said = Vec::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if line.starts_with("ready") => return Ok(()),
            Ok(line) => {
                said.push(line);
                said.truncate(OUTPUT_LINES);
            }
            Err(RecvTimeoutError::Disconnected) if said.is_empty() => {
                return Err("it exited without output".into());
            }
            Err(RecvTimeoutError::Disconnected) => return Err(said.join(" ")),
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!(
                    "not ready after {} s; its output: {}",
                    timeout.as_secs(),
                    said.join(" ")
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_makes_a_server_ready() {
        assert_eq!(wait_ready(&b"udpath: probing\nready io=shared\n"[..], READY_TIMEOUT), Ok(()));
    }

    #[test]
    fn the_output_of_a_server_that_exits_is_the_reason() {
        let said = wait_ready(&b"udpath: cannot bind 10.0.0.1:7: address in use\n"[..], READY_TIMEOUT);
        assert_eq!(said, Err("udpath: cannot bind 10.0.0.1:7: address in use".into()));
        assert_eq!(wait_ready(&b""[..], READY_TIMEOUT), Err("it exited without output".into()));
    }

    #[test]
    fn a_silent_server_times_out() {
        let (silent, _open) = std::io::pipe().unwrap();
        let said = wait_ready(silent, Duration::from_millis(50)).unwrap_err();
        assert!(said.starts_with("not ready"), "{said}");
    }
}
