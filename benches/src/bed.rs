//! The test bed of the benchmarks: a lab with a client and a server, and the programs that run in it.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use udpath_lab::{Lab, LabBuilder, LinkSpec, Machine, NapiGuard};
use udpath_load::Engine;
use udpath_load::plan::{Arrivals, Plan};
use udpath_load::result::LoadResult;
use udpath_load::template::Protocol;
use udpath_protocols::echo::EchoLoad;
use udpath_serve::{DropReason, Outcome, Reply, Request, Service};

use crate::race::pin;

/// Flows of the in-kernel loop: enough for any hash to spread them.
pub(crate) const FLOWS: u32 = 64;

/// A lab with one link of two queues, transmit mapping on.
pub(crate) struct Bed {
    pub(crate) lab: Lab,
    _napi: Option<NapiGuard>,
}

impl Bed {
    /// `xdp_frames`: the server's end accepts the frames that the in-kernel loop sends.
    pub(crate) fn new(xdp_frames: bool) -> Result<Self> {
        let lab = LabBuilder::new("bench")
            .machine("client")
            .machine("server")
            .link("client", "server", &LinkSpec::with_queues(2))
            .up()?;
        lab.machine("client")?.towards("server")?.spread_xps()?;
        lab.machine("server")?.towards("client")?.spread_xps()?;
        let napi =
            if xdp_frames { Some(lab.machine("server")?.towards("client")?.ensure_napi()?) } else { None };
        Ok(Self { lab, _napi: napi })
    }

    /// The server's address, as seen by the client.
    pub(crate) fn server(&self, port: u16) -> Result<SocketAddr> {
        let ip = IpAddr::V4(self.lab.address_of("server", "client")?.ipv4);
        Ok(SocketAddr::new(ip, port))
    }

    /// Starts a program on the server and waits until it is ready.
    pub(crate) fn serve(&self, program: &str, arguments: &[&str]) -> Result<Running> {
        serve(&self.lab, "server", program, arguments)
    }

    /// One run of the in-kernel loop against a server of kernel sockets.
    pub(crate) fn loop_tps(&self, target: SocketAddr) -> Result<LoadResult> {
        self.loop_with(target, 4)
    }

    /// One run of the in-kernel loop against `target`, with `inflight` requests in flight in each of [`FLOWS`].
    pub(crate) fn loop_with(&self, target: SocketAddr, inflight: u32) -> Result<LoadResult> {
        closed_loop(self.lab.machine("client")?, target, inflight, Duration::from_millis(500), None)
    }

    /// The same with requests of `size` bytes of another protocol.
    pub(crate) fn loop_of(
        &self,
        (protocol, size): (&dyn Protocol, usize),
        target: SocketAddr,
        inflight: u32,
    ) -> Result<LoadResult> {
        let plan = Plan { size, ..loop_plan(target, inflight, Duration::from_millis(500)) };
        in_kernel(self.lab.machine("client")?, &plan, protocol, None)
    }
}

/// One run of the in-kernel loop from `client`, with `inflight` requests in flight in each of [`FLOWS`]. `cpu`: the
/// only CPU that starts requests, and so the one on which they initially circulate; without it, all CPUs start some.
pub(crate) fn closed_loop(
    client: &Machine,
    target: SocketAddr,
    inflight: u32,
    duration: Duration,
    cpu: Option<usize>,
) -> Result<LoadResult> {
    in_kernel(client, &loop_plan(target, inflight, duration), &EchoLoad::new(0), cpu)
}

fn loop_plan(target: SocketAddr, inflight: u32, duration: Duration) -> Plan {
    Plan {
        flows: FLOWS,
        arrivals: Arrivals::Closed { inflight },
        duration,
        warmup: Duration::from_millis(100),
        timeout: Duration::from_millis(200),
        ..Plan::new(target)
    }
}

fn in_kernel(
    client: &Machine,
    plan: &Plan,
    protocol: &dyn Protocol,
    cpu: Option<usize>,
) -> Result<LoadResult> {
    let never = AtomicBool::new(false);
    client.run(|| {
        cpu.map_or(Ok(()), pin)?;
        udpath_load::run(plan, Engine::Kernel, protocol, &mut |_| (), &never).context("the in-kernel loop")
    })?
}

/// Starts a program on a machine and waits for a line that begins with `ready` on either output stream.
pub(crate) fn serve(lab: &Lab, machine: &str, program: &str, arguments: &[&str]) -> Result<Running> {
    let mut command = lab.machine(machine)?.command(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = lab.spawn(command)?;
    let lines = lines_of(&mut child);
    let running = Running::new(child);
    loop {
        match lines.recv_timeout(Duration::from_secs(20)) {
            Ok(line) if line.starts_with("ready") => return Ok(running),
            Ok(_) => {}
            Err(_) => bail!("{program} did not become ready"),
        }
    }
}

/// The output of a program on both streams, line by line, until it ends.
pub(crate) fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] =
        [child.stdout.take().map(|s| Box::new(s) as _), child.stderr.take().map(|s| Box::new(s) as _)];
    for stream in streams.into_iter().flatten() {
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
    }
    lines
}

/// A program that is killed when this is dropped.
pub(crate) struct Running(Child);

impl Running {
    /// Wraps a started program.
    pub(crate) fn new(child: Child) -> Self {
        Self(child)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers a DNS query with the query and the response bit: the cheapest server that generators of queries accept.
pub(crate) struct DnsAnswerer;

impl Service for DnsAnswerer {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let query = request.payload();
        if query.len() < 12 {
            return Outcome::Drop(DropReason::Malformed);
        }
        let done = reply.write(query);
        if let Some(flags) = reply.buffer_mut().get_mut(2) {
            *flags |= 0x80;
        }
        done
    }
}

/// The program under test, from the same build.
pub(crate) fn udpath() -> Result<String> {
    let path: PathBuf = std::env::current_exe()?.with_file_name("udpath");
    if !path.exists() {
        bail!("{} is missing: `make bench` builds it first", path.display());
    }
    Ok(path.display().to_string())
}
