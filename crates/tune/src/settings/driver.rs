//! Code shared by rows whose settings belong to the driver: numbers in and out, errors, ethtool commands.

use udpath_host::Absence;
use udpath_host::shell::quoted;

use super::row::{Limit, Target};
use super::{Setting, Value};
use crate::machine::Refusal;

/// Programs that change channels, rings, moderation and offloads.
pub(super) const DEVICE_WRITERS: &[&str] =
    &["tuned", "NetworkManager", "systemd-networkd", "a reload of the driver"];
/// The largest number that a driver takes: 32 bits of netlink and of the ioctl.
pub(super) const MAX: u64 = u32::MAX as u64;
/// Why a number reads back as a different one.
pub(super) const ROUNDS: &str = "the driver rounds it; request the rounded value";

/// An ethtool command: `ethtool -L eth0 combined 8`.
pub(super) fn ethtool(option: &str, setting: &Setting, value: &Value) -> String {
    let Some(Target { interface, part, .. }) = setting.target() else { return String::new() };
    let part = if part.is_empty() { String::new() } else { format!("{} ", quoted(part)) };
    format!("ethtool {option} {} {part}{value}", quoted(interface))
}

/// The meaning of errors for driver settings.
pub(super) fn no_such_value(_: &Setting, operation: &str, errno: i32) -> Option<&'static str> {
    (operation == "set" && errno == libc::EINVAL).then_some("the driver does not accept this value")
}

impl Target<'_> {
    /// A refusal by udpath to set it.
    pub(super) fn refuse(&self, why: impl Into<String>) -> Refusal {
        Refusal::because("set", self.setting, why)
    }

    /// The value is of the wrong kind.
    pub(super) fn wrong(&self, value: &Value) -> Refusal {
        self.refuse(format!("'{value}' is not a value of it"))
    }

    /// Why there is no value.
    pub(crate) fn absent(&self, absence: &Absence) -> Refusal {
        let errno = match absence {
            Absence::NotThere => libc::ENODEV,
            Absence::NotSupported => libc::EOPNOTSUPP,
            other => return Refusal::because("read", self.setting, other.to_string()),
        };
        Refusal::kernel("read", self.setting, &std::io::Error::from_raw_os_error(errno))
    }

    /// A number as read; `None`: the driver does not support it.
    pub(super) fn number(&self, found: Option<u32>) -> Result<Value, Refusal> {
        let number = found.ok_or_else(|| self.absent(&Absence::NotSupported))?;
        Ok(Value::Number(number.into()))
    }

    /// The number to write, as 32 bits.
    pub(super) fn word(&self, value: &Value) -> Result<u32, Refusal> {
        match value {
            Value::Number(number) => {
                u32::try_from(*number).map_err(|_| self.refuse(format!("{number} is over {}", u32::MAX)))
            }
            other => Err(self.wrong(other)),
        }
    }

    /// Checks the driver's maximum.
    pub(super) fn at_most(&self, value: &Value, max: Option<u32>) -> Result<(), Limit> {
        match (value, max) {
            (Value::Number(number), Some(max)) if *number > max.into() => {
                Err(Limit::Beyond(format!("the driver of {} accepts at most {max}", self.interface)))
            }
            _ => Ok(()),
        }
    }

    /// The kernel's result, with its extended error message if there is one.
    pub(super) fn done(&self, result: Result<(), udpath_netlink::Error>) -> Result<(), Refusal> {
        result.map_err(|refused| match (refused.errno, &refused.detail) {
            (Some(errno), None) => {
                Refusal::kernel("set", self.setting, &std::io::Error::from_raw_os_error(errno))
            }
            (errno, _) => Refusal { errno, ..self.refuse(refused.why()) },
        })
    }
}
