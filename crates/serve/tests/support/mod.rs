//! Services and clients that the tests share.
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use udpath_serve::{Config, Io, IoChoice, Outcome, Reply, Request, Server, Service, Status};

/// Longest wait for anything that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Echo;

impl Service for Echo {
    fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        reply.write(request.payload())
    }
}

/// Holds services back until it is opened.
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

    /// Waits until `count` services are held back.
    pub(crate) fn holds(&self, count: usize) {
        let (state, change) = &*self.0;
        let (_state, timeout) = change
            .wait_timeout_while(state.lock().unwrap(), PATIENCE, |state| state.waiting < count)
            .unwrap();
        assert!(!timeout.timed_out(), "nobody came to the gate");
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

/// Where a client reaches the server's n-th address.
pub(crate) fn target(server: &Server, index: usize) -> SocketAddr {
    let bind = server.binds()[index];
    match bind {
        _ if !bind.ip().is_unspecified() => bind,
        SocketAddr::V4(_) => ([127, 0, 0, 1], bind.port()).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::LOCALHOST, bind.port()).into(),
    }
}

/// A client connected to `target`: answers from any other address do not reach it.
pub(crate) fn client(target: SocketAddr) -> UdpSocket {
    let any = if target.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(target).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A payload that differs in every byte from its neighbours and from other sizes' payloads.
pub(crate) fn payload(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i * 7 + i / 251 + size) as u8).collect()
}

/// Receives one datagram.
pub(crate) fn receive(client: &UdpSocket) -> Vec<u8> {
    let mut room = vec![0; 65_536];
    let len = client.recv(&mut room).unwrap();
    room.truncate(len);
    room
}

/// Waits until `done`, or fails with `what`.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "in vain waited until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
