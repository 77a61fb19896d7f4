//! Values of settings: parsing and formatting.

use std::collections::BTreeSet;
use std::fmt;

use thiserror::Error;
use udpath_steer::rss::IndirectionTable;
use udpath_steer::{CpuSet, CpuSetError};

use super::row::{Keeps, ValueKind};
use super::{Setting, policy, socket, unit};

/// Tables with more entries are shortened: more would not fit on a line.
const SHORT: usize = 16;
/// The text of a value that the kernel does not report.
const UNKNOWN: &str = "unknown";
/// The text of an empty set, and of an option that a policy leaves alone.
pub(crate) const NONE: &str = "none";

/// A value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// CPUs; for `xps-rxqs`, receive queues.
    Cpus(CpuSet),
    /// One CPU; `None` for any.
    Cpu(Option<u32>),
    /// A number, in the setting's unit.
    Number(u64),
    /// On or off.
    Switch(bool),
    /// Words: a qdisc's kind, hash fields, the text of a sysctl with one space between its words.
    Words(String),
    /// An indirection table.
    Table(Table),
    /// Bytes of a hash key.
    Key(Vec<u8>),
    /// Numbers of IRQs.
    Irqs(BTreeSet<u32>),
    /// A file's whole text; `None`: the file does not exist.
    File(Option<String>),
    /// A policy leaves the option alone, or there is no policy.
    Unset,
    /// Unknown: the kernel does not report it.
    Unknown,
}

/// An indirection table, requested or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Table {
    /// The first N queues, round-robin: `equal:8`.
    Equal(u32),
    /// Queues by weight: `weight:2,1`.
    Weights(Vec<u32>),
    /// Every entry.
    Entries(Vec<u32>),
}

impl Table {
    /// All entries, for a table of `size` entries.
    ///
    /// # Errors
    /// The table cannot have that size.
    pub fn entries(&self, size: usize) -> Result<Vec<u32>, String> {
        let table = match self {
            Self::Equal(queues) => IndirectionTable::equal(size, 0, *queues),
            Self::Weights(weights) => IndirectionTable::weight(size, weights),
            Self::Entries(entries) if entries.len() == size => return Ok(entries.clone()),
            Self::Entries(entries) => {
                return Err(format!("it has {size} entries, but {} were given", entries.len()));
            }
        };
        table.map(|table| table.entries().to_vec()).map_err(|error| error.to_string())
    }
}

/// Why a text is not a valid value of a setting, and what would be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WrongValue {
    /// Not a list of CPUs or queues.
    #[error("invalid value for {setting}")]
    Cpus {
        /// The setting.
        setting: String,
        /// The error in the text.
        #[source]
        cause: CpuSetError,
    },
    /// Not a value of another kind.
    #[error("{setting} cannot be {text:?}; expected {wanted}")]
    Text {
        /// The setting.
        setting: String,
        /// The given text.
        text: String,
        /// Valid values.
        wanted: String,
    },
}

impl Setting {
    /// Parses a requested value: one that can be written.
    ///
    /// # Errors
    /// The text is invalid, or the value is beyond its range; the error says what is valid.
    pub fn value(&self, text: &str) -> Result<Value, WrongValue> {
        self.fitting(self.parsed(text)?).map_err(|wanted| WrongValue::Text {
            setting: self.to_string(),
            text: text.to_owned(),
            wanted,
        })
    }

    /// Parses a value by its form alone: what the kernel has shown may be a value that nobody would request.
    fn parsed(&self, text: &str) -> Result<Value, WrongValue> {
        let wrong =
            |wanted: String| WrongValue::Text { setting: self.to_string(), text: text.to_owned(), wanted };
        let text_of = text.trim();
        match self.row().value {
            ValueKind::Cpus | ValueKind::SomeCpus | ValueKind::Queues => {
                let list = if matches!(text_of, NONE | "off") { "" } else { text_of };
                let cpus = CpuSet::from_list(list);
                cpus.map(Value::Cpus).map_err(|cause| WrongValue::Cpus { setting: self.to_string(), cause })
            }
            ValueKind::Number(unit, _) => {
                number(text_of).map(Value::Number).ok_or_else(|| wrong(format!("a whole number ({unit})")))
            }
            ValueKind::Switch => match text_of {
                "on" | "1" => Ok(Value::Switch(true)),
                "off" | "0" => Ok(Value::Switch(false)),
                _ => Err(wrong("on or off".to_owned())),
            },
            ValueKind::HashFields => fields(text_of).map(Value::Words).ok_or_else(|| {
                wrong("letters of ethtool's m, v, t, s, d, f, n, r, such as sd or sdfn".to_owned())
            }),
            ValueKind::OneOf(_) if text_of.is_empty() || !text_of.bytes().all(is_name) => {
                Err(wrong("one word, such as mq or toeplitz".to_owned()))
            }
            ValueKind::OneOf(_) => Ok(Value::Words(text_of.to_owned())),
            ValueKind::Text => {
                let words = text_of.split_whitespace().collect::<Vec<_>>().join(" ");
                if words.is_empty() || words.contains(char::is_control) {
                    return Err(wrong("something without control characters".to_owned()));
                }
                Ok(Value::Words(words))
            }
            ValueKind::Table => table(text_of)
                .map(Value::Table)
                .ok_or_else(|| wrong("equal:N, weight:W,W,... or every entry between commas".to_owned())),
            ValueKind::Key => key(text_of)
                .map(Value::Key)
                .ok_or_else(|| wrong("bytes like 6d:5a:56:da, as ethtool -x shows them".to_owned())),
            ValueKind::Irqs if text_of == NONE => Ok(Value::Irqs(BTreeSet::new())),
            ValueKind::Irqs => {
                let numbers =
                    text_of.split(',').map(|irq| number(irq).and_then(|irq| u32::try_from(irq).ok()));
                numbers
                    .collect::<Option<_>>()
                    .map(Value::Irqs)
                    .ok_or_else(|| wrong("IRQs like 57,58, or none".to_owned()))
            }
            ValueKind::Socket(setting) => {
                socket::parse(setting, text_of).map_err(|wanted| wrong(wanted.to_owned()))
            }
            ValueKind::Spread => policy::parse_spread(text_of).map_err(|wanted| wrong(wanted.to_owned())),
            ValueKind::Policy(option) => {
                policy::parse(option, text_of).map_err(|wanted| wrong(wanted.to_owned()))
            }
            ValueKind::Instances => unit::value(text_of).map_err(|wanted| wrong(wanted.to_owned())),
            ValueKind::File => Ok(Value::File(Some(text.to_owned()))),
        }
    }

    /// The value as the kernel stores it: flow tables are rounded up to a power of two.
    #[must_use]
    pub fn as_kept(&self, value: Value) -> Value {
        match (self.row().extra.keeps, value) {
            (Keeps::PowerOfTwo, Value::Number(entries)) => Value::Number(rounded(entries)),
            (Keeps::PowerOfTwo, Value::Words(text)) => {
                Value::Words(number(&text).map_or(text, |entries| rounded(entries).to_string()))
            }
            (Keeps::Even, Value::Number(bytes)) => Value::Number(bytes.next_multiple_of(2)),
            (_, value) => value,
        }
    }

    /// A value as plans and journals store it: in full, and `None` for a file that does not exist.
    #[must_use]
    pub fn encode(value: &Value) -> Option<String> {
        match value {
            Value::File(text) => text.clone(),
            other => Some(other.to_string()),
        }
    }

    /// The inverse of [`Setting::encode`].
    ///
    /// # Errors
    /// The text was not written by it.
    pub fn decode(&self, text: Option<&str>) -> Result<Value, WrongValue> {
        match (self, text) {
            (_, Some(UNKNOWN)) if self.assumed().is_some() => Ok(Value::Unknown),
            (Self::File(_) | Self::Config(_), text) => Ok(Value::File(text.map(str::to_owned))),
            (_, text) => self.parsed(text.unwrap_or_default()),
        }
    }
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// 0 is unchanged: no table.
fn rounded(entries: u64) -> u64 {
    if entries == 0 { 0 } else { entries.checked_next_power_of_two().unwrap_or(entries) }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Letters of hash fields in ethtool's order, without duplicates.
fn fields(text: &str) -> Option<String> {
    const LETTERS: &str = "mvtsdfnr";
    let known = !text.is_empty() && text.chars().all(|letter| LETTERS.contains(letter));
    known.then(|| LETTERS.chars().filter(|letter| text.contains(*letter)).collect())
}

fn table(text: &str) -> Option<Table> {
    let numbers = |list: &str| {
        let all: Option<Vec<u32>> =
            list.split(',').map(|one| number(one).and_then(|one| u32::try_from(one).ok())).collect();
        all.filter(|all| all.len() <= IndirectionTable::MAX_LEN)
    };
    if let Some(queues) = text.strip_prefix("equal:") {
        let queues = number(queues).and_then(|queues| u32::try_from(queues).ok());
        return queues.filter(|queues| *queues > 0).map(Table::Equal);
    }
    match text.strip_prefix("weight:") {
        Some(weights) => numbers(weights).filter(|all| all.iter().any(|one| *one > 0)).map(Table::Weights),
        None => numbers(text).map(Table::Entries),
    }
}

fn key(text: &str) -> Option<Vec<u8>> {
    let byte = |pair: &str| {
        let plain = pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit());
        plain.then(|| u8::from_str_radix(pair, 16).ok())?
    };
    text.split(':').map(byte).collect()
}

impl Value {
    /// Does the kernel report it?
    #[must_use]
    pub fn is_reported(&self) -> bool {
        *self != Self::Unknown
    }

    /// Does this value, as read, match `wanted`?
    #[must_use]
    pub fn is(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Table(Table::Entries(found)), Self::Table(wanted)) => {
                wanted.entries(found.len()).is_ok_and(|wanted| wanted == *found)
            }
            (found, wanted) => found == wanted,
        }
    }
}

/// A table for display: as the rule that generates it, if there is one.
fn short(entries: &[u32], list: impl Fn(&[u32]) -> String) -> String {
    let queues = entries.iter().max().map_or(0, |last| last.saturating_add(1));
    match Table::Equal(queues).entries(entries.len()) {
        Ok(equal) if equal == entries => format!("equal:{queues}"),
        _ if entries.len() <= SHORT => list(entries),
        _ => {
            let runs = entries.chunk_by(|one, next| one == next);
            runs.map(|run| format!("{} of {}", run.len(), run[0])).collect::<Vec<_>>().join(", ")
        }
    }
}

/// With `#`, tables are shown as the rule that generates them, if there is one.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let text = match self {
            Self::Cpus(cpus) if cpus.is_empty() => NONE.to_owned(),
            Self::Cpus(cpus) => cpus.to_string(),
            Self::Cpu(cpu) => cpu.map_or("any".to_owned(), |cpu| cpu.to_string()),
            Self::Unset => NONE.to_owned(),
            Self::Unknown => UNKNOWN.to_owned(),
            Self::Number(number) => number.to_string(),
            Self::Switch(on) => (if *on { "on" } else { "off" }).to_owned(),
            Self::Words(words) => words.clone(),
            Self::Table(Table::Equal(queues)) => format!("equal:{queues}"),
            Self::Table(Table::Weights(weights)) => format!("weight:{}", list(weights)),
            Self::Table(Table::Entries(entries)) if f.alternate() => short(entries, list),
            Self::Table(Table::Entries(entries)) => list(entries),
            Self::Key(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"),
            Self::Irqs(irqs) if irqs.is_empty() => NONE.to_owned(),
            Self::Irqs(irqs) => list(&irqs.iter().copied().collect::<Vec<_>>()),
            Self::File(None) => "no file".to_owned(),
            Self::File(Some(text)) => format!("a file of {} lines", text.lines().count()),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use error_reporter::Report;

    use super::*;

    fn setting(name: &str) -> Setting {
        name.parse().unwrap()
    }

    #[test]
    fn values_round_trip() {
        for (name, value) in [
            ("eth0:rps/rx-0", "0-3,8"),
            ("eth0:rps/rx-0", "none"),
            ("eth0:xps-rxqs/tx-0", "2"),
            ("eth0:channels/combined", "8"),
            ("eth0:coalesce/adaptive-rx", "on"),
            ("eth0:coalesce/rx-usecs", "20"),
            ("eth0:feature/rx-gro", "off"),
            ("eth0:rss/table", "equal:8"),
            ("eth0:rss/table", "weight:2,0,1"),
            ("eth0:rss/table", "0,1,0,1"),
            ("eth0:rss/key", "6d:5a:00:ff"),
            ("eth0:hash/udp4", "sdfn"),
            ("eth0:qdisc", "mq"),
            ("sysctl:net.ipv4.udp_mem", "1 2 3"),
            ("sysctl:net.core.flow_limit_cpu_bitmap", "0-1"),
            ("irqbalance:ban", "57,58"),
            ("irqbalance:ban", "none"),
        ] {
            let value_of =
                setting(name).value(value).unwrap_or_else(|error| panic!("{name}={value}: {error}"));
            assert_eq!(value_of.to_string(), value, "{name}");
        }
        assert_eq!(setting("e:hash/udp4").value("nfds").unwrap(), Value::Words("sdfn".into()));
        assert_eq!(setting("sysctl:a.b").value(" 1\t2\n").unwrap(), Value::Words("1 2".into()));
    }

    #[test]
    fn invalid_values_suggest_a_valid_one() {
        for (name, value, says) in [
            ("eth0:rps/rx-0", "ff", "not a CPU number"),
            ("eth0:rps/rx-0", "3-1", "eth0:rps/rx-0"),
            ("eth0:channels/combined", "-1", "whole number"),
            ("eth0:channels/combined", "99999999999999999999", "whole number"),
            ("eth0:feature/rx-gro", "yes", "on or off"),
            ("eth0:rss/table", "equal:0", "equal:N"),
            ("eth0:rss/table", "weight:0,0", "equal:N"),
            ("eth0:rss/key", "6d5a", "6d:5a"),
            ("eth0:hash/udp4", "sdx", "sdfn"),
            ("eth0:qdisc", "mq; reboot", "one word"),
            ("sysctl:net.core.rmem_max", " ", "something"),
            ("irqbalance:ban", "57,x", "57,58"),
        ] {
            let error = Report::new(setting(name).value(value).unwrap_err()).to_string();
            assert!(error.contains(says), "{name}={value}: {error}");
        }
    }

    #[test]
    fn tables_have_the_entries_that_ethtool_would_write() {
        assert_eq!(Table::Equal(3).entries(8).unwrap(), [0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(Table::Weights(vec![3, 1]).entries(4).unwrap(), [0, 0, 0, 1]);
        assert!(Table::Entries(vec![0, 1]).entries(4).unwrap_err().contains("4 entries"));
        let found = Value::Table(Table::Entries(vec![0, 1, 0, 1]));
        assert!(found.is(&Value::Table(Table::Equal(2))) && !found.is(&Value::Table(Table::Equal(4))));
        let weighted = Value::Table(Table::Entries(Table::Weights(vec![3, 1]).entries(32).unwrap()));
        assert_eq!(format!("{weighted:#}"), "24 of 0, 8 of 1");
        assert_eq!((format!("{found}"), format!("{found:#}")), ("0,1,0,1".into(), "equal:2".into()));
    }

    #[test]
    fn flow_tables_are_rounded_as_the_kernel_does() {
        let rfs = setting("eth0:rfs/rx-0");
        assert_eq!(rfs.as_kept(Value::Number(3000)), Value::Number(4096));
        assert_eq!(rfs.as_kept(Value::Number(0)), Value::Number(0));
        let sysctl = setting("sysctl:net.core.rps_sock_flow_entries");
        assert_eq!(sysctl.as_kept(Value::Words("32767".into())), Value::Words("32768".into()));
    }
}
