//! The setting `unit:NAME/instances`: a drop-in of the unit, and the restart that makes it effective.
//!
//! A kill between the steps leaves the unit running, in one process or in instances: systemd restarts it in one job.

use std::env;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use udpath_host::{Source, UnitName};

use super::file::drop_in;
use super::manager::{is_active, properties, systemctl};
use super::original::{Original, instance_name};
use crate::machine::file;
use crate::persist::{trusted, word};
use crate::policy::{root, spread};
use crate::services::finished;
use crate::settings::Value;

/// How long another number of instances may take: longer than a start and a drain of each (`--start-limit`,
/// `--drain-limit`).
const NUMBER: Duration = Duration::from_secs(620);

/// The number of instances of a unit, and the other options; `None` if it is not multiplied.
///
/// # Errors
/// The file cannot be read, or was not written by udpath.
pub fn value_of(source: &dyn Source, unit: &UnitName) -> Result<Option<String>, String> {
    let path = drop_in(unit);
    match source.text(&path) {
        Ok(text) => options(&path, &text).map(|options| Some(options.to_owned())),
        Err(_) => Ok(None),
    }
}

/// What a drop-in says; none if there is none.
///
/// # Errors
/// It was not written by udpath.
pub(crate) fn value(path: &str, text: Option<&str>) -> Result<Value, String> {
    let Some(text) = text else { return Ok(Value::Unset) };
    options(path, text).map(|options| Value::Words(options.to_owned()))
}

/// `2 --choose cpu` of `ExecStart=+udpath multiply ntp.service --unit -n 2 --choose cpu -- chronyd`.
fn options<'a>(path: &str, text: &'a str) -> Result<&'a str, String> {
    let command = text.lines().find_map(|line| line.strip_prefix("ExecStart=+"));
    let options = command.and_then(|line| line.split_once(" --unit -n ")?.1.split_once(" -- "));
    options
        .map(|(options, _)| options)
        .ok_or_else(|| format!("{path} has no `udpath multiply`; remove or rename it"))
}

/// Runs a unit in instances, or in one process again. If it does not start so, it runs as before. A write that a kill
/// has cut short is completed by the same write.
///
/// # Errors
/// It cannot be multiplied, or does not start.
pub(crate) fn write(
    source: &dyn Source,
    path: &Path,
    unit: &UnitName,
    options: Option<&str>,
) -> Result<(), String> {
    let failed = |error| format!("cannot write {}: {error}", path.display());
    let before = file::read_whole(path).map_err(failed)?;
    let text = options.map(|options| text(source, unit, options)).transpose()?;
    let runs = source.names("/run/systemd/system").is_ok() && is_active(source, unit)?;
    // One that cannot be multiplied has no instances.
    let as_wanted = || instances(source, unit, 1).map_or(text.is_none(), |now| (now == 1) == text.is_some());
    if text == before && (!runs || as_wanted()) {
        return file::write_whole(path, text.as_deref()).map_err(failed);
    }
    let put = |text: Option<&str>| {
        file::write_whole(path, text).map_err(failed)?;
        spread::reload(source)
    };
    put(text.as_deref())?;
    let number = before.as_deref().zip(text.as_deref()).and_then(|(before, text)| other_number(before, text));
    let done = match number {
        _ if !runs => Ok(()),
        Some(number) => ask(unit, number),
        None => restart(source, unit),
    };
    done.map_err(|why| {
        let back = put(before.as_deref()).and_then(|()| match number {
            Some(_) => Ok(()),
            None => restart(source, unit),
        });
        match back {
            Ok(()) => why,
            Err(error) => format!("{why}; {unit} could not be started as before: {error}"),
        }
    })
}

fn text(source: &dyn Source, unit: &UnitName, options: &str) -> Result<String, String> {
    let original = Original::read(source, unit)?;
    let program =
        env::current_exe().map_err(|error| format!("cannot find this program's own file: {error}"))?;
    let program = trusted(&program).map_err(|error| error.to_string())?;
    Ok(original.drop_in(&word(&program.to_string_lossy()), options))
}

/// The new number of instances, if nothing else differs.
fn other_number<'a>(before: &str, text: &'a str) -> Option<&'a str> {
    let parts = |text: &'a str| -> Option<(&'a str, &'a str, &'a str)> {
        let (head, rest) = text.split_once(" --unit -n ")?;
        let (number, tail) = rest.split_once(' ')?;
        Some((head, number, tail))
    };
    let (head, number, tail) = parts(text)?;
    let before = before.split_once(" --unit -n ")?;
    (before.0 == head && before.1.split_once(' ')?.1 == tail).then_some(number)
}

/// Asks the supervisor as a user would: the instances that stay lose nothing.
fn ask(unit: &UnitName, number: &str) -> Result<(), String> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["multiply", unit, "--unit", "-n", number]);
    match finished(command, NUMBER).map_err(|error| format!("cannot run udpath: {error}"))? {
        (Some(status), _) if status.success() => Ok(()),
        (Some(_), said) => Err(said),
        (None, _) => Err(format!("{unit} did not have {number} instances within {} s", NUMBER.as_secs())),
    }
}

fn restart(source: &dyn Source, unit: &UnitName) -> Result<(), String> {
    // Or its limit of starts would count those of earlier changes. Fails only if nothing is to be reset.
    let _ = systemctl(&["reset-failed"], &[unit]);
    systemctl(&["restart"], &[unit]).map_err(|why| match properties(source, unit, ["StatusText"]) {
        Ok([said]) if !said.is_empty() => said,
        _ => why,
    })
}

/// How many of the first `most` instances run.
fn instances(source: &dyn Source, unit: &UnitName, most: usize) -> Result<usize, String> {
    let cgroup = format!("{}{}", root(source)?.display(), Original::read(source, unit)?.cgroup());
    let runs = |number: &usize| source.names(&format!("{cgroup}/{}", instance_name(unit, *number))).is_ok();
    Ok((1..=most).filter(runs).count())
}

/// Why instances that are set are not in effect now; `None` if they are.
pub(crate) fn pending(source: &dyn Source, unit: &UnitName, value: &Value) -> Option<String> {
    let Value::Words(options) = value else { return None };
    let look = || {
        if !is_active(source, unit)? {
            return Ok(Some(format!("{unit} does not run; in effect when it is started")));
        }
        let wanted: usize = options.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
        Ok::<_, String>(match instances(source, unit, wanted)? {
            count if count == wanted => None,
            0 => Some(format!("in effect when {unit} is restarted")),
            count => Some(format!("{count} of {wanted} instances run")),
        })
    };
    look().unwrap_or_else(|why| Some(format!("whether it is in effect is not known: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_in_says_what_was_asked_for() {
        let text = "[Service]\nExecStart=\nExecStart=+/usr/sbin/udpath multiply a.service --unit -n 2 --choose cpu -- /bin/a -- b\n";
        assert_eq!(value("/x", Some(text)), Ok(Value::Words("2 --choose cpu".into())));
        assert_eq!(value("/x", None), Ok(Value::Unset));
        for other in ["", "[Service]\nExecStart=+/bin/true\n"] {
            assert!(value("/x", Some(other)).unwrap_err().starts_with("/x has no"), "{other}");
        }
    }

    #[test]
    fn only_another_number_needs_no_restart() {
        let text = |options: &str| format!("ExecStart=+udpath multiply a --unit -n {options} -- /bin/a\n");
        for (before, after, number) in [
            ("2", "3", Some("3")),
            ("2 --choose cpu", "1 --choose cpu", Some("1")),
            ("2", "2 --choose cpu", None),
        ] {
            assert_eq!(other_number(&text(before), &text(after)), number, "{before} -> {after}");
        }
        assert_eq!(other_number("", &text("2")), None);
        assert_eq!(other_number(&text("2").replace("/bin/a", "/bin/b"), &text("3")), None);
    }
}
