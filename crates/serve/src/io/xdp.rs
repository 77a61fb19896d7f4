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
mod ingress;
mod intake;
mod keeper;
mod proof;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use udpath_stack::counters::{Counters, Snapshot};
use udpath_stack::epoch::{Domain, Reader, Table};
use udpath_stack::groups::Groups;
use udpath_stack::mesh::{self, mesh};
use udpath_stack::port::Checksums;
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
use crate::status::{Arrivals, XdpPortStatus, XdpStatus};
use crate::sys;

pub(crate) use proof::Proof;

use doors::Doors;
use ingress::Ingress;
use intake::Intake;
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
    /// Interfaces that were asked for, VLAN devices among them.
    named: Vec<String>,
    domain: Domain,
    mirror: Mirror,
}

/// The interfaces of a server that runs.
pub(crate) struct Fast {
    shared: Arc<Shared>,
    ports: Vec<XdpPortStatus>,
    /// The counters of the workers' frames, by worker, as they become ready.
    counters: Mutex<Vec<Option<Counters>>>,
    /// What of them was the probe's.
    probed: Mutex<Vec<Snapshot>>,
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

struct Shared {
    doors: Mutex<Doors>,
    intake: Mutex<Intake>,
    warnings: Mutex<Vec<String>>,
}

impl Shared {
    /// What came to the ports so far.
    fn arrivals(&self) -> Arrivals {
        lock(&self.intake).look(|| lock(&self.doors).taken())
    }
}

/// What workers did with frames.
pub(crate) struct FrameCounts {
    /// By worker.
    pub(crate) by_worker: Vec<Snapshot>,
    /// All of them together.
    pub(crate) total: Snapshot,
}

impl FrameCounts {
    fn of(by_worker: Vec<Snapshot>) -> Self {
        let mut total = Snapshot::default();
        by_worker.iter().for_each(|worker| total.add(worker));
        Self { by_worker, total }
    }
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
        for name in below_vlans(names, &domain, &mirror.tables())? {
            let mut port = config.port.clone();
            if port.checksums == Checksums::Unverified && is_virtual(&name) {
                port.checksums = Checksums::Partial;
            }
            // Without steering nobody looks at it.
            port.rx_hash |= config.steer != Steer::Off;
            devices.push(XdpDevice::open(&name, port).map_err(|error| no(&error))?);
        }
        Ok(Self { devices, named: config.interfaces.clone(), domain, mirror })
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
        let Self { mut devices, named, domain, mirror } = self;
        let tables = mirror.tables();
        let mut reader = domain.register("xdp keeper").map_err(|error| no(&error))?;
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
        let proof = {
            let guard = reader.pin();
            Proof::new(&devices, trials, &binds, &tables.load(&guard))
        };
        reader.idle();
        let proof = proof?;
        let intake = Intake::new(ports.iter().map(XdpPort::monitor).collect());
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
            intake: Mutex::new(intake),
            warnings: Mutex::new(sentences),
        });
        let (stop, stopped) = mpsc::channel();
        let keeper = Keeper {
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
        let keeper = thread::Builder::new()
            .name("xdp-keeper".into())
            .spawn(move || keeper.run(&stopped))
            .map_err(|cause| Error::Resources { operation: "start a thread", cause })?;
        let fast = Fast {
            shared,
            ports: described,
            counters: Mutex::new(vec![None; workers]),
            probed: Mutex::new(vec![Snapshot::default(); workers]),
            stop: Some(stop),
            keeper: Some(keeper),
        };
        Ok((fast, frames, proof))
    }
}

/// How long frames may take from the program to a ring where that cannot be waited for. Shorter: the last ones of a CPU that
/// stands still are not counted; longer: stopping takes that long.
const SOFTIRQS: Duration = Duration::from_millis(50);

/// Most queues that workers can be made for: as many readers of the tables there may be. More than any NIC has.
const MOST_QUEUES: usize = 1024;

impl Fast {
    /// Leaves everything that comes from now on to the kernel. When this returns, what was taken before is in the rings.
    pub(crate) fn close_door(&self) {
        lock(&self.shared.doors).close();
        if sys::wait_for_softirqs().is_err() {
            // What it would have waited for takes less than that.
            thread::sleep(SOFTIRQS);
        }
        lock(&self.shared.intake).close();
    }

    /// Adds the counters of a worker.
    pub(crate) fn add(&self, worker: usize, counters: Counters) {
        if let Some(place) = lock(&self.counters).get_mut(worker) {
            *place = Some(counters);
        }
    }

    /// What the workers did with frames, the probe's among them.
    fn with_probe(&self) -> FrameCounts {
        let snapshot = |counters: &Option<Counters>| counters.as_ref().map(Counters::snapshot);
        FrameCounts::of(lock(&self.counters).iter().map(|of| snapshot(of).unwrap_or_default()).collect())
    }

    /// What the workers did with frames.
    pub(crate) fn frames(&self) -> FrameCounts {
        let mut by_worker = self.with_probe().by_worker;
        for (frames, probed) in by_worker.iter_mut().zip(&*lock(&self.probed)) {
            frames.subtract(probed);
        }
        FrameCounts::of(by_worker)
    }

    /// All that came so far was the probe's.
    fn forget_probe(&self) {
        *lock(&self.probed) = self.with_probe().by_worker;
        lock(&self.shared.intake).forget_probe();
    }

    /// The interfaces' names.
    pub(crate) fn interfaces(&self) -> Vec<String> {
        lock(&self.shared.doors).devices.iter().map(|device| device.name().to_owned()).collect()
    }

    /// The name of a device's queue.
    fn name_of(&self, device: usize, queue: u32) -> String {
        let doors = lock(&self.shared.doors);
        format!("{} queue {queue}", doors.devices.get(device).map_or("", XdpDevice::name))
    }

    /// What the fast path did, of which `frames` is the workers' part; and what came to it.
    pub(crate) fn status(&self, frames: &FrameCounts) -> (Option<XdpStatus>, Arrivals) {
        let arrivals = self.shared.arrivals();
        let mut outcomes = Vec::new();
        for device in &lock(&self.shared.doors).devices {
            for (outcome, count) in device.outcomes().iter() {
                match outcomes.iter_mut().find(|(name, _)| *name == outcome.name()) {
                    Some((_, sum)) => *sum += count,
                    None => outcomes.push((outcome.name(), count)),
                }
            }
        }
        (Some(XdpStatus::new(self.ports.clone(), &frames.total, &arrivals, outcomes)), arrivals)
    }

    /// What is wrong, in whole sentences; losses from the first frame on.
    pub(crate) fn warnings(&self, arrivals: &Arrivals) -> Vec<String> {
        let mut warnings = lock(&self.shared.warnings).clone();
        for (worker, (port, received)) in self.ports.iter().zip(&arrivals.received).enumerate() {
            let name = &port.name;
            let slow = format!(
                "worker {worker} is too slow or gets too little CPU time; spread frames over more workers (--steer), use \
                 more queues, or free its CPU"
            );
            if received.ring_full > 0 {
                warnings.push(format!(
                    "{name}: frames are dropped because the receive ring is full (receive_ring_full): {slow}"
                ));
            }
            if received.no_frame > 0 {
                warnings.push(format!(
                    "{name}: frames are dropped because the fill ring is empty (fill_ring_empty): {slow}"
                ));
            }
            if received.fill_ring_empty > received.no_frame {
                warnings.push(format!(
                    "{name}: the driver finds the fill ring empty, and drops frames then (`ethtool -S`): {slow}"
                ));
            }
            if received.invalid + received.transmit_invalid > 0 {
                warnings.push(format!(
                    "{name}: frames are dropped for invalid descriptors in its rings: a defect; please report it"
                ));
            }
        }
        if arrivals.redirect_failed > 0 {
            warnings.push(
                "frames are dropped between the program and the queues' sockets (redirect_failed): an interface or its \
                 queues changed; restart the server"
                    .into(),
            );
        }
        warnings
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

/// Is this address served by this bind?
fn serves(bind: &SocketAddr, ip: IpAddr) -> bool {
    bind.ip() == ip || bind.ip().is_unspecified() && ip.is_ipv4() == bind.is_ipv4()
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

/// The same interfaces, with VLAN devices replaced by what they are VLANs of, which has the queues. Its program takes
/// their tags.
fn below_vlans(names: Vec<String>, domain: &Domain, tables: &Tables) -> Result<BTreeSet<String>, Error> {
    let mut reader = domain.register("xdp opener").map_err(|error| Error::Xdp(error.to_string()))?;
    let guard = reader.pin();
    let view = tables.load(&guard);
    let below = |name: String| {
        let vlan = view.interfaces.by_name(&name).and_then(|interface| interface.vlan);
        let lower = vlan.and_then(|vlan| view.interfaces.get(vlan.lower));
        lower.map_or(name, |lower| lower.name.clone())
    };
    Ok(names.into_iter().map(below).collect())
}

/// The interfaces that have the addresses served.
fn interfaces_of(binds: &[SocketAddr], domain: &Domain, tables: &Tables) -> Result<Vec<String>, Error> {
    let mut reader = domain.register("xdp opener").map_err(|error| Error::Xdp(error.to_string()))?;
    let guard = reader.pin();
    let view = tables.load(&guard);
    let mut found = BTreeSet::new();
    for bind in binds {
        let before = found.len();
        let mut loopback = false;
        for local in view.addresses.all().iter().filter(|local| serves(bind, local.address)) {
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

/// An interface without a device of its own: a local sender at its other end, or on the same bridge, leaves UDP checksums
/// for a device to fill in (`CHECKSUM_PARTIAL`). The kernel takes those unverified as well; all others are verified.
fn is_virtual(interface: &str) -> bool {
    !std::path::Path::new("/sys/class/net").join(interface).join("device").exists()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
