//! What the values of a knob are.

use serde::Deserialize;

use super::super::numbers::Numbers;

/// How the values of a knob are read and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in super::super) enum Kind {
    /// A number; a proposal only raises it.
    Count,
    /// Bytes, with suffixes k, m and g; a proposal only raises it.
    Bytes,
    /// On or off, in the server's own words.
    Switch,
    /// A key without a value: there or not there.
    Flag,
    /// An interface, and the port after an `@` if it is not the usual one.
    Interface,
    /// Anything else.
    Text,
}

impl Kind {
    /// The number that a value stands for: of `Count` and `Bytes`.
    pub(in super::super) fn number(self, value: &str, numbers: Numbers) -> Option<u64> {
        match self {
            Self::Bytes => numbers.bytes(value.trim()),
            _ => numbers.count(value.trim()),
        }
    }

    /// Whether a switch is on.
    pub(in super::super) fn is_on(value: &str) -> Option<bool> {
        match value.to_ascii_lowercase().as_str() {
            "yes" | "on" | "true" | "1" => Some(true),
            "no" | "off" | "false" | "0" => Some(false),
            _ => None,
        }
    }

    /// Whether the text is a value of this kind. `Text` is read but never set.
    pub(in super::super) fn accepts(self, value: &str, numbers: Numbers) -> bool {
        match self {
            // A number with zeros before it means one thing to this server and another to that.
            Self::Count | Self::Bytes => {
                let padded = value.len() > 1 && value.starts_with('0');
                // What the server would not read to its end is a mistake.
                self.number(value, numbers.whole()).is_some() && !padded
            }
            Self::Switch | Self::Flag => Self::is_on(value).is_some(),
            Self::Interface => is_interface(value),
            Self::Text => false,
        }
    }

    /// What a value looks like, for errors.
    pub(in super::super) const fn wanted(self) -> &'static str {
        match self {
            Self::Count => "a whole number",
            Self::Bytes => "a number of bytes, such as 4194304",
            Self::Switch | Self::Flag => "yes or no",
            Self::Interface => "an interface, and its port if it is not the usual one, such as eth0@5353",
            Self::Text => "nothing: it is read, but never set",
        }
    }
}

/// Whether it is the name of an interface, as `dev_valid_name` of net/core/dev.c has them, but of ASCII letters that
/// mean nothing in a configuration, and a port, if there is one.
fn is_interface(text: &str) -> bool {
    let (name, port) = text.split_once('@').map_or((text, None), |(name, port)| (name, Some(port)));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=15).contains(&name.len())
        && name.bytes().all(plain)
        && ![".", ".."].contains(&name)
        && port.is_none_or(|port| port.parse().is_ok_and(|port: u16| port > 0))
}
