//! What is known of a setting beside its value: when it is written, what the writing costs, whom it reaches, who else
//! writes it, and whether it lowers security.

use serde::{Deserialize, Serialize};

use super::{Item, Setting, Value};
use udpath_host::process::SocketSetting;

/// The order of work: what makes queues and IRQs appear comes before what is said of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// How many channels: queues and IRQs come and go.
    Channels,
    /// Rings, moderation, offloads: many drivers set the card up anew.
    Device,
    /// Who else writes what comes next.
    Conflicts,
    /// Which CPUs take the IRQs.
    Irqs,
    /// Which queue the card chooses.
    Rss,
    /// Which CPU, and which transmit queue, the kernel chooses.
    Steering,
    /// NAPI, qdiscs, sysctls.
    Kernel,
    /// What a server's sockets are set to.
    Sockets,
    /// Which CPUs threads run on.
    Threads,
    /// What keeps it over a boot.
    Files,
}

/// What the writing itself costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cost {
    /// Nothing that traffic notices.
    None,
    /// Flows move to another queue or CPU: packets of one may overtake each other once.
    MovesFlows,
    /// What waits to be sent is dropped.
    DropsQueued,
    /// Most drivers stop the interface and start it again: the link may be away for seconds, and settings that the
    /// driver keeps in its queues are lost.
    ResetsLink,
}

/// Whom it reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole machine.
    Host,
    /// This network namespace.
    Namespace,
    /// One process.
    Process,
}

impl Cost {
    /// In words; nothing when there is none.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "",
            Self::MovesFlows => "moves flows",
            Self::DropsQueued => "drops what waits to be sent",
            Self::ResetsLink => "may reset the link",
        }
    }
}

/// Sysctls below net/ipv4 that are the machine's, whatever the namespace.
const MACHINE_WIDE: [&str; 3] = ["net/ipv4/udp_mem", "net/ipv4/tcp_mem", "net/ipv4/inet_peer_threshold"];

impl Setting {
    /// When it is written.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self {
            Self::Interface(_, item) => match item {
                Item::Channels(_) => Phase::Channels,
                Item::Ring(_) | Item::Coalesce(_) | Item::Feature(_) => Phase::Device,
                Item::QueueIrq(_) => Phase::Irqs,
                Item::RssTable | Item::RssKey | Item::RssFunction | Item::Hash(_) => Phase::Rss,
                Item::Rps(_) | Item::Rfs(_) | Item::Xps(_) | Item::XpsRxqs(_) => Phase::Steering,
                Item::Threaded | Item::DeferHardIrqs | Item::GroFlushTimeout | Item::Qdisc => Phase::Kernel,
            },
            Self::Irq(_) => Phase::Irqs,
            Self::IrqbalanceBan => Phase::Conflicts,
            Self::Sysctl(_) => Phase::Kernel,
            Self::Socket { .. } => Phase::Sockets,
            Self::Thread { .. } => Phase::Threads,
            Self::File(_) => Phase::Files,
        }
    }

    /// What writing it costs.
    #[must_use]
    pub fn cost(&self) -> Cost {
        match self {
            Self::Interface(_, item) => match item {
                Item::Channels(_) | Item::Ring(_) | Item::Feature(_) => Cost::ResetsLink,
                Item::RssTable | Item::RssKey | Item::RssFunction | Item::Hash(_) => Cost::MovesFlows,
                Item::QueueIrq(_) | Item::Rps(_) | Item::Rfs(_) | Item::Xps(_) | Item::XpsRxqs(_) => {
                    Cost::MovesFlows
                }
                Item::Qdisc => Cost::DropsQueued,
                Item::Coalesce(_) | Item::Threaded | Item::DeferHardIrqs | Item::GroFlushTimeout => {
                    Cost::None
                }
            },
            Self::Irq(_) => Cost::MovesFlows,
            Self::Socket { setting: SocketSetting::IncomingCpu | SocketSetting::Selection, .. } => {
                Cost::MovesFlows
            }
            Self::Sysctl(_)
            | Self::Socket { .. }
            | Self::Thread { .. }
            | Self::IrqbalanceBan
            | Self::File(_) => Cost::None,
        }
    }

    /// Whom it reaches.
    #[must_use]
    pub fn scope(&self) -> Scope {
        match self {
            Self::Interface(_, Item::QueueIrq(_)) | Self::Irq(_) | Self::IrqbalanceBan | Self::File(_) => {
                Scope::Host
            }
            Self::Interface(..) => Scope::Namespace,
            Self::Sysctl(path) if MACHINE_WIDE.contains(&path.as_str()) => Scope::Host,
            Self::Sysctl(path) if path.starts_with("net/ipv4/") || path.starts_with("net/ipv6/") => {
                Scope::Namespace
            }
            Self::Sysctl(_) => Scope::Host,
            Self::Socket { .. } | Self::Thread { .. } => Scope::Process,
        }
    }

    /// Who else writes it, by the names of [`crate::conflicts`].
    #[must_use]
    pub fn conflicts(&self) -> &'static [&'static str] {
        match self {
            Self::Irq(_) => &["irqbalance", "tuned", "a reload of the driver"],
            Self::Interface(_, item) => match item {
                Item::QueueIrq(_) => &["irqbalance", "tuned", "a reload of the driver"],
                Item::Channels(_) | Item::Ring(_) | Item::Coalesce(_) | Item::Feature(_) => {
                    &["tuned", "NetworkManager", "systemd-networkd", "a reload of the driver"]
                }
                Item::Rps(_) | Item::Rfs(_) | Item::Xps(_) | Item::XpsRxqs(_) => {
                    &["udev", "cloud agents", "a reload of the driver", "a change of channels"]
                }
                Item::RssTable | Item::RssKey | Item::RssFunction | Item::Hash(_) => {
                    &["cloud agents", "a reload of the driver", "a change of channels"]
                }
                Item::Qdisc => &["NetworkManager", "systemd-networkd", "a reload of the driver"],
                Item::Threaded | Item::DeferHardIrqs | Item::GroFlushTimeout => {
                    &["udev", "a reload of the driver"]
                }
            },
            Self::Sysctl(_) => &["tuned", "systemd-sysctl", "bpftune"],
            Self::Thread { .. } => &["a restart of the process", "its own sched_setaffinity", "its cpuset"],
            Self::Socket { .. } => &["the server itself (setsockopt)"],
            Self::IrqbalanceBan => &["a restart of irqbalance"],
            Self::File(_) => &[],
        }
    }

    /// Why going from `from` to `to` lowers security; such a change is made only when it is allowed by name.
    #[must_use]
    pub fn lowers_security(&self, from: Option<&Value>, to: &Value) -> Option<&'static str> {
        let Self::Sysctl(path) = self else { return None };
        let number = |value: Option<&Value>| match value {
            Some(Value::Words(text)) => text.parse::<i64>().ok(),
            _ => None,
        };
        let (from, to) = (number(from), number(Some(to))?);
        let lower = from.is_none_or(|from| to < from);
        let higher = from.is_none_or(|from| to > from);
        let last = path.rsplit('/').next().unwrap_or(path);
        match (path.as_str(), last) {
            (path, "rp_filter") if path.starts_with("net/ipv4/conf/") && to == 0 && from != Some(0) => {
                Some("packets with forged source addresses are no longer told from others")
            }
            (path, "accept_local") if path.starts_with("net/ipv4/conf/") && higher => {
                Some("packets that claim to come from this machine itself are taken")
            }
            (_, "accept_source_route" | "accept_redirects") if higher => {
                Some("others may choose the way that packets take")
            }
            (_, "route_localnet") if higher => Some("addresses of 127.0.0.0/8 become reachable from outside"),
            ("net/ipv4/tcp_syncookies", _) if lower => Some("a flood of SYNs is no longer held off"),
            ("net/core/bpf_jit_harden" | "kernel/unprivileged_bpf_disabled" | "kernel/kptr_restrict", _)
            | ("kernel/perf_event_paranoid" | "kernel/yama/ptrace_scope" | "kernel/randomize_va_space", _)
                if lower =>
            {
                Some("a guard against local attacks is weakened")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_come_first_and_files_last() {
        let names = [
            "sysctl:net.core.rmem_max",
            "eth0:rps/rx-0",
            "eth0:rss/table",
            "eth0:irq/rx-0",
            "eth0:channels/rx",
        ];
        let mut settings: Vec<Setting> = names.iter().map(|name| name.parse().unwrap()).collect();
        settings.sort_by_key(Setting::phase);
        let sorted: Vec<String> = settings.iter().map(Setting::to_string).collect();
        assert_eq!(sorted, names.iter().rev().map(ToString::to_string).collect::<Vec<_>>());
    }

    #[test]
    fn what_lowers_security_is_known() {
        let words = |text: &str| Value::Words(text.into());
        let lowers = |name: &str, from: &str, to: &str| {
            name.parse::<Setting>().unwrap().lowers_security(Some(&words(from)), &words(to)).is_some()
        };
        assert!(lowers("sysctl:net.ipv4.conf.all.rp_filter", "1", "0"));
        assert!(!lowers("sysctl:net.ipv4.conf.all.rp_filter", "0", "1"));
        assert!(!lowers("sysctl:net.ipv4.conf.all.rp_filter", "0", "0"));
        assert!(lowers("sysctl:net/ipv4/conf/eth0.1/accept_local", "0", "1"));
        assert!(lowers("sysctl:kernel.kptr_restrict", "2", "1"));
        assert!(!lowers("sysctl:net.core.rmem_max", "1", "0"));
    }
}
