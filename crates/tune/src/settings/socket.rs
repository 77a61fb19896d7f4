//! Options of a running server's UDP sockets, and the selection of its reuseport group.
//!
//! Their values are numbers, switches and words like all others; [`Value::for_socket`] converts them to the kernel's
//! form.

use udpath_host::process::{MAX_BUFFER, Selection, SocketSetting, SocketValue};
use udpath_host::shell::quoted;

use super::Value;
use super::row::{
    Access, Cost, Extra, Keeps, OnReset, PartKind, Phase, Row, Scope, Security, Shell, ValueKind,
};

const fn option(setting: SocketSetting, page: &'static str) -> Row {
    Row {
        name: setting.name(),
        part: PartKind::Whole,
        value: ValueKind::Socket(setting),
        access: Access::Object,
        phase: Phase::Sockets,
        cost: Cost::None,
        scope: Scope::Process,
        on_reset: OnReset::Kept,
        writers: &["the server itself (setsockopt)"],
        // No system program changes a socket of another process.
        shell: Shell::Line(|setting, value| {
            format!("udpath apply --set {}", quoted(&format!("{setting}={value}")))
        }),
        page,
        security: Security::Harmless,
        extra: Extra { lasts: Some(setting.lasts()), ..Extra::NONE },
    }
}

const fn assumed(row: Row, assumed: fn() -> Value) -> Row {
    Row { extra: Extra { assumed: Some(assumed), ..row.extra }, ..row }
}

/// Bytes of the receive buffer, as doubled by the kernel.
static RECEIVE_BUFFER: Row = {
    let row = option(SocketSetting::ReceiveBuffer, "socket-receive-buffer");
    Row { extra: Extra { keeps: Keeps::Even, ..row.extra }, ..row }
};
/// How long a receive call busy-polls the device queue, microseconds.
static BUSY_POLL: Row = option(SocketSetting::BusyPoll, "socket-busy-poll");
/// Whether busy polling is preferred over interrupts.
static PREFER_BUSY_POLL: Row = option(SocketSetting::PreferBusyPoll, "socket-prefer-busy-poll");
/// Packets of one busy poll.
static BUSY_POLL_BUDGET: Row =
    assumed(option(SocketSetting::BusyPollBudget, "socket-busy-poll-budget"), || {
        Value::of_socket(SocketValue::BusyPollBudget(0))
    });
/// The CPU whose datagrams go to this socket of the group.
static INCOMING_CPU: Row =
    Row { cost: Cost::MovesFlows, ..option(SocketSetting::IncomingCpu, "socket-incoming-cpu") };
/// How the reuseport group selects a socket.
static SELECTION: Row = {
    let row = assumed(option(SocketSetting::Selection, "socket-selection"), || {
        Value::of_socket(SocketValue::Selection(Selection::ByFlow))
    });
    Row { cost: Cost::MovesFlows, extra: Extra { gives_up, ..row.extra }, ..row }
};

/// The row of an option.
pub(super) fn row(setting: SocketSetting) -> &'static Row {
    match setting {
        SocketSetting::ReceiveBuffer => &RECEIVE_BUFFER,
        SocketSetting::BusyPoll => &BUSY_POLL,
        SocketSetting::PreferBusyPoll => &PREFER_BUSY_POLL,
        SocketSetting::BusyPollBudget => &BUSY_POLL_BUDGET,
        SocketSetting::IncomingCpu => &INCOMING_CPU,
        SocketSetting::Selection => &SELECTION,
    }
}

/// The order of a flow's datagrams.
pub(super) fn gives_up(value: &Value) -> Option<&'static str> {
    match value.for_socket(SocketSetting::Selection) {
        Some(SocketValue::Selection(selection)) => selection.reorders(),
        _ => None,
    }
}

/// Parses a value.
///
/// # Errors
/// The text is invalid; the error says what is valid.
pub(super) fn parse(setting: SocketSetting, text: &str) -> Result<Value, &'static str> {
    let number = |most: u32| {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse::<u32>().ok())?.filter(|number| *number <= most)
    };
    let value = match setting {
        SocketSetting::ReceiveBuffer => number(MAX_BUFFER).map(SocketValue::ReceiveBuffer),
        SocketSetting::BusyPoll => number(i32::MAX.cast_unsigned()).map(SocketValue::BusyPoll),
        SocketSetting::BusyPollBudget => number(u16::MAX.into())
            .and_then(|number| u16::try_from(number).ok())
            .map(SocketValue::BusyPollBudget),
        SocketSetting::IncomingCpu if text == "any" => Some(SocketValue::IncomingCpu(None)),
        SocketSetting::IncomingCpu => {
            number(i32::MAX.cast_unsigned()).map(|cpu| SocketValue::IncomingCpu(Some(cpu)))
        }
        SocketSetting::PreferBusyPoll => match text {
            "on" | "1" => Some(SocketValue::PreferBusyPoll(true)),
            "off" | "0" => Some(SocketValue::PreferBusyPoll(false)),
            _ => None,
        },
        SocketSetting::Selection => text.parse().ok().map(SocketValue::Selection),
    };
    value.map(Value::of_socket).ok_or(match setting {
        SocketSetting::ReceiveBuffer => "bytes as `ss -m` shows them (rb), up to 2147483646",
        SocketSetting::BusyPoll => "microseconds, up to 2147483647; 0 is off",
        SocketSetting::BusyPollBudget => "packets, up to 65535; 0 is the kernel's own",
        SocketSetting::IncomingCpu => "a CPU, or any",
        SocketSetting::PreferBusyPoll => "on or off",
        SocketSetting::Selection => Selection::WORDS,
    })
}

impl Value {
    /// The value of a socket.
    #[must_use]
    pub fn of_socket(value: SocketValue) -> Self {
        match value {
            SocketValue::ReceiveBuffer(bytes) => Self::Number(bytes.into()),
            SocketValue::BusyPoll(us) => Self::Number(us.into()),
            SocketValue::BusyPollBudget(packets) => Self::Number(packets.into()),
            SocketValue::PreferBusyPoll(on) => Self::Switch(on),
            SocketValue::IncomingCpu(cpu) => Self::Cpu(cpu),
            SocketValue::Selection(selection) => Self::Words(selection.to_string()),
        }
    }

    /// The value in socket form; `None` if it is not valid for that setting.
    #[must_use]
    pub fn for_socket(&self, setting: SocketSetting) -> Option<SocketValue> {
        match (setting, self) {
            (SocketSetting::ReceiveBuffer, Self::Number(bytes)) => {
                u32::try_from(*bytes).ok().map(SocketValue::ReceiveBuffer)
            }
            (SocketSetting::BusyPoll, Self::Number(us)) => u32::try_from(*us).ok().map(SocketValue::BusyPoll),
            (SocketSetting::BusyPollBudget, Self::Number(packets)) => {
                u16::try_from(*packets).ok().map(SocketValue::BusyPollBudget)
            }
            (SocketSetting::PreferBusyPoll, Self::Switch(on)) => Some(SocketValue::PreferBusyPoll(*on)),
            (SocketSetting::IncomingCpu, Self::Cpu(cpu)) => Some(SocketValue::IncomingCpu(*cpu)),
            (SocketSetting::Selection, Self::Words(words)) => words.parse().ok().map(SocketValue::Selection),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Setting;
    use super::*;

    #[test]
    fn socket_values_round_trip() {
        for (setting, text) in [
            (SocketSetting::ReceiveBuffer, "8388608"),
            (SocketSetting::BusyPoll, "50"),
            (SocketSetting::PreferBusyPoll, "on"),
            (SocketSetting::BusyPollBudget, "64"),
            (SocketSetting::IncomingCpu, "3"),
            (SocketSetting::IncomingCpu, "any"),
            (SocketSetting::Selection, "by-cpu"),
            (SocketSetting::Selection, "by-flow"),
            (SocketSetting::Selection, "round-robin"),
            (SocketSetting::Selection, "least-loaded"),
            (SocketSetting::Selection, "field:1+8"),
        ] {
            let value = parse(setting, text).unwrap();
            assert_eq!(value.to_string(), text);
            let socket = value.for_socket(setting).unwrap();
            assert_eq!((socket.setting(), Value::of_socket(socket)), (setting, value.clone()));
            // And not of any other kind.
            let other = if setting == SocketSetting::IncomingCpu {
                SocketSetting::BusyPoll
            } else {
                SocketSetting::IncomingCpu
            };
            assert_eq!(value.for_socket(other), None);
        }
        for (setting, text) in [
            (SocketSetting::ReceiveBuffer, "2147483647"),
            (SocketSetting::ReceiveBuffer, "+1"),
            (SocketSetting::ReceiveBuffer, "unknown"),
            (SocketSetting::BusyPollBudget, "65536"),
            (SocketSetting::IncomingCpu, "0-1"),
            (SocketSetting::Selection, "cpu"),
            (SocketSetting::Selection, "field:1+0"),
            (SocketSetting::Selection, "unknown"),
        ] {
            assert!(parse(setting, text).is_err(), "{setting:?} {text}");
        }
        let assumed = |name: &str| name.parse::<Setting>().unwrap().assumed().map(|value| value.to_string());
        assert_eq!(assumed("group:8/9:selection").as_deref(), Some("by-flow"));
        assert_eq!(assumed("socket:8/9:busy-poll-budget").as_deref(), Some("0"));
        assert_eq!(assumed("socket:8/9:busy-poll"), None);
    }
}
