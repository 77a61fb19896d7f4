//! Arguments of `udpath policy`.

use std::ops::RangeInclusive;
use std::time::Duration;

use udpath_host::process::Selection;

use super::settings::JournalArgs;
use super::value;

/// How long to wait for sockets. Longer: a unit's start would time out first (TimeoutStartSec, 90 s).
const WAIT: RangeInclusive<Duration> = Duration::from_secs(0)..=Duration::from_secs(60);

/// Arguments of `udpath policy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) action: Action,
}

/// What to do with policies.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    /// Print all policies, and whether each has its effect
    List(ListArgs),
    /// Print the policies of a unit or cgroup, and other programs at the same hooks
    Show(ShowArgs),
    /// Set options for the sockets that a unit's or cgroup's programs bind from now on
    Set(SetArgs),
    /// Set what selects in the reuseport groups of a unit's or cgroup's programs, once they are bound; a unit with the
    /// policy spread=RULE runs this after each start
    Spread(SpreadArgs),
    /// Remove the policies of a unit or cgroup
    Remove(RemoveArgs),
}

/// Arguments of `udpath policy list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Print one JSON document (udpath.policy/1)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `udpath policy show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Print one JSON document (udpath.policy/1)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `udpath policy set`.
#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// receive-buffer=8M and send-buffer=8M (as `ss -m` shows them), reuseport=on, priority=6, mark=0x4d; for units
    /// spread=datagram, least-loaded or field:OFFSET+LENGTH; none leaves an option to the program
    #[arg(value_name = "OPTION=VALUE", required = true)]
    pub(crate) options: Vec<String>,
    /// Keep the policies across reboots, in force before the first service starts
    #[arg(long)]
    pub(crate) persist: bool,
    /// Reason, for the journal
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
    /// Print one JSON document (udpath.apply/1)
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `udpath policy spread`.
#[derive(Debug, clap::Args)]
pub(crate) struct SpreadArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// datagram (round-robin), least-loaded, or field:OFFSET+LENGTH of the payload
    #[arg(value_name = "RULE", value_parser = udpath_tune::policy::spread_rule)]
    pub(crate) rule: Selection,
    /// How long the programs may take to bind their sockets
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = value::whole_seconds(WAIT))]
    pub(crate) wait: Duration,
}

/// Arguments of `udpath policy remove`.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) journal: JournalArgs,
}

/// Whose sockets.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// A systemd unit, such as nsd.service, or the path of a cgroup, as in /proc/PID/cgroup; with a port, as in
    /// nsd.service:53, only binds to that port
    #[arg(value_name = "UNIT|/CGROUP[:PORT]")]
    pub(crate) target: String,
}
