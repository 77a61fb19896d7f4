//! Why frames cannot be taken from a network device.

use std::net::{IpAddr, SocketAddr};

use udpath_stack::epoch::TooManyReaders;
use udpath_stack::port::xdp;
use udpath_stack::tables::MirrorError;
use udpath_stack::{groups, mesh};

/// Why frames cannot be taken from a network device. The cause is the [source](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpError {
    /// The addresses, routes and interfaces of the host cannot be read.
    #[error("cannot follow the addresses and routes of this host")]
    Mirror(#[source] MirrorError),
    /// The address tables have too few places for readers.
    #[error("cannot read the address tables")]
    Reader(#[from] TooManyReaders),
    /// An operation on an interface failed.
    #[error("cannot {operation} interface '{interface}'")]
    Interface {
        /// The operation that failed.
        operation: &'static str,
        /// The interface.
        interface: String,
        /// The cause.
        #[source]
        source: Box<xdp::Error>,
    },
    /// The program of an interface cannot take datagrams for an address.
    #[error("cannot take datagrams for {address} from interface '{interface}'")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The interface.
        interface: String,
        /// The cause.
        #[source]
        source: Box<xdp::Error>,
    },
    /// The addresses cannot be served from frames.
    #[error("cannot serve these addresses from frames")]
    Groups(#[source] groups::Error),
    /// The rings between workers cannot be made.
    #[error("cannot connect {workers} workers")]
    Mesh {
        /// How many workers.
        workers: usize,
        /// The cause.
        #[source]
        source: mesh::Error,
    },
    /// More workers than the rings between them can connect.
    #[error("{0} workers are too many to exchange frames: use {max} or fewer", max = u16::MAX)]
    TooManyWorkers(usize),
    /// Fewer workers than receive queues.
    #[error(
        "{queues} queues ({interfaces}) need at least as many workers, but --workers is {workers}; use {queues}, or lower the \
         number of queues with `ethtool -L`"
    )]
    TooFewWorkers {
        /// Receive queues of all interfaces.
        queues: usize,
        /// The interfaces.
        interfaces: String,
        /// Workers requested.
        workers: usize,
    },
    /// Steering to a worker that does not exist.
    #[error("cannot steer to worker {worker}: there are {workers} workers, counted from 0")]
    NoSuchWorker {
        /// The worker.
        worker: u32,
        /// How many workers there are.
        workers: u16,
    },
    /// The address belongs to an interface without frames, such as the loopback.
    #[error("{0} is not an address of a network device; serve one, or use reuseport")]
    NotOnDevice(IpAddr),
    /// No interface has a served address.
    #[error("no network device has a served address; name one with --interface")]
    NoDevice,
    /// The device removes VLAN tags, so its program cannot recognise VLANs that are to be served.
    #[error(
        "{interface} removes VLAN tags before xdp sees them, so frames of {vlans} cannot be recognized; run \
         'ethtool -K {interface} rxvlan off', or use reuseport"
    )]
    VlanTagsRemoved {
        /// The interface.
        interface: String,
        /// The VLAN devices that are to be served.
        vlans: String,
    },
}

impl XdpError {
    /// For `map_err`: `interface` cannot take datagrams for `address`.
    pub(super) fn address(address: SocketAddr, interface: &str) -> impl FnOnce(xdp::Error) -> Self {
        let interface = interface.to_owned();
        move |source| Self::Address { address, interface, source: Box::new(source) }
    }

    /// For `map_err`: `operation` failed on `interface`.
    pub(super) fn on(operation: &'static str, interface: &str) -> impl FnOnce(xdp::Error) -> Self {
        let interface = interface.to_owned();
        move |source| Self::Interface { operation, interface, source: Box::new(source) }
    }
}
