//! One worker: a thread with its own service instance, which serves kernel sockets and, over `xdp`, frames.

mod frames;
mod runner;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::dispatch::Dispatch;
use crate::io::KernelPort;
use crate::lane::Lanes;
use crate::service::{Service, WorkerId};
use crate::shared::Shared;

pub(crate) use frames::FrameWorker;
pub(crate) use runner::LaneSide;

use runner::ServiceRunner;

/// One thread's part of the server.
pub(crate) struct Worker<S, F> {
    runner: ServiceRunner<S, F>,
    sides: Vec<LaneSide>,
}

impl<S: Service, F: Fn(WorkerId) -> S> Worker<S, F> {
    /// A worker for these sockets. Makes its service instance, on the calling thread.
    pub(crate) fn new(id: WorkerId, factory: Arc<F>, shared: Arc<Shared>, sides: Vec<LaneSide>) -> Self {
        Self { runner: ServiceRunner { dispatch: Dispatch::new(id, factory, shared) }, sides }
    }

    /// The same with the frames of `parts`; `all` are the lanes of all workers.
    pub(crate) fn with_frames<P: udpath_stack::port::Port>(
        self,
        all: Lanes,
        parts: udpath_stack::worker::Parts<P, ()>,
    ) -> FrameWorker<P, S, F> {
        FrameWorker::new(self.runner, self.sides, all, parts)
    }

    /// Serves until the sockets are shut and their queues are empty. `stop` becomes readable when that happens.
    pub(crate) fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        match self.sides.as_mut_slice() {
            [LaneSide { port, lane }] => {
                match port {
                    KernelPort::Single(port) => self.runner.serve_one(port, lane),
                    KernelPort::Info(port) => self.runner.serve_one(port, lane),
                    KernelPort::Many(port) => self.runner.serve_one(port, lane),
                }
                Ok(())
            }
            sides => self.runner.serve_many(sides, stop),
        }
    }
}
