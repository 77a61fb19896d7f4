//! Start, status, stop.
//!
//! ```text
//! start:  check ─▸ open sockets (io) ─▸ threads: pin, make the service ─▸ probe ─▸ gate ─▸ up
//!         with `auto`, the next Io is tried if the sockets cannot be opened or the probe fails
//! stop:   read the kernel's drops, stop receiving, wake ─▸ workers answer what is queued and end ─▸ last status
//!         all sockets and rings stop receiving before the first worker ends
//! ```

mod descriptors;
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

/// How long a stopping server waits for deferred answers. A shorter timeout abandons answers that wait for a slow back
/// end; a longer one keeps a service manager waiting for requests that will never be answered.
const DEFERRED_TIMEOUT: Duration = Duration::from_secs(5);

/// Loads a service's files again while it runs: what it did, in words, or why everything stays as it was.
pub type ReloadHook = Arc<dyn Fn() -> Result<String, Box<dyn std::error::Error + Send + Sync>> + Send + Sync>;

/// What is wrong with a service at this moment, in sentences.
pub type WarningsHook = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// A running server. Dropping it stops it.
pub struct Server {
    io: Io,
    rejected: Vec<Rejected>,
    batch: usize,
    gso: bool,
    binds: Vec<SocketAddr>,
    /// The CPU of each worker; `pinned` says whether its threads are pinned to it.
    cpus: Vec<u32>,
    pinned: bool,
    /// By worker, then by address.
    endpoints: Endpoints,
    shared: Arc<Shared>,
    /// The interfaces of `xdp`.
    fast_path: Option<Arc<FastPath>>,
    tcp_counters: Vec<Arc<CachePadded<TcpCounters>>>,
    threads: Vec<(usize, JoinHandle<io::Result<()>>)>,
    /// What the start had to lower.
    warning: Option<String>,
    /// What there is to say of the service.
    service_warnings: Option<WarningsHook>,
    /// Becomes readable, permanently, when the server stops.
    stop: Arc<OwnedFd>,
    watch: Mutex<SpreadMonitor>,
    started: Instant,
    reload_hook: Option<ReloadHook>,
    /// CPU time of the process at that moment.
    started_cpu: Duration,
    /// Set once the sockets stop receiving: what the kernel had dropped at each until then.
    final_drops: Option<Vec<Vec<u64>>>,
}

impl Server {
    /// Starts serving. Returns once real datagrams to every address have reached the right workers. On an error,
    /// nothing is left running.
    ///
    /// `factory` makes a service for each worker, on the worker's thread, and a new one after a panic.
    pub fn start<S, F>(config: &Config, factory: F) -> Result<Self, Error>
    where
        S: Service + 'static,
        F: Fn(WorkerId) -> S + Send + Sync + 'static,
    {
        Self::choose(config, &Arc::new(factory), None)
    }

    /// Like [`Server::start`], with a stream service on the same addresses over TCP.
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

    /// Lets a server with [`Config::hold`] answer. Has no effect if called again.
    pub fn release(&self) {
        self.shared.gate.open();
    }

    /// The Io in use; with `auto`, the one chosen.
    #[must_use]
    pub fn io(&self) -> Io {
        self.io
    }

    /// What `auto` rejected, and why.
    #[must_use]
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// The served addresses, with the ports obtained.
    #[must_use]
    pub fn binds(&self) -> &[SocketAddr] {
        &self.binds
    }

    /// The number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.endpoints.len()
    }

    /// The CPU of each worker; `None` without pinning.
    #[must_use]
    pub fn pinned_to(&self) -> Option<&[u32]> {
        self.pinned.then_some(self.cpus.as_slice())
    }

    /// The interfaces from which frames are taken, past the kernel's packet filters; empty unless the Io is
    /// [`Io::Xdp`].
    #[must_use]
    pub fn interfaces(&self) -> Vec<String> {
        self.fast_path.as_deref().map(FastPath::interfaces).unwrap_or_default()
    }

    /// The same server, whose service can load its files again. The hook may take its time: it is called by another
    /// thread than the workers.
    #[must_use]
    pub fn with_reload(mut self, hook: ReloadHook) -> Self {
        self.reload_hook = Some(hook);
        self
    }

    /// The same server, whose status has the warnings of its service too. The hook is called for each status.
    #[must_use]
    pub fn with_warnings(mut self, hook: WarningsHook) -> Self {
        self.service_warnings = Some(hook);
        self
    }

    /// Loads the service's files again; `None` if it has none.
    #[must_use]
    pub fn reload_hook(&self) -> Option<ReloadHook> {
        self.reload_hook.clone()
    }

    /// Whether a thread has ended unexpectedly, which only a defect can cause.
    #[must_use]
    pub fn is_impaired(&self) -> bool {
        self.final_drops.is_none() && self.threads.iter().any(|(_, handle)| handle.is_finished())
    }

    /// Stops: answers what is queued in the sockets, waits up to 5 seconds for deferred answers, and returns the last
    /// status. Datagrams that arrive later are not received.
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

    /// Stops receiving and joins all threads. Returns the worker of a thread that failed. Has no effect if called
    /// again.
    fn halt(&mut self) -> Option<usize> {
        if self.final_drops.is_some() {
            return None;
        }
        // First stop receiving, then tell the workers: what they find queued from then on is all there is.
        if let Some(fast_path) = &self.fast_path {
            fast_path.stop_receiving();
        }
        // A shared socket is in the list of each worker; its drops are read the first time.
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
        // Of a server that was never released, nothing is answered.
        self.shared.gate.shut();
        // Writing 1 to an event counter at 0 cannot fail.
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
