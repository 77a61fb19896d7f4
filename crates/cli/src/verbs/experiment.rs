//! `udpath experiment`: the published experiments, repeated here.

use std::time::Instant;

use anyhow::{Context as _, anyhow};
use udpath_experiment::outcome::Modelled;
use udpath_experiment::{Context, Effort, Step, chosen, descriptions, run_all};
use udpath_model::{Costs, published_band};
use udpath_report::{Render, experiments_text, seconds};

use super::capacity::{costs_in, measured_costs};
use super::{command, page};
use crate::args::experiment::Args;
use crate::exit::{Done, Failure};
use crate::signals::{self, Left};
use crate::terminal::{self, StatusLine};

/// Runs experiments and prints what came of them.
pub(crate) fn run(args: &Args) -> Done {
    if args.list {
        return terminal::print(&experiments_text(&descriptions()?, &terminal::style()));
    }
    let entries = chosen(&args.names)?.map_err(Failure::usage)?;
    if let Some(path) = &args.report {
        page::check("--report", path)?;
    }
    if let Some(missing) = udpath_lab::missing().first() {
        return Err(anyhow!("experiments need root in the initial user namespace: {missing}").into());
    }
    let stop = signals::watch(Left::Labs)?.flag();
    let costs = match costs_in(args.costs.as_deref())? {
        Some(costs) => costs,
        None if args.effort == Effort::Least => Costs::default(),
        None => measured_costs()?,
    };
    let modelled = |case: &str| {
        let (value, low, high) = published_band(case, &costs)?;
        Some(Modelled { value, low, high })
    };
    let context = Context {
        program: std::env::current_exe().context("cannot find this program's own file")?,
        effort: args.effort,
        modelled: &modelled,
        stop,
    };
    let mut watcher = Watcher { line: StatusLine::new(), began: Instant::now() };
    let result = run_all(&entries, &context, Some(command()), &mut |step| watcher.show(step));
    watcher.line.clear();
    let mut result = result?;
    for outcome in result.experiments.iter_mut().filter(|outcome| outcome.has_modelled()) {
        outcome.notes.push(format!("Modelled figures have the costs of {}.", costs.machine));
    }
    if args.effort == Effort::Least {
        stderrln!("--effort least: a few short trials; the verdicts mean nothing");
    }
    terminal::print(&if args.json { result.json() } else { result.terminal(&terminal::style()) })?;
    args.report.as_ref().map_or(Ok(()), |path| page::write(path, &result))
}

/// Progress on the terminal's last line, or a line per step if stderr is not a terminal.
struct Watcher {
    line: StatusLine,
    began: Instant,
}

impl Watcher {
    fn show(&mut self, step: &Step<'_>) {
        let Step { experiment, number, of, progress } = step;
        let at = format!("[{number}/{of}] {experiment} {}/{}", progress.step, progress.steps);
        let text = format!("{at}: {} ({})", progress.what, seconds(self.began.elapsed().as_secs_f64()));
        if self.line.is_live() {
            self.line.show(&text);
        } else {
            stderrln!("{text}");
        }
    }
}
