//! How datagrams move: each [`Io`] opens its sockets and says what the start-up probe must show.
//!
//! ```text
//! kind.rs                                   Io, IoChoice: the names
//! shared.rs, reuseport.rs, percpu.rs        open: which worker reads which socket; prove: which worker must answer
//! socket.rs, kernel.rs                      a UDP socket; one burst in and out of it, in three forms
//! xdp.rs                                    frames off the devices' queues
//! ```
//! To add an Io: one file with `open` and `prove`, a line in each `match` below, and, if the calls of `kernel.rs` do not
//! move its datagrams, its own implementation of [`Exchange`](crate::dispatch::Exchange).

mod kernel;
mod kind;
mod percpu;
mod reuseport;
mod shared;
mod socket;
mod xdp;

use std::net::SocketAddr;

use crate::error::Error;
use crate::probe::Prober;

pub(crate) use kernel::{BurstSocket, KernelSocket};
pub use kind::{Io, IoChoice};
#[cfg(test)]
pub(crate) use socket::Sharing;
pub(crate) use socket::{Socket, SocketConfig, WorkerSockets};
pub(crate) use xdp::{Devices, FastPath, FrameParts};

impl Io {
    /// Opens and binds all sockets.
    pub(crate) fn open(self, config: &SocketConfig<'_>) -> Result<WorkerSockets, Error> {
        match self {
            Self::Shared => shared::open(config),
            // Of `xdp` these are the sockets for what the fast path declines.
            Self::Reuseport | Self::Xdp => reuseport::open(config),
            Self::Percpu => percpu::open(config),
        }
    }

    /// Sends real datagrams to `target` and checks that they come to the workers they should come to.
    pub(crate) fn probe(
        self,
        prober: &Prober<'_>,
        config: &SocketConfig<'_>,
        target: SocketAddr,
    ) -> Result<(), String> {
        match self {
            Self::Shared => shared::probe(prober, target),
            // Of `xdp` these are the kernel sockets; what is shown of its queues is a `QueueProbe`.
            Self::Reuseport | Self::Xdp => reuseport::probe(prober, config, target),
            Self::Percpu => percpu::probe(prober, config, target),
        }
    }
}
