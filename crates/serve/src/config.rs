//! What to serve on and how: [`Config`], checked before anything is opened.

use std::net::SocketAddr;

use udpath_stack::port::xdp as port;
use udpath_steer::CpuSet;

use crate::io::{Io, IoChoice};

/// Most datagrams in one burst: what one `recvmmsg` call takes (`UIO_MAXIOV` of the kernel).
pub const MAX_BATCH: usize = 1024;
/// Most workers: as many CPUs as a mask of the affinity calls names.
pub const MAX_WORKERS: usize = 1024;
/// Most addresses of one server. Each costs every worker a socket and the buffers of a burst.
pub const MAX_BINDS: usize = 256;
/// Largest receive buffer that can be asked for, in bytes: the kernel doubles it in a signed 32-bit number.
const MAX_RECEIVE_BUFFER: usize = (1 << 30) - 1;

/// What to serve on and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Addresses to serve, IPv4 and IPv6. Port 0 takes a free one; a wildcard address answers from the address
    /// that was asked. `[::]` takes IPv6 only: name `0.0.0.0` too for both.
    pub binds: Vec<SocketAddr>,
    /// How datagrams move.
    pub io: IoChoice,
    /// Threads, each with its own service instance; 1 to [`MAX_WORKERS`]. `None`: one per usable CPU.
    pub workers: Option<usize>,
    /// Most datagrams per system call, 1 to [`MAX_BATCH`]. 1 uses the single calls.
    ///
    /// Costs address space of 128 KiB each, per worker and address, of which only what traffic touches becomes
    /// memory: a few KiB for small datagrams.
    pub batch: usize,
    /// Whether replies of a burst that go to one peer in a row are handed to the kernel in one piece and cut apart at
    /// the end (GSO, `UDP_SEGMENT`). Worth much where peers have several requests in flight, nothing elsewhere; what
    /// goes out is the same. Needs a batch of more than 1 and kernel 4.18; without, it is silently not done.
    pub gso: bool,
    /// Whether worker `i` is bound to CPU `i` of `cpus`, counting on from the first when there are more workers.
    pub pin: bool,
    /// The CPUs to use. `None`: all that the process may use.
    pub cpus: Option<CpuSet>,
    /// Bytes to ask for each socket's receive buffer; `None` leaves the system's default
    /// (`net.core.rmem_default`). What was obtained is in [`crate::SocketStatus`].
    pub receive_buffer: Option<usize>,
    /// Whether requests to a broadcast or multicast address are answered. The kernel hands a copy to every socket of the
    /// port; one worker answers, so one request brings one answer. By default none: whoever forges the source address of
    /// such a request makes every server of a network answer a victim (the kernel does the same by default for ICMP,
    /// `net.ipv4.icmp_echo_ignore_broadcasts`). Copies without an answer are counted as [`DropReason::Broadcast`].
    ///
    /// [`DropReason::Broadcast`]: crate::DropReason::Broadcast
    pub answer_broadcast: bool,
    /// What the Io `xdp` needs beside; other Io do not look at it.
    pub xdp: XdpConfig,
}

/// How frames are taken off the network devices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct XdpConfig {
    /// The interfaces. Empty: those that have the addresses served; a wildcard's are all that are up, the loopback
    /// excepted. For a VLAN device the interface below it is used, with the VLAN's tag.
    pub interfaces: Vec<String>,
    /// Whether frames are spread over workers by flow hash, or served by the worker whose queue they came on. For
    /// devices with fewer queues than there are CPUs, and services that take longer than the hand-over (some 60 ns).
    pub steer: Steer,
    /// Whether a flow that has more than half of what came last is cut while a worker's backlog is half full or more, as
    /// the kernel does with `net.core.flow_limit_cpu_bitmap`. Needs steering: only then are there backlogs.
    pub flow_limit: bool,
    /// Memory, rings and polling of each queue.
    pub port: port::Config,
}

/// Which workers serve a frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Steer {
    /// The one whose queue it came on.
    #[default]
    Off,
    /// All of them, by flow hash.
    All,
    /// These, by flow hash: workers' numbers, from 0 on. The others only hand over, for queues whose CPUs have enough
    /// to do with that.
    To(CpuSet),
}

impl Config {
    /// Default burst. Larger ones gain little once the system call is shared by a few dozen datagrams, and delay
    /// the first reply of a burst; smaller ones pay more per datagram.
    pub const DEFAULT_BATCH: usize = 32;

    /// Serves these addresses with the best Io, a pinned worker per CPU and the default batch.
    pub fn new(binds: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self {
            binds: binds.into_iter().collect(),
            io: IoChoice::Auto,
            workers: None,
            batch: Self::DEFAULT_BATCH,
            gso: true,
            pin: true,
            cpus: None,
            receive_buffer: None,
            answer_broadcast: false,
            xdp: XdpConfig::default(),
        }
    }

    /// Whether the values make sense. Does not ask the machine anything.
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
        self.check_steering()?;
        match self.receive_buffer {
            Some(bytes) if !(1..=MAX_RECEIVE_BUFFER).contains(&bytes) => {
                Err(ConfigError::ReceiveBuffer(bytes))
            }
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
            (_, Steer::To(some), _) if some.is_empty() => Err(ConfigError::SteerToNobody),
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

/// A configuration that makes no sense on any machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Nothing to serve on.
    #[error("no address to serve: give at least one, such as 0.0.0.0:7")]
    NoBind,
    /// Too many addresses.
    #[error("{0} addresses to serve are too many: at most {MAX_BINDS}")]
    TooManyBinds(usize),
    /// Multicast, broadcast or an IPv4 address in IPv6 clothes.
    #[error("cannot serve {0}: give a unicast or wildcard address (IPv4 addresses in IPv4 form)")]
    Unservable(SocketAddr),
    /// The same address and port twice.
    #[error("{0} is named twice: name each address once")]
    BoundTwice(SocketAddr),
    /// 0 workers, or more than a machine can have CPUs.
    #[error("{0} workers make no sense: give 1 to {MAX_WORKERS}, best one per CPU")]
    Workers(usize),
    /// A batch of 0, or more than one system call can carry.
    #[error("a batch of {0} is not possible: give 1 to {MAX_BATCH} datagrams")]
    Batch(usize),
    /// An empty list of CPUs.
    #[error("the list of CPUs is empty: name at least one, or leave it out for all")]
    NoCpus,
    /// A limit of flows without backlogs to protect.
    #[error("a flow limit protects the backlogs between workers, which there are with --steer alone: add it")]
    FlowLimitAlone,
    /// Steering where there are no frames.
    #[error("{0} has no frames to steer: the kernel chooses its sockets; use --io xdp, or leave --steer out")]
    NothingToSteer(Io),
    /// Steering to an empty set of workers.
    #[error("the list of workers to steer to is empty: name at least one, or leave it out for all")]
    SteerToNobody,
    /// A worker that there is not.
    #[error("there is no worker {worker} to steer to: {workers} are asked for, counted from 0")]
    NoSuchWorker {
        /// The number given.
        worker: u32,
        /// How many there will be.
        workers: usize,
    },
    /// A receive buffer of 0 or one the kernel cannot express.
    #[error("a receive buffer of {0} bytes is not possible: give 1 to {MAX_RECEIVE_BUFFER}")]
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
    fn sensible_values_pass() {
        assert_eq!(config(|_| ()), Ok(()));
        assert_eq!(config(|c| c.batch = MAX_BATCH), Ok(()));
        assert_eq!(config(|c| c.binds = vec!["127.0.0.1:0".parse().unwrap(); 2]), Ok(()));
    }

    #[test]
    fn senseless_values_are_named() {
        assert_eq!(config(|c| c.binds.clear()), Err(ConfigError::NoBind));
        assert_eq!(config(|c| c.batch = 0), Err(ConfigError::Batch(0)));
        assert_eq!(config(|c| c.batch = 1025), Err(ConfigError::Batch(1025)));
        assert_eq!(config(|c| c.workers = Some(0)), Err(ConfigError::Workers(0)));
        assert_eq!(config(|c| c.workers = Some(1 << 40)), Err(ConfigError::Workers(1 << 40)));
        assert_eq!(config(|c| c.receive_buffer = Some(0)), Err(ConfigError::ReceiveBuffer(0)));
        assert_eq!(config(|c| c.receive_buffer = Some(1 << 31)), Err(ConfigError::ReceiveBuffer(1 << 31)));
        assert_eq!(config(|c| c.cpus = Some(CpuSet::new())), Err(ConfigError::NoCpus));
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
        assert_eq!(steered(IoChoice::Auto, Steer::To(CpuSet::new()), None), Err(ConfigError::SteerToNobody));
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
