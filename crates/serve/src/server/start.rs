//! Starting a server: choose an Io, open its sockets, start the threads, probe.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;

use crossbeam_utils::CachePadded;
use rustix::event::{EventfdFlags, eventfd};

use super::summary::cpu_time;
use super::{Server, descriptors, open};
use crate::config::Config;
use crate::cpus;
use crate::dispatch::{StreamDispatch, StreamFactory};
use crate::endpoint::{Endpoint, Endpoints};
use crate::error::{Error, Rejected};
use crate::gate::Gate;
use crate::io::{Devices, FrameParts, Io, IoChoice, KernelSocket, SocketConfig, SocketOptions};
use crate::probe::{ProbeState, Prober, target_of};
use crate::service::{Service, WorkerId};
use crate::shared::{BroadcastPolicy, Shared};
use crate::tcp::{TcpCounters, TcpLimits, TcpWorker};
use crate::worker::{SocketSource, Worker};

impl Server {
    pub(super) fn choose<S, F>(
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
        descriptors::raise(config, cpus.len(), streams.is_some());
        let candidates: &[Io] = match &config.io {
            IoChoice::Auto => &Io::ALL,
            IoChoice::Only(io) => std::slice::from_ref(io),
        };
        let mut rejected = Vec::new();
        for io in candidates.iter().copied().rev() {
            let auto = config.io == IoChoice::Auto;
            if auto && cpus.len() == 1 && !matches!(io, Io::Shared | Io::Xdp) {
                rejected.push(Rejected {
                    io,
                    reason: "with a single worker there is nothing to distribute".into(),
                });
                continue;
            }
            match Self::launch(config, io, &cpus, factory, streams) {
                Ok(mut server) => {
                    server.rejected = rejected;
                    return Ok(server);
                }
                Err(error) if auto => rejected.push(Rejected { io, reason: error.into_rejection()? }),
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
        let options = SocketOptions { receive_buffer: config.receive_buffer, timestamps: config.timestamps };
        let socket_config = SocketConfig { binds: &config.binds, cpus, options };
        let resources = |operation| move |source| Error::Resources { operation, source };
        let (sockets, listeners) = open::open_all(io, &socket_config, streams.is_some())?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(io::Error::from)
            .map_err(resources("make an event descriptor"))?;
        let probe = ProbeState::new().map_err(resources("read random bytes for the probe"))?;
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
            binds: sockets.binds(),
            cpus: cpus.to_vec(),
            pinned: config.pin,
            endpoints: Endpoints::default(),
            shared: Arc::new(Shared {
                probe,
                gate: Gate::default(),
                stopping: AtomicBool::new(false),
                broadcast,
            }),
            tcp_counters: Vec::new(),
            threads: Vec::new(),
            warning: None,
            service_warnings: None,
            stop: Arc::new(stop),
            fast_path: None,
            watch: Mutex::default(),
            started: Instant::now(),
            reload_hook: None,
            started_cpu: cpu_time(),
            final_drops: None,
        };
        let mut queue_probe = None;
        let mut frames = match devices {
            Some(devices) => {
                let (fast_path, frames, shows) =
                    devices.start(server.binds.clone(), cpus.len(), &config.xdp)?;
                server.fast_path = Some(Arc::new(fast_path));
                queue_probe = Some(shows);
                frames.into_iter().map(Some).collect()
            }
            None => Vec::new(),
        };
        // From here on, dropping `server` stops the threads that run already.
        let (ready, readiness) = mpsc::channel();
        let endpoint = |socket| Arc::new(Endpoint::new(socket));
        let of_worker = |sockets: Vec<_>| sockets.into_iter().map(endpoint).collect();
        server.endpoints = sockets.by_worker.into_iter().map(of_worker).collect();
        for (worker, endpoints) in Arc::clone(&server.endpoints).iter().enumerate() {
            let mut sources = Vec::with_capacity(endpoints.len());
            for endpoint in endpoints {
                let socket = Arc::clone(&endpoint.socket);
                let socket = KernelSocket::new(socket, config.batch, config.gso, config.receive_call)
                    .map_err(resources("map the buffers of a worker"))?;
                sources.push(SocketSource { socket, endpoint: Arc::clone(endpoint) });
            }
            let frames = frames.get_mut(worker).and_then(Option::take);
            server.spawn_worker(worker, sources, frames, factory, &ready)?;
        }
        if let Some(streams) = streams {
            let (connections, warning) = descriptors::connections(config, cpus.len())?;
            server.warning = warning;
            let limits = TcpLimits { connections, ..config.tcp.clone() };
            for (worker, listeners) in listeners.into_iter().enumerate() {
                server.spawn_tcp(worker, listeners, &limits, streams, &ready)?;
            }
        }
        drop(ready);
        for _ in 0..server.threads.len() {
            match readiness.recv() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(error),
                // Its factory panicked.
                Err(mpsc::RecvError) => return Err(server.lost_worker()),
            }
        }
        let prober = Prober::new(&server.shared.probe);
        for bind in &server.binds {
            io.probe(&prober, &socket_config, target_of(*bind))
                .map_err(|error| Error::Probe { io, source: error.into() })?;
        }
        if let (Some(fast_path), Some(queue_probe)) = (&server.fast_path, &queue_probe) {
            queue_probe.inject(fast_path, &prober)?;
        }
        // Before the programs take traffic: frames wait in the rings.
        prober.finish();
        if let (Some(fast_path), Some(queue_probe)) = (&server.fast_path, queue_probe) {
            queue_probe.take(fast_path, &prober)?;
        }
        if !config.hold {
            server.release();
        }
        (server.started, server.started_cpu) = (Instant::now(), cpu_time());
        Ok(server)
    }

    fn spawn_worker<S, F>(
        &mut self,
        worker: usize,
        sources: Vec<SocketSource>,
        frames: Option<FrameParts>,
        factory: &Arc<F>,
        ready: &mpsc::Sender<Result<(), Error>>,
    ) -> Result<(), Error>
    where
        S: Service + 'static,
        F: Fn(WorkerId) -> S + Send + Sync + 'static,
    {
        let (fast_path, endpoints) = (self.fast_path.clone(), Arc::clone(&self.endpoints));
        let (factory, shared, stop) = (Arc::clone(factory), Arc::clone(&self.shared), Arc::clone(&self.stop));
        let number = worker;
        self.spawn(worker, "udp", ready, move |ready| {
            let worker = Worker::new(WorkerId(number), factory, shared, sources);
            let Some(frames) = frames else {
                ready.signal();
                return worker.run(stop.as_fd());
            };
            let fast_worker = worker.with_frames(endpoints, frames.parts, frames.neighbours);
            if let Some(fast_path) = fast_path {
                fast_path.add(number, fast_worker.counters());
            }
            ready.signal();
            fast_worker.run(stop.as_fd())
        })
    }

    fn spawn_tcp(
        &mut self,
        worker: usize,
        listeners: Vec<TcpListener>,
        limits: &TcpLimits,
        streams: &Arc<StreamFactory>,
        ready: &mpsc::Sender<Result<(), Error>>,
    ) -> Result<(), Error> {
        let (limits, streams, stop) = (limits.clone(), Arc::clone(streams), Arc::clone(&self.stop));
        let counters = Arc::new(CachePadded::new(TcpCounters::default()));
        self.tcp_counters.push(Arc::clone(&counters));
        let shared = Arc::clone(&self.shared);
        self.spawn(worker, "tcp", ready, move |ready| {
            let dispatch = StreamDispatch::new(WorkerId(worker), streams);
            let worker = TcpWorker::new(listeners, dispatch, counters, limits)?;
            ready.signal();
            if !shared.gate.pass() {
                return Ok(());
            }
            worker.run(stop.as_fd())
        })
    }

    /// Starts a thread of `worker`, pinned if configured. `body` signals when it is ready to serve.
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
                if pinned && let Err(source) = cpus::pin_to(cpu) {
                    // Fails only if the starting thread gave up waiting.
                    let _ = ready.send(Err(Error::Pin { worker, cpu, source }));
                    return Ok(());
                }
                body(Ready(ready))
            })
            .map_err(|source| Error::Resources { operation: "start a thread", source })?;
        self.threads.push((worker, handle));
        Ok(())
    }
}

/// Signals that a thread is ready. Dropped without a signal, it reports that the thread panicked.
struct Ready(mpsc::Sender<Result<(), Error>>);

impl Ready {
    fn signal(self) {
        // Fails only if the starting thread gave up waiting.
        let _ = self.0.send(Ok(()));
    }
}
