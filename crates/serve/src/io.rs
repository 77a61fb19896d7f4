//! How datagrams move: each [`Io`] opens its sockets and says what the start-up probe must show.
//!
//! ```text
//! kind.rs                                   Io, IoChoice: the names, which need none of the rest
//! shared.rs, reuseport.rs, percpu.rs        open: which worker reads which socket; probe: which worker must answer
//! socket.rs, kernel.rs                      a UDP socket; one burst in and out of it, in three forms
//! send_buffer.rs                            replies for which the send buffer has no room
//! xdp.rs                                    frames off the devices' queues
//! ```
//! To add an Io: a variant in `kind.rs`, a file with `open` and `probe`, a line in each `match` below, and, if
//! `kernel.rs` cannot move its datagrams, an implementation of [`Exchange`](crate::dispatch::Exchange). CONTRIBUTING.md
//! has every step.

mod kernel;
pub(crate) mod kind;
mod percpu;
mod reuseport;
mod send_buffer;
mod shared;
mod socket;
pub(crate) mod xdp;

use std::net::SocketAddr;

use crate::error::Error;
use crate::probe::{ProbeError, Prober};

pub(crate) use kernel::{BurstSocket, KernelSocket};
pub use kind::{Io, IoChoice, ReceiveCall};
pub(crate) use socket::{Sharing, Socket, SocketConfig, SocketOptions, WorkerSockets};
pub use xdp::XdpError;
pub(crate) use xdp::{Devices, FastPath, FrameParts};

impl Io {
    /// Opens and binds all sockets.
    pub(crate) fn open(self, config: &SocketConfig<'_>) -> Result<WorkerSockets, Error> {
        match self {
            Self::Shared => shared::open(config),
            // For `xdp`, the sockets that receive what the fast path declines.
            Self::Reuseport | Self::Xdp => reuseport::open(config),
            Self::Percpu => percpu::open(config),
        }
    }

    /// Sends real datagrams to `target` and checks that they reach the right workers.
    pub(crate) fn probe(
        self,
        prober: &Prober<'_>,
        config: &SocketConfig<'_>,
        target: SocketAddr,
    ) -> Result<(), ProbeError> {
        match self {
            Self::Shared => shared::probe(prober, target),
            // For `xdp`, its kernel sockets; `QueueProbe` checks its queues.
            Self::Reuseport | Self::Xdp => reuseport::probe(prober, config, target),
            Self::Percpu => percpu::probe(prober, config, target),
        }
    }
}
