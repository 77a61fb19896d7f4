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

use super::{Server, open};
use crate::config::Config;
use crate::cpus;
use crate::dispatch::{StreamDispatch, StreamFactory};
use crate::error::{Error, Rejected};
use crate::io::{Devices, Frames, Io, IoChoice, KernelPort, Plan};
use crate::lane::{Lane, Lanes};
use crate::probe::{Prober, Probing, target_of};
use crate::service::{Service, WorkerId};
use crate::shared::{BroadcastPolicy, Shared};
use crate::tcp::{Meter, TcpWorker};
use crate::worker::{LaneSide, Worker};

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
}

/// A thread's word that it is ready. Lost without being said, it tells the starter that the thread panicked.
struct Ready(mpsc::Sender<Result<(), Error>>);

impl Ready {
    fn say(self) {
        // A starter that gave up waiting has no use for the news.
        let _ = self.0.send(Ok(()));
    }
}
