//! An interface with its program: which datagrams it takes, and a port for each queue.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use udpath_bpf::{AttachMode, Outcome, Outcomes, RxHash, Sources, Take, TakeLayout};

use super::config::{Attach, Config};
use super::error::Error;
use super::interface::{Facts, Interface};
use super::port::XdpPort;
use super::socket::Umem;
use crate::frame::Region;

/// Socket slots in the program's map, eight bytes each: more queues than any NIC has.
const QUEUES: u32 = 4096;
/// Maximum number of addresses that can be bound individually, over all ports.
pub(super) const ADDRESSES: u32 = 4096;

/// An interface whose datagrams are taken until this is dropped or the process ends.
///
/// Ports outlive it: they can still send, but receive nothing. When a port is dropped, packets of its queue go to the
/// kernel. Ports are opened in the network namespace that the device was opened in.
#[derive(Debug)]
pub struct XdpDevice {
    /// Declared first: it is detached before the rest is dropped.
    take: Take,
    mode: AttachMode,
    pub(super) interface: Interface,
    pub(super) facts: Facts,
    pub(super) config: Config,
    /// The longest frame that its ports send; they read it on each poll.
    max_frame_len: Arc<AtomicUsize>,
}

/// How an interface has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InterfaceChange {
    /// It was removed, or cannot be read any more.
    Gone,
    /// Its number of receive queues changed: ports have to be opened for new ones, and those of removed ones receive
    /// nothing.
    Queues {
        /// The previous number.
        before: u32,
        /// The current number.
        now: u32,
    },
    /// Its MTU changed: until [`XdpDevice::refresh`],
    /// [`Properties::max_frame_len`](crate::port::Properties::max_frame_len) of its ports is outdated.
    Mtu {
        /// The previous MTU, bytes.
        before: u32,
        /// The current MTU, bytes.
        now: u32,
    },
    /// Its MAC address changed: until [`XdpDevice::refresh`], its datagrams go to the kernel.
    Mac,
}

impl XdpDevice {
    /// Attaches the program to `interface` of the calling thread's network namespace. It takes nothing before
    /// [`bind`](Self::bind) is called and a port is open.
    ///
    /// # Errors
    /// No such interface, no permission, another XDP program attached (named in the error), no native XDP, an invalid
    /// configuration.
    pub fn open(interface: &str, config: Config) -> Result<Self, Error> {
        config.check()?;
        let interface = Interface::find(interface)?;
        let longest = config.max_frame_len() as u32;
        let rx_hash = config.rx_hash;
        let mut take = Take::load(&TakeLayout { queues: QUEUES, longest, addresses: ADDRESSES, rx_hash })?;
        let mode = attach(&mut take, &interface, config.attach)?;
        // Drivers may reconfigure their queues for a program, so they are read afterwards.
        let facts = interface.facts()?;
        take.set_mac(Some(facts.mac));
        let max_frame_len = Arc::new(AtomicUsize::new(config.max_transmit_len(facts.mtu)));
        Ok(Self { take, mode, interface, facts, config, max_frame_len })
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.interface.name()
    }

    /// The interface's index in its network namespace.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.interface.index()
    }

    /// The interface's MAC address, as last read; zeros if it has none.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.facts.mac
    }

    /// The mode in which the program is attached.
    #[must_use]
    pub fn mode(&self) -> AttachMode {
        self.mode
    }

    /// Whether the frames of its ports carry the device's RSS hash, and if not, why.
    #[must_use]
    pub fn rx_hash(&self) -> &RxHash {
        self.take.rx_hash()
    }

    /// The configuration of its ports.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Receive queues, as last read.
    #[must_use]
    pub fn queues(&self) -> u32 {
        self.facts.queues
    }

    /// Its MTU, bytes, as last read.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.facts.mtu
    }

    /// Memory for a port on every queue, bytes: [`Config::memory`] for each.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.config.memory() * self.facts.queues as usize
    }

    /// Opens the port of `queue`, with memory of its own, and directs the queue's datagrams to it.
    ///
    /// # Errors
    /// No such queue, one that has a socket already, no permission, out of memory.
    pub fn port(&mut self, queue: u32) -> Result<XdpPort, Error> {
        let generic = self.mode == AttachMode::Generic;
        let max_frame_len = Arc::clone(&self.max_frame_len);
        let mut port = XdpPort::with_own_memory(
            &self.interface,
            &self.facts,
            queue,
            &self.config,
            max_frame_len,
            generic,
        )?;
        self.hand_to(&mut port)?;
        Ok(port)
    }

    /// Opens a port for every queue, each with memory of its own.
    ///
    /// # Errors
    /// As [`port`](Self::port); then none stays open.
    pub fn ports(&mut self) -> Result<Vec<XdpPort>, Error> {
        (0..self.facts.queues).map(|queue| self.port(queue)).collect()
    }

    /// Opens a port for every queue, all in one registered memory area (`XDP_SHARED_UMEM`): one large mapping instead
    /// of many, pinned once by the kernel. Each port still has frames of its own.
    ///
    /// # Errors
    /// As [`port`](Self::port); then none stays open.
    pub fn ports_in_shared_memory(&mut self) -> Result<Vec<XdpPort>, Error> {
        let (queues, frames) = (self.facts.queues as usize, self.config.frames);
        let generic = self.mode == AttachMode::Generic;
        let mut region = Region::new(self.config.frame_size, frames.saturating_mul(queues))?;
        let mut ports: Vec<XdpPort> = Vec::with_capacity(queues);
        for queue in 0..self.facts.queues {
            let pool = region.pool(frames)?;
            let umem = ports.first().map_or(Umem::Own(&region), |first| Umem::Of(first.socket.as_fd()));
            let (facts, max_frame_len) = (&self.facts, Arc::clone(&self.max_frame_len));
            let memory = (umem, pool);
            let mut port =
                XdpPort::with(&self.interface, facts, queue, &self.config, max_frame_len, generic, memory)?;
            self.hand_to(&mut port)?;
            ports.push(port);
        }
        Ok(ports)
    }

    /// Directs the datagrams of its queue to `port`: one that was opened elsewhere, or that was
    /// [released](Self::release).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn hand_to(&mut self, port: &mut XdpPort) -> Result<(), Error> {
        // The bytes before its frames are a hash only if this device's program writes one.
        port.properties.hashed = *self.rx_hash() == RxHash::Device;
        Ok(self.take.set_socket(port.queue(), port.socket.as_fd())?)
    }

    /// Directs packets of `queue` to the kernel again, for a port that is about to stop; frames already in its ring
    /// stay there.
    pub fn release(&mut self, queue: u32) {
        self.take.clear_socket(queue);
    }

    /// Takes datagrams for `address` from now on: see [`Take::bind`].
    ///
    /// # Errors
    /// Port 0, a multicast address, too many addresses.
    pub fn bind(&mut self, address: SocketAddr) -> Result<(), Error> {
        Ok(self.take.bind(address)?)
    }

    /// No longer takes datagrams for `address`. Returns whether it was bound.
    pub fn unbind(&mut self, address: SocketAddr) -> bool {
        self.take.unbind(address)
    }

    /// Passes datagrams from these senders to the kernel from now on: see [`Take::set_sources`].
    ///
    /// # Errors
    /// Too many addresses or networks.
    pub fn set_sources(&mut self, sources: &Sources) -> Result<(), Error> {
        Ok(self.take.set_sources(sources)?)
    }

    /// Senders whose datagrams are passed to the kernel.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        self.take.sources()
    }

    /// Takes tagged frames of these VLANs from now on, with this priority in the replies: see [`Take::set_vlans`].
    pub fn set_vlans(&self, vlans: impl IntoIterator<Item = (u16, u8)>) {
        self.take.set_vlans(vlans);
    }

    /// Whether the device strips VLAN tags before the program sees frames (ethtool: `rx-vlan-offload`), as currently
    /// set. Frames of all VLANs then look untagged. `None`: unknown, or the interface is gone.
    #[must_use]
    pub fn removes_vlan_tags(&self) -> Option<bool> {
        self.interface.removes_vlan_tags()
    }

    /// Whether `frame`, received on `queue`, would reach that queue's port. Runs the attached program without side
    /// effects, in the network namespace the device was opened in.
    ///
    /// # Errors
    /// The queue no longer exists; a frame shorter than an Ethernet header or longer than a page.
    pub fn takes(&mut self, frame: &[u8], queue: u32) -> Result<bool, Error> {
        Ok(self.take.takes(frame, self.interface.index(), queue)?)
    }

    /// What the program did with received frames, over all queues.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes {
        self.take.outcomes()
    }

    /// Frames that the program redirected to ports, over all queues.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.take.outcomes().of(Outcome::Taken)
    }

    /// How the interface differs from its state at the start, or at the last [`refresh`](Self::refresh). Reads a few
    /// files: for once a second, not for the packet path.
    #[must_use]
    pub fn changed(&self) -> Option<InterfaceChange> {
        let Ok(now) = self.interface.facts() else { return Some(InterfaceChange::Gone) };
        let before = self.facts;
        if now.queues != before.queues {
            Some(InterfaceChange::Queues { before: before.queues, now: now.queues })
        } else if now.mac != before.mac {
            Some(InterfaceChange::Mac)
        } else if now.mtu != before.mtu {
            Some(InterfaceChange::Mtu { before: before.mtu, now: now.mtu })
        } else {
            None
        }
    }

    /// Adopts the interface's current state: its MAC address for the program, its MTU for all of its ports, its
    /// queues for ports opened from here on.
    ///
    /// # Errors
    /// It cannot be read: it is gone.
    pub fn refresh(&mut self) -> Result<(), Error> {
        self.facts = self.interface.facts()?;
        self.take.set_mac(Some(self.facts.mac));
        self.max_frame_len.store(self.config.max_transmit_len(self.facts.mtu), Relaxed);
        Ok(())
    }
}

fn attach(take: &mut Take, interface: &Interface, wanted: Attach) -> Result<AttachMode, Error> {
    let name = interface.name();
    let no_native = |error: udpath_bpf::Error| match error {
        udpath_bpf::Error::NoXdp { interface, .. } => Error::NoNative { interface },
        other => other.into(),
    };
    let mode = match wanted {
        Attach::Generic => AttachMode::Generic,
        Attach::Native | Attach::NativeOrGeneric => AttachMode::Native,
    };
    match take.attach(name, mode) {
        Err(udpath_bpf::Error::NoXdp { .. }) if wanted == Attach::NativeOrGeneric => {
            take.attach(name, AttachMode::Generic)?;
            Ok(AttachMode::Generic)
        }
        Err(error) => Err(no_native(error)),
        Ok(()) => Ok(mode),
    }
}
