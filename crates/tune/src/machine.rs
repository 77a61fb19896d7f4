//! The interface for reading and writing settings, and the wording of kernel errors.
//!
//! Everything that changes the machine goes through [`Machine::write`]; a test intercepts writes by wrapping a machine.

pub(crate) mod file;
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
    /// Other machine state: queues, CPUs, processes.
    fn source(&self) -> &dyn Source;

    /// The current value.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&self, setting: &Setting) -> Result<Value, Refusal>;

    /// Sets it. Use [`Machine::read`] for the value the kernel stored.
    ///
    /// # Errors
    /// Why it could not be set.
    fn write(&self, setting: &Setting, value: &Value) -> Result<(), Refusal>;

    /// The identity of the object it belongs to, since another object may reuse the name. `None` if it has none.
    ///
    /// # Errors
    /// The object does not exist.
    fn identity(&self, setting: &Setting) -> Result<Option<Identity>, Refusal>;

    /// The object's new name, if it was renamed.
    fn renamed(&self, setting: &Setting, identity: &Identity) -> Option<Setting>;

    /// The IRQ whose affinity the setting is.
    ///
    /// # Errors
    /// It is not an IRQ setting, or the queue has no IRQ.
    fn irq(&self, setting: &Setting) -> Result<u32, Refusal>;

    /// The servers with UDP sockets bound to a port here, each with only those sockets.
    ///
    /// # Errors
    /// There is no server, or it cannot be identified. Only a live machine has servers.
    fn serving(&self, port: u16) -> Result<Vec<Server>, Error> {
        Err(Error::NobodyServes { port })
    }

    /// What a change of the setting would destroy without undo being able to restore it, in words; `None` if undo can.
    fn lost(&self, setting: &Setting) -> Option<Lost> {
        let _ = setting;
        None
    }

    /// Why a value that is set does not have its effect; `None` if it has, or will have.
    fn broken(&self, setting: &Setting, value: &Value) -> Option<String> {
        let _ = (setting, value);
        None
    }

    /// Describes a value that was set and read back but takes effect only later; `None` if it is in effect.
    fn pending(&self, setting: &Setting, value: &Value) -> Option<String>;
}

/// What a change would destroy without undo being able to restore it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// It was observed; otherwise it may exist but is not visible.
    pub seen: bool,
    /// The effect of the change: `replaces ...`.
    pub words: String,
}

/// What distinguishes an object from a later one of the same name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// Inode of an interface's directory in sysfs: unlike the interface index, it survives a rename and is never
    /// reused.
    Device(u64),
    /// Start time of a thread, clock ticks after boot.
    Started(u64),
    /// The pid of the peer process.
    Pid(u32),
    /// The driver's name for an IRQ, and its device. IRQ numbers are reused when a driver is reloaded.
    Irq {
        /// The name of its action, as `/proc/interrupts` shows it: `eth0-TxRx-3`.
        action: String,
        /// The address of its PCI device; for others, its controller and the number there.
        device: String,
    },
    /// A server's first process, and its start, clock ticks after boot.
    Process {
        /// Its pid.
        pid: u32,
        /// Its start.
        started: u64,
    },
    /// Cookies of a socket, or of the members of its group, unique within a boot. Pids and inodes are reused, and a
    /// socket may pass from one process to another.
    Sockets(Vec<u64>),
}

impl Identity {
    /// Is it the same object? A group is the same while any original member remains.
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
            Self::Pid(pid) | Self::Process { pid, .. } => write!(f, "process {pid}"),
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
    /// The errno, if the kernel rejected it.
    pub errno: Option<i32>,
    /// Why, in words.
    pub why: String,
}

impl Refusal {
    /// The kernel's error, worded for the setting.
    #[must_use]
    pub fn kernel(operation: &'static str, setting: &Setting, error: &io::Error) -> Self {
        let errno = error.raw_os_error();
        let hint = errno.and_then(|errno| meaning(operation, setting, errno));
        let why = hint.map_or_else(|| error.to_string(), |hint| format!("{hint} ({error})"));
        Self { operation, setting: setting.to_string(), errno, why }
    }

    /// An error raised by udpath.
    #[must_use]
    pub fn because(operation: &'static str, setting: &Setting, why: impl Into<String>) -> Self {
        Self { operation, setting: setting.to_string(), errno: None, why: why.into() }
    }

    /// Is the object itself gone?
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.errno, Some(libc::ENOENT | libc::ENODEV | libc::ESRCH | libc::ENXIO))
    }
}

/// The meaning of an errno for this setting, where the kernel's own text is not enough.
fn meaning(operation: &str, setting: &Setting, errno: i32) -> Option<&'static str> {
    if let Some(of_kind) = (setting.row().extra.errno)(setting, operation, errno) {
        return Some(of_kind);
    }
    Some(match (setting, errno) {
        (Setting::Interface(..), libc::ENODEV) => "no such interface",
        (Setting::Interface(..), libc::EOPNOTSUPP) => "the driver does not support it",
        (_, libc::EACCES | libc::EPERM) => "it needs root",
        (_, libc::EROFS) => "the file system is mounted read-only, as in containers; set it on the host",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_explain_the_errno_for_the_setting() {
        for (name, operation, errno, says) in [
            ("irq:57:affinity", "set", libc::EIO, "manages this IRQ's CPUs itself"),
            ("irq:57:affinity", "set", libc::EPERM, "or root is needed"),
            ("irq:57:affinity", "set", libc::ENOSPC, "no free interrupt vector"),
            ("eth0:irq/rx-0", "set", libc::ENOSPC, "no free interrupt vector"),
            ("irq:57:affinity", "read", libc::ENOENT, "no such IRQ"),
            ("eth0:rps/rx-0", "set", libc::EINVAL, "isolated or offline"),
            ("eth0:xps/tx-0", "read", libc::ENOENT, "the only one"),
            ("eth0:ring/rx", "set", libc::EOPNOTSUPP, "the driver does not support it"),
            ("sysctl:net.core.netdev_budget", "read", libc::ENOENT, "set it on the host"),
            ("sysctl:kernel.nothing", "read", libc::ENOENT, "this kernel has no sysctl"),
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
