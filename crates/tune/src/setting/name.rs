//! The names of settings: as people write them, and back.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::{CHANNELS, COALESCE, COALESCE_SWITCHES, FLOWS, Item, RINGS, Setting};
use udpath_host::process::SocketSetting;

/// Longest name of an interface, bytes: `IFNAMSIZ` less the closing zero.
const MAX_INTERFACE: usize = 15;
/// What `ethtool -K` calls some features for short, and the kernel's name. Only those that stand for one feature.
const FEATURE_ALIASES: [(&str, &str); 6] = [
    ("gro", "rx-gro"),
    ("gso", "tx-generic-segmentation"),
    ("lro", "rx-lro"),
    ("ntuple", "rx-ntuple-filter"),
    ("rxhash", "rx-hashing"),
    ("sg", "tx-scatter-gather"),
];

/// Why a text names no setting. Says what would.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WrongName {
    /// No colon.
    #[error(
        "{0:?} names no setting; write one like eth0:rps/rx-0, irq:57:affinity or sysctl:net.core.rmem_max"
    )]
    NoObject(String),
    /// What stands before the colon can be no interface.
    #[error("{0:?} cannot be the name of an interface: 1 to 15 bytes without '/', ':' and white space")]
    Interface(String),
    /// What stands after it is no item.
    #[error("{interface} has no setting {item:?}; there are {}", ITEMS)]
    Item {
        /// The interface.
        interface: String,
        /// What was asked for.
        item: String,
    },
    /// An item of a kind that has others.
    #[error("there is no {kind} {name:?}; of {kind} there are {known}")]
    Kind {
        /// `channels`, `ring`, `coalesce`, `hash`, `rss`, `napi`.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No queue where one must be.
    #[error("{item:?} names no queue; write it like {example}")]
    Queue {
        /// The item as it was written.
        item: String,
        /// One that would be right.
        example: &'static str,
    },
    /// No number, or not of an IRQ.
    #[error("{0:?} names no IRQ; write it like irq:57:affinity")]
    Irq(String),
    /// Not a pid and a tid.
    #[error("{0:?} names no thread; write pid and tid like thread:812/815:affinity")]
    Thread(String),
    /// Not a pid, an inode and an item.
    #[error(
        "{text:?} names no socket; write pid, inode and item like socket:812/4026:receive-buffer ({}) or \
         group:812/4026:selection",
        sockets()
    )]
    Socket {
        /// What was written.
        text: String,
    },
    /// Whoever serves a port is no setting but several.
    #[error("{0:?} names no one setting: it stands for sockets and threads, in a plan's requests alone")]
    Port(String),
    /// Not a name below /proc/sys.
    #[error("{0:?} names no sysctl; write it like sysctl:net.core.rmem_max")]
    Sysctl(String),
}

/// The items of an interface, for errors.
const ITEMS: &str =
    "channels/, ring/, coalesce/, feature/, rss/, hash/, irq/, rps/, rfs/, xps/, xps-rxqs/, napi/, qdisc";

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
            ("port", _) => Err(WrongName::Port(text.to_owned())),
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

/// `812/4026:busy-poll`. What is the whole group's is named by `group`, so that nobody takes it for the socket's own.
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

/// `net.core.rmem_max`, or with slashes where a name has a dot of its own: `net/ipv4/conf/eth0.100/rp_filter`.
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
    if text == "qdisc" {
        return Ok(Item::Qdisc);
    }
    let (kind, name) = text.split_once('/').ok_or_else(unknown)?;
    let queue = |prefix: &str, example| {
        let number = name.strip_prefix(prefix).and_then(digits);
        number.ok_or_else(|| WrongName::Queue { item: text.to_owned(), example })
    };
    match kind {
        "channels" => one_of("channels", &CHANNELS, name).map(Item::Channels),
        "ring" => one_of("ring", &RINGS, name).map(Item::Ring),
        "coalesce" => {
            let known = [&COALESCE[..], &COALESCE_SWITCHES[..]].concat();
            one_of("coalesce", &known, name).map(Item::Coalesce)
        }
        "feature" if !name.is_empty() && name.bytes().all(is_name) => {
            let alias = FEATURE_ALIASES.iter().find(|(short, _)| *short == name);
            Ok(Item::Feature(alias.map_or(name, |(_, full)| full).to_owned()))
        }
        "rss" => match one_of("rss", &["table", "key", "function"], name)? {
            "table" => Ok(Item::RssTable),
            "key" => Ok(Item::RssKey),
            _ => Ok(Item::RssFunction),
        },
        "hash" => one_of("hash", &FLOWS, name).map(Item::Hash),
        "irq" => queue("rx-", "eth0:irq/rx-0").map(Item::QueueIrq),
        "rps" => queue("rx-", "eth0:rps/rx-0").map(Item::Rps),
        "rfs" => queue("rx-", "eth0:rfs/rx-0").map(Item::Rfs),
        "xps" => queue("tx-", "eth0:xps/tx-0").map(Item::Xps),
        "xps-rxqs" => queue("tx-", "eth0:xps-rxqs/tx-0").map(Item::XpsRxqs),
        "napi" => match one_of("napi", &["threaded", "defer-hard-irqs", "gro-flush-timeout"], name)? {
            "threaded" => Ok(Item::Threaded),
            "defer-hard-irqs" => Ok(Item::DeferHardIrqs),
            _ => Ok(Item::GroFlushTimeout),
        },
        _ => Err(unknown()),
    }
}

fn one_of(kind: &'static str, known: &[&'static str], name: &str) -> Result<&'static str, WrongName> {
    let found = known.iter().find(|known| **known == name);
    found.copied().ok_or_else(|| WrongName::Kind { kind, name: name.to_owned(), known: known.join(", ") })
}

/// What names of features are made of.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// A number in digits alone: `str::parse` would take a sign.
fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Interface(interface, item) => format!("{interface}:{item}"),
            Self::Irq(irq) => format!("irq:{irq}:affinity"),
            // Dots, unless a part of the name has one of its own.
            Self::Sysctl(path) if path.contains('.') => format!("sysctl:{path}"),
            Self::Sysctl(path) => format!("sysctl:{}", path.replace('/', ".")),
            Self::Thread { pid, tid } => format!("thread:{pid}/{tid}:affinity"),
            Self::Socket { pid, inode, setting: setting @ SocketSetting::Selection } => {
                format!("group:{pid}/{inode}:{}", setting.name())
            }
            Self::Socket { pid, inode, setting } => format!("socket:{pid}/{inode}:{}", setting.name()),
            Self::IrqbalanceBan => "irqbalance:ban".to_owned(),
            Self::File(path) => format!("file:{path}"),
        };
        // Through pad, so that a table can set the width.
        f.pad(&text)
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channels(kind) => write!(f, "channels/{kind}"),
            Self::Ring(ring) => write!(f, "ring/{ring}"),
            Self::Coalesce(name) => write!(f, "coalesce/{name}"),
            Self::Feature(name) => write!(f, "feature/{name}"),
            Self::RssTable => f.write_str("rss/table"),
            Self::RssKey => f.write_str("rss/key"),
            Self::RssFunction => f.write_str("rss/function"),
            Self::Hash(flow) => write!(f, "hash/{flow}"),
            Self::QueueIrq(queue) => write!(f, "irq/rx-{queue}"),
            Self::Rps(queue) => write!(f, "rps/rx-{queue}"),
            Self::Rfs(queue) => write!(f, "rfs/rx-{queue}"),
            Self::Xps(queue) => write!(f, "xps/tx-{queue}"),
            Self::XpsRxqs(queue) => write!(f, "xps-rxqs/tx-{queue}"),
            Self::Threaded => f.write_str("napi/threaded"),
            Self::DeferHardIrqs => f.write_str("napi/defer-hard-irqs"),
            Self::GroFlushTimeout => f.write_str("napi/gro-flush-timeout"),
            Self::Qdisc => f.write_str("qdisc"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were_written() {
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
        ] {
            let setting: Setting = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(setting.to_string(), name);
        }
        assert_eq!("e:feature/gro".parse::<Setting>().unwrap().to_string(), "e:feature/rx-gro");
        // Interfaces whose names are also words here, or begin with another's name.
        assert_eq!("eth1:qdisc".parse::<Setting>().unwrap().interface(), Some("eth1"));
        assert_eq!("eth10:qdisc".parse::<Setting>().unwrap().interface(), Some("eth10"));
    }

    #[test]
    fn what_is_no_name_says_what_would_be() {
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
            ("socket:812/0:busy-poll", "names no socket"),
            ("socket:812/4026:send-buffer", "receive-buffer, busy-poll,"),
            ("port:53:busy-poll", "sockets and threads"),
            ("sysctl:net/../../etc/passwd", "names no sysctl"),
            ("sysctl:net", "names no sysctl"),
            ("sysctl:", "names no sysctl"),
            ("file:/etc/passwd", "has no setting"),
        ] {
            let error = name.parse::<Setting>().unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
    }
}
