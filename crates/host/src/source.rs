//! Where facts come from: this machine, another namespace of it, or a captured folder.
//!
//! Readers take a [`Source`] and nothing else, so each runs on a captured machine as on a live one, and what a reader
//! asked for is what a capture holds ([`Recorder`]).
//!
//! ```text
//! DIR/proc/...  DIR/sys/...     files as the kernel showed them; directories and links too
//! DIR/udpath/links.json         answers of netlink and ioctls, one file per question: see the module question
//! DIR/udpath/channels/eth0.json
//! DIR/udpath/files.json         optional: {"links": {"/sys/class/net/eth0/device/driver": "../../bus/pci/drivers/ixgbe"},
//!                                          "absent": {"/proc/net/packet": {"not-permitted": {"needs": "root"}}}}
//! ```
//! `links` are symbolic links whose path is a directory in the capture as well. `absent` says why a file was not there;
//! everything else that is not there was not captured.
//!
//! A live source is of the network namespace that its thread is in: [`crate::namespace::inside`] makes a thread for
//! another one.

mod beneath;
mod folder;
mod question;
mod recorder;

use std::fmt;

pub use folder::{ANSWERS, Folder, INDEX, Index, MAX_FILE, sort};
pub use question::{Answer, Question};
pub use recorder::{Recorder, Recording, flat};

use crate::{Absence, Fact};

/// Answers what readers ask. Paths are absolute and begin with `/proc` or `/sys` or `/etc`.
pub trait Source: fmt::Debug {
    /// The whole text of a file, as it is, the final newline included.
    ///
    /// # Errors
    /// Why there is none. A file that is not UTF-8 is [`Absence::NotUnderstood`].
    fn text(&self, path: &str) -> Result<String, Absence>;

    /// The names in a directory, in the order of their numbers where they end in one (`rx-2` before `rx-10`), else of
    /// their bytes.
    ///
    /// # Errors
    /// Why there are none.
    fn names(&self, directory: &str) -> Result<Vec<String>, Absence>;

    /// Where a symbolic link points, as it is written in the link.
    ///
    /// # Errors
    /// Why it is not known.
    fn target(&self, link: &str) -> Result<String, Absence>;

    /// What the kernel says beside its files. Readers ask by name: `source.channels("eth0")`.
    ///
    /// # Errors
    /// Why there is no answer.
    fn ask(&self, question: &Question) -> Result<Fact<Answer>, Absence>;
}

/// A file that holds one value, without the newline.
///
/// # Errors
/// Why there is none.
pub fn value(source: &dyn Source, path: &str) -> Result<String, Absence> {
    source.text(path).map(|text| text.trim_end().to_owned())
}

/// A file that holds one decimal number.
///
/// # Errors
/// Why there is none; what is no number is [`Absence::NotUnderstood`].
pub fn number<N: std::str::FromStr>(source: &dyn Source, path: &str) -> Result<N, Absence> {
    let text = value(source, path)?;
    text.trim().parse().map_err(|_| Absence::NotUnderstood(format!("{path}: '{text}' is no number")))
}
