//! An interface with its program: who gets which datagrams, and a port for each queue.

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

/// Places for sockets in the program's map, eight bytes each: more queues than any NIC has.
const QUEUES: u32 = 4096;
/// Most addresses that are bound one by one, over all ports.
pub(super) const ADDRESSES: u32 = 4096;

/// An interface whose datagrams are taken; let go when this is dropped, and when the process ends in whatever way.
///
/// Ports outlive it: they send on, and get nothing more. A port that is dropped leaves its queue to the kernel. Ports are
/// opened in the network namespace that the device was opened in.
#[derive(Debug)]
pub struct XdpDevice {
    /// First: nothing is taken any more before the rest goes.
    take: Take,
    mode: AttachMode,
    pub(super) interface: Interface,
    pub(super) facts: Facts,
    pub(super) config: Config,
    /// The longest frame that its ports send; they read it each turn.
    max_frame_len: Arc<AtomicUsize>,
}

/// How an interface is no longer as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InterfaceChange {
    /// It cannot be read any more: it was removed.
    Gone,
    /// Its receive queues are others: ports have to be opened for new ones, and those of the rest get nothing.
    Queues {
        /// How many there were.
        before: u32,
        /// How many there are.
        now: u32,
    },
    /// Its MTU is another: until [`XdpDevice::refresh`], [`Properties::max_frame_len`](crate::port::Properties::max_frame_len) of its
    /// ports is not what can be sent.
    Mtu {
        /// What it was, bytes.
        before: u32,
        /// What it is, bytes.
        now: u32,
    },
    /// Its MAC address is another: until [`XdpDevice::refresh`], its datagrams go to the kernel.
    Mac,
}

impl XdpDevice {
    /// Attaches the program to `interface` of the calling thread's network namespace. It takes nothing before
    /// [`bind`](Self::bind) and before a port is open.
    ///
    /// # Errors
    /// No such interface, no permission, another XDP program attached (which one), no native XDP, a configuration that
    /// cannot be.
    pub fn open(interface: &str, config: Config) -> Result<Self, Error> {
        config.check()?;
        let interface = Interface::find(interface)?;
        let longest = config.max_frame_len() as u32;
        let rx_hash = config.rx_hash;
        let mut take = Take::load(&TakeLayout { queues: QUEUES, longest, addresses: ADDRESSES, rx_hash })?;
        let mode = attach(&mut take, &interface, config.attach)?;
        // Drivers may set up their queues anew for a program: what they have is known from now on.
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

    /// The interface's number in its network namespace.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.interface.index()
    }

    /// The interface's own MAC address, as last seen; zeros where it has none.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.facts.mac
    }

    /// Where the program runs.
    #[must_use]
    pub fn mode(&self) -> AttachMode {
        self.mode
    }

    /// Whether the frames of its ports tell the device's RSS hash, and if not, why.
    #[must_use]
    pub fn rx_hash(&self) -> &RxHash {
        self.take.rx_hash()
    }

    /// What its ports are made with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Receive queues, as last seen.
    #[must_use]
    pub fn queues(&self) -> u32 {
        self.facts.queues
    }

    /// Its MTU, bytes, as last seen.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.facts.mtu
    }

    /// Memory of a port on every queue, bytes: [`Config::memory`] of each.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.config.memory() * self.facts.queues as usize
    }

    /// Opens the port of `queue`, with memory of its own, and hands it what is taken there.
    ///
    /// # Errors
    /// No such queue, one that has a socket already, no permission, no memory.
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

    /// Opens a port for every queue, all in one registered memory (`XDP_SHARED_UMEM`): one large mapping instead of
    /// many, and the kernel pins it once. Each port still has frames of its own.
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

    /// Hands `port` what is taken on its queue: one that was opened elsewhere, or that [`release`](Self::release) left.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn hand_to(&mut self, port: &mut XdpPort) -> Result<(), Error> {
        // What lies before its frames is a hash only if this device's program writes one there.
        port.properties.hashed = *self.rx_hash() == RxHash::Device;
        Ok(self.take.set_socket(port.queue(), port.socket.as_fd())?)
    }

    /// Leaves what comes on `queue` to the kernel, for a port that is about to stop: what it has in its ring it has.
    pub fn release(&mut self, queue: u32) {
        self.take.clear_socket(queue);
    }

    /// From now on takes datagrams for `address`: see [`Take::bind`].
    ///
    /// # Errors
    /// Port 0, a group's address, too many addresses.
    pub fn bind(&mut self, address: SocketAddr) -> Result<(), Error> {
        Ok(self.take.bind(address)?)
    }

    /// No longer takes datagrams for `address`. Was it bound?
    pub fn unbind(&mut self, address: SocketAddr) -> bool {
        self.take.unbind(address)
    }

    /// From now on leaves datagrams from these senders to the kernel: see [`Take::set_sources`].
    ///
    /// # Errors
    /// Too many addresses or networks.
    pub fn set_sources(&mut self, sources: &Sources) -> Result<(), Error> {
        Ok(self.take.set_sources(sources)?)
    }

    /// Senders whose datagrams are left to the kernel.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        self.take.sources()
    }

    /// From now on takes tagged frames of these VLANs, whose replies have this priority: see [`Take::set_vlans`].
    pub fn set_vlans(&self, vlans: impl IntoIterator<Item = (u16, u8)>) {
        self.take.set_vlans(vlans);
    }

    /// Whether the device removes VLAN tags before the program sees frames (ethtool: `rx-vlan-offload`), as last set.
    /// Frames of all VLANs then look untagged. `None`: it does not say, or it is no longer there.
    #[must_use]
    pub fn removes_vlan_tags(&self) -> Option<bool> {
        self.interface.removes_vlan_tags()
    }

    /// Would `frame`, had `queue` received it, come to that queue's port? Requests the attached program and disturbs nothing;
    /// in the network namespace the device was opened in.
    ///
    /// # Errors
    /// No such queue any more; a frame shorter than an Ethernet header or longer than a page.
    pub fn takes(&mut self, frame: &[u8], queue: u32) -> Result<bool, Error> {
        Ok(self.take.takes(frame, self.interface.index(), queue)?)
    }

    /// What became of the frames that came, over all queues.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes {
        self.take.outcomes()
    }

    /// Frames that the program redirected to ports, over all queues.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.take.outcomes().of(Outcome::Taken)
    }

    /// How the interface differs from what it was at the start, or at the last [`refresh`](Self::refresh). Reads a few
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

    /// Takes the interface as it is now: its MAC address for the program, its MTU for all of its ports, its queues for
    /// ports opened from here on.
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
