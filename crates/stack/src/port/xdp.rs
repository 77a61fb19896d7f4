//! AF_XDP: a queue of a device whose packets the kernel delivers into our frames, bypassing its own stack.
//!
//! ```text
//!                 ┌────────────────────── Pool ◂────────────────────────┐
//!                 ▾ lend                                                │ reclaim
//!   Port     fill ring        receive ring ▸ Frame ...  Frame ▸ transmit ring        completion ring
//!                 │                 ▴                                │                      ▴
//!   kernel        └▸ chunk ▸ packet ┘                                └▸ packet ▸ sent ▸ chunk ┘
//! ```
//! - [`XdpDevice`] holds the program that takes datagrams from an interface ([`udpath_bpf::Take`]) and opens a port
//!   for each of its queues. Packets of a queue without a port, and everything that the program does not take, go to
//!   the kernel.
//! - [`XdpPort`] is one queue: a socket, its four rings, and a private pool of frames. It belongs to one thread. Per
//!   poll it publishes each ring's index once, and makes one system call where the kernel needs one; in copy mode one
//!   per 32 packets on kernels before 6.17, which send no more at a time.
//!
//! Everything is released with its owner, even if the process is killed: the program is attached through a file
//! descriptor, and closing a socket removes it from the program's map, so that its queue's packets go to the kernel
//! again.
//!
//! A worker that sleeps on the descriptor is woken by received packets. Packets that could not all be sent in
//! [`flush`](crate::port::Port::flush) continue with the next one. In copy mode polling the descriptor also sends
//! (`xsk_poll`), without reporting packets that the driver drops; so a worker that counts does not poll while
//! [packets wait](crate::port::Port::is_sending).
//!
//! If requested ([`Config::rx_hash`]) and supported by the driver, frames carry the NIC's RSS hash, so that workers
//! need not compute it ([`XdpDevice::rx_hash`]): the program writes it in front of each packet, in the frame's own
//! memory.
//!
//! Not part of a port: checksum verification (the device's result is not available to it; workers verify, see
//! [`Config::checksums`]), and VLAN tags that the device stripped (`ethtool -K IF rxvlan off`).

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
