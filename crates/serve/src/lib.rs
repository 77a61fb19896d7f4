//! A UDP service runtime: write one handler, run it over kernel sockets in several ways or over AF_XDP frames.
//!
//! ```
//! use udpath_serve::{Config, Outcome, Reply, Request, Server, Service};
//!
//! /// Answers with the payload reversed, written in place.
//! struct Reverse;
//! impl Service for Reverse {
//!     fn serve(&mut self, request: Request<'_>, reply: &mut Reply<'_>) -> Outcome {
//!         let payload = request.payload();
//!         let buffer = &mut reply.buffer_mut()[..payload.len()];
//!         buffer.copy_from_slice(payload);
//!         buffer.reverse();
//!         reply.set_len(payload.len())
//!     }
//! }
//!
//! let mut config = Config::new(["127.0.0.1:0".parse()?]);
//! config.workers = Some(1);
//! let server = Server::start(&config, |_worker| Reverse)?; // returns once real datagrams have come through
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
//! # Layout
//!
//! ```text
//! server.rs        start, status, stop           server/start.rs, open.rs, summary.rs
//! worker.rs        one thread                    worker/runner.rs: bursts of kernel sockets; worker/frames.rs: frames
//! dispatch.rs      the one place where a Service is called: panics, deferral, drops by reason, probes
//! service.rs       the user's handler            request.rs, reply.rs, outcome.rs: what a service receives and returns
//! deferred.rs      answering later, from any thread
//! client_limit.rs  how often each client is answered
//! current.rs       a service's data, replaced while workers answer from them
//! io.rs            the ways to move datagrams: io/shared.rs, reuseport.rs, percpu.rs (kernel sockets), xdp.rs (frames)
//!   io/kernel.rs   a kernel socket with a worker's buffers, in three forms
//! probe.rs         real datagrams through the Io before the server reports that it is ready
//! gate.rs          holds the workers back after the probe until they may answer
//! endpoint.rs      a socket with its counters    counters.rs; counts.rs, status.rs: what they add up to, with warnings
//! tcp.rs           the same addresses over TCP, for request/response comparisons
//! config.rs, error.rs, shared.rs (what workers share), cpus.rs
//! sys/             system calls, buffers and address forms; the only unsafe code
//! ```
//!
//! # The life of a datagram
//!
//! With one socket, the worker blocks in the receive call and polls nothing else. The datagrams of a burst lie in the
//! worker's receive arena; the replies are written one after the other into its transmit arena and leave in one system
//! call. Nothing in between allocates, locks or dispatches dynamically. Then the worker stores its counters, which no
//! other thread writes, and checks one shared stop flag.
//!
//! # The identity
//!
//! For each worker, `received = answered + dropped (by reason) + deferred + in_flight`; without traffic, nothing is in
//! flight. Datagrams the kernel dropped earlier are read from each socket (`kernel_drops`) and, for `xdp`, from the
//! rings' counters. [`Counts::balance`] checks the identity.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod client_limit;
mod config;
mod counters;
mod counts;
mod cpus;
mod current;
mod deferred;
mod dispatch;
mod endpoint;
mod error;
mod gate;
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

pub use client_limit::{Admission, ClientLimit, LimitError};
pub use config::{CheckNeighbours, Config, ConfigError, MAX_BATCH, MAX_BINDS, MAX_WORKERS, Steer, XdpConfig};
pub use counts::{Counts, Dropped, SendErrors, TcpCounts, Unbalanced};
pub use cpus::allowed_cpus;
pub use current::{Current, View};
pub use deferred::{Deferred, DeferredError};
pub use dispatch::serve_once;
pub use error::{Error, Rejected, Transport};
pub use io::{Io, IoChoice, ReceiveCall, XdpError};
pub use outcome::{DropReason, Outcome, SendError};
pub use probe::ProbeError;
pub use reply::Reply;
pub use request::Request;
pub use server::{ReloadHook, Server, WarningsHook};
pub use service::{Service, StreamService, WorkerId};
pub use status::{SocketStatus, Status, WorkerStatus, XdpPortStatus, XdpStatus};
pub use tcp::TcpLimits;
pub use worker::InProcessWorker;
