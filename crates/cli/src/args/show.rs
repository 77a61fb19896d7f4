//! Arguments of `udpath show`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::place::PlaceArgs;
use super::value;

/// Interval between two snapshots. Longer: 32-bit counters wrap after a few minutes at full rate.
pub(super) const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(300);

/// Arguments of `udpath show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An interface, a UDP port, or a process with UDP sockets (`pid:N` if N is also a port) [default: everything]
    #[arg(value_name = "IFACE|PORT|PID")]
    pub(crate) what: Option<String>,
    /// Count for this long instead of since boot
    #[arg(short, long, value_name = "TIME", value_parser = value::duration_within(INTERVAL))]
    pub(crate) interval: Option<Duration>,
    /// Show every queue, CPU and socket, not only the busiest and those with findings; also show socket options
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Print the map and its findings as one JSON document (udpath.map/2)
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the raw snapshot as one JSON document (udpath.snapshot/2)
    #[arg(long, conflicts_with_all = ["json", "interval", "what", "all"])]
    pub(crate) snapshot: bool,
}
