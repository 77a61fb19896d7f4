//! `udpath support`: a redacted capture of this machine for analysis elsewhere.
//!
//! stdout: the capture's name, its manifest (`--json`), or the list of replacements (`--print-redactions`); stderr: its
//! contents. Sends nothing anywhere.

use std::path::PathBuf;

use udpath_report::{capture_text, redactions_text, to_pretty_json};
use udpath_support::{Identity, Options, PackageError, Support, Target};
use udpath_tune::status::Status;
use udpath_tune::{Journal, Live};

use super::machine;
use crate::args::support::Args;
use crate::exit::{Done, Failure};
use crate::terminal;

/// Reads, redacts, writes.
pub(crate) fn run(args: &Args) -> Done {
    let target = target(args)?;
    if !args.force && target.path.symlink_metadata().is_ok() {
        return Err(PackageError::Exists { path: target.path.display().to_string() }.into());
    }
    let options =
        Options { interval: args.interval, no_redact: args.no_redact, keep_rss_key: args.keep_rss_key };
    let journal = Journal::at(&args.journal.state);
    let (taken, status) = machine::look_live(&args.namespace, |source| {
        let taken = udpath_support::take(source, &options);
        (
            taken,
            Status::settled(&Live::new(), &journal)
                .map_err(|error| format!("{:#}", anyhow::Error::from(error))),
        )
    })?;
    let mut identity = Identity::of_this_machine();
    let status = status.and_then(|status| {
        status.applies.iter().for_each(|apply| identity.user(&apply.user));
        serde_json::to_value(&status).map_err(|error| error.to_string())
    });
    let support = Support::new(taken, status, &identity, &options).map_err(anyhow::Error::from)?;
    support.write(&target)?;
    terminal::say_lines(&capture_text(&support.manifest, &target.path));
    if args.json {
        return terminal::print(&to_pretty_json(&support.manifest));
    }
    if args.print_redactions {
        return terminal::print_exact(&redactions_text(support.replacements()));
    }
    terminal::print(&target.path.display().to_string())
}

fn target(args: &Args) -> Result<Target, Failure> {
    let path = match &args.output {
        Some(path) => path.clone(),
        None => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            // `2026-11-21 18:43 UTC` -> `2026-11-21-184302`: without the host's name.
            let date = udpath_report::date(now.as_secs());
            let date = date.trim_end_matches(" UTC").replace(' ', "-").replace(':', "");
            PathBuf::from(format!("udpath-support-{date}{:02}.tar.gz", now.as_secs() % 60))
        }
    };
    if path.file_name().is_none() {
        return Err(Failure::Usage(format!(
            "-o {}: name a file ending in .tar.gz, or a folder",
            path.display()
        )));
    }
    Ok(Target { path, force: args.force })
}
