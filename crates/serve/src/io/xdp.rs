//! `xdp`: frames from the devices' queues, past the kernel's stack. The datapath is [`udpath_stack`]; this module makes
//! a server of it.
//!
//! ```text
//!  interface ─ take.bpf ─┬▸ queue 0: AF_XDP ─▸ worker 0 ─▸ Service      datagrams for our addresses and ports
//!                        ├▸ queue 1: AF_XDP ─▸ worker 1 ─▸ Service
//!                        └▸ kernel ─▸ reuseport sockets ─▸ the same workers      all others for our ports: fragments,
//!                                                                                options, extension headers
//!  AddressMonitor: follows the addresses and interfaces, and warns of changes
//! ```
//! ```text
//! devices.rs, start.rs        which interfaces; a port per queue and the parts of each worker
//! address_filter.rs           for which addresses the programs take datagrams
//! ingress.rs                  from which senders and VLANs
//! probe.rs                    the start-up probe of each queue
//! fast_path.rs, state.rs      the running interfaces; what the server and the monitor share
//! monitor.rs                  follows addresses and interfaces
//! arrivals.rs, warnings.rs    frames between the program and the workers, and warnings about losses
//! error.rs                    why frames cannot be taken
//! ```
//! Frames of a queue added after the start have no socket and go to the kernel; the worker of a removed queue continues
//! with its kernel sockets. A change of the number of queues loses frames that are in the device, and none after that.
//!
//! Each queue has one worker. Further workers serve kernel sockets and, with steering, frames of other queues.

mod address_filter;
mod arrivals;
mod devices;
pub(crate) mod error;
mod fast_path;
mod ingress;
mod monitor;
mod probe;
mod start;
mod state;
mod warnings;

pub(crate) use devices::Devices;
pub use error::XdpError;
pub(crate) use fast_path::FastPath;
pub(crate) use start::FrameParts;
