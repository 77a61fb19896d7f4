//! `udpath man`: man pages, generated from the argument table.

use std::path::PathBuf;

use anyhow::Context;

use crate::exit::Done;

/// Arguments of `udpath man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder to write `udpath.1`, `udpath-serve.1`, ... to
    folder: PathBuf,
}

/// Writes one page per verb into the folder.
pub(crate) fn run(args: &Args, command: clap::Command) -> Done {
    std::fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(command, &args.folder))
        .with_context(|| format!("cannot write man pages to {}", args.folder.display()))?;
    Ok(())
}
