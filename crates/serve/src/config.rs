//! The configuration of a server: [`Config`], checked before anything is opened.

use std::net::SocketAddr;

use udpath_stack::port::xdp as port;
use udpath_steer::CpuSet;

use crate::io::kind::{Io, IoChoice, ReceiveCall};
use crate::tcp::TcpLimits;

/// Maximum datagrams in one burst: the limit of one `recvmmsg` call (the kernel's `UIO_MAXIOV`).
pub const MAX_BATCH: usize = 1024;
/// Maximum number of workers: as many CPUs as an affinity mask holds.
pub const MAX_WORKERS: usize = 1024;
/// Maximum number of addresses of one server. Each costs every worker a socket and the buffers of a burst.
pub const MAX_BINDS: usize = 256;
/// Largest receive buffer that can be requested, in bytes: the kernel doubles it in a signed 32-bit number.
const MAX_RECEIVE_BUFFER: usize = (1 << 30) - 1;

/// What to serve on, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Addresses to serve, IPv4 and IPv6. Port 0 takes a free port. Replies of a wildcard bind come from the address
    /// the request was sent to. `[::]` takes IPv6 only: add `0.0.0.0` for both.
    pub binds: Vec<SocketAddr>,
    /// How datagrams move.
    pub io: IoChoice,
    /// Threads, each with its own service instance; 1 to [`MAX_WORKERS`]. `None`: one per usable CPU.
    pub workers: Option<usize>,
    /// Maximum datagrams per system call, 1 to [`MAX_BATCH`]. With 1, datagrams are received and sent one by one.
    ///
    /// Each takes 128 KiB of address space per worker and address. Only pages that traffic touches use memory: a few
    /// KiB for small datagrams.
    pub batch: usize,
    /// The call with which kernel sockets receive; `None`: the cheapest for the batch and the address. All but
    /// [`ReceiveCall::Recvmmsg`] need a batch of 1, and every one an Io of kernel sockets.
    pub receive_call: Option<ReceiveCall>,
    /// Whether consecutive replies to one peer in a burst are sent as one message that the kernel segments (GSO,
    /// `UDP_SEGMENT`). It helps when peers have several requests in flight, and does not change what is sent. Needs a
    /// batch of more than 1 and kernel 4.18; otherwise it has no effect.
    pub gso: bool,
    /// Whether worker `i` is pinned to the `i`-th CPU of `cpus`, starting over when there are more workers than CPUs.
    pub pin: bool,
    /// The CPUs to use. `None`: all that the process may use.
    pub cpus: Option<CpuSet>,
    /// Receive buffer to request for each socket, in bytes; `None` leaves the system default (`net.core.rmem_default`).
    /// [`crate::SocketStatus`] has the size obtained. TCP: of each connection, which then has no automatic size.
    pub receive_buffer: Option<usize>,
    /// Whether requests to a broadcast or multicast address are answered. Every socket of the port receives a copy; one
    /// worker answers, so each request gets one reply. Off by default: with a forged source address, such a request
    /// makes every server of a network answer one victim (for the same reason the kernel ignores broadcast pings,
    /// `net.ipv4.icmp_echo_ignore_broadcasts`). Unanswered copies are counted as [`DropReason::Broadcast`].
    ///
    /// [`DropReason::Broadcast`]: crate::DropReason::Broadcast
    pub answer_broadcast: bool,
    /// Whether the kernel time-stamps each datagram when it arrives (`SO_TIMESTAMPNS`), for
    /// [`Request::arrived`](crate::Request::arrived). Off by default: while any socket asks for it, the kernel reads
    /// the clock for every packet of the machine, and single datagrams are received with `recvmsg` instead of
    /// `recvfrom`. Datagrams that arrive in the first moments after the start may be stamped when they are read. Frames
    /// of `xdp` have no time stamp.
    pub timestamps: bool,
    /// Whether the server answers nothing until [`Server::release`](crate::Server::release): for a program that gives
    /// up its privileges once sockets and devices are open. What arrives meanwhile waits in queues. Off by default.
    pub hold: bool,
    /// Limits of TCP connections.
    pub tcp: TcpLimits,
    /// Settings of the Io `xdp`; the others ignore them.
    pub xdp: XdpConfig,
}

/// How frames are taken off the network devices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct XdpConfig {
    /// The interfaces. Empty: those that have the served addresses; for a wildcard, all that are up, except the
    /// loopback. A VLAN device is served by the interface below it, with the VLAN's tag.
    pub interfaces: Vec<String>,
    /// Whether frames are spread over workers by flow hash, or served by the worker of the queue they arrived on.
    /// Useful for devices with fewer queues than CPUs, and for services that take longer than the hand-over (about 60
    /// ns).
    pub steer: Steer,
    /// Whether frames of a flow that makes up more than half of the recent traffic are dropped while a worker's backlog
    /// is at least half full, like the kernel's `net.core.flow_limit_cpu_bitmap`. Needs steering: only then are there
    /// backlogs.
    pub flow_limit: bool,
    /// Whether a reply goes back to the MAC address of its request only if the kernel would send it there.
    pub check_neighbours: CheckNeighbours,
    /// Memory, rings and polling of each queue.
    pub port: port::Config,
}

/// Whether a reply over `xdp` goes back to the MAC address of its request only if that is the one of the next hop to
/// the request's source, by the kernel's routes and neighbour table. Other replies leave through the kernel's socket.
///
/// Without the check, a neighbour on the link that forges the source address of a request reads the reply. It costs two
/// lookups per reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckNeighbours {
    /// If the service's replies prove who asked, or contain what only the client may read
    /// ([`Config::with_private_replies`]).
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Which workers serve a frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Steer {
    /// The worker of the queue it arrived on.
    #[default]
    Off,
    /// All workers, by flow hash.
    All,
    /// These worker numbers (counted from 0), by flow hash. The others only hand frames over, for queues whose CPUs
    /// have no time for more.
    To(CpuSet),
}

impl Config {
    /// Default batch. Larger batches gain little once a few dozen datagrams share the system call, and delay the first
    /// reply of a burst; smaller ones cost more per datagram.
    pub const DEFAULT_BATCH: usize = 32;

    /// The same configuration for a service whose replies prove who asked, such as cookies of DNS, or contain what only
    /// the client may read: [`CheckNeighbours::Auto`] is `On`.
    #[must_use]
    pub fn with_private_replies(&self) -> Self {
        let mut config = self.clone();
        if config.xdp.check_neighbours == CheckNeighbours::Auto {
            config.xdp.check_neighbours = CheckNeighbours::On;
        }
        config
    }

    /// Serves these addresses with the best Io, a pinned worker per CPU and the default batch.
    pub fn new(binds: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self {
            binds: binds.into_iter().collect(),
            io: IoChoice::Auto,
            workers: None,
            batch: Self::DEFAULT_BATCH,
            receive_call: None,
            gso: true,
            pin: true,
            cpus: None,
            receive_buffer: None,
            answer_broadcast: false,
            timestamps: false,
            hold: false,
            tcp: TcpLimits::default(),
            xdp: XdpConfig::default(),
        }
    }

    /// Checks the values. Does not query the host.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.binds.is_empty() {
            return Err(ConfigError::NoBind);
        }
        if self.binds.len() > MAX_BINDS {
            return Err(ConfigError::TooManyBinds(self.binds.len()));
        }
        for (index, bind) in self.binds.iter().enumerate() {
            let unusable = match bind {
                SocketAddr::V4(v4) => v4.ip().is_multicast() || v4.ip().is_broadcast(),
                SocketAddr::V6(v6) => v6.ip().is_multicast() || v6.ip().to_ipv4_mapped().is_some(),
            };
            if unusable {
                return Err(ConfigError::Unservable(*bind));
            }
            if bind.port() != 0 && self.binds[..index].contains(bind) {
                return Err(ConfigError::BoundTwice(*bind));
            }
        }
        if let Some(workers) = self.workers
            && !(1..=MAX_WORKERS).contains(&workers)
        {
            return Err(ConfigError::Workers(workers));
        }
        if !(1..=MAX_BATCH).contains(&self.batch) {
            return Err(ConfigError::Batch(self.batch));
        }
        if self.cpus.as_ref().is_some_and(CpuSet::is_empty) {
            return Err(ConfigError::NoCpus);
        }
        if self.tcp.connections == 0 || self.tcp.per_network == 0 {
            return Err(ConfigError::NoConnections);
        }
        self.check_receive_call()?;
        self.check_steering()?;
        match self.receive_buffer {
            Some(bytes) if !(1..=MAX_RECEIVE_BUFFER).contains(&bytes) => {
                Err(ConfigError::ReceiveBuffer(bytes))
            }
            _ => Ok(()),
        }
    }

    fn check_receive_call(&self) -> Result<(), ConfigError> {
        let Some(call) = self.receive_call else { return Ok(()) };
        let wildcard = self.binds.iter().find(|bind| bind.ip().is_unspecified());
        match (call, self.io, wildcard) {
            (_, IoChoice::Auto | IoChoice::Only(Io::Xdp), _) => Err(ConfigError::NoReceiveCall(call)),
            (ReceiveCall::Recvfrom | ReceiveCall::Recvmsg, ..) if self.batch > 1 => {
                Err(ConfigError::OneAtATime { call, batch: self.batch })
            }
            (ReceiveCall::Recvfrom, _, Some(bind)) => Err(ConfigError::NoDestination(*bind)),
            (ReceiveCall::Recvfrom, ..) if self.timestamps => Err(ConfigError::NoTimestamps),
            _ => Ok(()),
        }
    }

    fn check_steering(&self) -> Result<(), ConfigError> {
        let XdpConfig { steer, flow_limit, .. } = &self.xdp;
        if *flow_limit && *steer == Steer::Off {
            return Err(ConfigError::FlowLimitAlone);
        }
        if *steer == Steer::Off {
            return Ok(());
        }
        match (self.io, steer, self.workers) {
            (IoChoice::Only(io), ..) if io != Io::Xdp => Err(ConfigError::NothingToSteer(io)),
            (_, Steer::To(some), _) if some.is_empty() => Err(ConfigError::SteerToNoWorker),
            (_, Steer::To(some), Some(workers)) => match some.last() {
                Some(worker) if worker as usize >= workers => {
                    Err(ConfigError::NoSuchWorker { worker, workers })
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// A configuration that is invalid on every host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No address.
    #[error("no address to serve: give at least one, such as 0.0.0.0:7")]
    NoBind,
    /// Too many addresses.
    #[error("{0} addresses are too many: serve at most {MAX_BINDS}")]
    TooManyBinds(usize),
    /// A multicast, broadcast or IPv4-mapped IPv6 address.
    #[error("cannot serve {0}: give a unicast or wildcard address (IPv4 addresses in IPv4 form)")]
    Unservable(SocketAddr),
    /// The same address and port twice.
    #[error("address {0} is given twice")]
    BoundTwice(SocketAddr),
    /// 0 workers, or more than [`MAX_WORKERS`].
    #[error("invalid number of workers {0}: expected 1 to {MAX_WORKERS}, ideally one per CPU")]
    Workers(usize),
    /// A batch of 0, or more than one system call can take.
    #[error("invalid batch {0}: expected 1 to {MAX_BATCH} datagrams")]
    Batch(usize),
    /// A receive call where none may be made.
    #[error("{0} is a call of kernel sockets, and xdp receives frames: use --io shared, reuseport or percpu")]
    NoReceiveCall(ReceiveCall),
    /// A batch with a call that receives one datagram.
    #[error("{call} receives one datagram per call, not {batch}: use --batch 1, or recvmmsg")]
    OneAtATime {
        /// The call.
        call: ReceiveCall,
        /// The batch.
        batch: usize,
    },
    /// A wildcard address with a call that does not return a datagram's destination.
    #[error(
        "recvfrom does not return the address that a reply must come from on {0}: bind one address, or use recvmsg"
    )]
    NoDestination(SocketAddr),
    /// Time stamps with a call that does not return them.
    #[error("recvfrom does not return the time stamps that this service needs: use recvmsg or recvmmsg")]
    NoTimestamps,
    /// A limit of 0 TCP connections.
    #[error("0 TCP connections per worker, or per network, serve nobody: expected at least 1")]
    NoConnections,
    /// An empty list of CPUs.
    #[error("the list of CPUs is empty: name at least one, or omit it to use all")]
    NoCpus,
    /// A flow limit without backlogs to protect.
    #[error("--flow-limit needs --steer: it limits the backlogs between workers, which only steering has")]
    FlowLimitAlone,
    /// Steering with an Io that has no frames.
    #[error("{0} has no frames to steer: the kernel chooses the socket; use --io xdp, or omit --steer")]
    NothingToSteer(Io),
    /// Steering to an empty set of workers.
    #[error("the list of workers to steer to is empty: name at least one, or omit it to use all")]
    SteerToNoWorker,
    /// Steering to a worker that does not exist.
    #[error("cannot steer to worker {worker}: there are {workers} workers, counted from 0")]
    NoSuchWorker {
        /// The number given.
        worker: u32,
        /// How many there will be.
        workers: usize,
    },
    /// A receive buffer of 0 bytes, or more than the kernel can express.
    #[error("invalid receive buffer size {0}: expected 1 to {MAX_RECEIVE_BUFFER} bytes")]
    ReceiveBuffer(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(change: impl FnOnce(&mut Config)) -> Result<(), ConfigError> {
        let mut config = Config::new(["127.0.0.1:7".parse().unwrap()]);
        change(&mut config);
        config.check()
    }

    #[test]
    fn valid_values_pass() {
        assert_eq!(config(|_| ()), Ok(()));
        assert_eq!(config(|c| c.batch = MAX_BATCH), Ok(()));
        assert_eq!(config(|c| c.binds = vec!["127.0.0.1:0".parse().unwrap(); 2]), Ok(()));
    }

    #[test]
    fn private_replies_are_checked_unless_the_user_says_otherwise() {
        for (given, then) in [
            (CheckNeighbours::Auto, CheckNeighbours::On),
            (CheckNeighbours::On, CheckNeighbours::On),
            (CheckNeighbours::Off, CheckNeighbours::Off),
        ] {
            let mut config = Config::new(["127.0.0.1:7".parse().unwrap()]);
            config.xdp.check_neighbours = given;
            assert_eq!(config.with_private_replies().xdp.check_neighbours, then);
        }
    }

    #[test]
    fn invalid_values_are_named() {
        assert_eq!(config(|c| c.binds.clear()), Err(ConfigError::NoBind));
        assert_eq!(config(|c| c.batch = 0), Err(ConfigError::Batch(0)));
        assert_eq!(config(|c| c.batch = 1025), Err(ConfigError::Batch(1025)));
        assert_eq!(config(|c| c.workers = Some(0)), Err(ConfigError::Workers(0)));
        assert_eq!(config(|c| c.workers = Some(1 << 40)), Err(ConfigError::Workers(1 << 40)));
        assert_eq!(config(|c| c.receive_buffer = Some(0)), Err(ConfigError::ReceiveBuffer(0)));
        assert_eq!(config(|c| c.receive_buffer = Some(1 << 31)), Err(ConfigError::ReceiveBuffer(1 << 31)));
        assert_eq!(config(|c| c.cpus = Some(CpuSet::new())), Err(ConfigError::NoCpus));
        assert_eq!(config(|c| c.tcp.connections = 0), Err(ConfigError::NoConnections));
        assert_eq!(config(|c| c.tcp.per_network = 0), Err(ConfigError::NoConnections));
        assert_eq!(config(|c| c.xdp.flow_limit = true), Err(ConfigError::FlowLimitAlone));
        let steered = |io, steer, workers| {
            config(|c| (c.io, c.xdp.steer, c.xdp.flow_limit, c.workers) = (io, steer, true, workers))
        };
        assert_eq!(steered(IoChoice::Auto, Steer::All, None), Ok(()));
        let some = Steer::To(CpuSet::from_list("0,3").unwrap());
        assert_eq!(steered(IoChoice::Only(Io::Xdp), some.clone(), Some(4)), Ok(()));
        let missing = ConfigError::NoSuchWorker { worker: 3, workers: 3 };
        assert_eq!(steered(IoChoice::Auto, some.clone(), Some(3)), Err(missing));
        let shared = ConfigError::NothingToSteer(Io::Shared);
        assert_eq!(steered(IoChoice::Only(Io::Shared), some, None), Err(shared));
        assert_eq!(
            steered(IoChoice::Auto, Steer::To(CpuSet::new()), None),
            Err(ConfigError::SteerToNoWorker)
        );
        let call = |call, io, batch, bind: &str| {
            let bind = bind.parse().unwrap();
            config(|c| (c.receive_call, c.io, c.batch, c.binds) = (Some(call), io, batch, vec![bind]))
        };
        let (one, any, shared) = ("127.0.0.1:7", "[::]:7", IoChoice::Only(Io::Shared));
        assert_eq!(call(ReceiveCall::Recvmmsg, shared, 32, any), Ok(()));
        assert_eq!(call(ReceiveCall::Recvmsg, shared, 1, any), Ok(()));
        assert_eq!(call(ReceiveCall::Recvfrom, shared, 1, one), Ok(()));
        for io in [IoChoice::Auto, IoChoice::Only(Io::Xdp)] {
            let none = ConfigError::NoReceiveCall(ReceiveCall::Recvmmsg);
            assert_eq!(call(ReceiveCall::Recvmmsg, io, 32, one), Err(none));
        }
        let many = ConfigError::OneAtATime { call: ReceiveCall::Recvmsg, batch: 2 };
        assert_eq!(call(ReceiveCall::Recvmsg, shared, 2, one), Err(many));
        let wildcard = ConfigError::NoDestination(any.parse().unwrap());
        assert_eq!(call(ReceiveCall::Recvfrom, shared, 1, any), Err(wildcard));
        assert_eq!(
            config(|c| (c.receive_call, c.io, c.batch, c.timestamps) =
                (Some(ReceiveCall::Recvfrom), shared, 1, true)),
            Err(ConfigError::NoTimestamps)
        );
        for text in ["224.0.0.1:7", "255.255.255.255:7", "[ff02::1]:7", "[::ffff:127.0.0.1]:7"] {
            let bind: SocketAddr = text.parse().unwrap();
            assert_eq!(config(|c| c.binds.push(bind)), Err(ConfigError::Unservable(bind)));
        }
        let twice = "127.0.0.1:7".parse().unwrap();
        assert_eq!(config(|c| c.binds.push(twice)), Err(ConfigError::BoundTwice(twice)));
        let binds = vec!["127.0.0.1:0".parse().unwrap(); MAX_BINDS + 1];
        assert_eq!(config(|c| c.binds = binds), Err(ConfigError::TooManyBinds(MAX_BINDS + 1)));
    }
}
