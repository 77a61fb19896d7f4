//! `udpath man`: man pages, generated from the argument table.

use anyhow::Context;

use crate::args::man::Args;
use crate::exit::Done;

/// Writes one page per verb into the folder.
pub(crate) fn run(args: &Args, command: clap::Command) -> Done {
    std::fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(command, &args.folder))
        .with_context(|| format!("cannot write man pages to {}", args.folder.display()))?;
    Ok(())
}
