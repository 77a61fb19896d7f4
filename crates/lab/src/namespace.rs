//! A named network namespace: created by a thread that unshares its own, held by a bind mount under /run/netns where
//! `ip netns` looks, configured to send nothing before the first interface is added.
//!
//! ```text
//! thread: unshare(NEWNET) -> sysctls, loopback up -> /proc/thread-self/ns/net --bind mount--> /run/netns/udpath-...
//! ```

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use udpath_files::{kernel, own};

use crate::rtnl::Rtnl;
use crate::{Error, sys};

/// Directory where iproute2 keeps named network namespaces.
const NAMED: &str = "/run/netns";
/// Interface index of the loopback in every network namespace.
const LOOPBACK: u32 = 1;
/// Most mounts stacked on one name that are removed before giving up: each is a `mount --bind` by another program.
const STACKED: u32 = 16;

/// Settings of a new namespace, in /proc/sys/net. IPv4's start as copies of the host's and IPv6's as the kernel's
/// defaults, so settings that matter to a measurement are explicit.
const QUIET: [(&str, &str); 16] = [
    // Addresses come only from the blueprint: no router solicitation or advertisement, no duplicate detection, no
    // generated address.
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/all/accept_ra", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/all/autoconf", "0"),
    ("ipv6/conf/default/autoconf", "0"),
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/dad_transmits", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    // 1 is "none": no link-local address.
    ("ipv6/conf/default/addr_gen_mode", "1"),
    // A machine may have several links; replies may arrive on another one.
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/forwarding", "0"),
    ("ipv4/conf/default/forwarding", "0"),
    ("ipv4/conf/all/accept_redirects", "0"),
];

/// Identity of a namespace: device and inode of its file. Unique while the namespace exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    pub(crate) inode: u64,
}

impl Identity {
    /// Of the namespace at `path`.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self { device: file.dev(), inode: file.ino() })
    }
}

/// A namespace and its sockets, which any thread may use.
pub(crate) struct Inside {
    pub(crate) net: OwnedFd,
    /// For ethtool requests.
    pub(crate) control: OwnedFd,
    pub(crate) rtnl: Rtnl,
}

impl Inside {
    /// Creates a new namespace, still unnamed, and applies the settings.
    pub(crate) fn new(machine: &str) -> Result<Self, Error> {
        let failed =
            |what: &str, source: io::Error| Error::system(format!("{what} of machine {machine}"), source);
        on_thread(machine, || {
            let net = sys::new_network().map_err(|source| failed("create the network namespace", source))?;
            for (setting, value) in QUIET {
                let path = Path::new("/proc/sys/net").join(setting);
                kernel::write(&path, value).map_err(|source| setting_failed(machine, setting, source))?;
            }
            let mut inside = Self::sockets(net).map_err(|source| failed("open the sockets", source))?;
            let up = inside.rtnl.set_up(LOOPBACK);
            up.map_err(|refused| {
                Error::netlink(format!("set up the loopback of machine {machine}"), refused)
            })?;
            Ok(inside)
        })?
    }

    /// Opens the sockets of an existing namespace.
    pub(crate) fn open(machine: &str, namespace: &str) -> Result<Self, Error> {
        let path = path(namespace);
        let failed = |source: io::Error| {
            Error::system(format!("enter machine {machine} at {}", path.display()), source)
        };
        if !sys::is_namespace(&path) {
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, "there is no network namespace")));
        }
        let net: OwnedFd = kernel::namespace(&path).map_err(failed)?.into();
        on_thread(machine, || {
            sys::enter_network(std::os::fd::AsFd::as_fd(&net)).map_err(failed)?;
            Self::sockets(net).map_err(failed)
        })?
    }

    /// For the calling thread's network namespace, which `net` refers to.
    fn sockets(net: OwnedFd) -> io::Result<Self> {
        // Not bound: it only carries ioctls.
        let control =
            rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { net, control, rtnl: Rtnl::open()? })
    }
}

fn setting_failed(machine: &str, setting: &str, source: io::Error) -> Error {
    let no_ipv6 = source.kind() == io::ErrorKind::NotFound && setting.starts_with("ipv6");
    let why = if no_ipv6 { io::Error::other("this kernel has no IPv6, which a lab needs") } else { source };
    Error::system(format!("set net/{setting} of machine {machine}"), why)
}

/// Runs `work` on a new thread, so that its namespace changes end with it. A panic is propagated to the caller.
pub(crate) fn on_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
        let thread =
            thread.map_err(|source| Error::system(format!("start a thread for machine {name}"), source))?;
        thread.join().or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The path of a named namespace.
pub(crate) fn path(namespace: &str) -> PathBuf {
    Path::new(NAMED).join(namespace)
}

/// Names a namespace. An existing name is an error and is never taken over.
pub(crate) fn give_name(inside: &Inside, namespace: &str) -> Result<Identity, Error> {
    prepare()?;
    let path = path(namespace);
    let failed = |source: io::Error| Error::system(format!("make {}", path.display()), source);
    own::create(&path).map_err(failed)?;
    let named = rustix::mount::mount_bind(format!("/proc/self/fd/{}", inside.net.as_raw_fd()), &path)
        .map_err(io::Error::from)
        .and_then(|()| Identity::of(&path));
    if named.is_err() {
        // Leave nothing half created.
        let _ = take_name(namespace);
    }
    named.map_err(failed)
}

/// Removes the name; the namespace ends with the last process in it. A missing name is not an error.
pub(crate) fn take_name(namespace: &str) -> Result<(), Error> {
    let path = path(namespace);
    let failed = |source: io::Error| Error::system(format!("remove {}", path.display()), source);
    for _ in 0..STACKED {
        if !sys::is_namespace(&path) {
            break;
        }
        rustix::mount::unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
            .map_err(|errno| failed(errno.into()))?;
    }
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failed(source)),
        _ => Ok(()),
    }
}

/// Sets up /run/netns as iproute2 does: a shared mount that propagates to other mount namespaces. Without this a later
/// `ip netns add` would hide our mounts under its own. As with iproute2, it is never removed: other programs may use it
/// by now.
fn prepare() -> Result<(), Error> {
    let failed = |source: io::Error| Error::system(format!("prepare {NAMED}"), source);
    fs::DirBuilder::new().recursive(true).mode(0o755).create(NAMED).map_err(failed)?;
    let directory = udpath_files::folder(NAMED).map_err(failed)?;
    // iproute2 takes the same lock, so two programs do not mount on top of each other.
    rustix::fs::flock(&directory, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    match rustix::mount::mount_change(NAMED, shared) {
        // It is not a mount yet.
        Err(rustix::io::Errno::INVAL) => rustix::mount::mount_bind_recursive(NAMED, NAMED)
            .and_then(|()| rustix::mount::mount_change(NAMED, shared))
            .map_err(|errno| failed(errno.into())),
        done => done.map_err(|errno| failed(errno.into())),
    }
}
