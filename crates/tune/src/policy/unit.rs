//! The cgroup of a systemd unit, also of one that does not run.

use std::process::Command;
use std::time::Duration;

use udpath_host::Source;

use crate::services::finished;

/// How long systemctl may take. It asks the manager over a local socket; a manager that needs longer hangs.
const ANSWER: Duration = Duration::from_secs(20);

/// The cgroup of `unit`: where it runs, or where its next start will put it.
///
/// # Errors
/// systemd is not running, or it has no such unit.
pub(crate) fn cgroup_of(source: &dyn Source, unit: &str) -> Result<String, String> {
    if source.names("/run/systemd/system").is_err() {
        return Err(format!(
            "systemd, which would know the cgroup of {unit}, is not running; name the cgroup by its path, as \
             /proc/PID/cgroup shows it: /system.slice/{unit}"
        ));
    }
    let mut command = Command::new("systemctl");
    command.args(["show", "--property=LoadState,ControlGroup,Slice", "--", unit]);
    let (status, said) =
        finished(command, ANSWER).map_err(|error| format!("cannot run systemctl: {error}"))?;
    match status {
        None => Err(format!("systemctl did not answer within {} s", ANSWER.as_secs())),
        Some(status) if !status.success() => Err(format!("systemctl show {unit} failed: {said}")),
        Some(_) => place(unit, &said),
    }
}

/// The cgroup by what `systemctl show` prints, lines joined by `; `.
fn place(unit: &str, said: &str) -> Result<String, String> {
    let value = |key: &str| said.split("; ").find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    match value("LoadState") {
        Some("loaded") => {}
        Some("not-found") if !unit.contains('.') => {
            return Err(format!("systemd has no unit {unit}; write the whole name, as in {unit}.service"));
        }
        state => {
            let state = state.unwrap_or("unknown");
            return Err(format!("systemd has no unit {unit} that could be started (LoadState={state})"));
        }
    }
    if let Some(running) = value("ControlGroup").filter(|path| path.len() > 1) {
        return Ok(running.to_owned());
    }
    if let Some(own) = unit.strip_suffix(".slice") {
        return Ok(of_slice(own));
    }
    let slice = value("Slice").and_then(|slice| slice.strip_suffix(".slice"));
    let slice = slice.ok_or_else(|| format!("{unit} has no cgroup: systemd puts it into no slice"))?;
    Ok(format!("{}/{}", of_slice(slice).trim_end_matches('/'), escaped(unit)))
}

/// `system-nsd.slice` is within `system.slice`, and `-.slice` is the root (systemd.slice(5)).
pub(crate) fn of_slice(name: &str) -> String {
    if name == "-" {
        return "/".to_owned();
    }
    let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| format!("/{}.slice", &name[..end])).collect()
}

/// Names that a cgroup of its own files could have begin with an underscore (`cg_escape` of systemd).
fn escaped(unit: &str) -> String {
    let reserved = unit.starts_with(['_', '.']) || unit.starts_with("cgroup.");
    if reserved { format!("_{unit}") } else { unit.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_unit_is_where_it_runs_and_another_where_its_slice_puts_it() {
        for (unit, said, is) in [
            (
                "nsd.service",
                "LoadState=loaded; ControlGroup=/system.slice/nsd.service; Slice=system.slice",
                "/system.slice/nsd.service",
            ),
            (
                "nsd.service",
                "LoadState=loaded; ControlGroup=; Slice=dns-auth.slice",
                "/dns.slice/dns-auth.slice/nsd.service",
            ),
            ("nsd.service", "Slice=-.slice; ControlGroup=; LoadState=loaded", "/nsd.service"),
            (
                "dns-auth.slice",
                "LoadState=loaded; ControlGroup=; Slice=dns.slice",
                "/dns.slice/dns-auth.slice",
            ),
            ("_x.service", "LoadState=loaded; Slice=system.slice", "/system.slice/__x.service"),
        ] {
            assert_eq!(place(unit, said).as_deref(), Ok(is));
        }
        for (unit, said, says) in [
            ("nsd", "LoadState=not-found", "write the whole name, as in nsd.service"),
            ("nsd.service", "LoadState=not-found", "(LoadState=not-found)"),
            ("nsd.service", "LoadState=masked", "(LoadState=masked)"),
            ("nsd.socket", "LoadState=loaded; ControlGroup=", "no slice"),
            ("nsd.service", "", "LoadState=unknown"),
        ] {
            let why = place(unit, said).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}
