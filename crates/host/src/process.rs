//! A running server, seen from outside: its UDP sockets, their options and groups, its threads and their CPUs.
//!
//! ```text
//!  find(pid) ─▸ Server ── sockets: identity, address, reuseport group, options, queue, drops
//!                    └── threads: identity, name, affinity, CPU last run on
//!  read(pid, socket, setting) ─▸ pidfd_getfd ─ duplicate ─ getsockopt ─ closed at once
//!  serving(port) ─▸ Servers    waiting(server) ─▸ which thread waits for which socket
//! ```
//!
//! # A duplicate is never kept
//! A socket is read, or changed, through a duplicate of its descriptor, and the duplicate is closed before the call returns.
//! While one is open the socket lives on, also when its server has closed it: after a restart the old socket would
//! still be in the reuseport group, unread, and swallow its share of the new server's traffic.
//!
//! # What a restart forgets
//! Everything that is set from outside: options go with the socket, an affinity with the thread. A restarted server opens new sockets
//! and starts new threads as its own configuration says. Of servers that reload without closing their sockets, such as
//! nsd, the sockets keep theirs, but workers that are started anew do not. [`SocketSetting::lasts`] and
//! [`Thread::LASTS`] say so for users.
//!
//! # Who is meant
//! A pid or a descriptor's number can be given to somebody else at any moment. So a socket is named by its cookie, which
//! no other socket of this boot has, and a thread by the moment of its start; both are compared before anything is
//! written.

mod error;
mod find;
mod held;
mod option;
mod options;
mod serving;
mod sys;
mod thread;

pub use error::Error;
pub use find::{Group, Server, Socket, find};
pub use held::{SocketId, identify, with_socket};
pub use option::{MAX_BUFFER, Selection, SocketSetting, SocketValue, get, group, read};
pub use options::look_closer;
pub use serving::{Waiting, serving, waiting};
pub use thread::{Thread, ThreadId, affinity, online, possible};
