//! The door through which settings are read and written, and how the kernel's refusals are told.
//!
//! Everything that changes the machine goes through [`Machine::write`]: a test stands in its way by wrapping one.

mod file;
mod irqbalance;
mod irqs;
mod live;
mod process;
mod queue_irqs;

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use live::Live;

use crate::settings::{Setting, Value};
use udpath_host::Source;
use udpath_host::process::{Error, Server};

/// Reads and writes settings.
pub trait Machine: fmt::Debug {
    /// What else of the machine is asked for: queues, CPUs, processes.
    fn source(&self) -> &dyn Source;

    /// The value now.
    ///
    /// # Errors
    /// Why it is not known.
    fn read(&self, setting: &Setting) -> Result<Value, Refusal>;

    /// Sets it. What the kernel made of it is for [`Machine::read`] to say.
    ///
    /// # Errors
    /// Why it was not set.
    fn write(&self, setting: &Setting, value: &Value) -> Result<(), Refusal>;

    /// Which object it is a setting of: another one may bear its name later. Nothing for what has no such number.
    ///
    /// # Errors
    /// The object is not there.
    fn identity(&self, setting: &Setting) -> Result<Option<Identity>, Refusal>;

    /// A new name of the object, if it has got one since.
    fn renamed(&self, setting: &Setting, identity: &Identity) -> Option<Setting>;

    /// The IRQ whose CPUs the setting is.
    ///
    /// # Errors
    /// It is none, or the queue has none.
    fn irq(&self, setting: &Setting) -> Result<u32, Refusal>;

    /// The servers whose UDP sockets are bound to a port here, each with those sockets alone.
    ///
    /// # Errors
    /// There is none, or who it is does not show. A machine that is not a running one has none.
    fn serving(&self, port: u16) -> Result<Vec<Server>, Error> {
        Err(Error::NobodyServes { port })
    }

    /// What a change of the setting would destroy and undo could not bring back, in words; nothing where undo can.
    fn lost(&self, setting: &Setting) -> Option<Lost> {
        let _ = setting;
        None
    }

    /// What is true of a value that was set and read back and takes effect only later; nothing when it has.
    fn pending(&self, setting: &Setting, value: &Value) -> Option<String>;
}

/// What a change would destroy and undo could not bring back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// It was seen; otherwise it may be there, and cannot be seen.
    pub seen: bool,
    /// What the change does to it: `replaces ...`.
    pub words: String,
}

/// What tells an object from a later one of the same name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// Number of an interface's directory in sysfs: it stays when the interface is renamed, and no later one gets it,
    /// unlike the interface's own number.
    Device(u64),
    /// When a thread began, clock ticks after boot.
    Started(u64),
    /// The pid of the process that is talked to.
    Pid(u32),
    /// What an IRQ's driver calls it, and the device it is of. Numbers are given out again when a driver is loaded anew.
    Irq {
        /// The name of its action, as `/proc/interrupts` shows it: `eth0-TxRx-3`.
        action: String,
        /// The address of its PCI device; of others its controller and the number there.
        device: String,
    },
    /// Cookies of a socket, or of the members of its group: no other socket of this boot has them. Process and inode
    /// are given out again, and a socket may pass from one process to another.
    Sockets(Vec<u64>),
}

impl Identity {
    /// Is it the same object? A group is while it has a member that it had.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sockets(now), Self::Sockets(then)) => now.iter().any(|cookie| then.contains(cookie)),
            _ => self == other,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(number) => write!(f, "the interface with number {number} in sysfs"),
            Self::Started(ticks) => write!(f, "the thread that began {ticks} ticks after boot"),
            Self::Pid(pid) => write!(f, "process {pid}"),
            Self::Irq { action, device } if action.is_empty() => {
                write!(f, "an IRQ of {device} without a handler")
            }
            Self::Irq { action, device } => write!(f, "{action} of {device}"),
            Self::Sockets(_) => f.write_str("another socket"),
        }
    }
}

/// Why a setting could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot {operation} {setting}: {why}")]
pub struct Refusal {
    /// `read`, `set`, `find`.
    pub operation: &'static str,
    /// The setting, by its name.
    pub setting: String,
    /// The kernel's number, if it was the kernel that refused.
    pub errno: Option<i32>,
    /// Why, in words.
    pub why: String,
}

impl Refusal {
    /// The kernel's refusal, in words that fit the setting.
    #[must_use]
    pub fn kernel(operation: &'static str, setting: &Setting, error: &io::Error) -> Self {
        let errno = error.raw_os_error();
        let hint = errno.and_then(|errno| meaning(operation, setting, errno));
        let why = hint.map_or_else(|| error.to_string(), |hint| format!("{hint} ({error})"));
        Self { operation, setting: setting.to_string(), errno, why }
    }

    /// A refusal of our own.
    #[must_use]
    pub fn because(operation: &'static str, setting: &Setting, why: impl Into<String>) -> Self {
        Self { operation, setting: setting.to_string(), errno: None, why: why.into() }
    }

    /// Is the object itself not there?
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.errno, Some(libc::ENOENT | libc::ENODEV | libc::ESRCH | libc::ENXIO))
    }
}

/// What an error number means for this setting, where the kernel's own words do not say it.
fn meaning(operation: &str, setting: &Setting, errno: i32) -> Option<&'static str> {
    if let Some(of_kind) = (setting.row().extra.errno)(setting, operation, errno) {
        return Some(of_kind);
    }
    Some(match (setting, errno) {
        (Setting::Interface(..), libc::ENODEV) => "there is no such interface",
        (Setting::Interface(..), libc::EOPNOTSUPP) => "the driver does not do that",
        (_, libc::EACCES | libc::EPERM) => "root is needed",
        (_, libc::EROFS) => "the file system is mounted read-only, as in containers; do it on the host",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_the_number_means_for_the_setting() {
        for (name, operation, errno, says) in [
            ("irq:57:affinity", "set", libc::EIO, "manages this IRQ's CPUs itself"),
            ("irq:57:affinity", "set", libc::EPERM, "or root is needed"),
            ("irq:57:affinity", "set", libc::ENOSPC, "no interrupt vector left"),
            ("eth0:irq/rx-0", "set", libc::ENOSPC, "no interrupt vector left"),
            ("irq:57:affinity", "read", libc::ENOENT, "no such IRQ"),
            ("eth0:rps/rx-0", "set", libc::EINVAL, "isolated or offline"),
            ("eth0:xps/tx-0", "read", libc::ENOENT, "the only one"),
            ("eth0:ring/rx", "set", libc::EOPNOTSUPP, "the driver does not do that"),
            ("sysctl:net.core.netdev_budget", "read", libc::ENOENT, "set it on the host"),
            ("sysctl:kernel.nothing", "read", libc::ENOENT, "this kernel has none"),
            ("sysctl:kernel.panic", "set", libc::EROFS, "read-only"),
            ("thread:8/9:affinity", "set", libc::EINVAL, "its cpuset"),
            ("eth0:channels/rx", "set", libc::EBUSY, "busy"),
        ] {
            let error = io::Error::from_raw_os_error(errno);
            let refusal = Refusal::kernel(operation, &name.parse().unwrap(), &error).to_string();
            assert!(refusal.contains(says) && refusal.contains(name), "{refusal}");
        }
    }
}
