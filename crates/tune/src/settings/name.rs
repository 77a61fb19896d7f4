//! The names of settings: parsing and formatting.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::row::{PartKind, Row};
use super::{Item, Part, Setting, policy, rows, unit};
use udpath_host::process::SocketSetting;

/// Longest name of an interface, bytes: `IFNAMSIZ` less the terminating NUL.
const MAX_INTERFACE: usize = 15;
/// What the name of a file of a server's configuration begins with.
pub(crate) const CONFIG: &str = "config:";
/// What the name of a restart begins with.
pub(crate) const RESTART: &str = "restart:";
/// Why a text is not the name of a setting, and what would be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WrongName {
    /// No colon.
    #[error(
        "{0:?} is not the name of a setting; write one like eth0:rps/rx-0, irq:57:affinity or sysctl:net.core.rmem_max"
    )]
    NoObject(String),
    /// The part before the colon is not a valid interface name.
    #[error("{0:?} cannot be the name of an interface: 1 to 15 bytes without '/', ':' and white space")]
    Interface(String),
    /// The part after the colon is not a valid item.
    #[error("{interface} has no setting {item:?}; {}", nearest(item))]
    Item {
        /// The interface.
        interface: String,
        /// The requested item.
        item: String,
    },
    /// An unknown item of a known kind.
    #[error("there is no {kind} {name:?}; known names: {known}")]
    Kind {
        /// `channels`, `ring`, `coalesce`, `hash`, `rss`, `napi`.
        kind: &'static str,
        /// The requested name.
        name: String,
        /// The valid names.
        known: String,
    },
    /// A queue is missing.
    #[error("{item:?} is not a queue; write it like {example}")]
    Queue {
        /// The item as it was written.
        item: String,
        /// A valid example.
        example: String,
    },
    /// Not a number, or not of an IRQ.
    #[error("{0:?} is not an IRQ; write it like irq:57:affinity")]
    Irq(String),
    /// Not a pid and a tid.
    #[error("{0:?} is not a thread; write pid and tid, as in thread:812/815:affinity")]
    Thread(String),
    /// Not a pid, an inode and an item.
    #[error(
        "{text:?} is not a socket; write pid, inode and item, as in socket:812/4026:receive-buffer ({}) or \
         group:812/4026:selection",
        sockets()
    )]
    Socket {
        /// What was written.
        text: String,
    },
    /// Not a policy.
    #[error("{text:?} is not a policy such as policy:/system.slice/nsd.service:53/receive-buffer: {why}")]
    Policy {
        /// What was written.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// Not a setting of a unit.
    #[error("{text:?} is not a setting such as unit:ntp.service/instances: {why}")]
    Unit {
        /// What was written.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// The server on a port is not one setting but several.
    #[error(
        "{0:?} is not a single setting: it stands for several sockets and threads, and only plan and apply accept it"
    )]
    Port(String),
    /// The configuration of a server is not a setting by itself.
    #[error(
        "{0:?} is not a single setting: it stands for files and a restart; write --set service:53:KNOB=VALUE to plan or apply"
    )]
    Service(String),
    /// Not a name below /proc/sys.
    #[error("{0:?} is not a sysctl; write it like sysctl:net.core.rmem_max")]
    Sysctl(String),
}

/// The closest match, else all groups of settings.
fn nearest(item: &str) -> String {
    // Names above this similarity differ by a typo: 0.85 still allows two letters of ten.
    const CLOSE: f64 = 0.85;
    let names = rows().flat_map(|row| match row.part {
        PartKind::Named(names) => names.iter().map(|name| format!("{}/{name}", row.name)).collect(),
        PartKind::RxQueue => vec![format!("{}/rx-0", row.name)],
        PartKind::TxQueue => vec![format!("{}/tx-0", row.name)],
        PartKind::Whole | PartKind::Free(_) => vec![row.name.to_owned()],
    });
    let scored = names.map(|name| (strsim::jaro_winkler(&name, item), name));
    match scored.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((score, name)) if score >= CLOSE => format!("did you mean {name:?}?"),
        _ => {
            let mut groups: Vec<String> = rows()
                .map(|row| match row.part {
                    PartKind::Whole if row.group() == row.name => row.name.to_owned(),
                    _ => format!("{}/", row.group()),
                })
                .collect();
            groups.dedup();
            format!("there are {}", groups.join(", "))
        }
    }
}

impl FromStr for Setting {
    type Err = WrongName;

    fn from_str(text: &str) -> Result<Self, WrongName> {
        let (object, rest) = text.split_once(':').ok_or_else(|| WrongName::NoObject(text.to_owned()))?;
        match (object, rest) {
            ("sysctl", name) => sysctl(name),
            ("irqbalance", "ban") => Ok(Self::IrqbalanceBan),
            ("irq", rest) if rest.ends_with(":affinity") => {
                let number = rest.strip_suffix(":affinity").and_then(digits);
                number.map(Self::Irq).ok_or_else(|| WrongName::Irq(text.to_owned()))
            }
            ("irq", _) => Err(WrongName::Irq(text.to_owned())),
            ("thread", rest) => {
                let numbers = rest.strip_suffix(":affinity").and_then(|rest| rest.split_once('/'));
                let numbers = numbers.and_then(|(pid, tid)| Some((digits(pid)?, digits(tid)?)));
                let thread = numbers.filter(|(pid, tid)| *pid > 0 && *tid > 0);
                let (pid, tid) = thread.ok_or_else(|| WrongName::Thread(text.to_owned()))?;
                Ok(Self::Thread { pid, tid })
            }
            ("socket" | "group", rest) => {
                socket(object == "group", rest).ok_or_else(|| WrongName::Socket { text: text.to_owned() })
            }
            ("policy", rest) => {
                if let Some(spread) = policy::spread(rest) {
                    return spread.map_err(|why| WrongName::Policy { text: text.to_owned(), why });
                }
                let (target, option) =
                    policy::target(rest).map_err(|why| WrongName::Policy { text: text.to_owned(), why })?;
                Ok(Self::Policy { target, option })
            }
            ("unit", rest) => unit::parse(rest).map_err(|why| WrongName::Unit { text: text.to_owned(), why }),
            ("port", _) => Err(WrongName::Port(text.to_owned())),
            ("service", _) => Err(WrongName::Service(text.to_owned())),
            (interface, item) => {
                let wrong = interface.is_empty()
                    || interface.len() > MAX_INTERFACE
                    || matches!(interface, "." | "..")
                    || interface.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
                if wrong {
                    return Err(WrongName::Interface(interface.to_owned()));
                }
                Ok(Self::Interface(interface.to_owned(), parse_item(interface, item)?))
            }
        }
    }
}

/// `812/4026:busy-poll`. Settings of the whole group are named by `group`, so that they are not mistaken for the
/// socket's own.
fn socket(group: bool, text: &str) -> Option<Setting> {
    let (numbers, name) = text.split_once(':')?;
    let (pid, inode) = numbers.split_once('/')?;
    let (pid, inode) = (digits(pid)?, digits(inode)?);
    let setting = SocketSetting::ALL.into_iter().find(|known| known.name() == name)?;
    let fits = group == (setting == SocketSetting::Selection) && pid > 0 && inode > 0;
    fits.then_some(Setting::Socket { pid, inode, setting })
}

/// The items of a socket, for errors.
fn sockets() -> String {
    let own = SocketSetting::ALL.into_iter().filter(|setting| *setting != SocketSetting::Selection);
    own.map(SocketSetting::name).collect::<Vec<_>>().join(", ")
}

/// `net.core.rmem_max`, or with slashes if a name contains a dot: `net/ipv4/conf/eth0.100/rp_filter`.
fn sysctl(name: &str) -> Result<Setting, WrongName> {
    let path = if name.contains('/') { name.to_owned() } else { name.replace('.', "/") };
    let strange = |part: &str| {
        part.is_empty()
            || matches!(part, "." | "..")
            || part.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    if path.split('/').any(strange) || !path.contains('/') {
        return Err(WrongName::Sysctl(name.to_owned()));
    }
    Ok(Setting::Sysctl(path))
}

fn parse_item(interface: &str, text: &str) -> Result<Item, WrongName> {
    let unknown = || WrongName::Item { interface: interface.to_owned(), item: text.to_owned() };
    let (group, name) = text.split_once('/').unwrap_or((text, ""));
    for row in rows() {
        if row.name == text && matches!(row.part, PartKind::Whole) {
            return Ok(Item { row, part: Part::Whole });
        }
        if row.name == group
            && text.contains('/')
            && let Some(part) = part(row, name).map_err(|example| example.unwrap_or_else(unknown))?
        {
            return Ok(Item { row, part });
        }
    }
    let of_group: Vec<&'static Row> = rows().filter(|row| row.group() == group).collect();
    match of_group.first() {
        Some(first) if !name.is_empty() => {
            let known: Vec<&str> = of_group
                .iter()
                .flat_map(|row| match row.part {
                    PartKind::Named(names) => names.to_vec(),
                    _ => row.name.split_once('/').map(|(_, name)| name).into_iter().collect(),
                })
                .collect();
            Err(WrongName::Kind { kind: first.group(), name: name.to_owned(), known: known.join(", ") })
        }
        _ => Err(unknown()),
    }
}

/// The part of a name after that of its row; `None` if the name does not belong to this row.
///
/// # Errors
/// It belongs to this row and is invalid; with a message, if there is one.
fn part(row: &'static Row, name: &str) -> Result<Option<Part>, Option<WrongName>> {
    let queue = |direction: &str| match name.strip_prefix(direction).and_then(digits) {
        Some(number) => Ok(Some(Part::Queue(number))),
        None => Err(Some(WrongName::Queue {
            item: format!("{}/{name}", row.name),
            example: format!("eth0:{}/{direction}0", row.name),
        })),
    };
    match row.part {
        PartKind::Whole => Ok(None),
        PartKind::Named(names) => Ok(names.contains(&name).then(|| Part::Name(name.to_owned()))),
        PartKind::Free(aliases) => {
            if name.is_empty() || !name.bytes().all(is_name) {
                return Err(None);
            }
            let full = aliases.iter().find(|(short, _)| *short == name).map_or(name, |(_, full)| full);
            Ok(Some(Part::Name(full.to_owned())))
        }
        PartKind::RxQueue => queue("rx-"),
        PartKind::TxQueue => queue("tx-"),
    }
}

/// A byte allowed in feature names.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// A number of digits only: `str::parse` would accept a sign.
fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Interface(interface, item) => format!("{interface}:{item}"),
            Self::Irq(irq) => format!("irq:{irq}:affinity"),
            // Dots, unless a part of the name contains one.
            Self::Sysctl(path) if path.contains('.') => format!("sysctl:{path}"),
            Self::Sysctl(path) => format!("sysctl:{}", path.replace('/', ".")),
            Self::Thread { pid, tid } => format!("thread:{pid}/{tid}:affinity"),
            Self::Socket { pid, inode, setting: setting @ SocketSetting::Selection } => {
                format!("group:{pid}/{inode}:{}", setting.name())
            }
            Self::Socket { pid, inode, setting } => format!("socket:{pid}/{inode}:{}", setting.name()),
            Self::Policy { target, option } => format!("{}{}", policy::POLICY, policy::name(target, *option)),
            Self::Spread { unit, port } => {
                let port = port.map_or_else(String::new, |port| format!(":{port}"));
                format!("{}{unit}{port}/{}", policy::POLICY, policy::SPREAD)
            }
            Self::Instances { unit } => format!("{}{unit}{}", unit::UNIT, unit::INSTANCES),
            Self::IrqbalanceBan => "irqbalance:ban".to_owned(),
            Self::File(path) => format!("file:{path}"),
            Self::Config(path) => format!("{CONFIG}{path}"),
            Self::Restart(restart) => format!("{RESTART}{restart}"),
        };
        // Through pad, so that a table can set the width.
        f.pad(&text)
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Part::Whole => f.write_str(self.row.name),
            _ => write!(f, "{}/{}", self.row.name, self.part_text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in [
            "eth0:channels/combined",
            "eth0:ring/rx",
            "eth0:coalesce/rx-usecs",
            "eth0:coalesce/adaptive-rx",
            "eth0:feature/rx-udp-gro-forwarding",
            "eth0:rss/table",
            "eth0:rss/key",
            "eth0:rss/function",
            "eth0:hash/udp6",
            "eth0:irq/rx-3",
            "br-lan.100:rps/rx-0",
            "eth0:rfs/rx-15",
            "eth0:xps/tx-127",
            "eth0:xps-rxqs/tx-0",
            "eth0:napi/threaded",
            "eth0:napi/defer-hard-irqs",
            "eth0:napi/gro-flush-timeout",
            "eth0:qdisc",
            "irq:57:affinity",
            "sysctl:net.core.rmem_max",
            "sysctl:net/ipv4/conf/eth0.100/rp_filter",
            "thread:812/815:affinity",
            "socket:812/4026:receive-buffer",
            "socket:812/4026:prefer-busy-poll",
            "group:812/4026:selection",
            "irqbalance:ban",
            "policy:nsd.service/spread",
            "policy:nsd@1.service:53/spread",
        ] {
            let setting: Setting = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(setting.to_string(), name);
        }
        assert_eq!("e:feature/gro".parse::<Setting>().unwrap().to_string(), "e:feature/rx-gro");
        // Interfaces whose names are also keywords here, or are a prefix of another.
        assert_eq!("eth1:qdisc".parse::<Setting>().unwrap().interface(), Some("eth1"));
        assert_eq!("eth10:qdisc".parse::<Setting>().unwrap().interface(), Some("eth10"));
    }

    #[test]
    fn invalid_names_suggest_a_valid_one() {
        for (name, says) in [
            ("eth0", "eth0:rps/rx-0"),
            ("eth0:rps", "has no setting \"rps\""),
            ("eth0:rps/0", "eth0:rps/rx-0"),
            ("eth0:rps/tx-0", "eth0:rps/rx-0"),
            ("eth0:rps/rx-+1", "eth0:rps/rx-0"),
            ("eth0:rps/rx-99999999999", "eth0:rps/rx-0"),
            ("eth0:channels/both", "combined, rx, tx, other"),
            ("eth0:napi/suspend", "threaded"),
            ("a-name-too-long-for-linux:qdisc", "15 bytes"),
            ("../x:qdisc", "15 bytes"),
            (":qdisc", "15 bytes"),
            ("irq:x:affinity", "irq:57:affinity"),
            ("irq:57", "irq:57:affinity"),
            ("thread:0/1:affinity", "thread:812/815:affinity"),
            ("socket:812/4026:selection", "group:812/4026:selection"),
            ("group:812/4026:busy-poll", "group:812/4026:selection"),
            ("socket:812:busy-poll", "socket:812/4026:receive-buffer"),
            ("socket:812/0:busy-poll", "is not a socket"),
            ("socket:812/4026:send-buffer", "receive-buffer, busy-poll,"),
            ("port:53:busy-poll", "sockets and threads"),
            ("sysctl:net/../../etc/passwd", "is not a sysctl"),
            ("sysctl:net", "is not a sysctl"),
            ("sysctl:", "is not a sysctl"),
            ("file:/etc/passwd", "has no setting"),
            ("eth0:chanels/combined", "did you mean \"channels/combined\"?"),
            ("eth0:speed", "there are channels/, ring/, feature/"),
        ] {
            let error = name.parse::<Setting>().unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
    }
}
