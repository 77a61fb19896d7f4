//! One network namespace with a name: made by a thread that leaves its own, held by a bind mount under /run/netns where
//! `ip netns` looks, quiet before the first interface is in it.
//!
//! ```text
//! thread: unshare(NEWNET) -> sysctls, loopback up -> /proc/thread-self/ns/net --bind mount--> /run/netns/udpath-...
//! ```

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::rtnl::Rtnl;
use crate::{Error, sys};

/// Where iproute2 keeps named network namespaces.
const NAMED: &str = "/run/netns";
/// Interface index of the loopback in every network namespace.
const LOOPBACK: u32 = 1;
/// How many mounts stacked on one name are taken off before giving up: each is one `mount --bind` somebody made there.
const STACKED: u32 = 16;

/// Settings of a new namespace, in /proc/sys/net. IPv4's start as copies of the host's and IPv6's as the kernel's own,
/// so what matters to a measurement is said.
const QUIET: [(&str, &str); 16] = [
    // Addresses come from the blueprint alone: no router is listened to or asked, no address is checked or made up.
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
    // A machine may have several links; answers may come back over another one.
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/forwarding", "0"),
    ("ipv4/conf/default/forwarding", "0"),
    ("ipv4/conf/all/accept_redirects", "0"),
];

/// Which namespace it is: device and inode of its file. Unique while the namespace lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    pub(crate) inode: u64,
}

impl Identity {
    /// Of the namespace that `path` stands for.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self { device: file.dev(), inode: file.ino() })
    }
}

/// A namespace and the sockets that speak for it, whatever thread they are used from.
pub(crate) struct Inside {
    pub(crate) net: OwnedFd,
    /// For ethtool requests.
    pub(crate) control: OwnedFd,
    pub(crate) rtnl: Rtnl,
}

impl Inside {
    /// Makes a new namespace, still without a name, and makes it quiet.
    pub(crate) fn new(machine: &str) -> Result<Self, Error> {
        let failed =
            |what: &str, source: io::Error| Error::system(format!("{what} of machine {machine}"), source);
        on_thread(machine, || {
            let net = sys::new_network().map_err(|source| failed("make the network namespace", source))?;
            for (setting, value) in QUIET {
                let path = Path::new("/proc/sys/net").join(setting);
                fs::write(&path, value).map_err(|source| setting_failed(machine, setting, source))?;
            }
            let mut inside = Self::sockets(net).map_err(|source| failed("open the sockets", source))?;
            let up = inside.rtnl.set_up(LOOPBACK);
            up.map_err(|refused| {
                Error::netlink(format!("set up the loopback of machine {machine}"), refused)
            })?;
            Ok(inside)
        })?
    }

    /// Opens the sockets of a namespace that somebody else has made.
    pub(crate) fn open(machine: &str, namespace: &str) -> Result<Self, Error> {
        let path = path(namespace);
        let failed = |source: io::Error| {
            Error::system(format!("enter machine {machine} at {}", path.display()), source)
        };
        if !sys::is_namespace(&path) {
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, "there is no network namespace")));
        }
        let net: OwnedFd = File::open(&path).map_err(failed)?.into();
        on_thread(machine, || {
            sys::enter_network(std::os::fd::AsFd::as_fd(&net)).map_err(failed)?;
            Self::sockets(net).map_err(failed)
        })?
    }

    /// In the calling thread's network namespace, which `net` stands for.
    fn sockets(net: OwnedFd) -> io::Result<Self> {
        // Bound to nothing: it only carries ioctls.
        let control =
            rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { net, control, rtnl: Rtnl::open()? })
    }
}

fn setting_failed(machine: &str, setting: &str, source: io::Error) -> Error {
    let no_ipv6 = source.kind() == io::ErrorKind::NotFound && setting.starts_with("ipv6");
    let why =
        if no_ipv6 { io::Error::other("this kernel runs without IPv6, which a lab needs") } else { source };
    Error::system(format!("set net/{setting} of machine {machine}"), why)
}

/// Runs `work` on a thread of its own, so that what it does to its namespaces ends with it. A panic goes on here.
pub(crate) fn on_thread<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
        let thread =
            thread.map_err(|source| Error::system(format!("start a thread for machine {name}"), source))?;
        thread.join().or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Where the name of a namespace is.
pub(crate) fn path(namespace: &str) -> PathBuf {
    Path::new(NAMED).join(namespace)
}

/// Gives a namespace its name. An existing name is an error, never taken over.
pub(crate) fn give_name(inside: &Inside, namespace: &str) -> Result<Identity, Error> {
    prepare()?;
    let path = path(namespace);
    let failed = |source: io::Error| Error::system(format!("make {}", path.display()), source);
    OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
    let named = rustix::mount::mount_bind(format!("/proc/self/fd/{}", inside.net.as_raw_fd()), &path)
        .map_err(io::Error::from)
        .and_then(|()| Identity::of(&path));
    if named.is_err() {
        // Nothing half made stays behind.
        let _ = take_name(namespace);
    }
    named.map_err(failed)
}

/// Takes the name away; the namespace ends with the last one in it. A name that is gone already is no error.
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

/// Makes /run/netns what iproute2 makes of it: a mount of its own that other mount namespaces follow. Without that a
/// later `ip netns add` would bury our mounts under one of its own. Like iproute2, it stays: others may use it by now.
fn prepare() -> Result<(), Error> {
    let failed = |source: io::Error| Error::system(format!("prepare {NAMED}"), source);
    fs::DirBuilder::new().recursive(true).mode(0o755).create(NAMED).map_err(failed)?;
    let directory = File::open(NAMED).map_err(failed)?;
    // iproute2 takes the same lock, so that two programs do not mount on top of each other.
    rustix::fs::flock(&directory, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    match rustix::mount::mount_change(NAMED, shared) {
        // It is no mount yet.
        Err(rustix::io::Errno::INVAL) => rustix::mount::mount_bind_recursive(NAMED, NAMED)
            .and_then(|()| rustix::mount::mount_change(NAMED, shared))
            .map_err(|errno| failed(errno.into())),
        done => done.map_err(|errno| failed(errno.into())),
    }
}
