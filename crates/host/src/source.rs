//! Where facts come from: this machine, another namespace of it, or a captured folder.
//!
//! Readers take a [`Source`] and nothing else, so each runs on a captured machine as on a live one, and what a reader
//! asked for is what a capture holds.
//!
//! ```text
//! DIR/proc/...  DIR/sys/...     files as the kernel showed them
//! ```

mod folder;

use std::fmt;

pub use folder::Folder;

use crate::Absence;

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
