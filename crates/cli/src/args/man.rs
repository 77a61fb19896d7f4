//! Arguments of `udpath man`.

use std::path::PathBuf;

/// Arguments of `udpath man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder to write `udpath.1`, `udpath-serve.1`, ... to
    pub(crate) folder: PathBuf,
}
