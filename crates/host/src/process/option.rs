//! Settings of a running server's socket.
//!
//! | setting | option | reported by the kernel | takes effect |
//! |---|---|---|---|
//! | receive buffer | `SO_RCVBUFFORCE` | yes | for the next datagram |
//! | busy poll | `SO_BUSY_POLL` | yes | when the server next waits |
//! | prefer busy poll | `SO_PREFER_BUSY_POLL` | yes | when the server next waits |
//! | busy poll budget | `SO_BUSY_POLL_BUDGET` | no | when the server next waits |
//! | incoming CPU | `SO_INCOMING_CPU` | yes | for the next datagram |
//! | selection | `SO_ATTACH_REUSEPORT_CBPF`, `_EBPF` | no | for the next datagram, of the whole group |

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};

use super::held::{self, SocketId};
use super::{Error, Selection, sys};

/// The capability to exceed the system's limits.
const NEEDS: &str = "CAP_NET_ADMIN";
/// Largest receive buffer, in bytes of the kernel's accounting: it doubles the value it is given (`__sock_set_rcvbuf`).
pub const MAX_BUFFER: u32 = (i32::MAX - 1).cast_unsigned();

/// A setting of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketSetting {
    /// Buffer space for datagrams waiting to be received.
    ReceiveBuffer,
    /// How long a blocking call polls the device's queue.
    BusyPoll,
    /// Whether polling takes precedence over interrupts.
    PreferBusyPoll,
    /// Packets per poll.
    BusyPollBudget,
    /// The CPU whose datagrams it prefers within its group.
    IncomingCpu,
    /// How the group selects a socket for a datagram.
    Selection,
}

impl SocketSetting {
    /// All settings.
    pub const ALL: [Self; 6] = [
        Self::ReceiveBuffer,
        Self::BusyPoll,
        Self::PreferBusyPoll,
        Self::BusyPollBudget,
        Self::IncomingCpu,
        Self::Selection,
    ];

    /// Its name here.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReceiveBuffer => "receive-buffer",
            Self::BusyPoll => "busy-poll",
            Self::PreferBusyPoll => "prefer-busy-poll",
            Self::BusyPollBudget => "busy-poll-budget",
            Self::IncomingCpu => "incoming-cpu",
            Self::Selection => "selection",
        }
    }

    /// The kernel's name for it.
    #[must_use]
    pub const fn option(self) -> &'static str {
        match self {
            Self::ReceiveBuffer => "SO_RCVBUFFORCE",
            Self::BusyPoll => "SO_BUSY_POLL",
            Self::PreferBusyPoll => "SO_PREFER_BUSY_POLL",
            Self::BusyPollBudget => "SO_BUSY_POLL_BUDGET",
            Self::IncomingCpu => "SO_INCOMING_CPU",
            Self::Selection => "SO_ATTACH_REUSEPORT_CBPF",
        }
    }

    /// How long a value lasts, for users.
    #[must_use]
    pub const fn lasts(self) -> &'static str {
        match self {
            Self::Selection => {
                "until the last socket of the group is closed: a restart of the server resets it, a reload that keeps \
                 the sockets (nsd's does) does not"
            }
            _ => {
                "until the socket is closed: a restart of the server resets it, a reload that keeps the sockets \
                 (nsd's does) does not"
            }
        }
    }

    /// Whether the kernel reports the current value.
    #[must_use]
    pub const fn is_reported(self) -> bool {
        !matches!(self, Self::BusyPollBudget | Self::Selection)
    }
}

/// A value of a [`SocketSetting`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketValue {
    /// Bytes by the kernel's accounting, twice what a server requests; up to 2,147,483,646. Odd values are rounded up
    /// to even. The kernel's minimum is about 2,300.
    ReceiveBuffer(u32),
    /// Microseconds; 0 is off.
    BusyPoll(u32),
    /// On, or off.
    PreferBusyPoll(bool),
    /// Packets; 0 is the kernel's default, 8.
    BusyPollBudget(u16),
    /// The CPU; `None` is any.
    IncomingCpu(Option<u32>),
    /// Of the whole group.
    Selection(Selection),
}

impl SocketValue {
    /// The setting it is a value of.
    #[must_use]
    pub const fn setting(self) -> SocketSetting {
        match self {
            Self::ReceiveBuffer(_) => SocketSetting::ReceiveBuffer,
            Self::BusyPoll(_) => SocketSetting::BusyPoll,
            Self::PreferBusyPoll(_) => SocketSetting::PreferBusyPoll,
            Self::BusyPollBudget(_) => SocketSetting::BusyPollBudget,
            Self::IncomingCpu(_) => SocketSetting::IncomingCpu,
            Self::Selection(_) => SocketSetting::Selection,
        }
    }
}

impl fmt::Display for SocketValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReceiveBuffer(bytes) => write!(f, "{bytes} bytes"),
            Self::BusyPoll(us) => write!(f, "{us} us"),
            Self::PreferBusyPoll(on) => f.write_str(if *on { "on" } else { "off" }),
            Self::BusyPollBudget(packets) => write!(f, "{packets} packets"),
            Self::IncomingCpu(Some(cpu)) => write!(f, "CPU {cpu}"),
            Self::IncomingCpu(None) => f.write_str("any CPU"),
            Self::Selection(selection) => selection.fmt(f),
        }
    }
}

/// The current value of a socket's setting; `None` if the kernel does not report it ([`SocketSetting::is_reported`]).
///
/// # Errors
/// The process no longer has the socket, or there is no permission to read it.
pub fn read(pid: u32, socket: SocketId, setting: SocketSetting) -> Result<Option<SocketValue>, Error> {
    held::with_socket(pid, socket, |held| {
        let what = || format!("read {} of socket {} of process {pid}", setting.option(), socket.inode);
        get(held, setting).map_err(|cause| Error::answered(what(), cause, NEEDS))
    })
}

/// Reads through a held socket.
pub fn get(socket: BorrowedFd<'_>, setting: SocketSetting) -> io::Result<Option<SocketValue>> {
    let number = |name| sys::option(socket, name);
    Ok(Some(match setting {
        SocketSetting::ReceiveBuffer => SocketValue::ReceiveBuffer(number(libc::SO_RCVBUF)?.cast_unsigned()),
        SocketSetting::BusyPoll => SocketValue::BusyPoll(number(libc::SO_BUSY_POLL)?.cast_unsigned()),
        SocketSetting::PreferBusyPoll => SocketValue::PreferBusyPoll(number(libc::SO_PREFER_BUSY_POLL)? != 0),
        // -1 means any CPU.
        SocketSetting::IncomingCpu => {
            SocketValue::IncomingCpu(u32::try_from(number(libc::SO_INCOMING_CPU)?).ok())
        }
        SocketSetting::BusyPollBudget | SocketSetting::Selection => return Ok(None),
    }))
}
