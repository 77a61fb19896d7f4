//! Starting on frames: a port per queue, what each worker needs, and the threads beside the workers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use udpath_stack::counters::Snapshot;
use udpath_stack::epoch::{Reader, Table};
use udpath_stack::groups::Groups;
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::xdp::{XdpDevice, XdpPort};
use udpath_stack::steering::Steering;
use udpath_stack::tables::Tables;
use udpath_stack::worker::Parts;
use udpath_steer::CpuSet;
use udpath_steer::flow_limit::FlowLimit;
use udpath_steer::rps::RpsMap;
use udpath_steer::toeplitz::Key;

use super::address_filter::AddressFilter;
use super::arrivals::ArrivalCounter;
use super::devices::Devices;
use super::fast_path::FastPath;
use super::ingress::Ingress;
use super::monitor::{AddressMonitor, InterfaceState};
use super::probe::QueueProbe;
use super::state::{Shared, locals};
use crate::config::{Steer, XdpConfig};
use crate::error::Error;
use crate::status::XdpPortStatus;

/// What a worker needs for its frames.
pub(crate) type FrameParts = Parts<XdpPort, ()>;

/// FrameParts that may wait for one worker from one other, where they are spread: `netdev_max_backlog`, as a power of two.
const BACKLOG_LEN: usize = 1024;
impl Devices {
    /// Opens a port per queue: what each of the workers needs, and what takes what is for `binds` once it is shown that
    /// it comes to them.
    pub(crate) fn start(
        self,
        binds: Vec<SocketAddr>,
        workers: usize,
        config: &XdpConfig,
    ) -> Result<(FastPath, Vec<FrameParts>, QueueProbe), Error> {
        let no = |error: &dyn std::fmt::Display| Error::Xdp(error.to_string());
        let Self { mut devices, named, domain, mirror } = self;
        let tables = mirror.tables();
        let mut reader = domain.register("xdp monitor").map_err(|error| no(&error))?;
        let locals = locals(&mut reader, &tables);
        let sentences = first_ingress(&mut devices, &mut reader, &tables, &binds, &named)?;
        let groups = Groups::new(&binds, locals.iter().copied()).map_err(|error| no(&error))?;
        let groups = Arc::new(Table::new(&domain, groups));
        let (mut ports, mut trials, mut described) = (Vec::new(), Vec::new(), Vec::new());
        for device in &mut devices {
            let of_device = device.ports().map_err(|error| no(&error))?;
            let first = of_device.first().map(|port| device.trial(port)).transpose();
            trials.push(first.map_err(|error| no(&error))?.flatten());
            let steers = config.steer != Steer::Off;
            let hash = steers.then(|| device.rx_hash().to_string());
            described.extend(of_device.iter().map(|port| {
                let answered = port.queue() == 0 && trials.last().is_some_and(Option::is_some);
                XdpPortStatus::of(port, answered, hash.clone())
            }));
            ports.extend(of_device);
        }
        let queue_probe = {
            let guard = reader.pin();
            QueueProbe::new(&devices, trials, &binds, &tables.load(&guard))
        };
        reader.idle();
        let queue_probe = queue_probe?;
        let arrivals = ArrivalCounter::new(ports.iter().map(XdpPort::monitor).collect());
        let most = devices.iter().map(|device| device.config().frames).max().unwrap_or(1);
        let count = u16::try_from(workers).map_err(|error| no(&error))?;
        let all =
            mesh(count, mesh::Config { backlog: BACKLOG_LEN, frames: most }).map_err(|error| no(&error))?;
        let mut ports = ports.into_iter();
        let mut frames = Vec::with_capacity(workers);
        let everyone = CpuSet::first_n(count.into());
        let map = match &config.steer {
            Steer::Off => None,
            Steer::All => RpsMap::new(&everyone, None),
            Steer::To(some) => {
                if let Some(worker) = some.difference(&everyone).first() {
                    return Err(no(&format_args!(
                        "there is no worker {worker} to steer to: there are {count}, from 0 on"
                    )));
                }
                RpsMap::new(some, None)
            }
        };
        for links in all {
            let reader = domain.register(format!("worker {}", links.index())).map_err(|error| no(&error))?;
            let steering = map.clone().map(|map| {
                let steering = Steering::new(Key::microsoft(), Some(map));
                if config.flow_limit {
                    steering.limiting(FlowLimit::new(FlowLimit::DEFAULT_BUCKETS))
                } else {
                    steering
                }
            });
            let groups = Arc::clone(&groups);
            frames.push(Parts { port: ports.next(), handler: (), reader, groups, links, steering });
        }
        let held = devices.iter().map(InterfaceState::of).collect();
        let shared = Arc::new(Shared {
            filter: Mutex::new(AddressFilter::new(devices, binds.clone(), locals.clone())),
            arrivals: Mutex::new(arrivals),
            warnings: Mutex::new(sentences),
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
            held,
        };
        let monitor = thread::Builder::new()
            .name("xdp-monitor".into())
            .spawn(move || monitor.run(&stopped))
            .map_err(|cause| Error::Resources { operation: "start a thread", cause })?;
        let fast_path = FastPath {
            shared,
            ports: described,
            counters: Mutex::new(vec![None; workers]),
            probed: Mutex::new(vec![Snapshot::default(); workers]),
            stop: Some(stop),
            monitor: Some(monitor),
        };
        Ok((fast_path, frames, queue_probe))
    }
}

/// What the programs may take from the start on: what they cannot leave to the kernel, in sentences.
fn first_ingress(
    devices: &mut [XdpDevice],
    reader: &mut Reader,
    tables: &Tables,
    binds: &[SocketAddr],
    named: &[String],
) -> Result<Vec<String>, Error> {
    let all: Vec<_> = {
        let guard = reader.pin();
        let view = tables.load(&guard);
        devices.iter().map(|device| Ingress::of(device, &view, binds, named)).collect()
    };
    reader.idle();
    let mut sentences = Vec::new();
    for (device, ingress) in devices.iter_mut().zip(all) {
        if let Some(why) = ingress.unusable(device) {
            return Err(Error::Xdp(why));
        }
        ingress.apply(device).map_err(Error::Xdp)?;
        sentences.extend(ingress.sentences);
    }
    Ok(sentences)
}
