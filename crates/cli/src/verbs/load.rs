//! `udpath load`.

use crate::exit::Done;

/// Arguments of `udpath load`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> Done {
    unreachable!("skeleton")
}
