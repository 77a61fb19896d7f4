//! Arguments that select the machine to read: this one, one of its network namespaces, or a capture.

use std::path::PathBuf;

use udpath_advise::Netns;
use udpath_host::namespace::Place;

/// A network namespace of this machine, by name.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NetnsArgs {
    /// Use this network namespace, as listed by `ip netns` [default: the caller's]
    #[arg(long, value_name = "NAME")]
    pub(crate) netns: Option<String>,
}

/// A network namespace of this machine, by name or by a process in it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NamespaceArgs {
    #[command(flatten)]
    pub(crate) netns: NetnsArgs,
    /// Use the network namespace of this process
    #[arg(long, value_name = "PID", conflicts_with = "netns")]
    pub(crate) pid: Option<u32>,
}

/// The network namespace of a process, which may be the caller's; none: it cannot be read.
pub(crate) fn of_process(pid: u32) -> Option<Place> {
    let namespace = |whose: &str| std::fs::read_link(format!("/proc/{whose}/ns/net")).ok();
    let its = namespace(&pid.to_string())?;
    Some(if namespace("self") == Some(its) { Place::Here } else { Place::Process(pid) })
}

/// The network namespace of a place, as `apply` takes it; none: the caller's.
pub(crate) fn netns(place: &Place) -> Option<Netns> {
    match place {
        Place::Here => None,
        Place::Named(name) => Some(Netns { name: name.clone(), pid: None }),
        Place::Process(pid) => Some(Netns { name: format!("pid-{pid}"), pid: Some(*pid) }),
    }
}

/// The machine to read.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PlaceArgs {
    #[command(flatten)]
    pub(crate) namespace: NamespaceArgs,
    /// Read a captured machine: an archive of `udpath support`, or a folder that contains proc and sys
    #[arg(long, value_name = "FILE.tar.gz|DIR", conflicts_with_all = ["netns", "pid"])]
    pub(crate) sysroot: Option<PathBuf>,
}

impl NetnsArgs {
    /// The namespace.
    pub(crate) fn place(&self) -> Place {
        self.netns.clone().map_or(Place::Here, Place::Named)
    }
}

impl NamespaceArgs {
    /// The namespace.
    pub(crate) fn place(&self) -> Place {
        self.pid.map_or_else(|| self.netns.place(), Place::Process)
    }
}

impl PlaceArgs {
    /// Is it a capture, which does not change?
    pub(crate) const fn is_captured(&self) -> bool {
        self.sysroot.is_some()
    }
}
