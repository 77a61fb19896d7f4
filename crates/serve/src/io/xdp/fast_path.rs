//! The interfaces of a server that runs.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use udpath_stack::counters::{Counters, Snapshot};
use udpath_stack::port::xdp::XdpDevice;

use super::state::{Shared, lock};
use super::warnings;
use crate::status::{Arrivals, XdpPortStatus, XdpStatus};
use crate::sys;

/// How long frames may take from the program to a ring where that cannot be waited for. Shorter: the last ones of a CPU that
/// stands still are not counted; longer: stopping takes that long.
const SOFTIRQ_TIMEOUT: Duration = Duration::from_millis(50);

/// The interfaces of a server that runs.
pub(crate) struct FastPath {
    pub(super) shared: Arc<Shared>,
    pub(super) ports: Vec<XdpPortStatus>,
    /// The counters of the workers' frames, by worker, as they become ready.
    pub(super) counters: Mutex<Vec<Option<Counters>>>,
    /// What of them was the probe's.
    pub(super) probed: Mutex<Vec<Snapshot>>,
    pub(super) stop: Option<Sender<()>>,
    pub(super) monitor: Option<JoinHandle<()>>,
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

impl FastPath {
    /// Leaves everything that comes from now on to the kernel. When this returns, what was taken before is in the rings.
    pub(crate) fn stop_receiving(&self) {
        lock(&self.shared.filter).stop();
        if sys::wait_for_softirqs().is_err() {
            // What it would have waited for takes less than that.
            thread::sleep(SOFTIRQ_TIMEOUT);
        }
        lock(&self.shared.arrivals).close();
    }

    /// Adds the counters of a worker.
    pub(crate) fn add(&self, worker: usize, counters: Counters) {
        if let Some(place) = lock(&self.counters).get_mut(worker) {
            *place = Some(counters);
        }
    }

    /// What the workers did with frames, the probe's among them.
    pub(super) fn with_probe(&self) -> FrameCounts {
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
    pub(super) fn forget_probe(&self) {
        *lock(&self.probed) = self.with_probe().by_worker;
        lock(&self.shared.arrivals).forget_probe();
    }

    /// The interfaces' names.
    pub(crate) fn interfaces(&self) -> Vec<String> {
        lock(&self.shared.filter).devices.iter().map(|device| device.name().to_owned()).collect()
    }

    /// The name of a device's queue.
    pub(super) fn name_of(&self, device: usize, queue: u32) -> String {
        let filter = lock(&self.shared.filter);
        format!("{} queue {queue}", filter.devices.get(device).map_or("", XdpDevice::name))
    }

    /// What the fast path did, of which `frames` is the workers' part; and what came to it.
    pub(crate) fn status(&self, frames: &FrameCounts) -> (Option<XdpStatus>, Arrivals) {
        let arrivals = self.shared.arrivals();
        let mut outcomes = Vec::new();
        for device in &lock(&self.shared.filter).devices {
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
        let mut all = lock(&self.shared.warnings).clone();
        all.extend(warnings::losses(&self.ports, arrivals));
        all
    }
}

impl Drop for FastPath {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(monitor) = self.monitor.take() {
            // It has nothing to say when it panicked: its message is on stderr.
            let _ = monitor.join();
        }
    }
}
