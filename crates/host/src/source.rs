//! Sources of facts: this machine, another namespace of it, or a captured folder.
//!
//! Readers take only a [`Source`], so each runs on a captured machine as on a live one, and a capture holds exactly
//! what the readers requested ([`Recorder`]).
//!
//! ```text
//! DIR/proc/...  DIR/sys/...     files as the kernel showed them; directories and links too
//! DIR/udpath/links.json         answers of netlink and ioctls, one file per question: see the module question
//! DIR/udpath/channels/eth0.json
//! DIR/udpath/files.json         optional: {"links": {"/sys/class/net/eth0/device/driver": "../../bus/pci/drivers/ixgbe"},
//!                                          "absent": {"/proc/net/packet": {"not-permitted": {"needs": "root"}}}}
//! ```
//! `links` are symbolic links whose path is also a directory in the capture. `absent` says why a file was not there;
//! anything else that is not there was not captured.
//!
//! A live source covers the network namespace of its thread: [`crate::namespace::inside`] starts a thread in another
//! one.

mod folder;
pub(crate) mod question;
mod recorder;

use std::fmt;

pub use folder::{ANSWERS, Folder, INDEX, Index, MAX_FILE, sort};
pub use question::{Answer, Question};
pub use recorder::{Recorder, Recording, flat};

use crate::{Absence, Fact};

/// Answers readers' questions. Paths are absolute and begin with `/proc` or `/sys` or `/etc`.
pub trait Source: fmt::Debug {
    /// The whole text of a file, unmodified, including the final newline.
    ///
    /// # Errors
    /// The reason there is none. A file that is not UTF-8 is [`Absence::NotUnderstood`].
    fn text(&self, path: &str) -> Result<String, Absence>;

    /// The beginning of a file of which a process chooses the length, `length` bytes at most, cut between characters: a
    /// command line may be 64 GiB of mapped memory. What is not UTF-8 is replaced.
    ///
    /// # Errors
    /// The reason there is none.
    fn start(&self, path: &str, length: usize) -> Result<String, Absence> {
        self.text(path).map(|text| cut(text, length))
    }

    /// The names in a directory, sorted by number if they end in one (`rx-2` before `rx-10`), else by bytes.
    ///
    /// # Errors
    /// The reason there are none.
    fn names(&self, directory: &str) -> Result<Vec<String>, Absence>;

    /// The target of a symbolic link, as stored in the link.
    ///
    /// # Errors
    /// The reason it is not known.
    fn target(&self, link: &str) -> Result<String, Absence>;

    /// Passes the name and the target of each symbolic link in a directory to `each`, in the directory's order:
    /// descriptors in `/proc` are listed by number. What is not a link or disappears meanwhile is left out.
    ///
    /// # Errors
    /// The reason why the directory cannot be read.
    fn targets(&self, directory: &str, each: &mut dyn FnMut(&str, &str)) -> Result<(), Absence> {
        for name in self.names(directory)? {
            if let Ok(target) = self.target(&format!("{directory}/{name}")) {
                each(&name, &target);
            }
        }
        Ok(())
    }

    /// Asks the kernel, other than through files. Readers call it by name: `source.channels("eth0")`.
    ///
    /// # Errors
    /// The reason there is no answer.
    fn ask(&self, question: &Question) -> Result<Fact<Answer>, Absence>;
}

/// A file that holds one value, without the newline.
///
/// # Errors
/// The reason there is none.
pub fn value(source: &dyn Source, path: &str) -> Result<String, Absence> {
    source.text(path).map(|text| text.trim_end().to_owned())
}

/// A file that holds one decimal number.
///
/// # Errors
/// The reason there is none; text that is not a number is [`Absence::NotUnderstood`].
pub fn number<N: std::str::FromStr>(source: &dyn Source, path: &str) -> Result<N, Absence> {
    let text = value(source, path)?;
    text.trim().parse().map_err(|_| Absence::NotUnderstood(format!("{path}: '{text}' is not a number")))
}

/// The beginning of a text, `length` bytes at most, cut between characters.
fn cut(mut text: String, length: usize) -> String {
    let mut end = text.len().min(length);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}
