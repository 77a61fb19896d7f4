//! Values of a running server's sockets: as numbers, switches and words like all others, and as the kernel takes them.

use udpath_host::process::{MAX_BUFFER, Selection, SocketSetting, SocketValue};

use super::{Setting, Value};

/// Reads a value.
///
/// # Errors
/// The text is none; says what would be.
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
        SocketSetting::Selection => match text {
            "by-cpu" => Some(SocketValue::Selection(Selection::ByCpu)),
            "by-flow" => Some(SocketValue::Selection(Selection::ByFlow)),
            _ => None,
        },
    };
    value.map(Value::of_socket).ok_or(match setting {
        SocketSetting::ReceiveBuffer => "bytes as `ss -m` shows them (rb), up to 2147483646",
        SocketSetting::BusyPoll => "microseconds, up to 2147483647; 0 is off",
        SocketSetting::BusyPollBudget => "packets, up to 65535; 0 is the kernel's own",
        SocketSetting::IncomingCpu => "a CPU, or any",
        SocketSetting::PreferBusyPoll => "on or off",
        SocketSetting::Selection => "by-cpu or by-flow",
    })
}

impl Value {
    /// What a socket has.
    #[must_use]
    pub fn of_socket(value: SocketValue) -> Self {
        match value {
            SocketValue::ReceiveBuffer(bytes) => Self::Number(bytes.into()),
            SocketValue::BusyPoll(us) => Self::Number(us.into()),
            SocketValue::BusyPollBudget(packets) => Self::Number(packets.into()),
            SocketValue::PreferBusyPoll(on) => Self::Switch(on),
            SocketValue::IncomingCpu(cpu) => Self::Cpu(cpu),
            SocketValue::Selection(Selection::ByCpu) => Self::Words("by-cpu".to_owned()),
            SocketValue::Selection(Selection::ByFlow) => Self::Words("by-flow".to_owned()),
        }
    }

    /// As a socket takes it; nothing for what is no value of that setting.
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
            (SocketSetting::Selection, Self::Words(words)) => match words.as_str() {
                "by-cpu" => Some(SocketValue::Selection(Selection::ByCpu)),
                "by-flow" => Some(SocketValue::Selection(Selection::ByFlow)),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Setting {
    /// What undo makes of a setting whose value the kernel does not tell, unless the journal knows better: what it has
    /// when nobody has set it. Nothing for all that the kernel tells.
    #[must_use]
    pub fn assumed(&self) -> Option<Value> {
        let Self::Socket { setting, .. } = self else { return None };
        match setting {
            SocketSetting::BusyPollBudget => Some(Value::of_socket(SocketValue::BusyPollBudget(0))),
            SocketSetting::Selection => Some(Value::of_socket(SocketValue::Selection(Selection::ByFlow))),
            _ => None,
        }
    }

    /// How long it lasts, where that is less than until the next boot.
    #[must_use]
    pub fn lasts(&self) -> Option<&'static str> {
        match self {
            Self::Socket { setting, .. } => Some(setting.lasts()),
            Self::Thread { .. } => Some(udpath_host::process::Thread::LASTS),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_to_the_socket_and_back() {
        for (setting, text) in [
            (SocketSetting::ReceiveBuffer, "8388608"),
            (SocketSetting::BusyPoll, "50"),
            (SocketSetting::PreferBusyPoll, "on"),
            (SocketSetting::BusyPollBudget, "64"),
            (SocketSetting::IncomingCpu, "3"),
            (SocketSetting::IncomingCpu, "any"),
            (SocketSetting::Selection, "by-cpu"),
            (SocketSetting::Selection, "by-flow"),
        ] {
            let value = parse(setting, text).unwrap();
            assert_eq!(value.to_string(), text);
            let socket = value.for_socket(setting).unwrap();
            assert_eq!((socket.setting(), Value::of_socket(socket)), (setting, value.clone()));
            // And of no other kind.
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
