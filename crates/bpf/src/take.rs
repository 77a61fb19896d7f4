//! Takes datagrams from an interface for AF_XDP sockets: loader and shared state of `bpf/take.bpf.c`.
//!
//! ```text
//!   Take::load ▸ bind, set_mac, set_socket ▸ attach      the first three also work while attached
//!                    │          │
//!                    │          └ sockets[queue]   closing a socket clears its entry: its queue's frames are passed
//!                    └ ports, addresses
//!
//!   set_sources   senders left to the kernel                  set_vlans   VLANs whose tagged frames are taken
//!
//!   judge    the outcome for a frame: not attached, nothing redirected
//!   takes    would it redirect a frame of this queue? also while attached
//!   inject   the kernel handles a frame as if the interface's queue 0 had received it: not attached
//! ```
//! If the hash of frames is requested and the driver reports it, a second program of the same source is attached
//! instead, with the same maps, and puts the hash in front of each frame: see [`RxHash`].

mod ingress;
mod maps;
mod outcome;
mod sources;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{AcqRel, Release};

use aya::programs::links::FdLink;
use aya::programs::{ProgramError, TestRun, TestRunAttrs, TestRunOptions, TestRunResult, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};

pub use outcome::{Outcome, Outcomes};
pub use sources::{Network, Sources};

use crate::attach::{self, object};
use crate::error::Cause;
use crate::{Error, RxHash, rx_hash};
use maps::{Maps, NAME, PORTS, because, key};
use sources::SOURCES;

static OBJECT: &[u8] = object!("take");
/// Why no hash comes from the device.
const UNATTACHED: &str = "not attached to a device";
const UNWANTED: &str = "not requested from the device";
const GENERIC: &str = "not available in generic mode";

/// The program's return value for "redirected" (`enum xdp_action`, linux/bpf.h).
const XDP_REDIRECT: u32 = 4;

/// Bits of a port's byte, as in the program's source.
const ANY_V4: u8 = 1;
const ANY_V6: u8 = 2;
const SOME_V4: u8 = 4;
const SOME_V6: u8 = 8;

/// Where an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver, before the kernel allocates an skb.
    Native,
    /// After the driver, on skbs: works with every driver, but saves little.
    Generic,
}

impl std::fmt::Display for AttachMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// Parameters fixed before the program is loaded.
#[derive(Debug, Clone, Copy)]
pub struct TakeLayout {
    /// Slots for sockets: the maximum number of receive queues the interface may have while the program is attached.
    pub queues: u32,
    /// The longest frame that is taken, bytes: the size of the sockets' buffers.
    pub longest: u32,
    /// Maximum number of bound addresses other than wildcards. Each takes about 100 bytes of kernel memory.
    pub addresses: u32,
    /// Whether to add the device's RSS hash to frames if its driver reports it: [`Take::rx_hash`].
    pub rx_hash: bool,
}

/// The program with its maps. Detached when dropped, and when the process ends for any reason.
#[derive(Debug)]
pub struct Take {
    /// Dropped first: closing this descriptor detaches.
    link: Option<Link>,
    maps: Maps,
    /// Descriptors of `maps` and of the object's other maps, if the hash is requested.
    by_name: Option<Vec<(String, RawFd)>>,
    rx_hash: RxHash,
    bound: BTreeSet<SocketAddr>,
    /// The sources set in the program.
    sources: Sources,
    cpus: usize,
    /// Frames of `Take::takes` among those counted as taken.
    tried: u64,
    object: Ebpf,
}

/// One of the two programs, attached until this is dropped.
#[derive(Debug)]
enum Link {
    Plain { _link: FdLink },
    Hashed { _link: OwnedFd },
}

impl Take {
    /// Loads the program; it takes nothing until something is bound, and sees nothing until it is attached.
    ///
    /// # Errors
    /// No permission, no memory.
    pub fn load(layout: &TakeLayout) -> Result<Self, Error> {
        let cpus = aya::util::nr_cpus().map_err(|(_, cause)| Error::NotPermitted { program: NAME, cause })?;
        let mut loader = EbpfLoader::new();
        loader
            .override_global("longest", &layout.longest, true)
            .map_max_entries("counts", cpus as u32)
            .map_max_entries("addresses", layout.addresses.max(1))
            .map_max_entries("sources", SOURCES)
            .map_max_entries("prefixes", SOURCES)
            .map_max_entries("sockets", layout.queues.max(1));
        let mut object = attach::load_xdp(NAME, &mut loader, OBJECT)?;
        let by_name = layout.rx_hash.then(|| rx_hash::maps(&object));
        let maps = Maps::of(&mut object, cpus)?;
        let rx_hash = RxHash::Computed(UNATTACHED.into());
        let (bound, sources) = (BTreeSet::new(), Sources::default());
        let take = Self { link: None, maps, by_name, rx_hash, bound, sources, cpus, tried: 0, object };
        take.set_vlans([]);
        Ok(take)
    }

    /// Attaches it to `interface` in the calling thread's network namespace, until dropped. If it is already attached
    /// elsewhere, it is detached there first.
    ///
    /// # Errors
    /// No such interface, no XDP in this mode, another program attached (which one), no permission.
    pub fn attach(&mut self, interface: &str, mode: AttachMode) -> Result<(), Error> {
        self.link = None;
        self.rx_hash = RxHash::Computed(UNATTACHED.into());
        let why_not = match (&self.by_name, mode) {
            (None, _) => UNWANTED.into(),
            (_, AttachMode::Generic) => GENERIC.into(),
            (Some(maps), AttachMode::Native) => match rx_hash::attach(OBJECT, maps, interface) {
                Ok(link) => {
                    self.link = Some(Link::Hashed { _link: link });
                    self.rx_hash = RxHash::Device;
                    return Ok(());
                }
                // Whatever the reason: if the other program cannot be attached either, that is the error to report.
                Err(reason) => reason,
            },
        };
        let mode = match mode {
            AttachMode::Native => XdpMode::Driver,
            AttachMode::Generic => XdpMode::Skb,
        };
        let link = attach::xdp_link(NAME, &mut self.object, interface, mode)?;
        self.link = Some(Link::Plain { _link: link });
        self.rx_hash = RxHash::Computed(why_not);
        Ok(())
    }

    /// Whether frames currently come with the device's RSS hash, and if not, why.
    #[must_use]
    pub fn rx_hash(&self) -> &RxHash {
        &self.rx_hash
    }

    /// Starts taking datagrams for `address`. The address 0.0.0.0 means every IPv4 address, `::` every IPv6 address and
    /// no IPv4 one; an IPv4-mapped address means the IPv4 address.
    ///
    /// A wildcard also takes datagrams that this machine would forward, and those for a subnet's broadcast address: if
    /// those must stay with the kernel, bind the machine's addresses individually.
    ///
    /// # Errors
    /// Port 0, a multicast or broadcast address, more addresses than the layout has room for.
    pub fn bind(&mut self, address: SocketAddr) -> Result<(), Error> {
        let address = canonical(address);
        let refused = |source: Cause| Error::Bind { program: NAME, what: address, source };
        if address.port() == 0 {
            return Err(refused("the port must not be 0".into()));
        }
        let ip = address.ip();
        if ip.is_multicast() || ip == IpAddr::V4(std::net::Ipv4Addr::BROADCAST) {
            return Err(refused("multicast and broadcast addresses are served by the kernel".into()));
        }
        if self.bound.contains(&address) {
            return Ok(());
        }
        if !ip.is_unspecified() {
            let entered = self.maps.addresses.insert(key(address), 1, 0);
            entered.map_err(|error| refused(because(&error)))?;
        }
        self.bound.insert(address);
        self.publish(address.port());
        Ok(())
    }

    /// Stops taking datagrams for `address`. Returns whether it was bound. Frames already being processed may still
    /// arrive.
    pub fn unbind(&mut self, address: SocketAddr) -> bool {
        let address = canonical(address);
        let was_bound = self.bound.remove(&address);
        if was_bound {
            self.publish(address.port());
            if !address.ip().is_unspecified() {
                // Removal fails only if the key does not exist.
                let _ = self.maps.addresses.remove(&key(address));
            }
        }
        was_bound
    }

    /// The bound addresses, in order.
    pub fn bound(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.bound.iter().copied()
    }

    /// Takes only frames for this MAC address from now on; `None`, and the loopback's zeros: for any unicast address.
    pub fn set_mac(&self, mac: Option<[u8; 6]>) {
        let [a, b, c, d, e, f] = mac.unwrap_or_default();
        self.maps.mac.element(0)[0].store(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), Release);
    }

    /// Leaves datagrams from exactly these senders to the kernel from now on. Senders in both sets are left throughout.
    ///
    /// # Errors
    /// More than 16,384 addresses or networks, or a prefix longer than its address. The previous set then stays in
    /// effect.
    pub fn set_sources(&mut self, sources: &Sources) -> Result<(), Error> {
        ingress::replace_sources(&mut self.maps, &self.sources, sources)?;
        self.sources.clone_from(sources);
        Ok(())
    }

    /// Senders whose datagrams are left to the kernel.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Takes tagged frames (IEEE 802.1Q) of these VLANs, 1 to 4094, from now on, and writes this priority (PCP, 0 to 7)
    /// into their tag, which a reply keeps. Untagged frames, and those of VLAN 0 without their tag, are always taken;
    /// those of other VLANs are left to the kernel.
    pub fn set_vlans(&self, vlans: impl IntoIterator<Item = (u16, u8)>) {
        ingress::write_vlans(&self.maps, vlans);
    }

    /// Redirects what `queue` receives to `socket`, an AF_XDP socket bound to that queue, until it is closed or
    /// replaced.
    ///
    /// # Errors
    /// The layout has no slot for the queue, or the socket is not an AF_XDP socket.
    pub fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        let set = self.maps.sockets.set(queue, socket.as_raw_fd(), 0);
        set.map_err(|error| Error::Socket { queue, source: because(&error) })
    }

    /// Leaves what `queue` receives to the kernel.
    pub fn clear_socket(&mut self, queue: u32) {
        // Fails for a queue without a slot, which has no socket anyway.
        let _ = self.maps.sockets.unset(queue);
    }

    /// Frames by outcome so far, over all CPUs. Those of [`takes`](Self::takes) are not included.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes {
        let mut all = Outcomes::default();
        for cpu in 0..self.cpus {
            all.add(&self.outcomes_on(cpu));
        }
        all.subtract_taken(self.tried);
        all
    }

    /// Frames by outcome on one CPU; all zero for a CPU that does not exist.
    #[must_use]
    pub fn outcomes_on(&self, cpu: usize) -> Outcomes {
        if cpu < self.cpus { Outcomes::read(self.maps.counts.element(cpu)) } else { Outcomes::default() }
    }

    /// The program's outcome for `frame`, without an interface: it counts, and nothing is redirected.
    ///
    /// The queue is 0, so a frame to be taken is `Taken` if queue 0 has a socket and `NoSocket` if not.
    ///
    /// # Errors
    /// The program is attached, so that the counters include other frames; the frame is shorter than an Ethernet header
    /// or longer than a page, which the kernel rejects.
    pub fn judge(&self, frame: &[u8]) -> Result<Outcome, Error> {
        if self.link.is_some() {
            return Err(refused(frame, "it is attached".into()));
        }
        let before = self.outcomes();
        let mut out = vec![0; frame.len()];
        let options = TestRunOptions { data_out: Some(&mut out), ..TestRunOptions::default() };
        self.run(frame, options)?;
        let after = self.outcomes();
        after
            .iter()
            .zip(before.iter())
            .find(|((_, after), (_, before))| after > before)
            .map(|((outcome, _), _)| outcome)
            .ok_or_else(|| refused(frame, "it counted nothing".into()))
    }

    /// Would the program, as currently configured, redirect `frame` to the socket of `queue`, had the interface with
    /// this index received it there? Nothing is redirected, and frames that arrive during the call are not affected.
    ///
    /// # Errors
    /// No such interface or queue; lengths as for [`judge`](Self::judge).
    pub fn takes(&mut self, frame: &[u8], interface: u32, queue: u32) -> Result<bool, Error> {
        let context = context(frame, interface, queue);
        let mut out = vec![0; frame.len()];
        let options =
            TestRunOptions { data_out: Some(&mut out), ctx_in: Some(&context), ..TestRunOptions::default() };
        let taken = self.run(frame, options)?.return_value == XDP_REDIRECT;
        self.tried += u64::from(taken);
        Ok(taken)
    }

    /// Makes the kernel process `frame` as if queue 0 of the interface with this index had received it: taken frames go
    /// to that queue's socket, passed frames to the kernel.
    ///
    /// Other queues are not possible: the kernel always reports queue 0 for such frames (`xdp_test_run_setup`,
    /// net/bpf/test_run.c), and a socket receives only from the queue that it is bound to. A socket's rings have one
    /// producer and no lock. So nothing else may deliver frames to it during the call: neither an attached program nor,
    /// with zero-copy, the driver.
    ///
    /// # Errors
    /// The program is attached; no such interface; a kernel before 5.18.
    pub fn inject(&self, frame: &[u8], interface: u32) -> Result<(), Error> {
        if self.link.is_some() {
            return Err(refused(frame, "it is attached".into()));
        }
        let context = context(frame, interface, 0);
        let attrs = TestRunAttrs::new().xdp_live_frames(1);
        self.run(frame, TestRunOptions { ctx_in: Some(&context), attrs, ..TestRunOptions::default() })?;
        Ok(())
    }

    fn run(&self, frame: &[u8], options: TestRunOptions<'_>) -> Result<TestRunResult, Error> {
        let program: &Xdp = self
            .object
            .program(NAME)
            .ok_or_else(|| refused(frame, "the object has no program of that name".into()))?
            .try_into()
            .map_err(|error: ProgramError| refused(frame, attach::cause(&error)))?;
        let options = TestRunOptions { data_in: Some(frame), repeat: 1, ..options };
        program.test_run(options).map_err(|error| refused(frame, because(&error)))
    }

    /// Writes the bindings of `port` to the program's map.
    fn publish(&self, port: u16) {
        let bits = self.bound.iter().filter(|address| address.port() == port).fold(0, |bits, address| {
            bits | match (address.ip().is_unspecified(), address.is_ipv4()) {
                (true, true) => ANY_V4,
                (true, false) => ANY_V6,
                (false, true) => SOME_V4,
                (false, false) => SOME_V6,
            }
        });
        let shift = usize::from(port) % PORTS * 8;
        let word = &self.maps.ports.element(usize::from(port) / PORTS)[0];
        // In two steps, so that what stays bound is never seen unbound, and the word's other ports never change.
        word.fetch_and(!(0xff << shift) | u64::from(bits) << shift, AcqRel);
        word.fetch_or(u64::from(bits) << shift, AcqRel);
    }
}

fn refused(frame: &[u8], source: Cause) -> Error {
    Error::Trial { program: NAME, len: frame.len(), source }
}

/// `struct xdp_md` (linux/bpf.h) of a test run: data, data_end, data_meta, ingress_ifindex, rx_queue_index,
/// egress_ifindex.
fn context(frame: &[u8], interface: u32, queue: u32) -> Vec<u8> {
    // The length has not been checked yet, and the kernel rejects one that is not the frame's.
    let end = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    [0, end, 0, interface, queue, 0].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect()
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests;
