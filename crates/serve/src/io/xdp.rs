//! `xdp`: frames off the device's queues, past the kernel's stack. The datapath is [`udpath_stack`]; here is what makes a
//! server of it.
//!
//! ```text
//!  interface ─ take.bpf ─┬▸ queue 0: AF_XDP ─▸ worker 0 ─▸ Service      datagrams for our addresses and ports
//!                        ├▸ queue 1: AF_XDP ─▸ worker 1 ─▸ Service
//!                        └▸ kernel ─▸ reuseport sockets ─▸ the same workers      everything else of ours: fragments,
//!                                                                                options, extension headers
//!  Keeper: follows the interfaces and addresses, and says what changed
//! ```
//! Frames of a queue that came up later have no socket, and go to the kernel; the worker of one that is gone has its kernel
//! sockets left. So a changed number of queues loses what is under way in the device, and nothing after that.
//!
//! A queue has one worker. Workers beyond the queues serve kernel sockets, and frames of others if those are spread.

mod doors;
mod keeper;
mod proof;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use udpath_stack::counters::{Counters, Snapshot};
use udpath_stack::epoch::{Domain, Reader, Table};
use udpath_stack::groups::Groups;
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::xdp::{XdpDevice, XdpPort};
use udpath_stack::steering::Steering;
use udpath_stack::tables::{Mirror, Tables};
use udpath_stack::worker::Parts;
use udpath_steer::CpuSet;
use udpath_steer::flow_limit::FlowLimit;
use udpath_steer::rps::RpsMap;
use udpath_steer::toeplitz::Key;

use crate::config::{Steer, XdpConfig};
use crate::error::Error;
use crate::status::{XdpPortStatus, XdpStatus};

pub(crate) use proof::Proof;

use doors::Doors;
use keeper::{Held, Keeper};

/// What a worker needs for its frames.
pub(crate) type Frames = Parts<XdpPort, ()>;

/// Frames that may wait for one worker from one other, where they are spread: `netdev_max_backlog`, as a power of two.
const BACKLOG: usize = 1024;
/// Readers beside the workers: the keeper, and the one that opens.
const OTHER_READERS: usize = 2;
/// Tables that may wait for a reader that is slow: each change of an address makes one.
const RETIRED: usize = 64;

/// The interfaces of a server, with the program attached and nothing taken yet.
pub(crate) struct Devices {
    devices: Vec<XdpDevice>,
    domain: Domain,
    mirror: Mirror,
}

/// The interfaces of a server that runs.
pub(crate) struct Fast {
    shared: Arc<Shared>,
    ports: Vec<XdpPortStatus>,
    /// The counters of the workers' frames, as they become ready.
    counters: Mutex<Vec<Counters>>,
    /// What of them was the probe's.
    probed: Mutex<Snapshot>,
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

struct Shared {
    doors: Mutex<Doors>,
    warnings: Mutex<Vec<String>>,
}

impl Devices {
    /// Finds the interfaces and attaches the program to each, for `workers` and as many more as the queues take.
    pub(crate) fn open(binds: &[SocketAddr], config: &XdpConfig, workers: usize) -> Result<Self, Error> {
        let no = |error: &dyn std::fmt::Display| Error::Xdp(error.to_string());
        // Room for workers: each queue may need one.
        let readers = workers.max(MOST_QUEUES) + OTHER_READERS;
        let domain = Domain::new(readers, RETIRED);
        let mirror = Mirror::start(&domain).map_err(|error| no(&error))?;
        let names = match config.interfaces.as_slice() {
            [] => interfaces_of(binds, &domain, &mirror.tables())?,
            named => named.to_vec(),
        };
        let mut devices = Vec::with_capacity(names.len());
        for name in names {
            let mut port = config.port.clone();
            port.checksums_verified |= is_virtual(&name);
            // Without steering nobody looks at it.
            port.rx_hash |= config.steer != Steer::Off;
            devices.push(XdpDevice::open(&name, port).map_err(|error| no(&error))?);
        }
        Ok(Self { devices, domain, mirror })
    }

    /// Receive queues of all of them: as many workers are needed at least.
    pub(crate) fn queues(&self) -> usize {
        self.devices.iter().map(|device| device.queues() as usize).sum()
    }

    /// The interfaces, for sentences.
    pub(crate) fn names(&self) -> String {
        self.devices.iter().map(XdpDevice::name).collect::<Vec<_>>().join(", ")
    }

    /// Opens a port per queue: what each of the workers needs, and what takes what is for `binds` once it is shown that
    /// it comes to them.
    pub(crate) fn start(
        self,
        binds: Vec<SocketAddr>,
        workers: usize,
        config: &XdpConfig,
    ) -> Result<(Fast, Vec<Frames>, Proof), Error> {
        let no = |error: &dyn std::fmt::Display| Error::Xdp(error.to_string());
        let Self { mut devices, domain, mirror } = self;
        let tables = mirror.tables();
        let mut reader = domain.register("xdp keeper").map_err(|error| no(&error))?;
        let locals = locals(&mut reader, &tables);
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
        let proof = {
            let guard = reader.pin();
            Proof::new(&devices, trials, &binds, &tables.load(&guard))
        };
        reader.idle();
        let proof = proof?;
        let most = devices.iter().map(|device| device.config().frames).max().unwrap_or(1);
        let count = u16::try_from(workers).map_err(|error| no(&error))?;
        let all = mesh(count, mesh::Config { backlog: BACKLOG, frames: most }).map_err(|error| no(&error))?;
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
        let held = devices.iter().map(Held::of).collect();
        let shared = Arc::new(Shared {
            doors: Mutex::new(Doors::new(devices, binds.clone(), locals.clone())),
            warnings: Mutex::default(),
        });
        let (stop, stopped) = mpsc::channel();
        let keeper =
            Keeper { shared: Arc::clone(&shared), groups, reader, mirror, tables, locals, binds, held };
        let keeper = thread::Builder::new()
            .name("xdp-keeper".into())
            .spawn(move || keeper.run(&stopped))
            .map_err(|cause| Error::Resources { operation: "start a thread", cause })?;
        let fast = Fast {
            shared,
            ports: described,
            counters: Mutex::default(),
            probed: Mutex::default(),
            stop: Some(stop),
            keeper: Some(keeper),
        };
        Ok((fast, frames, proof))
    }
}

/// Most queues that workers can be made for: as many readers of the tables there may be. More than any NIC has.
const MOST_QUEUES: usize = 1024;

impl Fast {
    /// Leaves everything that comes from now on to the kernel.
    pub(crate) fn close_door(&self) {
        lock(&self.shared.doors).close();
    }

    /// Adds the counters of a worker.
    pub(crate) fn add(&self, counters: Counters) {
        lock(&self.counters).push(counters);
    }

    /// What the workers did with frames, the probe's among them.
    fn frames(&self) -> Snapshot {
        let mut frames = Snapshot::default();
        lock(&self.counters).iter().for_each(|counters| frames.add(&counters.snapshot()));
        frames
    }

    /// All that came so far was the probe's.
    fn forget_probe(&self) {
        *lock(&self.probed) = self.frames();
    }

    /// The name of a device's queue.
    fn name_of(&self, device: usize, queue: u32) -> String {
        let doors = lock(&self.shared.doors);
        format!("{} queue {queue}", doors.devices.get(device).map_or("", XdpDevice::name))
    }

    /// What the fast path did.
    pub(crate) fn status(&self) -> XdpStatus {
        let mut frames = self.frames();
        frames.subtract(&lock(&self.probed));
        let mut outcomes = Vec::new();
        for device in &lock(&self.shared.doors).devices {
            for (outcome, count) in device.outcomes().iter() {
                match outcomes.iter_mut().find(|(name, _)| *name == outcome.name()) {
                    Some((_, sum)) => *sum += count,
                    None => outcomes.push((outcome.name(), count)),
                }
            }
        }
        XdpStatus::new(self.ports.clone(), &frames, outcomes)
    }

    /// What is wrong, in whole sentences.
    pub(crate) fn warnings(&self) -> Vec<String> {
        lock(&self.shared.warnings).clone()
    }
}

impl Drop for Fast {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            // It has nothing to say when it panicked: its message is on stderr.
            let _ = keeper.join();
        }
    }
}

/// This host's addresses.
fn locals(reader: &mut Reader, tables: &Tables) -> BTreeSet<IpAddr> {
    let all = {
        let guard = reader.pin();
        let view = tables.load(&guard);
        view.addresses.all().iter().filter(|local| local.usable).map(|local| local.address).collect()
    };
    reader.idle();
    all
}

/// The interfaces that have the addresses served.
fn interfaces_of(binds: &[SocketAddr], domain: &Domain, tables: &Tables) -> Result<Vec<String>, Error> {
    let mut reader = domain.register("xdp opener").map_err(|error| Error::Xdp(error.to_string()))?;
    let guard = reader.pin();
    let view = tables.load(&guard);
    let mut found = BTreeSet::new();
    for bind in binds {
        let before = found.len();
        let served =
            |ip: IpAddr| bind.ip() == ip || bind.ip().is_unspecified() && ip.is_ipv4() == bind.is_ipv4();
        let mut loopback = false;
        for local in view.addresses.all().iter().filter(|local| served(local.address)) {
            match view.interfaces.get(local.interface) {
                // Only what has a MAC address has frames.
                Some(interface) if interface.mac.is_some() && !local.address.is_loopback() => {
                    found.insert(interface.name.clone());
                }
                _ => loopback = true,
            }
        }
        if found.len() == before && loopback && !bind.ip().is_unspecified() {
            return Err(Error::Xdp(format!(
                "{} is no address of a network device; serve one, or use reuseport",
                bind.ip()
            )));
        }
    }
    if found.is_empty() {
        return Err(Error::Xdp(
            "no network device has an address that is served; name one with --interface".into(),
        ));
    }
    Ok(found.into_iter().collect())
}

/// A device without hardware behind it: its neighbour is a local sender whose checksums were left for a device to fill in
/// (`CHECKSUM_PARTIAL`), and nothing in between can damage a frame. The kernel does not check them either.
fn is_virtual(interface: &str) -> bool {
    !std::path::Path::new("/sys/class/net").join(interface).join("device").exists()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
