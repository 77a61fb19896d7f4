//! A worker whose frames come from a link within the process: serve's datapath, dispatch and counters without a device,
//! for measurements and tests of services at rates that no device here reaches.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use udpath_stack::port::Port;
use udpath_stack::worker::Parts;

use super::{FrameWorker, SocketSource, Worker};
use crate::counts::Counts;
use crate::endpoint::Endpoint;
use crate::gate::Gate;
use crate::io::{KernelSocket, Sharing, Socket, SocketOptions};
use crate::probe::{ProbeState, Prober};
use crate::service::{Service, WorkerId};
use crate::shared::{BroadcastPolicy, Shared};

/// One worker of a server without devices and threads; its caller polls it.
pub struct InProcessWorker<P: Port, S, F> {
    worker: FrameWorker<P, S, F>,
    endpoint: Arc<Endpoint>,
}

impl<P: Port, S: Service, F: Fn(WorkerId) -> S> InProcessWorker<P, S, F> {
    /// A worker that serves the frames of `parts`, whose groups have one binding, with a service from `factory`.
    ///
    /// # Errors
    /// The kernel socket that takes over what a frame cannot carry cannot be opened on the loopback address.
    pub fn new(factory: F, parts: Parts<P, ()>) -> io::Result<Self> {
        let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = Arc::new(
            Socket::open(bind, Sharing::Alone, None, SocketOptions::default()).map_err(io::Error::other)?,
        );
        let endpoint = Arc::new(Endpoint::new(Arc::clone(&socket)));
        let probe = ProbeState::new()?;
        // Nothing to probe: requests are not compared with it.
        Prober::new(&probe).finish();
        let gate = Gate::default();
        gate.open();
        let shared =
            Shared { probe, gate, stopping: AtomicBool::new(false), broadcast: BroadcastPolicy::FirstWorker };
        let source = SocketSource {
            socket: KernelSocket::new(socket, 1, false, None)?,
            endpoint: Arc::clone(&endpoint),
        };
        let worker = Worker::new(WorkerId(0), Arc::new(factory), Arc::new(shared), vec![source]);
        let worker = worker.with_frames(Arc::from([vec![Arc::clone(&endpoint)]]), parts, None);
        Ok(Self { worker, endpoint })
    }

    /// Serves a burst of frames, as a turn of a server's worker does. Returns how many moved.
    #[inline]
    pub fn poll(&mut self) -> usize {
        self.worker.turn()
    }

    /// What it has received and answered so far.
    pub fn counts(&self) -> Counts {
        self.endpoint.counts()
    }
}
