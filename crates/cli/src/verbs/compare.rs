//! `udpath compare`: two results of one kind; exit 1 if the second is shown to be worse.

use std::path::Path;

use udpath_advise::comparison::{self, CompareResult};
use udpath_advise::result::Verdict;
use udpath_report::{Document, Render, Versus, read, unlike_sentence};

use super::page;
use crate::args::compare::Args;
use crate::exit::{Done, Failure};
use crate::terminal;

/// Reads both, compares, renders.
pub(crate) fn run(args: &Args) -> Done {
    if args.a == Path::new("-") && args.b == Path::new("-") {
        return Err(Failure::Usage("standard input holds one result: name a file for A or for B".into()));
    }
    if let Some(path) = &args.report {
        page::check("--report", path)?;
    }
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let names = [&args.a, &args.b].map(|path| path.display().to_string());
    let result = compared(&a, &b, &names)?;
    if !result.unlike.is_empty() && !args.anyway {
        return Err(Failure::Usage(format!(
            "{} and {} are of different loads: {}; give two results of one load, or --anyway",
            names[0],
            names[1],
            unlike_sentence(&result.unlike)
        )));
    }
    let versus = Versus { result: &result, names: names.each_ref().map(String::as_str), documents: [&a, &b] };
    terminal::print(&if args.json { versus.json() } else { versus.terminal(&terminal::style()) })?;
    if let Some(path) = &args.report {
        page::write(path, &versus)?;
    }
    match result.verdict {
        Verdict::Worse => Err(Failure::Findings("B is shown to be worse than A".into())),
        _ => Ok(()),
    }
}

fn compared(a: &Document, b: &Document, names: &[String; 2]) -> Result<CompareResult, Failure> {
    match (a, b) {
        (Document::Boost(a), Document::Boost(b)) => Ok(comparison::boosts(a, b)),
        (Document::Load(a), Document::Load(b)) => Ok(comparison::loads(a, b)),
        (Document::Profile(a), Document::Profile(b)) => Ok(comparison::profiles(a, b)),
        (Document::Experiment(_), Document::Experiment(_)) => Err(Failure::Usage(
            "experiments compare themselves with what was published; give two results of boost, load or profile"
                .into(),
        )),
        _ => Err(Failure::Usage(format!(
            "{} is a result of {} and {} of {}: give two results of the same verb",
            names[0],
            a.verb(),
            names[1],
            b.verb()
        ))),
    }
}
