//! How a worker shuts down: with no frame left of its own, nor of others'.
//!
//! ```text
//! serving ─ its port is empty ─▸ stops handing over ─ all have, its backlogs are empty ─▸ stops serving
//!         ─ all have, returned replies are sent ─▸ done
//! ```

use std::time::{Duration, Instant};

use super::Worker;
use crate::handler::Handler;
use crate::port::Port;

/// How long the device may take for frames that are still to be sent. Less: replies are given up that a queue which
/// is full for a moment would have accepted. More: a server whose link is down stops later.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How far a worker is with its shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Serving,
    /// It no longer hands frames over.
    Closing,
    /// It no longer serves. The device has until then to send.
    Sending(Instant),
    Done,
}

/// The result of one shutdown poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Frames moved: the next poll may find more.
    Moved,
    /// Nothing moved, but other workers or the device have not finished: call again in a moment.
    Waits,
    /// Finished: no frames are left.
    Done,
}

impl<P: Port, H: Handler> Worker<P, H> {
    /// A poll of the shutdown, in place of [`poll`](Self::poll), once no more packets are directed to the ports. All
    /// workers of the mesh must call it until each is done; a worker that is dropped counts as done. Replies that the
    /// device does not accept within a second are given up, and count as dropped.
    pub fn finish(&mut self) -> Progress {
        // Before the poll, so that the poll finds everything that was handed over.
        let shutdown = &self.datapath.rings.shutdown;
        let (handing_over, serving) = (shutdown.is_handing_over(), shutdown.is_serving());
        if self.poll() > 0 {
            return Progress::Moved;
        }
        match self.stage {
            Stage::Serving => {
                // Frames that still arrive are served here.
                self.datapath.steering = None;
                self.datapath.rings.shutdown.stop_handing_over();
                self.stage = Stage::Closing;
                Progress::Waits
            }
            Stage::Closing if !handing_over => {
                self.datapath.rings.shutdown.stop_serving();
                self.stage = Stage::Sending(Instant::now() + DRAIN_TIMEOUT);
                Progress::Waits
            }
            Stage::Sending(until) if !serving && (!self.is_sending() || Instant::now() >= until) => {
                self.datapath.give_up();
                self.stage = Stage::Done;
                Progress::Done
            }
            Stage::Closing | Stage::Sending(_) => Progress::Waits,
            Stage::Done => Progress::Done,
        }
    }

    fn is_sending(&self) -> bool {
        self.datapath.port.as_ref().is_some_and(Port::is_sending)
    }
}

impl<P: Port, H: Handler> super::Datapath<P, H> {
    /// Counts frames that the device has not accepted as lost.
    fn give_up(&mut self) {
        if let Some(port) = &mut self.port {
            port.abandon();
            self.account_completions();
            self.counters.publish(&mut self.dispatch.tally);
        }
    }
}
