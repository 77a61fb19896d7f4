//! Arguments of `udpath apply`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::settings::{ChangeArgs, CommonArgs};
use super::value;

/// How long to wait for a confirmation. Longer: after a day without one, none will come.
const CONFIRM: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

/// Arguments of `udpath apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
    /// Revert after this time, such as 60s or 5m, unless `udpath confirm` is run; uses a systemd unit, or a background
    /// process if systemd is not running
    #[arg(long, value_name = "TIME", value_parser = value::whole_seconds(CONFIRM), conflicts_with = "persist")]
    pub(crate) confirm: Option<Duration>,
    /// Keep the changes across reboots, using files that undo removes: sysctl.d, udev rules, systemd link files, and a
    /// unit for the rest
    #[arg(long)]
    pub(crate) persist: bool,
    /// Used at boot: the plan contains the remaining settings of this persistent apply
    #[arg(long, value_name = "ID", hide = true, conflicts_with_all = ["persist", "confirm"])]
    pub(crate) adopt: Option<u64>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Print one JSON document (udpath.apply/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_wait() {
        let time = value::whole_seconds(CONFIRM);
        assert_eq!(time("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(time("24h"), Ok(*CONFIRM.end()));
        for bad in ["", "0", "25h", "-1s", "+5", "1.5s", "5 s", "99999999999999999999h", "5ü"] {
            assert!(time(bad).unwrap_err().contains("expected"), "{bad}");
        }
    }
}
