//! Arguments of `udpath support`.

use std::path::PathBuf;
use std::time::Duration;

use super::place::NamespaceArgs;
use super::settings::JournalArgs;
use super::{show, value};

/// Arguments of `udpath support`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output: an archive if the name ends in .tar.gz, otherwise a folder [default: udpath-support-TIME.tar.gz in this
    /// folder]
    #[arg(short, long, value_name = "FILE.tar.gz|DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Take two snapshots this far apart, so that rates can be computed
    #[arg(short, long, value_name = "TIME", value_parser = value::duration_within(show::INTERVAL))]
    pub(crate) interval: Option<Duration>,
    /// Overwrite an existing capture
    #[arg(long)]
    pub(crate) force: bool,
    /// Keep the RSS keys: they are needed to predict queues, but also allow attackers to target one
    #[arg(long)]
    pub(crate) keep_rss_key: bool,
    /// Keep everything unredacted: addresses, names, command lines, keys
    #[arg(long)]
    pub(crate) no_redact: bool,
    /// Print the list of replacements, to interpret answers; it is not in the capture
    #[arg(long, conflicts_with = "no_redact")]
    pub(crate) print_redactions: bool,
    #[command(flatten)]
    pub(crate) namespace: NamespaceArgs,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
    /// Print the manifest, which is also in the capture, as one JSON document (udpath.support/1)
    #[arg(long, conflicts_with = "print_redactions")]
    pub(crate) json: bool,
}
