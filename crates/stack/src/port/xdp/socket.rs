//! Opening an AF_XDP socket: memory, rings, options, queue.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpOptionsFlags, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use super::config::{Config, Copying};
use super::error::Error;
use super::interface::Interface;
use super::monitor::Descriptor;
use super::ring::{Consumer, Producer};
use super::sys::{self, Ring};
use crate::frame::Region;
use crate::port::Mode;

/// How long a queue may stay busy after its socket was closed: the kernel releases it in a work item, after an RCU
/// grace period. That takes milliseconds, and was seen to take more than half a second while all CPUs had other work.
/// Too low: reopening fails for no reason. Too high: a queue that another process holds is reported late.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The packet memory of a socket.
#[derive(Clone, Copy)]
pub(super) enum Umem<'a> {
    /// Its own, which it registers.
    Own(&'a Region),
    /// Shared with another socket, on another queue.
    Of(BorrowedFd<'a>),
}

/// A bound socket and its rings.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) receive: Consumer<XdpDesc>,
    pub(super) transmit: Producer<XdpDesc>,
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
    pub(super) mode: Mode,
    /// Declared last: the rings are mappings of it. Others hold it for moments only, so dropping this closes it.
    pub(super) descriptor: Arc<Descriptor>,
}

impl Socket {
    /// Opens a socket for `queue`. `generic`: the program runs in generic mode, which rules zero-copy out.
    pub(super) fn open(
        interface: &Interface,
        queue: u32,
        config: &Config,
        umem: Umem<'_>,
        generic: bool,
    ) -> Result<Self, Error> {
        let failed = |operation: &'static str| {
            move |cause: io::Error| Error::Socket {
                operation,
                interface: interface.name().to_owned(),
                queue,
                cause,
            }
        };
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).map_err(
            |cause| match cause {
                Errno::PERM | Errno::ACCESS => Error::NotPermitted {
                    operation: "open an AF_XDP socket",
                    capability: "CAP_NET_RAW",
                    cause: cause.into(),
                },
                Errno::AFNOSUPPORT => Error::NoAfXdp,
                _ => failed("open an AF_XDP socket")(cause.into()),
            },
        )?;
        if let Umem::Own(region) = umem {
            register(&fd, region).map_err(|cause| match cause {
                Errno::NOBUFS | Errno::PERM => {
                    Error::LockedMemory { bytes: region.memory().1, cause: cause.into() }
                }
                _ => failed("register packet memory")(cause.into()),
            })?;
        }
        let rings = || -> io::Result<_> {
            sockopt::set_xdp_rx_ring_size(&fd, config.receive)?;
            sockopt::set_xdp_tx_ring_size(&fd, config.transmit)?;
            sockopt::set_xdp_umem_fill_ring_size(&fd, config.fill)?;
            sockopt::set_xdp_umem_completion_ring_size(&fd, config.completion)?;
            let offsets = sockopt::xdp_mmap_offsets(&fd)?;
            let at = fd.as_fd();
            Ok((
                Consumer::map(at, XDP_PGOFF_RX_RING, &offsets.rx, config.receive)?,
                Producer::map(at, XDP_PGOFF_TX_RING, &offsets.tx, config.transmit)?,
                Producer::map(at, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, config.fill)?,
                Consumer::map(at, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, config.completion)?,
                Ring::map(at, XDP_PGOFF_RX_RING, &offsets.rx, config.receive)?,
            ))
        };
        let (receive, transmit, fill, completion, seen) = rings().map_err(failed("make rings"))?;
        sys::set_send_buffer(fd.as_fd(), config.in_flight());
        sys::set_transmit_budget(fd.as_fd(), config.transmit);
        if let Some(poll) = config.busy_poll {
            sys::set_busy_poll(fd.as_fd(), poll.microseconds, poll.budget).map_err(|cause| {
                match cause.kind() {
                    io::ErrorKind::PermissionDenied => Error::NotPermitted {
                        operation: "prefer busy polling",
                        capability: "CAP_NET_ADMIN",
                        cause,
                    },
                    _ => failed("prefer busy polling")(cause),
                }
            })?;
        }
        let copying = if generic { Copying::Kernel } else { config.copying };
        bind_to(&fd, interface, queue, umem, copying).map_err(|cause| match cause {
            Errno::BUSY => Error::QueueBusy { interface: interface.name().to_owned(), queue },
            Errno::OPNOTSUPP | Errno::INVAL if copying == Copying::ZeroCopy => {
                Error::NoZeroCopy { interface: interface.name().to_owned(), queue, cause: cause.into() }
            }
            Errno::NODEV => Error::NoInterface { interface: interface.name().to_owned() },
            Errno::PERM | Errno::ACCESS => Error::NotPermitted {
                operation: "bind an AF_XDP socket",
                capability: "CAP_NET_RAW",
                cause: cause.into(),
            },
            _ => failed("bind an AF_XDP socket")(cause.into()),
        })?;
        let options = sockopt::xdp_options(&fd).map_err(|cause| failed("read the mode")(cause.into()))?;
        let zero_copy = options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        let mode = if zero_copy { Mode::ZeroCopy } else { Mode::Copy };
        let descriptor = Arc::new(Descriptor { receive: seen, fd });
        Ok(Self { receive, transmit, fill, completion, mode, descriptor })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn register(fd: &OwnedFd, region: &Region) -> Result<(), Errno> {
    let (start, len) = region.memory();
    let memory = XdpUmemReg {
        addr: start.as_ptr() as u64,
        len: len as u64,
        chunk_size: region.frame_size() as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(fd, memory)
}

fn bind_to(
    fd: &OwnedFd,
    interface: &Interface,
    queue: u32,
    umem: Umem<'_>,
    copying: Copying,
) -> Result<(), Errno> {
    let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP
        | match copying {
            Copying::Auto => SocketAddrXdpFlags::empty(),
            Copying::Kernel => SocketAddrXdpFlags::XDP_COPY,
            Copying::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
        };
    let mut tries = RELEASE_TIMEOUT.as_millis() / POLL_INTERVAL.as_millis();
    loop {
        let bound = match umem {
            Umem::Own(_) => bind(fd, &SocketAddrXdp::new(flags, interface.index(), queue)),
            // All other settings are those of the shared socket, and must not be repeated.
            Umem::Of(other) => {
                let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
                let addr = SocketAddrXdp::new(flags, interface.index(), queue);
                bind(fd, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: other })
            }
        };
        if bound != Err(Errno::BUSY) || tries == 0 {
            return bound;
        }
        tries -= 1;
        thread::sleep(POLL_INTERVAL);
    }
}
