//! Arguments of `udpath diagnose`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::place::PlaceArgs;
use super::value;

/// How long to watch. Shorter: a rate rests on too few events, and a profile on too few samples. Longer: 32-bit
/// counters wrap after a few minutes at full rate.
const DURATION: RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(300);

/// Arguments of `udpath diagnose`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An interface, a UDP port, or a process with UDP sockets (`pid:N` if N is also a port) [default: everything]
    #[arg(value_name = "IFACE|PORT|PID")]
    pub(crate) what: Option<String>,
    /// How long to watch; with --watch, the time between two looks
    #[arg(short, long, default_value = "10s", value_name = "TIME", value_parser = value::duration_within(DURATION))]
    pub(crate) duration: Duration,
    /// Do not sample the CPUs: no costs per datagram, no locks, no rate that the machine should carry
    #[arg(long)]
    pub(crate) no_profile: bool,
    /// Repeat until interrupted, and print only what changes: a finding appears, grows twofold, or goes
    #[arg(long, conflicts_with = "sysroot")]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Print one JSON document (udpath.diagnosis/1); with --watch, one line for each change
    #[arg(long)]
    pub(crate) json: bool,
}
