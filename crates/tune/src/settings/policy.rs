//! Socket policies: options that programs in a cgroup get at each bind, without being changed.
//!
//! ```text
//! policy:/system.slice/nsd.service:53/receive-buffer=8M
//!        └──────────┬────────────┘ └┬┘└─────┬──────┘
//!                cgroup           port    option          none: the policy leaves the option alone
//! ```

use std::num::NonZeroU16;

use udpath_bpf::{PolicyOption, PolicyTarget};
use udpath_host::process::{Selection, SocketValue};
use udpath_host::shell::quoted;
use udpath_host::unit::WrongUnit;

use super::row::{Access, Cost, Extra, OnReset, PartKind, Phase, Row, Scope, Security, Shell, ValueKind};
use super::{Setting, Value, socket};
use crate::bytes::bytes;

/// What the name of a policy begins with.
pub(crate) const POLICY: &str = "policy:";
/// The option that a drop-in of the unit carries out.
pub(crate) const SPREAD: &str = "spread";
/// The smallest buffers: Linux raises smaller ones (`SOCK_MIN_SNDBUF` of include/net/sock.h, twice `SOCK_MIN_RCVBUF`).
const SMALLEST: u32 = 4608;
/// The largest: twice the largest even half of an `int`.
const LARGEST: u32 = i32::MAX as u32 - 1;

const fn option(option: PolicyOption) -> Row {
    Row {
        name: option.name(),
        part: PartKind::Whole,
        value: ValueKind::Policy(option),
        access: Access::Object,
        phase: Phase::Sockets,
        cost: Cost::None,
        scope: Scope::Host,
        on_reset: OnReset::Kept,
        writers: &["a program that removed /sys/fs/bpf/udpath/policy"],
        // No system program writes the elements of a map by cgroup.
        shell: Shell::Line(|setting, value| {
            format!("udpath apply --set {}", quoted(&format!("{setting}={value}")))
        }),
        page: "policy",
        security: Security::Judged(lowers_security),
        extra: Extra::NONE,
    }
}

static RECEIVE_BUFFER: Row = option(PolicyOption::ReceiveBuffer);
static SEND_BUFFER: Row = option(PolicyOption::SendBuffer);
static REUSEPORT: Row = option(PolicyOption::Reuseport);
static PRIORITY: Row = option(PolicyOption::Priority);
static MARK: Row = option(PolicyOption::Mark);
/// How datagrams are spread over the sockets of a reuseport group: no option of the kernel's, but a drop-in of the
/// unit.
pub(super) static SPREAD_ROW: Row = {
    let row = option(PolicyOption::Mark);
    Row {
        name: SPREAD,
        value: ValueKind::Spread,
        phase: Phase::Files,
        writers: &["systemctl revert"],
        extra: Extra { gives_up: socket::gives_up, ..row.extra },
        ..row
    }
};

/// A mark chooses routes and rules of packet filters; the other options only cost time or memory.
fn lowers_security(setting: &Setting, _: Option<&Value>, to: &Value) -> Option<&'static str> {
    let marks = matches!(setting, Setting::Policy { option: PolicyOption::Mark, .. });
    (marks && *to != Value::Unset)
        .then_some("rules for packets with this mark apply to it: routes, packet filters")
}

/// The row of an option.
pub(super) fn row(option: PolicyOption) -> &'static Row {
    match option {
        PolicyOption::ReceiveBuffer => &RECEIVE_BUFFER,
        PolicyOption::SendBuffer => &SEND_BUFFER,
        PolicyOption::Reuseport => &REUSEPORT,
        PolicyOption::Priority => &PRIORITY,
        PolicyOption::Mark => &MARK,
    }
}

/// Whose sockets: a cgroup or unit, a port or none; and the option.
pub(crate) type Parts<'a> = (&'a str, Option<NonZeroU16>, PolicyOption);

/// The parts of `/system.slice/nsd.service:53/receive-buffer`, or of the same with a unit in place of the cgroup.
///
/// # Errors
/// Why it is none.
pub(crate) fn parts(text: &str) -> Result<Parts<'_>, String> {
    let (object, name) = text.rsplit_once('/').ok_or("it names no option")?;
    let option = PolicyOption::ALL.into_iter().find(|option| option.name() == name);
    let option = option.ok_or_else(|| unsupported(name))?;
    let (whose, port) = whose(object)?;
    Ok((whose, port, option))
}

/// The cgroup's path or the unit, and the port.
///
/// # Errors
/// Why it is neither.
pub(crate) fn whose(text: &str) -> Result<(&str, Option<NonZeroU16>), String> {
    // A cgroup's name may contain a colon; one that ends with a number needs a port behind it.
    let port = text.rsplit_once(':').and_then(|(whose, port)| {
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| Some((whose, port.parse::<NonZeroU16>().ok()?)))
    });
    let (whose, port) = match port {
        Some(Some((whose, port))) => (whose, Some(port)),
        Some(None) => return Err("a port is 1 to 65535".to_owned()),
        None => (text, None),
    };
    let strange = |name: &str| matches!(name, "" | "." | "..") || name.contains(char::is_control);
    match whose.strip_prefix('/') {
        // Of every program.
        Some("") => Ok(("/", port)),
        Some(path) if !path.split('/').any(strange) => Ok((whose, port)),
        None if !strange(whose) && !whose.contains('/') => Ok((whose, port)),
        _ => Err("it names neither a cgroup's path nor a unit".to_owned()),
    }
}

/// The setting of `nsd.service:53/spread`; `None` for another option.
///
/// # Errors
/// It names no service.
pub(super) fn spread(text: &str) -> Option<Result<Setting, String>> {
    let object = text.strip_suffix(SPREAD)?.strip_suffix('/')?;
    Some(whose(object).and_then(|(whose, port)| {
        if whose.starts_with('/') || !whose.ends_with(".service") {
            return Err(format!(
                "only a service of systemd runs something after each start; where there is none, run `udpath policy \
                 spread {object} RULE` after each start"
            ));
        }
        let unit = whose.parse().map_err(|wrong: WrongUnit| wrong.to_string())?;
        Ok(Setting::Spread { unit, port })
    }))
}

/// Parses a rule.
///
/// # Errors
/// The text is invalid; the error says what is valid.
pub(super) fn parse_spread(text: &str) -> Result<Value, &'static str> {
    match text {
        super::value::NONE => Ok(Value::Unset),
        _ => rule(text).map(|rule| Value::of_socket(SocketValue::Selection(rule))),
    }
}

/// A rule that spreads: `datagram` is round robin.
///
/// # Errors
/// The text is none; the error says what is valid.
pub fn rule(text: &str) -> Result<Selection, &'static str> {
    let rule = if text == "datagram" { Ok(Selection::RoundRobin) } else { text.parse() };
    rule.ok().filter(|rule: &Selection| rule.reorders().is_some()).ok_or(
        "datagram (round-robin), least-loaded, or field:OFFSET+LENGTH with up to 32 bytes of the payload, as in field:1+8; or none",
    )
}

/// The target of a name; the object must be a cgroup.
pub(super) fn target(text: &str) -> Result<(PolicyTarget, PolicyOption), String> {
    let (whose, port, option) = parts(text)?;
    if !whose.starts_with('/') {
        return Err("it names a unit, whose cgroup only plan and apply look up".to_owned());
    }
    Ok((PolicyTarget { cgroup: whose.to_owned(), port }, option))
}

/// The name, without what it begins with.
pub(super) fn name(target: &PolicyTarget, option: PolicyOption) -> String {
    let port = target.port.map_or_else(String::new, |port| format!(":{port}"));
    format!("{}{port}/{}", target.cgroup, option.name())
}

/// Why a policy has no such option, and what sets it instead.
fn unsupported(name: &str) -> String {
    let instead = match name {
        "incoming-cpu" => "SO_INCOMING_CPU",
        "busy-poll" => "SO_BUSY_POLL",
        "prefer-busy-poll" => "SO_PREFER_BUSY_POLL",
        "busy-poll-budget" => "SO_BUSY_POLL_BUDGET",
        _ => {
            let known = PolicyOption::ALL.into_iter().map(PolicyOption::name);
            let known: Vec<&str> = known.chain([SPREAD]).collect();
            // The whole name, which may be long, is in the error already.
            return format!("the options of a policy are {}", known.join(", "));
        }
    };
    format!("the kernel's bpf_setsockopt has no {instead}; set port:PORT:{name} once the server runs")
}

/// Parses a value.
///
/// # Errors
/// The text is invalid; the error says what is valid.
pub(super) fn parse(option: PolicyOption, text: &str) -> Result<Value, &'static str> {
    if text == super::value::NONE {
        return Ok(Value::Unset);
    }
    let value = match option {
        PolicyOption::ReceiveBuffer | PolicyOption::SendBuffer => {
            let allowed = u64::from(SMALLEST)..=u64::from(LARGEST);
            // The kernel doubles what setsockopt(2) is given.
            bytes(text).filter(|bytes| allowed.contains(bytes)).map(|bytes| Value::Number(bytes & !1))
        }
        PolicyOption::Reuseport => match text {
            "on" | "1" => Some(Value::Switch(true)),
            "off" | "0" => Some(Value::Switch(false)),
            _ => None,
        },
        PolicyOption::Priority => {
            number(text, 10).filter(|priority| *priority <= i32::MAX.cast_unsigned()).map(of_number)
        }
        PolicyOption::Mark => match text.strip_prefix("0x") {
            Some(hex) => number(hex, 16).map(of_number),
            None => number(text, 10).map(of_number),
        },
    };
    value.ok_or(match option {
        PolicyOption::ReceiveBuffer | PolicyOption::SendBuffer => {
            "bytes as `ss -m` shows them, 4608 to 2147483646, with K, M or G, as in 8M; or none"
        }
        PolicyOption::Reuseport => "on, off or none",
        PolicyOption::Priority => "a priority, 0 to 2147483647, or none",
        PolicyOption::Mark => "a mark, 0 to 4294967295, or none",
    })
}

fn of_number(number: u32) -> Value {
    Value::Number(number.into())
}

fn number(text: &str, radix: u32) -> Option<u32> {
    // `from_str_radix` would accept a sign.
    text.bytes().all(|byte| byte.is_ascii_alphanumeric()).then(|| u32::from_str_radix(text, radix).ok())?
}

impl Value {
    /// The value that a policy has for an option.
    #[must_use]
    pub fn of_policy(option: PolicyOption, value: Option<u32>) -> Self {
        match (option, value) {
            (_, None) => Self::Unset,
            (PolicyOption::Reuseport, Some(on)) => Self::Switch(on != 0),
            (_, Some(number)) => of_number(number),
        }
    }

    /// The value in a policy's form, `Some(None)` to leave the option alone; `None` if no policy has such a value.
    #[must_use]
    pub fn for_policy(&self) -> Option<Option<u32>> {
        match self {
            Self::Unset => Some(None),
            Self::Switch(on) => Some(Some(u32::from(*on))),
            Self::Number(number) => u32::try_from(*number).ok().map(Some),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Setting;
    use super::*;

    #[test]
    fn names_and_values_round_trip() {
        for (name, value, kept) in [
            ("policy:/system.slice/nsd.service/receive-buffer", "8M", "8388608"),
            ("policy:/system.slice/nsd.service:53/reuseport", "on", "on"),
            ("policy:/a:b/send-buffer", "4609", "4608"),
            ("policy://priority", "6", "6"),
            ("policy:/:53/mark", "0x4d", "77"),
            ("policy:/a/mark", "none", "none"),
        ] {
            let setting: Setting = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(setting.to_string(), name);
            let value = setting.value(value).unwrap();
            assert_eq!(value.to_string(), kept);
            assert_eq!(setting.decode(Setting::encode(&value).as_deref()).unwrap(), value);
            let Setting::Policy { option, .. } = &setting else { panic!("{setting:?}") };
            assert_eq!(Value::of_policy(*option, value.for_policy().unwrap()), value);
        }
    }

    #[test]
    fn invalid_names_and_values_suggest_a_valid_one() {
        for (name, says) in [
            ("policy:nsd.service/receive-buffer", "only plan and apply look up"),
            ("policy:/a/incoming-cpu", "has no SO_INCOMING_CPU; set port:PORT:incoming-cpu"),
            ("policy:/a/busy-poll", "SO_BUSY_POLL"),
            ("policy:/a/backlog", "receive-buffer, send-buffer, reuseport, priority, mark"),
            ("policy:/a:0/mark", "1 to 65535"),
            ("policy:/a:65536/mark", "1 to 65535"),
            ("policy:/a/../b/mark", "neither a cgroup's path nor a unit"),
            ("policy:/a//mark", "neither a cgroup's path nor a unit"),
            ("policy:a/b/mark", "neither a cgroup's path nor a unit"),
            ("policy:mark", "names no option"),
        ] {
            let error = name.parse::<Setting>().unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
        for (option, value) in [
            ("receive-buffer", "4607"),
            ("receive-buffer", "2G"),
            ("receive-buffer", "8MB"),
            ("receive-buffer", "-1"),
            ("reuseport", "yes"),
            ("priority", "2147483648"),
            ("mark", "0x1ffffffff"),
            ("mark", "+1"),
        ] {
            let setting: Setting = format!("policy:/a/{option}").parse().unwrap();
            let error = setting.value(value).unwrap_err().to_string();
            assert!(error.contains("none"), "{error}");
        }
    }
}
