//! What systemd is asked for.

use std::process::Command;
use std::time::Duration;

use udpath_host::Source;

use crate::services::{finished, output};

/// How long systemctl may take. systemd itself gives up on the start of a unit after 90 s, and on its stop after 90 s more; a
/// command that takes much longer hangs.
const COMMAND: Duration = Duration::from_secs(240);

/// Runs `systemctl` with these arguments until it has ended.
///
/// # Errors
/// It failed: what it printed last.
pub fn systemctl(arguments: &[&str]) -> Result<(), String> {
    let said = || format!("systemctl {}", arguments.join(" "));
    let mut command = Command::new("systemctl");
    command.arg("--no-ask-password").args(arguments);
    match finished(command, COMMAND).map_err(|error| format!("cannot run systemctl: {error}"))? {
        (Some(status), _) if status.success() => Ok(()),
        (Some(_), words) => Err(format!("{} failed: {words}", said())),
        (None, _) => Err(format!("{} did not end within {} s", said(), COMMAND.as_secs())),
    }
}

/// Properties of a unit, in the order in which they are asked for; empty if it has none.
///
/// # Errors
/// systemd is not running, or does not answer.
pub(crate) fn properties<const N: usize>(
    source: &dyn Source,
    unit: &str,
    names: [&str; N],
) -> Result<[String; N], String> {
    if source.names("/run/systemd/system").is_err() {
        return Err(format!("systemd, which would know {unit}, is not running"));
    }
    let mut command = Command::new("systemctl");
    command.args(["show", &format!("--property={}", names.join(",")), "--", unit]);
    let (status, text) =
        output(command, COMMAND).map_err(|error| format!("cannot run systemctl: {error}"))?;
    if !status.is_some_and(|status| status.success()) {
        return Err(format!("systemctl show {unit} failed: {}", text.trim()));
    }
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    Ok(names.map(|name| value(name).unwrap_or_default().to_owned()))
}

/// Whether a unit runs, or is being started.
///
/// # Errors
/// As [`properties`].
pub(crate) fn is_active(source: &dyn Source, unit: &str) -> Result<bool, String> {
    let [state] = properties(source, unit, ["ActiveState"])?;
    Ok(matches!(state.as_str(), "active" | "reloading" | "activating"))
}

/// The first process of a unit; `None` if it does not run.
///
/// # Errors
/// systemd is not running, or does not answer.
pub fn main_pid(source: &dyn Source, unit: &str) -> Result<Option<u32>, String> {
    let [pid] = properties(source, unit, ["MainPID"])?;
    Ok(pid.parse().ok().filter(|pid| *pid > 0))
}

/// How the first process of a unit ended, as far as systemd remembers it.
///
/// # Errors
/// systemd is not running, or does not answer.
pub fn result(source: &dyn Source, unit: &str) -> Result<String, String> {
    let [result, status] = properties(source, unit, ["Result", "ExecMainStatus"])?;
    Ok(match result.as_str() {
        "success" => "exit status: 0".to_owned(),
        result => format!("{result}, status {status}"),
    })
}
