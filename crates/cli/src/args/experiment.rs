//! Arguments of `udpath experiment`.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use udpath_experiment::Effort;

use super::choice;

/// Arguments of `udpath experiment`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Experiments to run; --list shows them [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Show the experiments and run none
    #[arg(long, conflicts_with_all = ["names", "report", "costs", "json", "effort"])]
    pub(crate) list: bool,
    /// How much to measure
    #[arg(long, value_name = "EFFORT", default_value = "full", value_parser = effort())]
    pub(crate) effort: Effort,
    /// Also write the result as one self-contained HTML file
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Costs of the model, as udpath capacity --calibrate writes them [default: /var/lib/udpath/costs.json if it
    /// exists, otherwise a calibration now; with --effort least, built-in ones]
    #[arg(long, value_name = "FILE.json")]
    pub(crate) costs: Option<PathBuf>,
    /// Print one JSON document (udpath.experiment/1)
    #[arg(long)]
    pub(crate) json: bool,
}

fn effort() -> impl TypedValueParser<Value = Effort> {
    const EFFORTS: &[(Effort, &str)] = &[
        (Effort::Full, "as much as the verdicts need, some minutes for each experiment"),
        (Effort::Least, "a few short trials: shows that everything runs, and verdicts mean nothing"),
    ];
    choice::one_of(EFFORTS, |effort| match effort {
        Effort::Full => "full",
        Effort::Least => "least",
    })
}
