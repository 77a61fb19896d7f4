//! How a worker ends: with nothing left of its own, and of others that it had.
//!
//! ```text
//! serving ─ its port is empty ─▸ hands over no more ─ nobody does, its backlogs are empty ─▸ serves no more
//!         ─ nobody does, what came home is sent ─▸ done
//! ```

use std::time::{Duration, Instant};

use super::Worker;
use crate::handler::Handler;
use crate::port::Port;

/// How long the device may take for what is left to be sent. Less: replies are given up that a queue which is full for a moment
/// would have taken; more: a server whose link is down ends later.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How far a worker is with its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Serving,
    /// It hands over no more.
    Closing,
    /// It serves no more. The device has until then.
    Sending(Instant),
    Done,
}

/// What a turn towards the end came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Frames moved: the next turn may find more.
    Moved,
    /// Nothing moved, and other workers or the device are not done yet: call again in a moment.
    Waits,
    /// Nothing is left.
    Done,
}

impl<P: Port, H: Handler> Worker<P, H> {
    /// A turn towards the end, in place of [`turn`](Self::turn) once nothing more is directed to the ports. All workers of the
    /// mesh have to make such turns, until each is done; one that is dropped counts as done. Replies that the device does
    /// not take within a second are given up, and count as dropped.
    pub fn finish(&mut self) -> Progress {
        // Before the turn: what was handed over before is found by it.
        let shutdown = &self.datapath.rings.shutdown;
        let (handing_over, serving) = (shutdown.is_handing_over(), shutdown.is_serving());
        if self.poll() > 0 {
            return Progress::Moved;
        }
        match self.stage {
            Stage::Serving => {
                // What still comes is served here.
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
    /// Counts what the device has not taken as lost.
    fn give_up(&mut self) {
        if let Some(port) = &mut self.port {
            port.abandon();
            self.account_completions();
            self.counters.publish(&mut self.dispatch.tally);
        }
    }
}
