//! Starting on frames: a port per queue, the parts of each worker, and the address monitor.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use udpath_stack::counters::Snapshot;
use udpath_stack::epoch::{Domain, Reader, Table};
use udpath_stack::groups::Groups;
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::xdp::{Probe, XdpDevice, XdpPort};
use udpath_stack::steering::Steering;
use udpath_stack::tables::Tables;
use udpath_stack::worker::{NeighbourCheck, Parts};
use udpath_steer::CpuSet;
use udpath_steer::flow_limit::FlowLimit;
use udpath_steer::rps::RpsMap;
use udpath_steer::toeplitz::Key;

use super::address_filter::AddressFilter;
use super::arrivals::ArrivalCounter;
use super::devices::Devices;
use super::error::XdpError;
use super::fast_path::FastPath;
use super::ingress::Ingress;
use super::monitor::{AddressMonitor, InterfaceState};
use super::probe::QueueProbe;
use super::state::{FastPathState, locals};
use crate::config::{CheckNeighbours, Steer, XdpConfig};
use crate::error::Error;
use crate::status::XdpPortStatus;

/// What a worker needs for its frames.
pub(crate) struct FrameParts {
    pub(crate) parts: Parts<XdpPort, ()>,
    /// Where replies may go, if that is checked.
    pub(crate) neighbours: Option<NeighbourCheck>,
}

/// Frames that may wait for one worker from each other worker when they are steered: `netdev_max_backlog` rounded to a
/// power of two.
const BACKLOG_LEN: usize = 1024;

/// The ports of all queues, by queue.
#[derive(Default)]
struct Ports {
    ports: Vec<XdpPort>,
    /// By port: the index of its interface.
    interfaces: Vec<u32>,
    statuses: Vec<XdpPortStatus>,
    /// By device.
    trials: Vec<Option<Probe>>,
}

impl Devices {
    /// Opens a port per queue. Returns the fast path, the parts of each worker, and the probe to run once the workers
    /// are up: it makes the programs take datagrams for `binds`.
    pub(crate) fn start(
        self,
        binds: Vec<SocketAddr>,
        workers: usize,
        config: &XdpConfig,
    ) -> Result<(FastPath, Vec<FrameParts>, QueueProbe), Error> {
        let Self { mut devices, named, domain, mirror } = self;
        let tables = mirror.tables();
        let mut reader = domain.register("xdp monitor").map_err(XdpError::from)?;
        let locals = locals(&mut reader, &tables);
        let warnings = first_ingress(&mut devices, &mut reader, &tables, &binds, &named)?;
        let groups = Groups::new(&binds, locals.iter().copied()).map_err(XdpError::Groups)?;
        let groups = Arc::new(Table::new(&domain, groups));
        let Ports { ports, interfaces, statuses, trials } =
            open_ports(&mut devices, config.steer != Steer::Off)?;
        let probe = {
            let guard = reader.pin();
            QueueProbe::new(&devices, trials, &binds, &tables.load(&guard))
        };
        reader.idle();
        let probe = probe?;
        let arrivals = ArrivalCounter::new(ports.iter().map(XdpPort::monitor).collect());
        let frames = devices.iter().map(|device| device.config().frames).max().unwrap_or(1);
        let parts = worker_parts(ports, frames, workers, config, &groups, &domain)?;
        let check = config.check_neighbours == CheckNeighbours::On;
        let neighbours = check.then(|| NeighbourCheck::new(Arc::clone(&tables), interfaces.into()));
        let of_worker = |parts| FrameParts { parts, neighbours: neighbours.clone() };
        let parts = parts.into_iter().map(of_worker).collect();
        let opened_with = devices.iter().map(InterfaceState::of).collect();
        let shared = Arc::new(FastPathState {
            filter: Mutex::new(AddressFilter::new(devices, binds.clone(), locals.clone())),
            arrivals: Mutex::new(arrivals),
            warnings: Mutex::new(warnings),
        });
        let (stop, stopped) = mpsc::channel();
        let monitor = AddressMonitor {
            shared: Arc::clone(&shared),
            groups,
            reader,
            mirror,
            tables,
            locals,
            binds,
            named,
            opened_with,
        };
        let monitor = thread::Builder::new()
            .name("xdp-monitor".into())
            .spawn(move || monitor.run(&stopped))
            .map_err(|source| Error::Resources { operation: "start a thread", source })?;
        let fast_path = FastPath {
            shared,
            ports: statuses,
            counters: Mutex::new(vec![None; workers]),
            probed: Mutex::new(vec![Snapshot::default(); workers]),
            stop: Some(stop),
            monitor: Some(monitor),
        };
        Ok((fast_path, parts, probe))
    }
}

/// Opens a port per queue, and a trial for the first queue of each device where the kernel can inject frames.
fn open_ports(devices: &mut [XdpDevice], steers: bool) -> Result<Ports, XdpError> {
    let mut all = Ports::default();
    for device in devices {
        let name = device.name().to_owned();
        let ports = device.ports().map_err(XdpError::on("open the queues of", &name))?;
        let trial = ports.first().map(|port| device.probe(port)).transpose();
        let trial = trial.map_err(XdpError::on("load the probe program for", &name))?.flatten();
        let hash = steers.then(|| device.rx_hash().to_string());
        all.statuses.extend(ports.iter().map(|port| {
            let answered = port.queue() == 0 && trial.is_some();
            XdpPortStatus::of(port, answered, hash.clone())
        }));
        all.trials.push(trial);
        all.interfaces.extend(ports.iter().map(|_| device.index()));
        all.ports.extend(ports);
    }
    Ok(all)
}

/// The parts of each worker: the first workers have a port each. `frames`: the most frames of any port.
fn worker_parts(
    ports: Vec<XdpPort>,
    frames: usize,
    workers: usize,
    config: &XdpConfig,
    groups: &Arc<Table<Groups>>,
    domain: &Domain,
) -> Result<Vec<Parts<XdpPort, ()>>, XdpError> {
    let count = u16::try_from(workers).map_err(|_too_many| XdpError::TooManyWorkers(workers))?;
    let map = steering_map(&config.steer, count)?;
    let rings = mesh(count, mesh::Config { backlog: BACKLOG_LEN, frames })
        .map_err(|source| XdpError::Mesh { workers, source })?;
    let mut ports = ports.into_iter();
    let mut parts = Vec::with_capacity(workers);
    for rings in rings {
        let reader = domain.register(format!("worker {}", rings.index()))?;
        let steering = map.clone().map(|map| {
            let steering = Steering::new(Key::microsoft(), Some(map));
            if config.flow_limit {
                steering.limiting(FlowLimit::new(FlowLimit::DEFAULT_BUCKETS))
            } else {
                steering
            }
        });
        let groups = Arc::clone(groups);
        parts.push(Parts { port: ports.next(), handler: (), reader, groups, rings, steering });
    }
    Ok(parts)
}

/// The workers that frames are steered to, if they are.
fn steering_map(steer: &Steer, workers: u16) -> Result<Option<RpsMap>, XdpError> {
    let all = CpuSet::first_n(workers.into());
    let targets = match steer {
        Steer::Off => return Ok(None),
        Steer::All => &all,
        Steer::To(listed) => listed,
    };
    match targets.difference(&all).first() {
        Some(worker) => Err(XdpError::NoSuchWorker { worker, workers }),
        None => Ok(RpsMap::new(targets, None)),
    }
}

/// Sets what the programs may take from the start on. Returns warnings about what they cannot leave to the kernel.
fn first_ingress(
    devices: &mut [XdpDevice],
    reader: &mut Reader,
    tables: &Tables,
    binds: &[SocketAddr],
    named: &[String],
) -> Result<Vec<String>, XdpError> {
    let all: Vec<_> = {
        let guard = reader.pin();
        let view = tables.load(&guard);
        devices.iter().map(|device| Ingress::of(device, &view, binds, named)).collect()
    };
    reader.idle();
    let mut warnings = Vec::new();
    for (device, ingress) in devices.iter_mut().zip(all) {
        if let Some(error) = ingress.unusable(device) {
            return Err(error);
        }
        ingress.apply(device)?;
        warnings.extend(ingress.warnings);
    }
    Ok(warnings)
}
