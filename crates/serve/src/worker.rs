//! One worker: a thread with its own service instance, which serves kernel sockets and, over `xdp`, frames.

mod frames;
mod in_process;
mod runner;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use udpath_stack::worker::{NeighbourCheck, Parts};

use crate::dispatch::Dispatch;
use crate::endpoint::Endpoints;
use crate::io::KernelSocket;
use crate::service::{Service, WorkerId};
use crate::shared::Shared;

pub(crate) use frames::FrameWorker;
pub use in_process::InProcessWorker;
pub(crate) use runner::SocketSource;

use runner::ServiceRunner;

/// One worker, before it runs.
pub(crate) struct Worker<S, F> {
    runner: ServiceRunner<S, F>,
    sources: Vec<SocketSource>,
}

impl<S: Service, F: Fn(WorkerId) -> S> Worker<S, F> {
    /// A worker for these sockets. Makes the service instance, on the calling thread.
    pub(crate) fn new(
        id: WorkerId,
        factory: Arc<F>,
        shared: Arc<Shared>,
        sources: Vec<SocketSource>,
    ) -> Self {
        Self { runner: ServiceRunner { dispatch: Dispatch::new(id, factory, shared) }, sources }
    }

    /// The same worker with the frames of `parts`. `all`: the endpoints of all workers. `neighbours`: where replies may
    /// go, if that is checked.
    pub(crate) fn with_frames<P: udpath_stack::port::Port>(
        self,
        all: Endpoints,
        parts: Parts<P, ()>,
        neighbours: Option<NeighbourCheck>,
    ) -> FrameWorker<P, S, F> {
        FrameWorker::new(self.runner, self.sources, all, parts, neighbours)
    }

    /// Serves until the sockets are shut and their queues are empty. `stop` becomes readable when that happens.
    pub(crate) fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        match self.sources.as_mut_slice() {
            [SocketSource { socket, endpoint }] => {
                match socket {
                    KernelSocket::Single(socket) => self.runner.serve_socket(socket, endpoint),
                    KernelSocket::Control(socket) => self.runner.serve_socket(socket, endpoint),
                    KernelSocket::Many(socket) => self.runner.serve_socket(socket, endpoint),
                }
                Ok(())
            }
            sources => self.runner.serve_sockets(sources, stop),
        }
    }
}
