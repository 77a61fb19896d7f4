//! A running server, changed from outside: its UDP sockets' options and its threads' CPUs, without its knowledge and
//! without a restart.
//!
//! ```text
//!  find(pid) ─▸ Server ── sockets: identity, address, reuseport group, options, queue, drops
//!                    └── threads: identity, name, affinity, CPU last run on
//!  read / write(pid, socket, value) ─▸ pidfd_getfd ─ duplicate ─ getsockopt, setsockopt ─ closed at once
//!  affinity / pin(thread, CPUs)     ─▸ sched_setaffinity
//!  serving(port) ─▸ Servers    waiting(server) ─▸ which thread waits for which socket
//! ```
//!
//! # A duplicate is never kept
//! A socket is changed through a duplicate of its descriptor, and the duplicate is closed before the call returns.
//! While one is open the socket lives on, also when its server has closed it: after a restart the old socket would
//! still be in the reuseport group, unread, and swallow its share of the new server's traffic.
//!
//! # What a restart forgets
//! Everything set here: options go with the socket, an affinity with the thread. A restarted server opens new sockets
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
mod options;
mod selection;
mod serving;
mod setting;
mod sys;
mod thread;

pub use error::Error;
pub use find::{Group, Server, Socket, find};
pub use held::{SocketId, identify};
pub use options::look_closer;
pub use selection::{Chosen, chosen};
pub use serving::{Waiting, serving, waiting};
pub(crate) use setting::MOST_BUFFER;
pub use setting::{Changed, Selection, SocketSetting, SocketValue, group, read, write};
pub use thread::{Thread, ThreadId, affinity, pin};
