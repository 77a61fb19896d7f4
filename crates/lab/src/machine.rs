//! A machine of a lab: a named network namespace, and ways to run code in it.

use std::ffi::OsStr;
use std::fmt;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use rustix::io::Errno;

use crate::blueprint::IPV4_PREFIX;
use crate::site::Site;
use crate::{Blueprint, Error, Interface, sys};

/// A machine of a running lab. A clone is the same machine. Operations on a clone that outlives its lab fail or have no
/// effect: the links are gone then, and the namespace ends with the last clone.
#[derive(Clone)]
pub struct Machine {
    site: Arc<Site>,
    interfaces: Arc<[Interface]>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Machine({}/{})", self.site.lab, self.site.name)
    }
}

impl Machine {
    pub(crate) fn new(site: Arc<Site>, blueprint: &Blueprint) -> Self {
        let name = site.name.clone();
        let ends = blueprint.ends_of(&name);
        let interfaces = ends.map(|(spec, end, peer)| Interface::new(&site, spec, end, peer)).collect();
        Self { site, interfaces }
    }

    /// Its name in the lab.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.site.name
    }

    /// Its network namespace's name, as `ip netns` shows it.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.site.namespace
    }

    /// Its link ends: `eth0`, `eth1`, ... The loopback is up but not included.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The interface with this name.
    ///
    /// # Errors
    /// It does not exist.
    pub fn interface(&self, name: &str) -> Result<&Interface, Error> {
        self.interfaces.iter().find(|interface| interface.name() == name).ok_or_else(|| {
            Error::UnknownInterface {
                machine: self.name().to_owned(),
                interface: name.to_owned(),
                known: self.interfaces.iter().map(Interface::name).collect::<Vec<_>>().join(", "),
            }
        })
    }

    /// The first interface that leads to another machine.
    ///
    /// # Errors
    /// There is no link between the two.
    pub fn towards(&self, peer: &str) -> Result<&Interface, Error> {
        let found = self.interfaces.iter().find(|interface| interface.peer_machine() == peer);
        found.ok_or_else(|| Error::NotLinked { from: self.name().to_owned(), to: peer.to_owned() })
    }

    /// Runs `work` on a new thread inside the machine and returns its result. A panic in it is propagated to the
    /// caller.
    ///
    /// The thread is in the machine's network namespace and in a new mount namespace in which `/sys/class/net` shows
    /// the machine's interfaces; threads that it starts inherit both. Sockets opened there stay in the machine and may
    /// be returned. In `/proc`, `/proc/sys/net` and `/proc/thread-self/net` are the machine's; **`/proc/net` is not**:
    /// the kernel resolves it for the process's main thread.
    ///
    /// # Errors
    /// The thread cannot be started or cannot enter; `work` was not run.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        self.site.run(work)
    }

    /// Assigns an address (/24) to an interface that a program has created inside and sets it up; returns whether the
    /// interface exists.
    ///
    /// # Errors
    /// The kernel rejects the address, or setting it up.
    pub fn adopt(&self, interface: &str, address: IpAddr) -> Result<bool, Error> {
        let ifindex = match rustix::net::netdevice::name_to_index(self.site.control(), interface) {
            Ok(ifindex) => ifindex,
            Err(Errno::NODEV) => return Ok(false),
            Err(errno) => return Err(Error::system(format!("find {}/{interface}", self.name()), errno)),
        };
        let added = self.site.rtnl(|rtnl| rtnl.add_address(ifindex, address, IPV4_PREFIX));
        added.map_err(|refused| {
            Error::netlink(format!("add {address} to {}/{interface}", self.name()), refused)
        })?;
        let up = self.site.rtnl(|rtnl| rtnl.set_up(ifindex));
        up.map_err(|refused| Error::netlink(format!("set up {}/{interface}", self.name()), refused))?;
        Ok(true)
    }

    /// A program to start inside the machine, as `ip netns exec` would.
    ///
    /// The program is killed (SIGKILL) when the **thread** that calls [`Command::spawn`] ends, and so when this process
    /// is killed. To outlive the calling thread, start it with [`Lab::spawn`](crate::Lab::spawn) instead, which ties it
    /// to the lab. Processes that the program starts are ended when the lab is taken down.
    ///
    /// The command does not start in a child of this process (after a fork).
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        sys::start_inside(&mut command, self.site.shared_net(), Some(std::process::id()));
        command
    }

    /// Replaces this process by a program inside the machine; its exit code, signals and terminal are then this
    /// process's own. Returns only on error. The process must be single-threaded.
    #[must_use]
    pub fn become_program(&self, program: &OsStr, arguments: &[impl AsRef<OsStr>]) -> Error {
        let mut command = Command::new(program);
        command.args(arguments);
        sys::start_inside(&mut command, self.site.shared_net(), None);
        let source = command.exec();
        Error::system(format!("run {} in machine {}", program.to_string_lossy(), self.name()), source)
    }
}
