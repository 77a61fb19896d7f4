//! Other network namespaces of this machine, without starting a program.
//!
//! A thread of its own moves into the namespace, with a mount of /sys that shows that namespace's devices and that no
//! other thread sees; what it does ends with it. `/proc/sys/net` and `/proc/thread-self/net` follow the thread.

mod sys;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// Where iproute2 keeps named network namespaces.
const NAMED: &str = "/run/netns";

/// Which network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The calling thread's.
    Here,
    /// A named one, as `ip netns` lists it.
    Named(String),
    /// That of a process.
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

/// A namespace cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// There is no such namespace.
    #[error("there is no {place}: {hint}")]
    NotThere {
        /// Which.
        place: Place,
        /// Where to look for the right one.
        hint: &'static str,
    },
    /// Not allowed.
    #[error("cannot enter {place}: not permitted; run as root (CAP_SYS_ADMIN)")]
    NotPermitted {
        /// Which.
        place: Place,
    },
    /// Anything else.
    #[error("cannot enter {place}: {source}")]
    Failed {
        /// Which.
        place: Place,
        /// Why.
        source: io::Error,
    },
}

impl NamespaceError {
    fn new(place: &Place, source: io::Error) -> Self {
        let place = place.clone();
        let hint = match &place {
            Place::Named(_) => "'ip netns' lists those that have a name",
            _ => "the process has ended, or never was",
        };
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotThere { place, hint },
            io::ErrorKind::PermissionDenied => Self::NotPermitted { place },
            _ if source.raw_os_error() == Some(libc::ESRCH) => Self::NotThere { place, hint },
            _ => Self::Failed { place, source },
        }
    }
}

/// Runs `work` inside a namespace and gives its result. What it opens there, such as a live
/// [`Folder`](crate::source::Folder), it must not carry out: its sockets would stay, its files would not.
///
/// # Errors
/// The namespace is not there or cannot be entered; `work` has not run then.
pub fn inside<T: Send>(place: &Place, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
    let Some(path) = place.file() else {
        return Ok(work());
    };
    let failed = |source: io::Error| NamespaceError::new(place, source);
    // A name with a slash in it would be a file elsewhere.
    if matches!(place, Place::Named(name) if name.is_empty() || name.contains('/') || name == "." || name == "..")
    {
        return Err(failed(io::ErrorKind::NotFound.into()));
    }
    let namespace = File::open(path).map_err(failed)?;
    std::thread::scope(|scope| {
        let inside = || {
            sys::enter(&namespace).map_err(failed)?;
            Ok(work())
        };
        let thread = std::thread::Builder::new().name("namespace".into()).spawn_scoped(scope, inside);
        thread.map_err(failed)?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_namespace_is_said_in_a_sentence() {
        let told = |place: Place| inside(&place, || ()).unwrap_err().to_string();
        assert_eq!(
            told(Place::Named("no-such-one".into())),
            "there is no network namespace no-such-one: 'ip netns' lists those that have a name"
        );
        assert!(
            told(Place::Named("../../proc/self/ns/net".into())).starts_with("there is no network namespace")
        );
        assert!(told(Place::Process(u32::MAX)).contains("of process 4294967295: the process has ended"));
        assert_eq!(inside(&Place::Here, || 7).unwrap(), 7);
    }

    #[test]
    fn the_namespace_of_a_process_is_entered_and_left() {
        let own = || std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let mounts = || std::fs::read_link("/proc/thread-self/ns/mnt").unwrap();
        let (net, mnt) = (own(), mounts());
        let there = inside(&Place::Process(std::process::id()), || (own(), mounts())).unwrap();
        assert_eq!(there.0, net);
        assert_ne!(there.1, mnt);
        assert_eq!((own(), mounts()), (net, mnt));
    }
}
