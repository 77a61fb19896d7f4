//! Every file that udpath opens, reads, writes or replaces.
//!
//! udpath runs as root, and most of what it looks at belongs to somebody else: processes, containers, servers' users,
//! operators' folders. A path given by any of them may be a FIFO that never has a writer, a device, a link to
//! `/etc/shadow`, a file of 64 GiB, or something else by the time it is opened. So no other crate opens a file:
//! `clippy.toml` forbids it there.
//!
//! ```text
//!  read      a path that root or the operator chose      regular files, up to a limit; never waits
//!  kernel    /proc, /sys                                 no link of /proc that leads to a process's files
//!  Beneath   a path that somebody else chose             nothing outside a folder, or the root of a process
//!  replace   a file on disk, whole                       beside it, synced, renamed; a link is replaced, not followed
//!  own       a file of udpath's own in its own folder    a link, or another user's file, is an error
//!  output    a result at a path of the operator's       links of root and of this user are followed, no others
//!  Private   a folder of this user's own                nobody else can open it, or change what its path leads to
//!  owners    who can change a path                       root and nobody else, for what root runs or believes
//! ```
//! A limit is always the caller's: what is a large file depends on what it is.

#![allow(clippy::disallowed_methods, reason = "this crate is where files are opened")]

mod beneath;
pub mod kernel;
pub mod output;
pub mod own;
pub mod owners;
mod private;
mod read;
pub mod replace;
mod walk;

pub use beneath::Beneath;
pub use private::{NotPrivate, Private};
pub use read::{Listing, MAX_NAMES, bytes, folder, input, is_regular, names, null, open, start, text};
