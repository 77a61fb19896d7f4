//! Other network namespaces of this machine, without starting a program.
//!
//! A dedicated thread enters the namespace, with a private mount of /sys that shows that namespace's devices; both
//! disappear with the thread. `/proc/sys/net` and `/proc/thread-self/net` follow the thread.
//!
//! /sys does not follow: it shows the namespace it was mounted in. After `nsenter --net` a program that writes below
//! /sys/class/net/eth0 changes the host's eth0, while netlink and sysctls are the container's. So the caller's own
//! namespace also gets a private mount of /sys if the existing one shows another namespace's devices ([`inside`]).

mod sys;

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::Source;
use crate::source::{Folder, value};

/// Directory where iproute2 keeps named network namespaces.
pub const NAMED: &str = "/run/netns";
/// How often interfaces are compared before /sys is taken for another namespace's. A single comparison fails when an
/// interface appears or disappears in between; more than a few only delay the error.
const COMPARISONS: usize = 3;

/// Selects a network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The calling thread's.
    Here,
    /// A named one, as `ip netns` lists it.
    Named(String),
    /// The namespace of a process.
    Process(u32),
}

impl Place {
    fn file(&self) -> Option<PathBuf> {
        match self {
            Self::Here => None,
            Self::Named(name) => Some(PathBuf::from(NAMED).join(name)),
            Self::Process(pid) => Some(PathBuf::from(format!("/proc/{pid}/ns/net"))),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("this network namespace"),
            Self::Named(name) => write!(f, "network namespace {name}"),
            Self::Process(pid) => write!(f, "the network namespace of process {pid}"),
        }
    }
}

/// Why a namespace cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The namespace does not exist.
    #[error("there is no {place}: {hint}")]
    NotThere {
        /// The namespace requested.
        place: Place,
        /// How to find the right one.
        hint: &'static str,
    },
    /// Permission denied.
    #[error("cannot enter {place}: not permitted; run as root (CAP_SYS_ADMIN)")]
    NotPermitted {
        /// The namespace requested.
        place: Place,
    },
    /// /sys belongs to another network namespace, and a new one cannot be mounted.
    #[error(
        "/sys shows the devices of another network namespace, as after `nsenter --net`, and cannot be mounted \
         again (run as root with CAP_SYS_ADMIN, enter with `ip netns exec`, or use --netns from outside)"
    )]
    ForeignSys {
        /// Why it cannot be mounted.
        #[source]
        cause: io::Error,
    },
    /// Any other error.
    #[error("cannot enter {place}")]
    Failed {
        /// The namespace requested.
        place: Place,
        /// The error.
        #[source]
        cause: io::Error,
    },
}

impl NamespaceError {
    fn new(place: &Place, cause: io::Error) -> Self {
        let place = place.clone();
        let hint = match &place {
            Place::Named(_) => "`ip netns` lists the named ones",
            _ => "no process has that number",
        };
        match cause.kind() {
            io::ErrorKind::NotFound => Self::NotThere { place, hint },
            io::ErrorKind::PermissionDenied => Self::NotPermitted { place },
            _ if cause.raw_os_error() == Some(libc::ESRCH) => Self::NotThere { place, hint },
            _ => Self::Failed { place, cause },
        }
    }
}

/// Runs `work` inside a namespace and returns its result. There /sys shows that namespace's devices, also for the
/// caller's own namespace. `work` must not return anything it opened, such as a live [`Folder`]: its sockets would stay
/// in the namespace, its files would not.
///
/// # Errors
/// The namespace does not exist or cannot be entered; `work` was not run.
pub fn inside<T: Send>(place: &Place, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
    let Some(path) = place.file() else {
        if sys_is_own() {
            return Ok(work());
        }
        return on_a_thread(
            || sys::mount_own_sys().map_err(|cause| NamespaceError::ForeignSys { cause }),
            work,
        );
    };
    let failed = |cause: io::Error| NamespaceError::new(place, cause);
    // A name with a slash would refer to a file elsewhere.
    if matches!(place, Place::Named(name) if name.is_empty() || name.contains('/') || name == "." || name == "..")
    {
        return Err(failed(io::ErrorKind::NotFound.into()));
    }
    let namespace = udpath_files::kernel::namespace(path).map_err(failed)?;
    on_a_thread(|| sys::enter(&namespace).map_err(failed), work)
}

/// Runs `work` on a new thread, after `enter` has moved that thread.
fn on_a_thread<T: Send>(
    enter: impl FnOnce() -> Result<(), NamespaceError> + Send,
    work: impl FnOnce() -> T + Send,
) -> Result<T, NamespaceError> {
    std::thread::scope(|scope| {
        let inside = || {
            enter()?;
            Ok(work())
        };
        let thread = std::thread::Builder::new().name("namespace".into()).spawn_scoped(scope, inside);
        let thread = thread.map_err(|cause| NamespaceError::Failed { place: Place::Here, cause })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Whether /sys shows the devices of the caller's network namespace. The kernel has one sysfs per namespace, each with
/// its own device number; finding the caller's requires permission to mount it. Without it interfaces are compared:
/// indexes and addresses as reported by netlink and by /sys.
fn sys_is_own() -> bool {
    match (sys::mounted_sysfs(), sys::own_sysfs()) {
        // No sysfs, such as in a bare chroot: it shows no devices at all.
        (None, _) => true,
        (Some(mounted), Ok(own)) => mounted == own,
        // An interface may appear or disappear between the two answers.
        (Some(_), Err(_)) => (0..COMPARISONS).any(|_| same_links(&Folder::live())),
    }
}

/// Whether this is the initial network namespace, the only one that the files in /etc describe. The kernel shows this
/// sysctl only there (net/core/sysctl_net_core.c), whatever processes and files the caller sees.
#[must_use]
pub fn is_initial(source: &dyn Source) -> bool {
    source.text("/proc/sys/net/core/netdev_max_backlog").is_ok()
}

/// Whether the interfaces in /sys match netlink's answers. True if netlink gives no answer.
fn same_links(source: &dyn Source) -> bool {
    let Ok(links) = source.links() else { return true };
    // The bonding driver creates a file there.
    let shown = source.names("/sys/class/net").unwrap_or_default();
    let shown: Vec<String> = shown.into_iter().filter(|name| name != "bonding_masters").collect();
    let of = |name: &str, file: &str| value(source, &format!("/sys/class/net/{name}/{file}")).ok();
    shown.len() == links.value.len()
        && links.value.iter().all(|link| {
            let same_index = of(&link.name, "ifindex") == Some(link.index.to_string());
            same_index
                && link.address.as_deref().is_none_or(|own| of(&link.name, "address").as_deref() == Some(own))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_namespaces_are_explained() {
        let told = |place: Place| inside(&place, || ()).unwrap_err().to_string();
        assert_eq!(
            told(Place::Named("no-such-one".into())),
            "there is no network namespace no-such-one: `ip netns` lists the named ones"
        );
        assert!(
            told(Place::Named("../../proc/self/ns/net".into())).starts_with("there is no network namespace")
        );
        assert!(told(Place::Process(u32::MAX)).contains("of process 4294967295: no process has that number"));
        assert_eq!(inside(&Place::Here, || 7).unwrap(), 7);
    }

    #[test]
    fn interfaces_of_another_namespace_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "udpath/links.json",
            r#"{"value": [{"index": 2, "name": "eth0", "address": "02:00:00:00:00:01"}], "from": {"route": "RTM_GETLINK"}}"#,
        );
        write("sys/class/net/bonding_masters", "");
        for (index, address, same) in [
            ("2", "02:00:00:00:00:01", true),
            ("3", "02:00:00:00:00:01", false),
            ("2", "02:00:00:00:00:02", false),
        ] {
            write("sys/class/net/eth0/ifindex", &format!("{index}\n"));
            write("sys/class/net/eth0/address", &format!("{address}\n"));
            let captured = Folder::captured(folder.path());
            assert_eq!(same_links(&captured), same, "{index} {address}");
        }
        write("sys/class/net/eth0/ifindex", "2\n");
        write("sys/class/net/eth0/address", "02:00:00:00:00:01\n");
        write("sys/class/net/eth1/ifindex", "3\n");
        assert!(!same_links(&Folder::captured(folder.path())));
    }

    #[test]
    fn the_namespace_of_a_process_is_entered_and_left() {
        udpath_lab::needs_root!();
        let own = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let mounts = || std::fs::read_link("/proc/thread-self/ns/mnt").unwrap();
        let (net, mnt) = (own(), mounts());
        let there = inside(&Place::Process(std::process::id()), || (own(), mounts())).unwrap();
        assert_eq!(there.0, net);
        assert_ne!(there.1, mnt);
        assert_eq!((own(), mounts()), (net, mnt));
    }
}
