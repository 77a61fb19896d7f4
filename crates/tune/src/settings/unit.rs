//! Units that run in several instances: `unit:ntp.service/instances=2`.

use super::row::{Access, Cost, Extra, OnReset, PartKind, Phase, Row, Scope, Security, Shell, ValueKind};
use super::value::NONE;
use super::{Setting, Value};
use udpath_host::shell::quoted;
use udpath_host::unit::WrongUnit;

/// What the name of such a setting begins with.
pub(super) const UNIT: &str = "unit:";
/// What it ends with.
pub(super) const INSTANCES: &str = "/instances";
/// Options of `udpath multiply` that a value may have.
const OPTIONS: [&str; 6] = ["--port", "--choose", "--probe", "--cpus", "--start-limit", "--drain-limit"];
/// What a value looks like.
const WANTED: &str =
    "a number of instances, as in 2, with options of udpath multiply, as in 2 --choose cpu; or none";

pub(super) static ROW: Row = Row {
    name: "instances",
    part: PartKind::Whole,
    value: ValueKind::Instances,
    access: Access::Object,
    phase: Phase::Files,
    cost: Cost::Restarts,
    scope: Scope::Host,
    on_reset: OnReset::Kept,
    writers: &["systemctl revert"],
    shell: Shell::Line(|setting, value| {
        format!("udpath apply --set {}", quoted(&format!("{setting}={value}")))
    }),
    page: "unit-instances",
    security: Security::Harmless,
    extra: Extra::NONE,
};

/// The setting of `ntp.service/instances`.
///
/// # Errors
/// It names no service.
pub(super) fn parse(text: &str) -> Result<Setting, String> {
    let unit = text.strip_suffix(INSTANCES).ok_or("a unit has no other setting than instances")?;
    if !unit.ends_with(".service") {
        return Err("only a service can be multiplied".to_owned());
    }
    let unit = unit.parse().map_err(|wrong: WrongUnit| wrong.to_string())?;
    Ok(Setting::Instances { unit })
}

/// Parses a value.
///
/// # Errors
/// The text is invalid; the error says what is valid.
pub(super) fn value(text: &str) -> Result<Value, &'static str> {
    if text == NONE {
        return Ok(Value::Unset);
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let (count, options) = words.split_first().ok_or(WANTED)?;
    let number =
        count.bytes().all(|byte| byte.is_ascii_digit()) && count.parse::<u16>().is_ok_and(|count| count > 0);
    let plain =
        |value: &str| value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b",.-".contains(&byte));
    let known = |pair: &[&str]| matches!(pair, [name, value] if OPTIONS.contains(name) && plain(value));
    if number && options.chunks(2).all(known) { Ok(Value::Words(words.join(" "))) } else { Err(WANTED) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_round_trip() {
        let setting: Setting = "unit:ntp@eth0.service/instances".parse().unwrap();
        assert_eq!(setting, Setting::Instances { unit: "ntp@eth0.service".parse().unwrap() });
        assert_eq!(setting.to_string(), "unit:ntp@eth0.service/instances");
        for value in ["2", "4 --choose cpu --cpus 0-3,8 --drain-limit 1.5s", "none"] {
            let parsed = setting.value(value).unwrap();
            assert_eq!(parsed.to_string(), value);
            assert_eq!(setting.decode(Setting::encode(&parsed).as_deref()).unwrap(), parsed);
        }
        for value in ["", "0", "-1", "two", "2 --state /x", "2 --port", "2 --port $(x)", "2 --", "99999"] {
            let error = setting.value(value).unwrap_err().to_string();
            assert!(error.contains("a number of instances"), "{value}: {error}");
        }
        for (name, says) in [
            ("unit:ntp.socket/instances", "only a service"),
            ("unit:ntp@.service/instances", "not the name of a service"),
            ("unit:a/b.service/instances", "not the name of a service"),
            ("unit:--force.service/instances", "not the name of a service"),
            ("unit:x;id.service/instances", "not the name of a service"),
            ("unit:ntp.service/copies", "no other setting"),
        ] {
            let error = name.parse::<Setting>().unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
    }
}
