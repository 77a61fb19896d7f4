//! Datagrams that are not replies: routed by the mirrored tables, in a free frame of a worker.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;

use super::returns::ReturnHandle;
use crate::epoch::Reader;
use crate::frame::Frame;
use crate::tables::{NoPath, Path, Resolver, Tables};
use crate::wire::{Flow, LinkHeader, Tags, UdpChecksum, Unfit, build, ethernet};

/// Free frames that a socket takes from a worker at once. Fewer: the lock is taken more often. More: frames sit with
/// a socket that may not need them, and the worker must keep more ready.
const FREE_BATCH: usize = 16;

/// How long a socket waits before it has the same stale neighbour confirmed again. Shorter: the lock and wake-up are
/// paid more often. Longer: a neighbour whose MAC address has changed is sent to in vain for that long.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Which worker's port sends on which interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Egress {
    /// The interface's index.
    pub interface: u32,
    /// The worker's number.
    pub worker: u16,
}

/// What a socket needs to send datagrams that are not replies: routing tables, and the ports that reach each
/// interface.
pub struct Paths {
    tables: Arc<Tables>,
    reader: Reader,
    resolver: Option<Resolver>,
    egresses: Vec<(Egress, ArrayVec<Frame, FREE_BATCH>)>,
    /// The stale neighbour that was last queried, and when.
    asked: Option<(u32, IpAddr, Instant)>,
}

impl Paths {
    /// Routes by `tables`, whose domain `reader` is registered with, and sends on the ports of `egresses`. If an
    /// interface has several ports, each destination uses one of them. `resolver` resolves missing neighbours;
    /// without one they are not resolved.
    #[must_use]
    pub fn new(
        tables: Arc<Tables>,
        reader: Reader,
        resolver: Option<Resolver>,
        egresses: impl IntoIterator<Item = Egress>,
    ) -> Self {
        let egresses = egresses.into_iter().map(|egress| (egress, ArrayVec::new())).collect();
        Self { tables, reader, resolver, egresses, asked: None }
    }
}

/// Why a datagram was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The socket has no paths.
    #[error("cannot send to {0}: this socket can only reply; give it paths with set_paths")]
    NoPaths(SocketAddr),
    /// The socket is bound to an address of the other IP version.
    #[error("cannot send to {to} from {from}: they are of different IP versions")]
    Families {
        /// The destination.
        to: SocketAddr,
        /// The socket's address.
        from: SocketAddr,
    },
    /// UDP port 0.
    #[error("cannot send to {0}: port 0 cannot receive datagrams")]
    PortZero(SocketAddr),
    /// There is no path at present. If [`NoPath::may_pass`], retry in a moment.
    #[error("cannot send to {to}")]
    NoPath {
        /// The destination.
        to: SocketAddr,
        /// What is missing.
        #[source]
        cause: NoPath,
    },
    /// No worker has a port on the interface.
    #[error("cannot send to {to}: no worker has a port on interface {interface}, which leads there")]
    NoPort {
        /// The destination.
        to: SocketAddr,
        /// The outgoing interface.
        interface: u32,
    },
    /// It does not fit a frame.
    #[error("cannot send {len} bytes to {to}: at most {most} fit a frame on that path; use a kernel socket")]
    TooLong {
        /// The destination.
        to: SocketAddr,
        /// Payload length, bytes.
        len: usize,
        /// The most that fit, bytes.
        most: usize,
    },
    /// All free frames are in use. Retry in a moment.
    #[error(
        "cannot send to {to}: worker {worker} has no free frame at the moment; retry, or configure more free_frames"
    )]
    NoFrame {
        /// The destination.
        to: SocketAddr,
        /// The worker that owns the frames.
        worker: u16,
    },
    /// The worker that would send it has ended.
    #[error("cannot send: worker {0}, whose port leads there, has ended")]
    WorkerEnded(u16),
}

impl Paths {
    /// A frame with `payload` from `local` to `to`, to be sent by its owner.
    pub(super) fn frame(
        &mut self,
        return_handles: &[ReturnHandle<Frame>],
        local: SocketAddr,
        to: SocketAddr,
        payload: &[u8],
    ) -> Result<Frame, SendError> {
        if to.port() == 0 {
            return Err(SendError::PortZero(to));
        }
        if to.is_ipv4() != local.is_ipv4() {
            return Err(SendError::Families { to, from: local });
        }
        let path = {
            let guard = self.reader.pin();
            self.tables.load(&guard).path(to.ip())
        };
        // A socket that sends occasionally must not keep writers from replacing tables.
        self.reader.idle();
        let path = path.map_err(|cause| self.missing(to, cause))?;
        if path.stale {
            self.confirm(&path);
        }
        let source = if local.ip().is_unspecified() { path.source } else { local.ip() };
        let link = LinkHeader { source: path.own, destination: path.next_hop, tags: Tags::NONE };
        let flow = Flow::new(link, SocketAddr::new(source, local.port()), to)
            .map_err(|_| SendError::Families { to, from: local })?;

        let no_port = SendError::NoPort { to, interface: path.interface };
        let egress = self.egress(&path, to).ok_or(no_port)?;
        let (Egress { worker, .. }, free) = egress;
        let worker = *worker;
        let return_handle = return_handles.get(usize::from(worker)).ok_or(no_port)?;
        if free.is_empty() && return_handle.take_free(free, FREE_BATCH) == 0 {
            return Err(SendError::NoFrame { to, worker });
        }
        let Some(mut frame) = free.pop() else { return Err(SendError::NoFrame { to, worker }) };
        let max_frame_len =
            return_handle.max_frame_len().min(ethernet::LEN + path.mtu as usize).min(frame.room());
        frame.set_len(max_frame_len);
        match build(frame.bytes_mut(), &flow, payload, UdpChecksum::Computed) {
            Ok(headers) => {
                frame.set_len(headers.frame_end());
                frame.set_to_send(true);
                Ok(frame)
            }
            Err(unfit) => {
                free.push(frame);
                let most = max_frame_len.saturating_sub(flow.payload_offset());
                Err(match unfit {
                    Unfit::Families => SendError::Families { to, from: local },
                    Unfit::NoRoom { .. } | Unfit::TooLong { .. } => {
                        SendError::TooLong { to, len: payload.len(), most }
                    }
                })
            }
        }
    }

    /// The free frames that were not used.
    pub(super) fn free(&mut self) -> impl Iterator<Item = Frame> {
        self.egresses.iter_mut().flat_map(|(_, free)| free.drain(..))
    }

    /// One of the interface's ports; always the same for one destination, so that its datagrams stay in order.
    fn egress(&mut self, path: &Path, to: SocketAddr) -> Option<&mut (Egress, ArrayVec<Frame, FREE_BATCH>)> {
        let fits = |egress: &Egress| egress.interface == path.interface;
        let count = self.egresses.iter().filter(|(egress, _)| fits(egress)).count();
        let address = match to.ip() {
            IpAddr::V4(ip) => ip.to_bits() as usize,
            IpAddr::V6(ip) => ip.to_bits() as usize,
        };
        let place = (address ^ usize::from(to.port())).checked_rem(count)?;
        self.egresses.iter_mut().filter(|(egress, _)| fits(egress)).nth(place)
    }

    /// Has the neighbour resolved if that is what is missing.
    #[cold]
    fn missing(&self, to: SocketAddr, cause: NoPath) -> SendError {
        if let (Some(resolver), Some((interface, address))) = (&self.resolver, cause.to_ask()) {
            resolver.ask(interface, address);
        }
        SendError::NoPath { to, cause }
    }

    /// Has a stale neighbour confirmed.
    #[cold]
    fn confirm(&mut self, path: &Path) {
        let Some(resolver) = &self.resolver else { return };
        let (interface, address, now) = (path.interface, path.next_hop_address, Instant::now());
        let lately = self.asked.is_some_and(|(asked_on, asked, at)| {
            (asked_on, asked) == (interface, address) && now.duration_since(at) < RETRY_INTERVAL
        });
        if !lately && resolver.ask(interface, address) {
            self.asked = Some((interface, address, now));
        }
    }
}
