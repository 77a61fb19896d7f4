//! The user-space UDP datapath: the path from a NIC queue to a socket, as a library.
//!
//! ```text
//! port ─ burst of frames ─▸ worker ─ parse, verify ─ steer ─┬▸ groups ─▸ handler ─▸ reply in the same frame ─▸ port
//!                             ▴                             │            └▸ or a socket ─▸ its reader ─▸ returned, sent
//!                             │                             └▸ another worker's backlog; the frame is returned later
//!                             └─ epochs: tables of addresses, routes, neighbours and groups are read without a lock
//! ```
//! - [`frame`]: packet memory, each piece with one owner at a time. [`port`]: AF_XDP, an in-memory link, capture files.
//! - [`wire`]: Ethernet, VLAN, IPv4, IPv6 and UDP, read and written in place; checksums.
//! - [`worker`]: the poll loop of one thread. [`mesh`], [`steering`]: frames handed to other workers. [`groups`],
//!   [`handler`]: which handler or socket serves a datagram. [`counters`]: what became of every frame.
//! - [`tables`]: the kernel's control plane, mirrored from rtnetlink.
//! - [`ring`]: bursts from one worker to another. [`wake`]: sleeping without losing a wake-up.
//! - [`epoch`]: tables that are read without a lock and replaced while they are read.
//! - [`slots`]: arrays for the kernel's calls that move many datagrams over its own sockets.
//! - [`socket`]: where datagrams wait for their reader: two queues, memory accounted in bulk, frames returned in
//!   bulk.
//!
//! # An application that answers over AF_XDP
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//! use udpath_stack::epoch::{Domain, Table};
//! use udpath_stack::groups::Groups;
//! use udpath_stack::handler::{Datagram, Outcome};
//! use udpath_stack::mesh::{self, mesh};
//! use udpath_stack::port::xdp::{Config, XdpDevice};
//! use udpath_stack::worker::{Parts, Worker};
//!
//! let bind = "192.0.2.1:7".parse()?;
//! let mut device = XdpDevice::open("eth0", Config::default())?; // what the program does not take goes to the kernel
//! device.bind(bind)?;
//! let domain = Domain::new(1, 8);
//! let mut worker = Worker::new(Parts {
//!     port: Some(device.port(0)?),
//!     handler: |datagram: Datagram<'_>, buffer: &mut [u8]| {
//!         buffer[..datagram.payload.len()].copy_from_slice(datagram.payload);
//!         Outcome::Reply(datagram.payload.len())
//!     },
//!     reader: domain.register("worker 0")?,
//!     groups: Arc::new(Table::new(&domain, Groups::new(&[bind], [])?)),
//!     rings: mesh(1, mesh::Config { backlog: 64, frames: 4096 })?.remove(0),
//!     steering: None,
//! });
//! loop {
//!     if worker.poll() == 0 {
//!         worker.wait(Duration::from_secs(1), None)?;
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The same with a socket, read on its own thread
//! ```no_run
//! # use std::{sync::Arc, thread, time::Duration};
//! # use udpath_stack::epoch::{Domain, Table};
//! # use udpath_stack::groups::Groups;
//! # use udpath_stack::handler::{Datagram, Outcome};
//! # use udpath_stack::mesh::{self, mesh};
//! # use udpath_stack::port::xdp::{Config, XdpDevice};
//! # use udpath_stack::worker::{Parts, Worker};
//! use udpath_stack::socket::{self, Wait};
//!
//! let bind = "192.0.2.1:7".parse()?;
//! let mut device = XdpDevice::open("eth0", Config::default())?;
//! device.bind(bind)?;
//! let domain = Domain::new(1, 8);
//! let mut rings = mesh(1, mesh::Config { backlog: 64, frames: 4096 })?;
//! let mut socket = socket::join(&mut rings, socket::Config::default())?.open(bind, 1 << 20)?;
//! let groups = Groups::new(&[bind], [])?.delivering(&[bind], &[socket.handle()])?;
//! let mut worker = Worker::new(Parts {
//!     port: Some(device.port(0)?),
//!     handler: |_: Datagram<'_>, _: &mut [u8]| Outcome::Declined, // for bindings without a socket
//!     reader: domain.register("worker 0")?,
//!     groups: Arc::new(Table::new(&domain, groups)),
//!     rings: rings.remove(0),
//!     steering: None,
//! });
//! thread::spawn(move || {
//!     while worker.poll() > 0 || worker.wait(Duration::from_secs(1), None).is_ok() {}
//! });
//! loop {
//!     for mut datagram in socket.recv_batch(Wait::Sleep(None))?.iter_mut() {
//!         let len = datagram.payload().len();
//!         datagram.reply_with(|_| len)?; // echo: the request's payload is in place already
//!     }
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

pub mod counters;
pub mod epoch;
pub mod frame;
pub mod groups;
#[cfg(not(loom))]
pub mod handler;
pub mod mesh;
#[cfg(not(loom))]
pub mod port;
mod primitive;
pub mod ring;
pub mod slots;
pub mod socket;
pub mod steering;
pub mod tables;
pub mod wake;
pub mod wire;
#[cfg(not(loom))]
pub mod worker;
