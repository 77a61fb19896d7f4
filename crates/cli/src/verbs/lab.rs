//! `udpath lab`.

use crate::exit::Done;

/// Arguments of `udpath lab`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> Done {
    unreachable!("skeleton")
}
