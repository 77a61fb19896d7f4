//! An injected test frame: does it reach the port's socket?
//!
//! ```text
//! device's program   attached, nothing bound yet: passes everything ─▸ kernel
//! probe's program    the same code, not attached, bound ─▸ inject ─▸ the port's socket ─▸ worker
//! ```
//! Two programs, because a socket's receive and fill rings have one producer and no lock: packets received by the
//! interface must not reach the socket at the same time as an injected frame. While the device has nothing bound they
//! do not.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use udpath_bpf::{Outcome, Take, TakeLayout};

use super::device::XdpDevice;
use super::error::Error;
use super::port::XdpPort;
use crate::port::{Mode, Port};

/// Injects frames into the port of queue 0. See the module header.
#[derive(Debug)]
pub struct Probe {
    take: Take,
    interface: u32,
}

impl XdpDevice {
    /// A probe for `port`; `None` if no frame can be injected there: the kernel injects on queue 0 only, and with
    /// zero-copy the driver takes frames from the same memory without a lock.
    ///
    /// # Errors
    /// No permission, out of memory.
    pub fn probe(&self, port: &XdpPort) -> Result<Option<Probe>, Error> {
        if port.queue() != 0 || port.properties().mode == Mode::ZeroCopy {
            return Ok(None);
        }
        let layout = TakeLayout {
            queues: 1,
            longest: self.config.max_frame_len() as u32,
            addresses: super::device::ADDRESSES,
            rx_hash: false,
        };
        let mut take = Take::load(&layout)?;
        take.set_mac(Some(self.facts.mac));
        take.set_socket(0, port.socket.as_fd())?;
        Ok(Some(Probe { take, interface: self.interface.index() }))
    }
}

impl Probe {
    /// Takes frames for `address`, as [`XdpDevice::bind`].
    ///
    /// # Errors
    /// Port 0, a multicast address, too many addresses.
    pub fn bind(&mut self, address: SocketAddr) -> Result<(), Error> {
        Ok(self.take.bind(address)?)
    }

    /// Why the program would pass `frame` to the kernel, in one word; `None`: it would reach the port.
    ///
    /// # Errors
    /// Shorter than an Ethernet header, or longer than a page.
    pub fn passes(&self, frame: &[u8]) -> Result<Option<&'static str>, Error> {
        let outcome = self.take.judge(frame)?;
        Ok((outcome != Outcome::Taken).then(|| outcome.name()))
    }

    /// Injects `frame`, in the calling thread's network namespace, which must be the device's. If the program does
    /// not take it, the kernel receives it as if it had arrived on the interface.
    ///
    /// # Errors
    /// The kernel's error: too short or too long, or a kernel before 5.18.
    pub fn inject(&self, frame: &[u8]) -> Result<(), Error> {
        Ok(self.take.inject(frame, self.interface)?)
    }
}
