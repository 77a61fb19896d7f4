//! `udpath support`: a redacted capture of this machine for analysis elsewhere.
//!
//! stdout: the capture's name, its manifest (`--json`), or the list of replacements (`--print-redactions`); stderr: its
//! contents. Sends nothing anywhere.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use udpath_support::{Identity, Manifest, Options, PackageError, Support, Target};
use udpath_tune::Live;
use udpath_tune::status::Status;

use super::settings::State;
use super::show::{NamespaceArgs, interval};
use crate::exit::{Done, Failure};
use crate::terminal;

/// Arguments of `udpath support`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output: an archive if the name ends in .tar.gz, otherwise a folder [default: udpath-support-TIME.tar.gz in this
    /// folder]
    #[arg(short, long, value_name = "FILE.tar.gz|DIR")]
    output: Option<PathBuf>,
    /// Take two snapshots this far apart, so that rates can be computed
    #[arg(short, long, value_name = "SECONDS", value_parser = interval)]
    interval: Option<Duration>,
    /// Overwrite an existing capture
    #[arg(long)]
    force: bool,
    /// Keep the RSS keys: they are needed to predict queues, but also allow attackers to target one
    #[arg(long)]
    keep_rss_key: bool,
    /// Keep everything unredacted: addresses, names, command lines, keys
    #[arg(long)]
    no_redact: bool,
    /// Print the list of replacements, to interpret answers; it is not in the capture
    #[arg(long, conflicts_with = "no_redact")]
    print_redactions: bool,
    #[command(flatten)]
    namespace: NamespaceArgs,
    #[command(flatten)]
    state: State,
    /// Print the manifest (udpath.support/1), which is also in the capture
    #[arg(long, conflicts_with = "print_redactions")]
    json: bool,
}

/// Reads, redacts, writes.
pub(crate) fn run(args: &Args) -> Done {
    let target = target(args)?;
    if !args.force && target.path.symlink_metadata().is_ok() {
        return Err(Failure::Usage(
            PackageError::Exists { path: target.path.display().to_string() }.to_string(),
        ));
    }
    let options =
        Options { interval: args.interval, no_redact: args.no_redact, keep_rss_key: args.keep_rss_key };
    let journal = args.state.journal();
    let (taken, status) = args.namespace.look(|source| {
        let taken = udpath_support::take(source, &options);
        (
            taken,
            Status::of(&Live::new(), &journal).map_err(|error| format!("{:#}", anyhow::Error::from(error))),
        )
    })?;
    let mut identity = Identity::of_this_machine();
    let status = status.and_then(|status| {
        status.applies.iter().for_each(|apply| identity.user(&apply.user));
        serde_json::to_value(&status).map_err(|error| error.to_string())
    });
    let support =
        Support::new(taken, status, &identity, &options).map_err(|error| Failure::Cannot(error.into()))?;
    support.write(&target).map_err(|error| match error {
        PackageError::Failed { .. } => Failure::Cannot(error.into()),
        error => Failure::Usage(error.to_string()),
    })?;
    tell(&support.manifest, &target);
    if args.json {
        let text = serde_json::to_string_pretty(&support.manifest).context("cannot write JSON")?;
        return terminal::print(&text);
    }
    if args.print_redactions {
        let line = |text: &str| text.trim_end_matches('\0').replace(char::is_control, " ");
        let lines = support
            .replacements()
            .map(|(kind, original, other)| format!("{}\t{}\t{}", kind.name(), line(original), line(other)));
        return terminal::print(&lines.collect::<Vec<_>>().join("\n"));
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

/// Lists the contents, so that the owner knows them before sending it.
fn tell(manifest: &Manifest, target: &Target) {
    let path = target.path.display();
    let pictures = match manifest.interval {
        Some(interval) => format!("two pictures, {:.1} s apart", interval as f64 / 1000.0),
        None => "one picture".to_owned(),
    };
    eprintln!(
        "{path}: {pictures}; {} files and {} answers of kernel {}; readable by its owner alone",
        manifest.files, manifest.answers, manifest.kernel
    );
    match &manifest.redacted {
        None => eprintln!(
            "NOT REDACTED: it holds, as they are: IP and link-layer addresses of interfaces, sockets and their peers, \
             names of this host and its users, command lines, paths, identifiers, keys of RSS. Do not mail it."
        ),
        Some(redacted) => {
            for row in redacted.iter().filter(|row| row.different > 0) {
                let (kind, different, places) = (row.kind.name(), row.different, row.places);
                eprintln!("  replaced  {kind:24} {different:6} different in {places} places: {}", row.how);
            }
            manifest.not_redacted.iter().for_each(|left| eprintln!("  NOT replaced: {left}"));
        }
    }
    let hidden =
        |missing: &&udpath_host::Missing| matches!(missing.why, udpath_host::Absence::NotPermitted { .. });
    for missing in manifest.missing.iter().filter(hidden) {
        eprintln!("  missing: {missing}");
    }
    if let Some(why) = &manifest.no_status {
        eprintln!("  missing: what udpath has applied here: {why}");
    }
}
