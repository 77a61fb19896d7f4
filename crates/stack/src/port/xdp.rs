//! AF_XDP: a device's queue whose packets the kernel puts into frames of ours, past its own stack.
//!
//! ```text
//!                 ┌────────────────────── Pool ◂────────────────────────┐
//!                 ▾ lend                                                │ reclaim
//!   Port     fill ring        receive ring ▸ Frame ...  Frame ▸ transmit ring        completion ring
//!                 │                 ▴                                │                      ▴
//!   kernel        └▸ chunk ▸ packet ┘                                └▸ packet ▸ sent ▸ chunk ┘
//! ```
//! - [`XdpDevice`] holds the program that takes datagrams from an interface ([`udpath_bpf::Take`]) and opens a port for
//!   each of its queues. A queue without a port, and everything that the program does not take, goes to the kernel.
//! - [`XdpPort`] is one queue: a socket, its four rings, and a pool of frames that nobody else has. It belongs to one
//!   thread. Per turn it publishes each ring's index once, and makes one call where the kernel has to be told; in copy
//!   mode one per 32 packets on kernels before 6.17, which send no more at a time.
//!
//! Everything goes when its owner does, however that ends: the program is attached by a descriptor, and closing a
//! socket takes it out of the program's map, so that its queue's packets go to the kernel again.
//!
//! A worker that sleeps on the descriptor sees packets that came. Packets that could not all be sent in
//! [`flush`](Port::flush) go on with the next one. In copy mode polling the descriptor sends as well (`xsk_poll`), and says
//! nothing of packets that the driver drops then: a worker that counts does not poll while [some wait](Port::is_sending).
//!
//! Where it is wanted ([`Config::rx_hash`]) and the driver tells it, frames come with the NIC's RSS hash, so that workers
//! need not compute it ([`XdpDevice::rx_hash`]): the program writes it in front of each, in the frame's own memory.
//!
//! What a port does not do: verify checksums (nothing tells it what the device found; workers do, see
//! [`Config::checksums`]), or see VLAN tags that
//! the device took off (`ethtool -K IF rxvlan off`).

mod bulk;
mod config;
mod device;
mod error;
mod interface;
mod monitor;
mod port;
mod probe;
mod ring;
mod socket;
mod statistics;
mod sys;
mod transmit;

pub use config::{Attach, BusyPoll, Config, Copying};
pub use device::{InterfaceChange, XdpDevice};
pub use error::Error;
pub use monitor::{Monitor, ReceiveCounts};
pub use port::XdpPort;
pub use probe::Probe;
pub use statistics::Statistics;
pub use udpath_bpf::{Network, Sources};
