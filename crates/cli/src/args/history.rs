//! Arguments of `udpath history`, and of the verbs that keep results.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use udpath_history::Metric;

use super::{choice, value};

/// Arguments of `udpath history`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) action: Option<Action>,
    /// Draw each series, with its changes marked
    #[arg(long, conflicts_with = "json")]
    pub(crate) plot: bool,
    /// Only runs of this date or later: YYYY-MM-DD, or 'YYYY-MM-DD HH:MM', UTC
    #[arg(long, value_name = "DATE", value_parser = value::date)]
    pub(crate) since: Option<u64>,
    /// Figure to search for changes
    #[arg(long, value_name = "METRIC", default_value = "tps", value_parser = metric())]
    pub(crate) metric: Metric,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print one JSON document (udpath.history/1)
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with the history.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    /// Add a result
    Add(AddArgs),
    /// Remove runs
    Remove(RunsArgs),
    /// Print results as JSON, one line each: of these runs, or of all
    Export(ExportArgs),
}

/// Arguments of `udpath history add`.
#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// JSON written by `udpath boost`, `udpath load` or `udpath profile` with `--json`; `-` is standard input
    #[arg(value_name = "FILE.json")]
    pub(crate) file: PathBuf,
    /// Name of its series [default: none]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) name: String,
    /// When it was measured, on this machine: for a result that does not say
    #[arg(long, value_name = "DATE", value_parser = value::date)]
    pub(crate) at: Option<u64>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Arguments of `udpath history remove`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunsArgs {
    /// Numbers of the runs
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<i64>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// Arguments of `udpath history export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// Numbers of the runs [default: all]
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<i64>,
    /// Print only the results, as `udpath report` and `udpath compare` read them
    #[arg(long)]
    pub(crate) bare: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// The location of the history.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StoreArgs {
    /// The history's file [default: /var/lib/udpath/history.db as root, otherwise udpath/history.db in $XDG_STATE_HOME]
    #[arg(long, value_name = "FILE.db")]
    pub(crate) store: Option<PathBuf>,
}

/// Whether to keep the result.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RecordArgs {
    /// Keep the result in the history, in the series of this name
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) record: Option<String>,
    /// The history's file [default: see udpath history]
    #[arg(long, value_name = "FILE.db", requires = "record")]
    pub(crate) store: Option<PathBuf>,
}

fn metric() -> impl TypedValueParser<Value = Metric> {
    const METRICS: &[(Metric, &str)] = &[
        (Metric::Tps, "transactions per second"),
        (Metric::P99, "99th percentile of latency"),
        (Metric::Cpu, "CPU time per transaction"),
    ];
    choice::one_of(METRICS, Metric::name)
}
