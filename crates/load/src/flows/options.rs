//! Socket options that the plan asks for: set before connecting, and read back, since the kernel may grant less.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{self, Errno};
use rustix::net::sockopt;

use crate::Error;
use crate::plan::{PlanError, SocketOptions};

/// The kernel's list of congestion controls that are loaded.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Sets the plan's options on one socket, before it is connected: TCP announces its window scale in the first segment.
pub(super) fn set(options: &SocketOptions, socket: BorrowedFd<'_>) -> Result<(), Error> {
    let SocketOptions { congestion, send_buffer, receive_buffer } = options;
    if let Some(name) = congestion {
        sockopt::set_tcp_congestion(socket, name).map_err(|errno| refused(name, errno))?;
    }
    if let Some(bytes) = *send_buffer {
        sockopt::set_socket_send_buffer_size_force(socket, bytes)
            .or_else(|_| sockopt::set_socket_send_buffer_size(socket, bytes))
            .map_err(|errno| Error::system(format!("set a send buffer of {bytes} bytes"), errno))?;
    }
    if let Some(bytes) = *receive_buffer {
        set_receive_buffer(socket, bytes)
            .map_err(|errno| Error::system(format!("set a receive buffer of {bytes} bytes"), errno))?;
    }
    Ok(())
}

/// Requests a receive buffer, beyond `net.core.rmem_max` if this process may exceed it.
pub(super) fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    sockopt::set_socket_recv_buffer_size_force(socket, bytes)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, bytes))
}

fn refused(name: &str, errno: Errno) -> Error {
    match errno {
        // ENOENT: not loaded, or not to be loaded by this user.
        Errno::NOENT => {
            let known = udpath_files::kernel::text(AVAILABLE).unwrap_or_default();
            let known = known.split_ascii_whitespace().collect::<Vec<_>>().join(", ");
            PlanError::Congestion { name: name.to_owned(), known }.into()
        }
        errno => Error::System {
            operation: format!("use the congestion control {name}"),
            cause: errno.into(),
            hint: if errno == Errno::PERM {
                " (run as root, or add it to net.ipv4.tcp_allowed_congestion_control)"
            } else {
                ""
            },
        },
    }
}

/// What the kernel granted of the plan's options.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    /// The options in effect, as a sentence; none if the plan has none.
    pub(crate) note: Option<String>,
    /// A sentence for each buffer that is smaller than requested.
    pub(crate) warnings: Vec<String>,
}

impl Granted {
    /// Reads the options back from one flow's socket: those of all flows are alike.
    pub(crate) fn read(options: &SocketOptions, socket: Option<&OwnedFd>) -> Self {
        let mut granted = Self::default();
        let Some(socket) = socket.map(AsFd::as_fd).filter(|_| !options.is_default()) else { return granted };
        let mut words = Vec::new();
        if options.congestion.is_some()
            && let Ok(name) = sockopt::tcp_congestion(socket)
        {
            words.push(format!("congestion control {name}"));
        }
        let send = (options.send_buffer, sockopt::socket_send_buffer_size(socket), "send", "wmem_max");
        let receive =
            (options.receive_buffer, sockopt::socket_recv_buffer_size(socket), "receive", "rmem_max");
        for (wanted, found, what, limit) in [send, receive] {
            let (Some(wanted), Ok(found)) = (wanted, found) else { continue };
            words.push(format!("{what} buffer {found} bytes"));
            // The kernel doubles what is requested, for its own bookkeeping (socket(7)).
            if found < wanted * 2 {
                granted.warnings.push(format!(
                    "the kernel granted a {what} buffer of {} bytes instead of {wanted}: raise net.core.{limit}, or run as root",
                    found / 2
                ));
            }
        }
        granted.note = (!words.is_empty()).then(|| format!("sockets: {}", words.join(", ")));
        granted
    }
}
