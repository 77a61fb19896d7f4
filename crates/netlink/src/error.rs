//! Why a request failed, in the kernel's own words where it gives any.

use std::fmt;
use std::io;

/// A request failed: the kernel refused it, or its answer was malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {what}: {}", self.why())]
pub struct Error {
    /// Operation and object: `set the channels of eth0`. Empty until [`Error::when`] fills it in.
    pub what: String,
    /// The kernel's error number; `None` if the kernel did not cause the failure.
    pub errno: Option<i32>,
    /// The message of the kernel or driver (extended acknowledgement), or what else went wrong.
    pub detail: Option<String>,
}

impl Error {
    /// The kernel refused with this error number.
    #[must_use]
    pub fn errno(errno: i32) -> Self {
        Self { what: String::new(), errno: Some(errno), detail: None }
    }

    /// A failure that the kernel did not report.
    #[must_use]
    pub fn other(detail: impl fmt::Display) -> Self {
        Self { what: String::new(), errno: None, detail: Some(detail.to_string()) }
    }

    /// Adds operation and object.
    #[must_use]
    pub fn when(mut self, what: impl Into<String>) -> Self {
        self.what = what.into();
        self
    }

    /// The cause without the operation: the kernel's message, then its error number.
    #[must_use]
    pub fn why(&self) -> String {
        let number = self.errno.map(|errno| io::Error::from_raw_os_error(errno).to_string());
        match (&self.detail, number) {
            (Some(detail), Some(number)) => format!("{detail} ({number})"),
            (Some(detail), None) => detail.clone(),
            (None, Some(number)) => number,
            (None, None) => "no reason was given".into(),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        error.raw_os_error().map_or_else(|| Self::other(&error), Self::errno)
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        io::Error::from(errno).into()
    }
}

impl From<Error> for io::Error {
    /// Keeps the error number where there is one, and the text otherwise.
    fn from(error: Error) -> Self {
        error.errno.map_or_else(|| Self::other(error.why()), Self::from_raw_os_error)
    }
}
