//! `xdp`: frames off the device's queues, past the kernel's stack. The datapath is [`udpath_stack`]; here is what makes a
//! server of it.
//!
//! ```text
//!  interface ─ take.bpf ─┬▸ queue 0: AF_XDP ─▸ worker 0 ─▸ Service      datagrams for our addresses and ports
//!                        ├▸ queue 1: AF_XDP ─▸ worker 1 ─▸ Service
//!                        └▸ kernel ─▸ reuseport sockets ─▸ the same workers      everything else of ours: fragments,
//!                                                                                options, extension headers
//!  AddressMonitor: follows the interfaces and addresses, and says what changed
//! ```
//! FrameParts of a queue that came up later have no socket, and go to the kernel; the worker of one that is gone has its kernel
//! sockets left. So a changed number of queues loses what is under way in the device, and nothing after that.
//!
//! A queue has one worker. Workers beyond the queues serve kernel sockets, and frames of others if those are spread.

mod address_filter;
mod arrivals;
mod devices;
mod fast_path;
mod ingress;
mod monitor;
mod probe;
mod start;
mod state;
mod warnings;

pub(crate) use devices::Devices;
pub(crate) use fast_path::FastPath;
pub(crate) use start::FrameParts;
