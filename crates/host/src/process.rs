//! A running server, seen from outside: its UDP sockets, their options and groups, its threads and their CPUs.
//!
//! ```text
//!  find(pid) ─▸ Server ── sockets: identity, address, reuseport group, options, queue, drops
//!                    └── threads: identity, name, affinity, CPU last run on
//!  read(pid, socket, setting) ─▸ pidfd_getfd ─ duplicate ─ getsockopt ─ closed immediately
//!  serving(port), answering(address) ─▸ Servers    waiting(server) ─▸ which thread waits for which socket
//! ```
//!
//! # A duplicate is never kept
//! A socket is read, or changed, through a duplicate of its descriptor, and the duplicate is closed before the call
//! returns. While one is open the socket stays alive, even if its server has closed it: after a restart the old socket
//! would still be in the reuseport group, unread, and swallow its share of the new server's traffic.
//!
//! # What is lost on a restart
//! Everything that is set from outside: options are lost with the socket, an affinity with the thread. A restarted
//! server opens new sockets and starts new threads with its own configuration. Servers that reload without closing
//! their sockets, such as nsd, keep the socket options, but newly started workers do not keep their affinity.
//! [`SocketSetting::lasts`] and [`Thread::LASTS`] state this for users.
//!
//! # Identity
//! A PID or a descriptor number can be reused at any moment. So a socket is identified by its cookie, which is unique
//! since boot, and a thread by its start time; both are compared before anything is written.

mod error;
mod find;
mod held;
mod option;
mod options;
mod selection;
mod serving;
mod sys;
mod thread;

pub use error::Error;
pub use find::{Group, Server, Socket, find, group, members};
pub use held::{SocketId, identify, with_socket};
pub use option::{MAX_BUFFER, SocketSetting, SocketValue, get, read};
pub use options::look_closer;
pub use selection::Selection;
pub use serving::{Waiting, address_of, answering, is_bound, serving, waiting};
pub use thread::{Thread, ThreadId, affinity, online, possible};

/// Most bytes of a file of one process or thread that are read. They have a few kB; only the list of an epoll instance
/// grows with what the process does, some 80 bytes per watched descriptor. Lower: sockets at its end are missed.
/// Higher: a process with millions of them costs memory and time.
const MAX_FILE: usize = 1 << 20;

/// A file of a process, up to a limit. The name in it may be any bytes.
fn text(path: &str) -> std::io::Result<String> {
    let bytes = udpath_files::kernel::start(path, MAX_FILE)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
