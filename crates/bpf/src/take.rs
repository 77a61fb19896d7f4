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

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use aya::programs::links::FdLink;
use aya::programs::{ProgramError, TestRun, TestRunAttrs, TestRunOptions, TestRunResult, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};

pub use ingress::{Network, Sources};

use crate::attach::{self, object};
use crate::{Error, RxHash, rx_hash};
use ingress::SOURCES;
use maps::{Maps, because, key};

const NAME: &str = "take";
static OBJECT: &[u8] = object!("take");
/// Why no hash comes from the device.
const UNATTACHED: &str = "it is attached to no device";
const UNWANTED: &str = "the device is not asked";
const GENERIC: &str = "no driver is asked in generic mode";
/// Words of a CPU's counters; a power of two, as the program masks with it.
const WORDS: usize = 16;
/// Ports per word of the map.
const PORTS: usize = 8;

/// The program's return value for "redirected" (`enum xdp_action`, linux/bpf.h).
const XDP_REDIRECT: u32 = 4;

/// Bits of a port's byte, as in the program's source.
const ANY_V4: u8 = 1;
const ANY_V6: u8 = 2;
const SOME_V4: u8 = 4;
const SOME_V6: u8 = 8;

macro_rules! outcomes {
    ($($(#[doc = $doc:literal])+ $variant:ident, $name:literal;)+) => {
        /// What happened to a frame, and why it was not taken. The first reason in this order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Outcome {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Outcome {
            /// All of them, each at its index in the program's counters.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name in counters and reports: lower case, words joined by underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

outcomes! {
    /// Redirected to the queue's socket.
    Taken, "taken";
    /// For another MAC address than the interface's own.
    OtherHost, "other_host";
    /// Broadcast or multicast, of the link or of IP.
    Group, "group";
    /// A tag of a VLAN that is not served here, or more than one tag.
    Vlan, "vlan";
    /// Neither IPv4 nor IPv6: ARP, LLDP.
    NotIp, "not_ip";
    /// Truncated, or with inconsistent lengths or version.
    Malformed, "malformed";
    /// IPv4 options.
    Options, "options";
    /// A fragment of a datagram.
    Fragment, "fragment";
    /// An IPv6 extension header.
    Extension, "extension";
    /// Another transport protocol: TCP, ICMP.
    NotUdp, "not_udp";
    /// To a port or address that is not bound here.
    OtherPort, "other_port";
    /// Handled only by the kernel: loopback, unspecified, reserved and IPv4-mapped addresses, a sender equal to the
    /// receiver, port 0, no checksum over IPv6.
    Special, "special";
    /// From an address that the kernel's source validation may reject: one of this host, a broadcast or network
    /// address, one that rp_filter rejects.
    Source, "source";
    /// Longer than the sockets' buffers.
    TooLong, "too_long";
    /// Would have been taken, but its queue has no socket.
    NoSocket, "no_socket";
    /// Would have been taken, but had no room in front for its hash: sent that way by another machine's XDP program.
    NoRoom, "no_room";
}

/// Number of frames by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcomes([u64; WORDS]);

impl Outcomes {
    /// The number of frames with this outcome.
    #[must_use]
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    /// Every outcome with its number of frames.
    pub fn iter(&self) -> impl Iterator<Item = (Outcome, u64)> + '_ {
        Outcome::ALL.iter().map(|outcome| (*outcome, self.of(*outcome)))
    }

    /// Number of frames left to the kernel.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.iter().filter(|(outcome, _)| *outcome != Outcome::Taken).map(|(_, frames)| frames).sum()
    }
}

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
        let refused = |reason: &str| Error::Bind { program: NAME, what: address, reason: reason.into() };
        if address.port() == 0 {
            return Err(refused("a port is needed"));
        }
        let ip = address.ip();
        if ip.is_multicast() || ip == IpAddr::V4(std::net::Ipv4Addr::BROADCAST) {
            return Err(refused("it is the address of a group, which the kernel serves"));
        }
        if self.bound.contains(&address) {
            return Ok(());
        }
        if !ip.is_unspecified() {
            let entered = self.maps.addresses.insert(key(address), 1, 0);
            entered.map_err(|error| refused(&because(&error)))?;
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

    /// Redirects what `queue` receives to `socket`, an AF_XDP socket bound to that queue, until it is closed or
    /// replaced.
    ///
    /// # Errors
    /// The layout has no slot for the queue, or the socket is not an AF_XDP socket.
    pub fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        let set = self.maps.sockets.set(queue, socket.as_raw_fd(), 0);
        set.map_err(|error| Error::Socket { queue, reason: because(&error) })
    }

    /// Leaves what `queue` receives to the kernel.
    pub fn clear_socket(&mut self, queue: u32) {
        // Fails for a queue without a slot, which has no socket anyway.
        let _ = self.maps.sockets.unset(queue);
    }

    /// Frames by outcome so far, over all CPUs. Those of [`takes`](Self::takes) are not included.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes {
        let mut all = (0..self.cpus).fold(Outcomes::default(), |mut sum, cpu| {
            for (sum, count) in sum.0.iter_mut().zip(self.outcomes_on(cpu).0) {
                *sum += count;
            }
            sum
        });
        let taken = &mut all.0[Outcome::Taken as usize];
        *taken = taken.saturating_sub(self.tried);
        all
    }

    /// Frames by outcome on one CPU; all zero for a CPU that does not exist.
    #[must_use]
    pub fn outcomes_on(&self, cpu: usize) -> Outcomes {
        let mut counts = Outcomes::default();
        if cpu < self.cpus {
            for (count, word) in counts.0.iter_mut().zip(self.maps.counts.element(cpu)) {
                *count = word.load(Relaxed);
            }
        }
        counts
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
            .map_err(|error: ProgramError| refused(frame, error.to_string()))?;
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

fn refused(frame: &[u8], reason: String) -> Error {
    Error::Trial { program: NAME, len: frame.len(), reason }
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
