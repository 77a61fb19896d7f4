//! What systemd is asked for.

use std::process::Command;
use std::time::Duration;

use udpath_host::{Source, UnitName, processes};

use crate::services::{finished, output};

/// How long systemctl may take. systemd itself gives up on the start of a unit after 90 s, and on its stop after 90 s
/// more; a command that takes much longer hangs.
const COMMAND: Duration = Duration::from_secs(240);

/// Runs `systemctl` with this order for these units until it has ended.
///
/// # Errors
/// It failed: what it printed last.
pub fn systemctl(order: &[&str], units: &[&str]) -> Result<(), String> {
    let said = || format!("systemctl {}", [order, units].concat().join(" "));
    let mut command = Command::new("systemctl");
    // No name of a unit is an option.
    command.arg("--no-ask-password").args(order).arg("--").args(units);
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
pub fn main_pid(source: &dyn Source, unit: &UnitName) -> Result<Option<u32>, String> {
    let [pid] = properties(source, unit, ["MainPID"])?;
    Ok(pid.parse().ok().filter(|pid| *pid > 0))
}

/// The processes of a unit's program, as systemd knows it: those of its control group that run the same program as its
/// main process, that one first. Others in the group are what it has started, or what somebody else started through it,
/// as cron does.
///
/// # Errors
/// systemd is not running, has no such unit, or does not run it.
pub fn processes_of(source: &dyn Source, unit: &UnitName) -> Result<Vec<u32>, String> {
    let [state, group, main] = properties(source, unit, ["LoadState", "ControlGroup", "MainPID"])?;
    if state != "loaded" {
        return Err(format!("systemd has no unit {unit} (LoadState={state})"));
    }
    let main = main.parse().ok().filter(|pid: &u32| *pid > 0).filter(|_| group.len() > 1);
    let main = main.ok_or_else(|| format!("{unit} does not run; start it first: systemctl start {unit}"))?;
    let program = |pid: u32| source.target(&format!("/proc/{pid}/exe")).ok();
    let own = program(main);
    let names = source.names("/proc").map_err(|why| format!("cannot list processes: {why}"))?;
    let pids = names.iter().filter_map(|name| name.parse::<u32>().ok()).filter(|pid| *pid != main);
    let belongs = |pid: &u32| {
        let path = processes::group(source, *pid).unwrap_or_default();
        let within = path.strip_prefix(&group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        within && own.is_some() && program(*pid) == own
    };
    Ok([main].into_iter().chain(pids.filter(belongs)).collect())
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
