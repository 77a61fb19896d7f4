//! The fast path of a running server: its interfaces, what they counted, and how they stop.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use udpath_stack::counters::{Counters, Snapshot};
use udpath_stack::port::xdp::XdpDevice;

use super::state::{FastPathState, lock};
use super::warnings;
use crate::status::{Arrivals, XdpPortStatus, XdpStatus};
use crate::sys;

/// How long to let frames pass from the program to a ring where the kernel cannot wait for softirqs. Shorter: the last
/// frames of a stalled CPU are not counted; longer: stopping takes that long.
const SOFTIRQ_TIMEOUT: Duration = Duration::from_millis(50);

/// See the module.
pub(crate) struct FastPath {
    pub(super) shared: Arc<FastPathState>,
    pub(super) ports: Vec<XdpPortStatus>,
    /// The frame counters of each worker that is ready.
    pub(super) counters: Mutex<Vec<Option<Counters>>>,
    /// By worker: what the probe counted.
    pub(super) probed: Mutex<Vec<Snapshot>>,
    /// Dropped to end the monitor.
    pub(super) stop: Option<Sender<()>>,
    pub(super) monitor: Option<JoinHandle<()>>,
}

/// Frame counters of the workers.
pub(crate) struct FrameCounts {
    /// By worker.
    pub(crate) by_worker: Vec<Snapshot>,
    /// Their sum.
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
    /// Leaves all further datagrams to the kernel. On return, frames taken before are in the rings.
    pub(crate) fn stop_receiving(&self) {
        lock(&self.shared.filter).stop();
        if sys::wait_for_softirqs().is_err() {
            // Softirqs end sooner than that.
            thread::sleep(SOFTIRQ_TIMEOUT);
        }
        lock(&self.shared.arrivals).close();
    }

    /// Adds the counters of a worker that is ready.
    pub(crate) fn add(&self, worker: usize, counters: Counters) {
        if let Some(place) = lock(&self.counters).get_mut(worker) {
            *place = Some(counters);
        }
    }

    /// The frame counters, including the probe's frames.
    pub(super) fn with_probe(&self) -> FrameCounts {
        let snapshot = |counters: &Option<Counters>| counters.as_ref().map(Counters::snapshot);
        FrameCounts::of(lock(&self.counters).iter().map(|of| snapshot(of).unwrap_or_default()).collect())
    }

    /// The frame counters, without the probe's frames.
    pub(crate) fn frames(&self) -> FrameCounts {
        let mut by_worker = self.with_probe().by_worker;
        for (frames, probed) in by_worker.iter_mut().zip(&*lock(&self.probed)) {
            frames.subtract(probed);
        }
        FrameCounts::of(by_worker)
    }

    /// Declares all frames so far to be the probe's.
    pub(super) fn forget_probe(&self) {
        *lock(&self.probed) = self.with_probe().by_worker;
        lock(&self.shared.arrivals).forget_probe();
    }

    /// The names of the interfaces.
    pub(crate) fn interfaces(&self) -> Vec<String> {
        lock(&self.shared.filter).devices.iter().map(|device| device.name().to_owned()).collect()
    }

    /// The name of a queue, for messages.
    pub(super) fn name_of(&self, device: usize, queue: u32) -> String {
        let filter = lock(&self.shared.filter);
        format!("{} queue {queue}", filter.devices.get(device).map_or("", XdpDevice::name))
    }

    /// The status of the fast path, with the workers' counters in `frames`; and what arrived.
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

    /// Warnings, in whole sentences. Losses are reported from the first frame on.
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
            // If it panicked, its message is on stderr.
            let _ = monitor.join();
        }
    }
}
