//! `udpath report`: renders a JSON result of `boost`, `load` or `profile`.

use std::fs;
use std::path::{Path, PathBuf};

use udpath_report::{Document, Render, boost_text};

use crate::exit::{Done, Failure};
use crate::terminal;

/// Arguments of `udpath report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// JSON written by `udpath boost`, `udpath load` or `udpath profile` with `--json`; `-` is standard input
    file: PathBuf,
    /// Write one self-contained HTML file [default: `-`, which prints text to stdout]
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Print all details of a `boost` result, not only the summary
    #[arg(long, conflicts_with_all = ["output", "json"])]
    details: bool,
    /// Print the result as JSON after checking it against its schema
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// Reads, checks, renders.
pub(crate) fn run(args: Args) -> Done {
    let output = args.output.filter(|path| path != Path::new("-"));
    if let Some(output) = &output {
        refuse_to_overwrite(&args.file, output)?;
    }
    let result = udpath_report::read(&args.file).map_err(anyhow::Error::from)?;
    match output {
        Some(path) => {
            udpath_report::write_html(&path, &result).map_err(anyhow::Error::from)?;
            eprintln!("wrote {}", path.display());
            Ok(())
        }
        None if args.json => terminal::print(&result.json()),
        None => match &result {
            Document::Boost(boost) => terminal::print(&boost_text(boost, &terminal::style(), args.details)),
            other => terminal::print(&other.terminal(&terminal::style())),
        },
    }
}

/// Refuses to overwrite the input, so that a typo does not destroy it.
fn refuse_to_overwrite(input: &Path, output: &Path) -> Done {
    let same = fs::canonicalize(input).ok().is_some_and(|i| fs::canonicalize(output).is_ok_and(|o| i == o));
    if same {
        let name = output.display();
        return Err(Failure::Usage(format!(
            "-o {name} is the result itself; name another file for the HTML"
        )));
    }
    Ok(())
}
