//! Arguments of `udpath top`.

use std::time::Duration;

use super::place::PlaceArgs;
use super::{show, value};

/// Arguments of `udpath top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An interface, a UDP port, or a process with UDP sockets (`pid:N` if N is also a port) [default: everything]
    #[arg(value_name = "IFACE|PORT|PID")]
    pub(crate) what: Option<String>,
    /// Time between updates
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = value::duration_within(show::INTERVAL))]
    pub(crate) interval: Duration,
    /// Print one interval as text and exit
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// With --once: print one JSON document (udpath.top/2)
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
}
