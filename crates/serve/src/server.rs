//! Start, status, stop.
//!
//! ```text
//! start:  check -> open sockets (io) -> threads: pin, make the service, serve -> probe -> up
//!         with `auto`, the next Io is tried when the sockets cannot be prepared or the probe fails
//! stop:   note the kernel's drops, close the doors, wake -> workers answer what is queued and end -> last status
//!         nothing comes to a socket or a ring before the first worker is told to end
//! ```

mod open;
mod start;
mod summary;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::config::Config;
use crate::dispatch::StreamFactory;
use crate::endpoint::Endpoints;
use crate::error::{Error, Rejected};
use crate::io::{FastPath, Io};
use crate::service::{Service, StreamService, WorkerId};
use crate::shared::Shared;
use crate::status::{SpreadMonitor, Status};
use crate::tcp::TcpCounters;

/// How long a stopping server waits for deferred answers. Shorter would abandon answers that wait for a slow
/// back end, longer keeps a service manager waiting for requests that nobody will answer.
const DEFERRED_TIMEOUT: Duration = Duration::from_secs(5);

/// A running server. Dropping it stops it, too.
pub struct Server {
    io: Io,
    rejected: Vec<Rejected>,
    batch: usize,
    gso: bool,
    binds: Vec<SocketAddr>,
    /// The CPU of each worker, and whether its threads are bound to it.
    cpus: Vec<u32>,
    pinned: bool,
    /// By worker, then by address.
    endpoints: Endpoints,
    shared: Arc<Shared>,
    /// The interfaces of `xdp`.
    fast_path: Option<Arc<FastPath>>,
    tcp_counters: Vec<Arc<CachePadded<TcpCounters>>>,
    threads: Vec<(usize, JoinHandle<io::Result<()>>)>,
    /// Becomes readable for good when the server stops.
    stop: Arc<OwnedFd>,
    watch: Mutex<SpreadMonitor>,
    started: Instant,
    /// Set once the doors are closed: what the kernel had dropped at each socket until then.
    final_drops: Option<Vec<Vec<u64>>>,
}

impl Server {
    /// Starts serving. Returns when real datagrams have come through every address to the workers they should come
    /// to; on an error nothing is left running.
    ///
    /// `factory` makes one service per worker, on the worker's thread, and again after a panic.
    pub fn start<S, F>(config: &Config, factory: F) -> Result<Self, Error>
    where
        S: Service + 'static,
        F: Fn(WorkerId) -> S + Send + Sync + 'static,
    {
        Self::choose(config, &Arc::new(factory), None)
    }

    /// As [`Server::start`], with a stream service on the same addresses over TCP.
    pub fn start_with_tcp<S, F, T, G>(config: &Config, factory: F, streams: G) -> Result<Self, Error>
    where
        S: Service + 'static,
        F: Fn(WorkerId) -> S + Send + Sync + 'static,
        T: StreamService + 'static,
        G: Fn(WorkerId) -> T + Send + Sync + 'static,
    {
        let streams: Arc<StreamFactory> = Arc::new(move |id| Box::new(streams(id)));
        Self::choose(config, &Arc::new(factory), Some(&streams))
    }

    /// The Io that serves: with `auto`, the one that was chosen.
    #[must_use]
    pub fn io(&self) -> Io {
        self.io
    }

    /// What `auto` tried before, and why it was not taken.
    #[must_use]
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// The addresses served, with real ports.
    #[must_use]
    pub fn binds(&self) -> &[SocketAddr] {
        &self.binds
    }

    /// How many workers there are.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.endpoints.len()
    }

    /// The CPU of each worker; `None` when they are not pinned.
    #[must_use]
    pub fn pinned_to(&self) -> Option<&[u32]> {
        self.pinned.then_some(self.cpus.as_slice())
    }

    /// The interfaces from which frames are taken, past the kernel's packet filters; none but with [`Io::Xdp`].
    #[must_use]
    pub fn interfaces(&self) -> Vec<String> {
        self.fast_path.as_deref().map(FastPath::interfaces).unwrap_or_default()
    }

    /// Whether a thread has ended by itself, which only a defect can cause.
    #[must_use]
    pub fn is_impaired(&self) -> bool {
        self.final_drops.is_none() && self.threads.iter().any(|(_, handle)| handle.is_finished())
    }

    /// Stops: answers what is queued in the sockets, waits some seconds for deferred answers, and returns the last
    /// status. Later datagrams are not received.
    pub fn stop(mut self) -> Result<Status, Error> {
        let lost = self.halt();
        let deadline = Instant::now() + DEFERRED_TIMEOUT;
        while self.endpoints.iter().flatten().any(|endpoint| endpoint.counts().deferred > 0)
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(1));
        }
        match lost {
            Some(worker) => Err(Error::WorkerLost(worker)),
            None => Ok(self.status()),
        }
    }

    /// Closes the doors and joins all threads; the worker of one that did not end well. Does nothing twice.
    fn halt(&mut self) -> Option<usize> {
        if self.final_drops.is_some() {
            return None;
        }
        // Nothing more comes before the workers are told: what they find from then on is all there will be.
        if let Some(fast_path) = &self.fast_path {
            fast_path.stop_receiving();
        }
        // A shared socket is shut once for each worker; the first time tells its drops.
        let mut seen: Vec<(*const crate::io::Socket, u64)> = Vec::new();
        let mut drops = Vec::with_capacity(self.endpoints.len());
        for endpoints in self.endpoints.iter() {
            let of_worker = endpoints.iter().map(|endpoint| {
                let socket = Arc::as_ptr(&endpoint.socket);
                match seen.iter().find(|(known, _)| *known == socket) {
                    Some((_, drops)) => *drops,
                    None => {
                        let drops = endpoint.socket.stop_receiving();
                        seen.push((socket, drops));
                        drops
                    }
                }
            });
            drops.push(of_worker.collect());
        }
        self.final_drops = Some(drops);
        self.shared.stopping.store(true, Relaxed);
        // An event counter at 0 takes a 1 without fail.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        self.join()
    }

    fn join(&mut self) -> Option<usize> {
        let mut lost = None;
        for (worker, handle) in self.threads.drain(..) {
            if !matches!(handle.join(), Ok(Ok(()))) {
                lost = Some(worker);
            }
        }
        lost
    }

    fn lost_worker(&mut self) -> Error {
        Error::WorkerLost(self.halt().unwrap_or(0))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.halt();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("io", &self.io)
            .field("binds", &self.binds)
            .field("workers", &self.endpoints.len())
            .finish_non_exhaustive()
    }
}
