//! Start, status, stop.
//!
//! ```text
//! start:  check -> open sockets (io) -> threads: pin, make the service, serve -> probe -> up
//!         with `auto`, the next Io is tried when the sockets cannot be prepared or the probe fails
//! stop:   note the kernel's drops, close the doors, wake -> workers answer what is queued and end -> last status
//!         nothing comes to a socket or a ring before the first worker is told to end
//! ```

mod open;
mod summary;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use rustix::event::{EventfdFlags, eventfd};

use crate::config::Config;
use crate::counters::{Lane, Lanes};
use crate::cpus;
use crate::dispatch::{StreamDispatch, StreamFactory};
use crate::error::Error;
use crate::io::{Devices, Fast, Frames, Io, IoChoice, KernelPort, Plan};
use crate::probe::{Prober, Probing, target_of};
use crate::service::{Service, StreamService, WorkerId};
use crate::shared::{BroadcastPolicy, Shared};
use crate::status::{Rejected, Status, Watch};
use crate::tcp::{Meter, TcpWorker};
use crate::worker::{LaneSide, Worker};

/// How long a stopping server waits for deferred answers. Shorter would abandon answers that wait for a slow
/// back end, longer keeps a service manager waiting for requests that nobody will answer.
const DEFERRED_PATIENCE: Duration = Duration::from_secs(5);

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
    lanes: Lanes,
    shared: Arc<Shared>,
    /// The interfaces of `xdp`.
    fast: Option<Arc<Fast>>,
    meters: Vec<Arc<CachePadded<Meter>>>,
    threads: Vec<(usize, JoinHandle<io::Result<()>>)>,
    /// Becomes readable for good when the server stops.
    stop: Arc<OwnedFd>,
    watch: Mutex<Watch>,
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

    fn choose<S, F>(
        config: &Config,
        factory: &Arc<F>,
        streams: Option<&Arc<StreamFactory>>,
    ) -> Result<Self, Error>
    where
        S: Service + 'static,
        F: Fn(WorkerId) -> S + Send + Sync + 'static,
    {
        config.check()?;
        open::check_addresses(&config.binds)?;
        let cpus = open::worker_cpus(config)?;
        let candidates: &[Io] = match &config.io {
            IoChoice::Auto => &Io::ALL,
            IoChoice::Only(io) => std::slice::from_ref(io),
        };
        let mut rejected = Vec::new();
        for io in candidates.iter().copied() {
            let auto = config.io == IoChoice::Auto;
            if auto && cpus.len() == 1 && !matches!(io, Io::Shared | Io::Xdp) {
                rejected
                    .push(Rejected { io, reason: "a single worker shares its socket with nobody".into() });
                continue;
            }
            match Self::launch(config, io, &cpus, factory, streams) {
                Ok(mut server) => {
                    server.rejected = rejected;
                    return Ok(server);
                }
                Err(Error::Probe { reason, .. }) if auto => rejected.push(Rejected { io, reason }),
                Err(error @ (Error::Socket { .. } | Error::MoreWorkersThanCpus { .. } | Error::Xdp(_)))
                    if auto =>
                {
                    rejected.push(Rejected { io, reason: error.to_string() });
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoIo(rejected))
    }

    /// Opens, starts and probes one Io.
    fn launch<S, F>(
        config: &Config,
        io: Io,
        cpus: &[u32],
        factory: &Arc<F>,
        streams: Option<&Arc<StreamFactory>>,
    ) -> Result<Self, Error>
    where
        S: Service + 'static,
        F: Fn(WorkerId) -> S + Send + Sync + 'static,
    {
        let devices = match io {
            Io::Xdp => Some(Devices::open(&config.binds, &config.xdp, cpus.len())?),
            _ => None,
        };
        let cpus = &match &devices {
            Some(devices) => open::cpus_for_queues(config, cpus, devices)?,
            None => cpus.to_vec(),
        }[..];
        let plan = Plan { binds: &config.binds, cpus, receive_buffer: config.receive_buffer };
        let resources = |operation| move |cause| Error::Resources { operation, cause };
        let (group, listeners) = open::open_all(io, &plan, streams.is_some())?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(io::Error::from)
            .map_err(resources("make a descriptor to stop the workers"))?;
        let probing = Probing::new().map_err(resources("read random bytes for the probe"))?;
        let broadcast = match io {
            _ if !config.answer_broadcast => BroadcastPolicy::Ignore,
            Io::Shared => BroadcastPolicy::AnyWorker,
            Io::Reuseport | Io::Percpu | Io::Xdp => BroadcastPolicy::FirstWorker,
        };
        let mut server = Self {
            io,
            rejected: Vec::new(),
            batch: config.batch,
            gso: config.gso && config.batch > 1,
            binds: group.binds(),
            cpus: cpus.to_vec(),
            pinned: config.pin,
            lanes: Lanes::default(),
            shared: Arc::new(Shared { probing, stopping: AtomicBool::new(false), broadcast }),
            meters: Vec::new(),
            threads: Vec::new(),
            stop: Arc::new(stop),
            fast: None,
            watch: Mutex::default(),
            started: Instant::now(),
            final_drops: None,
        };
        let mut proof = None;
        let mut frames = match devices {
            Some(devices) => {
                let (fast, frames, shows) = devices.start(server.binds.clone(), cpus.len(), &config.xdp)?;
                server.fast = Some(Arc::new(fast));
                proof = Some(shows);
                frames.into_iter().map(Some).collect()
            }
            None => Vec::new(),
        };
        // From here on dropping `server` stops whatever runs already.
        let (ready, readiness) = mpsc::channel();
        let lane = |socket| Arc::new(Lane::new(socket));
        let of_worker = |sockets: Vec<_>| sockets.into_iter().map(lane).collect();
        server.lanes = group.by_worker.into_iter().map(of_worker).collect();
        for (worker, lanes) in Arc::clone(&server.lanes).iter().enumerate() {
            let mut sides = Vec::with_capacity(lanes.len());
            for lane in lanes {
                let port = KernelPort::new(Arc::clone(&lane.socket), config.batch, config.gso)
                    .map_err(resources("map the buffers of a worker"))?;
                sides.push(LaneSide { port, lane: Arc::clone(lane) });
            }
            let frames = frames.get_mut(worker).and_then(Option::take);
            server.spawn_worker(worker, sides, frames, factory, &ready)?;
        }
        if let Some(streams) = streams {
            for (worker, listeners) in listeners.into_iter().enumerate() {
                server.spawn_tcp(worker, listeners, streams, &ready)?;
            }
        }
        drop(ready);
        for _ in 0..server.threads.len() {
            match readiness.recv() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(error),
                // Its factory panicked before it could say anything.
                Err(mpsc::RecvError) => return Err(server.lost_worker()),
            }
        }
        let prober = Prober::new(&server.shared.probing);
        for bind in &server.binds {
            io.prove(&prober, &plan, target_of(*bind)).map_err(|reason| Error::Probe { io, reason })?;
        }
        if let (Some(fast), Some(proof)) = (&server.fast, proof) {
            proof.run(fast, &prober)?;
        }
        prober.finish();
        server.started = Instant::now();
        Ok(server)
    }

    fn spawn_worker<S, F>(
        &mut self,
        worker: usize,
        sides: Vec<LaneSide>,
        frames: Option<Frames>,
        factory: &Arc<F>,
        ready: &mpsc::Sender<Result<(), Error>>,
    ) -> Result<(), Error>
    where
        S: Service + 'static,
        F: Fn(WorkerId) -> S + Send + Sync + 'static,
    {
        let (fast, lanes) = (self.fast.clone(), Arc::clone(&self.lanes));
        let (factory, shared, stop) = (Arc::clone(factory), Arc::clone(&self.shared), Arc::clone(&self.stop));
        let number = worker;
        self.spawn(worker, "udp", ready, move |ready| {
            let worker = Worker::new(WorkerId(number), factory, shared, sides);
            let Some(frames) = frames else {
                ready.say();
                return worker.run(stop.as_fd());
            };
            let fast_worker = worker.with_frames(lanes, frames);
            if let Some(fast) = fast {
                fast.add(number, fast_worker.counters());
            }
            ready.say();
            fast_worker.run(stop.as_fd())
        })
    }

    fn spawn_tcp(
        &mut self,
        worker: usize,
        listeners: Vec<TcpListener>,
        streams: &Arc<StreamFactory>,
        ready: &mpsc::Sender<Result<(), Error>>,
    ) -> Result<(), Error> {
        let (streams, stop) = (Arc::clone(streams), Arc::clone(&self.stop));
        let meter = Arc::new(CachePadded::new(Meter::default()));
        self.meters.push(Arc::clone(&meter));
        self.spawn(worker, "tcp", ready, move |ready| {
            let worker = TcpWorker::new(listeners, StreamDispatch::new(WorkerId(worker), streams), meter);
            ready.say();
            worker.run(stop.as_fd())
        })
    }

    /// Starts a thread of `worker`, pinned if so configured. `body` says when it is ready to serve.
    fn spawn(
        &mut self,
        worker: usize,
        kind: &str,
        ready: &mpsc::Sender<Result<(), Error>>,
        body: impl FnOnce(Ready) -> io::Result<()> + Send + 'static,
    ) -> Result<(), Error> {
        let ready = ready.clone();
        let (cpu, pinned) = (self.cpus[worker], self.pinned);
        let handle = thread::Builder::new()
            .name(format!("{kind}-{worker}"))
            .spawn(move || {
                if pinned && let Err(cause) = cpus::pin_to(cpu) {
                    // A starter that gave up waiting has no use for the news.
                    let _ = ready.send(Err(Error::Pin { worker, cpu, cause }));
                    return Ok(());
                }
                body(Ready(ready))
            })
            .map_err(|cause| Error::Resources { operation: "start a thread", cause })?;
        self.threads.push((worker, handle));
        Ok(())
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
        self.lanes.len()
    }

    /// The CPU of each worker; `None` when they are not pinned.
    #[must_use]
    pub fn pinned_to(&self) -> Option<&[u32]> {
        self.pinned.then_some(self.cpus.as_slice())
    }

    /// The interfaces from which frames are taken, past the kernel's packet filters; none but with [`Io::Xdp`].
    #[must_use]
    pub fn interfaces(&self) -> Vec<String> {
        self.fast.as_deref().map(Fast::interfaces).unwrap_or_default()
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
        let patience = Instant::now() + DEFERRED_PATIENCE;
        while self.lanes.iter().flatten().any(|lane| lane.counts().deferred > 0) && Instant::now() < patience
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
        if let Some(fast) = &self.fast {
            fast.close_door();
        }
        // A shared socket is shut once for each worker; the first time tells its drops.
        let mut seen: Vec<(*const crate::io::Socket, u64)> = Vec::new();
        let mut drops = Vec::with_capacity(self.lanes.len());
        for lanes in self.lanes.iter() {
            let of_worker = lanes.iter().map(|lane| {
                let socket = Arc::as_ptr(&lane.socket);
                match seen.iter().find(|(known, _)| *known == socket) {
                    Some((_, drops)) => *drops,
                    None => {
                        let drops = lane.socket.shut();
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
            .field("workers", &self.lanes.len())
            .finish_non_exhaustive()
    }
}

/// A thread's word that it is ready. Lost without being said, it tells the starter that the thread panicked.
struct Ready(mpsc::Sender<Result<(), Error>>);

impl Ready {
    fn say(self) {
        // A starter that gave up waiting has no use for the news.
        let _ = self.0.send(Ok(()));
    }
}
