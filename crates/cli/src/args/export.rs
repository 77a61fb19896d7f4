//! Arguments of `udpath export`.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::confine::UserArgs;
use super::place::PlaceArgs;
use super::settings::JournalArgs;
use super::value;

/// Default address of the metrics server. Ports 9,4xx are used by exporters; this one was not allocated in their list.
const LISTEN: &str = "127.0.0.1:9453";
/// Time between two writes of the file. Shorter: more often than anyone reads it.
const INTERVAL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Arguments of `udpath export`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Serve /metrics on this address
    #[arg(long, value_name = "ADDR:PORT", default_value = LISTEN, value_parser = value::address)]
    pub(crate) listen: SocketAddr,
    /// Write this file instead, atomically, every --interval: for node_exporter's textfile collector
    #[arg(long, value_name = "FILE.prom", conflicts_with = "listen")]
    pub(crate) textfile: Option<PathBuf>,
    /// Time between two writes of the file
    #[arg(short, long, value_name = "TIME", default_value = "15s", value_parser = value::duration_within(INTERVAL))]
    pub(crate) interval: Duration,
    /// Print the metrics once and exit
    #[arg(long, conflicts_with_all = ["listen", "textfile"])]
    pub(crate) once: bool,
    /// Also export a series for each receive queue
    #[arg(long)]
    pub(crate) queues: bool,
    /// Number of sockets to export, those with the most drops first, 0 to 1000
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) sockets: u16,
    #[command(flatten)]
    pub(crate) user: UserArgs,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

/// Arguments of `udpath export-answer`. stdin is the listener, stdout the connection to `udpath export`.
#[derive(Debug, clap::Args)]
pub(crate) struct AnswerArgs {
    #[command(flatten)]
    pub(crate) user: UserArgs,
}
