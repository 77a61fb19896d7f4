//! A UDP service runtime: write one handler, run it over every way a kernel socket can move datagrams.
//!
//! ```
//! use udpath_serve::{Config, Outcome, Reply, Request, Server, Service};
//!
//! /// Answers with the payload reversed, written in place.
//! struct Reverse;
//! impl Service for Reverse {
//!     fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
//!         let payload = request.payload();
//!         let room = &mut reply.buffer_mut()[..payload.len()];
//!         room.copy_from_slice(payload);
//!         room.reverse();
//!         reply.set_len(payload.len())
//!     }
//! }
//!
//! let mut config = Config::new(["127.0.0.1:0".parse()?]);
//! config.workers = Some(1);
//! let server = Server::start(&config, |_worker| Reverse)?; // returns once real datagrams came through
//!
//! let client = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! client.send_to(b"abc", server.binds()[0])?;
//! let mut answer = [0; 8];
//! let (len, _) = client.recv_from(&mut answer)?;
//! assert_eq!(&answer[..len], b"cba");
//!
//! let status = server.stop()?; // answers what is still queued
//! assert_eq!(status.total.received, 1);
//! assert!(status.total.balance().is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Floor plan
//!
//! ```text
//! server.rs    start, status, stop: the only room that sees everything
//!   io.rs      the words: Io, IoChoice, Group (who reads which socket) and Port (one burst in, one burst out)
//!     io/shared.rs, io/reuseport.rs, io/percpu.rs   how each Io opens its sockets and what its probe must show
//!     io/kernel.rs                                  the Port of a kernel socket, in three forms
//!     io/xdp.rs, io/xdp/proof.rs                    frames off the devices' queues, and what is shown of them at the start
//!   probe.rs   real datagrams through the Io before it is declared up
//!   worker.rs  one thread: receive a burst, run the service over it, send a burst, publish the counters
//!   tcp.rs     the same address over TCP, for request/response comparisons
//! service.rs   what the user writes and sees        deferred.rs  answering later, from elsewhere
//! counters.rs  per worker and bind, own cache lines  status.rs    what they add up to, with warnings
//! config.rs, error.rs, cpus.rs
//! sys/         system calls, buffers and address forms; the only unsafe code
//! ```
//!
//! # The life of a datagram
//!
//! The worker blocks in the receive call itself; nothing else is polled while it has one socket. A burst's
//! datagrams lie in the worker's own receive arena, the replies are written one after the other into its
//! transmit arena, and leave in one system call. There is no allocation, lock or dynamic dispatch in between.
//! Then the worker stores its counters, which nobody else writes, and asks one shared word whether it shall stop.
//!
//! # The identity
//!
//! For every worker: `received = answered + dropped (by reason) + deferred + in_flight`, and at rest nothing is in flight.
//! What the kernel dropped before that is read from each socket (`kernel_drops`); of `xdp`, from its rings' counters.
//! [`Counts::balance`] checks it.

mod config;
mod counters;
mod counts;
mod cpus;
mod deferred;
mod dispatch;
mod endpoint;
mod error;
mod io;
mod outcome;
mod probe;
mod reply;
mod request;
mod server;
mod service;
mod shared;
mod status;
mod sys;
mod tcp;
mod worker;

pub use udpath_stack::port::xdp;

pub use config::{Config, ConfigError, MAX_BATCH, MAX_BINDS, MAX_WORKERS, Steer, XdpConfig};
pub use counts::{Counts, Dropped, SendErrors, TcpCounts, Unbalanced};
pub use cpus::allowed_cpus;
pub use deferred::{Deferred, DeferredError};
pub use dispatch::serve_once;
pub use error::{Error, Rejected, Transport};
pub use io::{Io, IoChoice, XdpError};
pub use outcome::{DropReason, Outcome, SendError};
pub use probe::ProbeError;
pub use reply::Reply;
pub use request::Request;
pub use server::Server;
pub use service::{Service, StreamService, WorkerId};
pub use status::{SocketStatus, Status, WorkerStatus, XdpPortStatus, XdpStatus};
