//! `udpath lab vm`: a program in a machine with more CPUs, nodes and queues than there are.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use udpath_lab::{VmError, VmSpec};

use crate::exit::{Done, Failure};
use crate::terminal;
use crate::verbs::load::units;

/// Arguments of `udpath lab vm`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// CPUs
    #[arg(long, value_name = "N", default_value_t = VmSpec::default().cpus)]
    cpus: u32,
    /// Memory nodes; each gets the same number of CPUs
    #[arg(long, value_name = "N", default_value_t = VmSpec::default().nodes)]
    nodes: u32,
    /// Receive and transmit queues of eth0, a virtio-net
    #[arg(long, value_name = "N", default_value_t = VmSpec::default().queues)]
    queues: u32,
    /// A file to take along, to /files unless a path is given; programs bring their libraries. This program is there
    #[arg(long, value_name = "FILE[:PATH]", value_parser = file)]
    file: Vec<(PathBuf, String)>,
    /// A folder that is /out in the machine, for files to bring back
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where a Debian kernel package is unpacked [default: where scripts/setup.sh does it]
    #[arg(long, value_name = "DIR")]
    kernel: Option<PathBuf>,
    /// How long it may take, the boot included
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = units::time)]
    timeout: Duration,
    /// What to run there: one of busybox's tools, or a file of /files
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// `FILE` or `FILE:PATH`.
fn file(text: &str) -> Result<(PathBuf, String), String> {
    let (host, guest) = match text.split_once(':') {
        Some((host, guest)) => (host, Some(guest)),
        None => (text, None),
    };
    let name = PathBuf::from(host);
    let own = || name.file_name().map(|name| format!("/files/{}", name.to_string_lossy()));
    match guest.map(str::to_owned).or_else(own) {
        Some(path) if path.starts_with('/') && !path.ends_with('/') && !path.contains("/../") => {
            Ok((name, path))
        }
        _ => Err(format!("`{text}` names no file; write FILE, or FILE:/PATH/IN/THE/MACHINE")),
    }
}

pub(super) fn run(args: Args) -> Done {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let share = args.out.map(folder).transpose()?;
    let mut files = vec![(own, "/files/udpath".to_owned())];
    files.extend(args.file);
    let spec = VmSpec {
        cpus: args.cpus,
        nodes: args.nodes,
        queues: args.queues,
        files,
        share,
        kernel: args.kernel,
        within: args.timeout,
    };
    let stop = Arc::new(AtomicBool::new(false));
    terminal::stop_on_signals(&stop)?;
    let vm = spec.boot(&args.command).map_err(failure)?;
    match vm.finish(&mut io::stdout(), &mut io::stderr(), &stop).map_err(failure)? {
        0 => Ok(()),
        code => Err(Failure::Passed(code)),
    }
}

/// The emulator runs in a folder of its own choosing.
fn folder(path: PathBuf) -> Result<PathBuf, Failure> {
    let found = path.canonicalize().with_context(|| format!("cannot share {}", path.display()))?;
    if found.is_dir() {
        return Ok(found);
    }
    Err(Failure::Usage(format!("{} is no folder; --out wants one that is there", path.display())))
}

fn failure(error: VmError) -> Failure {
    match error {
        VmError::Spec(mistake) => Failure::Usage(mistake),
        VmError::Lab(error) => super::failure(error),
        // A reader that went away is no failure.
        VmError::Output(cause) => Failure::Cannot(cause.into()),
        other => Failure::Cannot(other.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_where_they_are_told() {
        let path = |text| file(text).map(|(host, guest)| (host.display().to_string(), guest));
        assert_eq!(path("/usr/bin/dig"), Ok(("/usr/bin/dig".into(), "/files/dig".into())));
        assert_eq!(path("a/b:/etc/b.conf"), Ok(("a/b".into(), "/etc/b.conf".into())));
        for wrong in ["", "/", "a:", "a:b", "a:/b/", "a:/b/../c", "a/.."] {
            assert!(file(wrong).is_err_and(|said| said.contains("names no file")), "{wrong}");
        }
    }
}
