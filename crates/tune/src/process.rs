//! Sockets and threads of a running server, changed from outside, without its cooperation and without a restart.
//!
//! ```text
//!  write(pid, socket, value) ─▸ pidfd_getfd ─ duplicate ─ setsockopt, read back ─ closed at once
//!  pin(thread, CPUs)         ─▸ sched_setaffinity, read back
//!  chosen(socket)            ─▸ which program selects the socket in its reuseport group
//! ```
//! [`udpath_host::process`] finds the sockets and threads, and documents how they are identified.

mod pin;
mod rule;
mod selection;
mod sys;
mod write;

pub use pin::pin;
pub use rule::unselected;
pub use selection::{Chosen, chosen};
pub use write::{Changed, write};
