//! Services and clients shared by the tests.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_serve::{
    Config, Error, Io, IoChoice, Outcome, Reply, Request, Server, Service, Status, StreamService, WorkerId,
};

/// How long to wait for anything that must happen.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Most attempts to bind a port, 10 ms apart.
const BINDS: u32 = 200;

pub(crate) struct Echo;

impl Service for Echo {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        reply.write(request.payload())
    }
}

/// Blocks services until it is opened.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    open: bool,
    waiting: usize,
}

impl Gate {
    pub(crate) fn pass(&self) {
        let (state, change) = &*self.0;
        let mut state = state.lock().unwrap();
        state.waiting += 1;
        change.notify_all();
        while !state.open {
            state = change.wait(state).unwrap();
        }
    }

    pub(crate) fn open(&self) {
        self.0.0.lock().unwrap().open = true;
        self.0.1.notify_all();
    }

    /// Waits until `count` services are blocked.
    pub(crate) fn holds(&self, count: usize) {
        let (state, change) = &*self.0;
        let (_state, timeout) =
            change.wait_timeout_while(state.lock().unwrap(), TIMEOUT, |state| state.waiting < count).unwrap();
        assert!(!timeout.timed_out(), "no service reached the gate");
    }
}

/// An echo that waits at a gate before every answer.
pub(crate) struct GatedEcho(pub(crate) Gate);

impl Service for GatedEcho {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        self.0.pass();
        reply.write(request.payload())
    }
}

pub(crate) fn config(io: Io, bind: &str) -> Config {
    let mut config = Config::new([bind.parse().unwrap()]);
    config.io = IoChoice::Only(io);
    config
}

/// Stops, and checks the identity everywhere.
pub(crate) fn stop(server: Server) -> Status {
    let status = server.stop().unwrap();
    status.balance().unwrap();
    assert_eq!(status.total.deferred, 0);
    status
}

/// Waits until the server's interface has no program of a server before. Its descriptors, closed by now, may live a
/// moment longer in a process that another test is starting: between fork and exec that process has copies of all.
fn wait_until_detached(lab: &Lab) {
    let server = lab.machine("server").unwrap();
    udpath_rig::awaited("a detached program", udpath_rig::TIMEOUT, || {
        let shown = server.command("ip").args(["-d", "link", "show", "eth0"]).output().unwrap();
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        (!String::from_utf8_lossy(&shown.stdout).contains("xdp")).then_some(())
    });
}

/// The address at which a client reaches the server's n-th address.
pub(crate) fn target(server: &Server, index: usize) -> SocketAddr {
    let bind = server.binds()[index];
    match bind {
        _ if !bind.ip().is_unspecified() => bind,
        SocketAddr::V4(_) => ([127, 0, 0, 1], bind.port()).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::LOCALHOST, bind.port()).into(),
    }
}

/// A client connected to `target`: it does not receive answers from other addresses.
pub(crate) fn client(target: SocketAddr) -> UdpSocket {
    let any = if target.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(target).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

/// A payload in which neighbouring bytes differ, and which differs from payloads of other sizes.
pub(crate) fn payload(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i * 7 + i / 251 + size) as u8).collect()
}

/// Receives one datagram.
pub(crate) fn receive(client: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    let len = client.recv(&mut buffer).unwrap();
    buffer.truncate(len);
    buffer
}

/// Waits until `done`, or fails with `what`.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Two machines and a link with `queues` queues, for tests that need a device.
pub(crate) fn link(name: &str, queues: u32) -> Lab {
    let link = LinkSpec::with_queues(queues);
    LabBuilder::new(name).machine("client").machine("server").link("client", "server", &link).up().unwrap()
}

/// Makes the services of a test. A single type for all tests, so that the runtime is compiled once, not once per test.
type Factory = dyn Fn(WorkerId) -> Box<dyn Service> + Send + Sync;

fn boxed<S: Service + 'static>(factory: impl Fn(WorkerId) -> S + Send + Sync + 'static) -> Box<Factory> {
    Box::new(move |worker| Box::new(factory(worker)))
}

/// [`Server::start`].
pub(crate) fn start<S: Service + 'static>(
    config: &Config,
    factory: impl Fn(WorkerId) -> S + Send + Sync + 'static,
) -> Result<Server, Error> {
    Server::start(config, boxed(factory))
}

/// [`Server::start_with_tcp`], whose datagrams are echoed.
pub(crate) fn start_with_tcp<T: StreamService + 'static>(
    config: &Config,
    streams: impl Fn(WorkerId) -> T + Send + Sync + 'static,
) -> Result<Server, Error> {
    Server::start_with_tcp(config, boxed(|_| Echo), streams)
}

/// Starts a server in a lab's machine `server`.
pub(crate) fn start_in<S: Service + 'static>(
    lab: &Lab,
    config: &Config,
    factory: impl Fn(WorkerId) -> S + Send + Sync + 'static,
) -> Server {
    let machine = lab.machine("server").unwrap();
    bound(config, boxed(factory), |factory| machine.run(|| Server::start(config, factory)).unwrap())
}

/// Starts a server once its ports are free. A program that another test starts has copies of the last server's sockets
/// until it is executed, and outside of a lab another test's client may have the port for a moment.
fn bound(
    config: &Config,
    factory: Box<Factory>,
    start: impl Fn(Box<Factory>) -> Result<Server, Error>,
) -> Server {
    let factory = Arc::new(factory);
    let mut tries = 0;
    loop {
        let shared = Arc::clone(&factory);
        match start(Box::new(move |worker| shared(worker))) {
            Err(error) if tries < BINDS && error.to_string().contains("cannot bind") => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            started => return started.unwrap_or_else(|error| panic!("{}: {error}", config.io)),
        }
    }
}

/// Runs `ip` in a machine of a lab.
pub(crate) fn ip(lab: &Lab, machine: &str, arguments: &[&str]) {
    let output = lab.machine(machine).unwrap().command("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// One way to serve: kernel sockets on the loopback, or frames on a lab's link.
pub(crate) struct Case<'a> {
    lab: Option<&'a Lab>,
    pub(crate) config: Config,
}

/// Every Io where it works: kernel sockets on the loopback, with single calls and with bursts; `xdp`, and `auto`, which
/// must choose it, on the link. `binds` returns the addresses to serve, given the address of the server.
pub(crate) fn cases<'a>(lab: &'a Lab, binds: impl Fn(&str) -> Vec<Vec<String>>) -> Vec<Case<'a>> {
    let case = |io, batch, binds: &[String], lab| {
        let binds = binds.iter().map(|bind| bind.parse().unwrap());
        Case { lab, config: Config { io, batch, ..Config::new(binds) } }
    };
    let mut all = Vec::new();
    for io in Io::KERNEL.map(IoChoice::Only) {
        for batch in [1, 32] {
            all.extend(binds("127.0.0.1").iter().map(|binds| case(io, batch, binds, None)));
        }
    }
    let own = lab.address_of("server", "client").unwrap().ipv4.to_string();
    for io in [IoChoice::Only(Io::Xdp), IoChoice::Auto] {
        all.extend(binds(&own).iter().map(|binds| case(io, 32, binds, Some(lab))));
    }
    all
}

/// The given address, and the wildcard of the other family.
pub(crate) fn one_and_all(own: &str) -> Vec<Vec<String>> {
    vec![vec![format!("{own}:0")], vec!["[::]:0".into()]]
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} batch {} {:?}", self.config.io, self.config.batch, self.config.binds)
    }
}

impl Case<'_> {
    /// Whether requests that fit arrive as frames.
    pub(crate) fn takes_frames(&self) -> bool {
        self.lab.is_some()
    }

    pub(crate) fn start<S: Service + 'static>(
        &self,
        factory: impl Fn(WorkerId) -> S + Send + Sync + 'static,
    ) -> Server {
        let server = match self.lab {
            Some(lab) => {
                wait_until_detached(lab);
                start_in(lab, &self.config, factory)
            }
            None => bound(&self.config, boxed(factory), |factory| Server::start(&self.config, factory)),
        };
        assert_eq!(server.io() == Io::Xdp, self.takes_frames(), "{self}: {:?}", server.rejected());
        server
    }

    /// Runs `work` in the namespace of the clients.
    pub(crate) fn at_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.inside("client", work)
    }

    /// Runs `work` in the namespace of the server.
    pub(crate) fn at_server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.inside("server", work)
    }

    fn inside<T: Send>(&self, machine: &str, work: impl FnOnce() -> T + Send) -> T {
        match self.lab {
            Some(lab) => lab.machine(machine).unwrap().run(work).unwrap(),
            None => work(),
        }
    }

    /// The address at which a client reaches the server's n-th address.
    pub(crate) fn target(&self, server: &Server, index: usize) -> SocketAddr {
        let bind = server.binds()[index];
        match self.lab {
            Some(lab) if bind.ip().is_unspecified() => {
                let there = lab.address_of("server", "client").unwrap();
                let ip = if bind.is_ipv4() { there.ipv4.into() } else { there.ipv6.into() };
                SocketAddr::new(ip, bind.port())
            }
            _ => target(server, index),
        }
    }

    /// A client of the server's n-th address.
    pub(crate) fn client(&self, server: &Server, index: usize) -> UdpSocket {
        let target = self.target(server, index);
        self.at_client(|| client(target))
    }

    /// Waits until `count` frames have been taken since the start; they are with the workers or on their way.
    pub(crate) fn taken(&self, server: &Server, count: u64) {
        if self.takes_frames() {
            let taken = || server.status().xdp.unwrap().program.get("taken").copied().unwrap_or(0);
            wait_until("the frames are taken", || taken() >= count);
        }
    }
}
