//! Where CPU time goes while a load runs, in the classes of the published breakdowns.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use error_reporter::Report;
use udpath_host::Snapshot;
use udpath_host::source::Folder;
use udpath_profile::Profile;
use udpath_profile::classes::Class;
use udpath_profile::recorder::Wanted;
use udpath_profile::trace::Source;

/// Samples per second and CPU: a prime, as that of `udpath profile`, which takes a fifth of it. Lower: a class of a few
/// per cent has a handful of samples in the seconds that a case gets. Higher: sampling affects what it measures, by up
/// to 3 % at this rate.
const RATE: u32 = 997;

/// Samples every CPU for this long, with these tracepoints.
///
/// # Errors
/// The reason why there is no profile, as a sentence.
pub(crate) fn sample(length: Duration, traced: &[Source], stop: &AtomicBool) -> Result<Profile, String> {
    let source = Folder::live();
    let before = Snapshot::read(&source);
    let wanted = Wanted { cpus: before.cpus.online.clone(), pid: None, length, rate: RATE };
    let traced = traced.iter().copied().collect();
    udpath_profile::measure(&wanted, &traced, &source, before, stop, |_| ())
        .map_err(|error| Report::new(error).to_string())
}

/// The eight classes of "Understanding Host Network Stack Overheads" (SIGCOMM 2021); `udpath profile` has more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// Payload between kernel and programs.
    Copy,
    /// TCP, UDP, IP and sockets, packet filters included.
    Protocols,
    /// Device, NAPI, GRO, queueing disciplines, steering.
    Device,
    /// Packet buffers.
    Skb,
    /// Pages and slabs.
    Memory,
    /// Taking and waiting for locks.
    Locks,
    /// Wake-ups, sleeping, entering the kernel.
    Scheduling,
    /// Programs' own work, timers, interrupts, and what has no class.
    Other,
}

impl Group {
    /// All of them, in the document's order.
    pub(crate) const ALL: [Self; 8] = [
        Self::Copy,
        Self::Protocols,
        Self::Device,
        Self::Skb,
        Self::Memory,
        Self::Locks,
        Self::Scheduling,
        Self::Other,
    ];

    /// Its name in tables.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Copy => "data copy",
            Self::Protocols => "TCP/IP, UDP/IP",
            Self::Device => "netdevice",
            Self::Skb => "skb",
            Self::Memory => "memory",
            Self::Locks => "locks",
            Self::Scheduling => "scheduling",
            Self::Other => "other",
        }
    }

    /// The group of a class.
    #[must_use]
    pub(crate) const fn of(class: Class) -> Self {
        match class {
            Class::Copy => Self::Copy,
            Class::Ip
            | Class::Netfilter
            | Class::Tcp
            | Class::UdpReceive
            | Class::SocketLookup
            | Class::SocketEnqueue
            | Class::SocketRead
            | Class::UdpSend
            | Class::Routing
            | Class::Encryption
            | Class::Security => Self::Protocols,
            Class::NicDriver
            | Class::NapiGro
            | Class::XdpBpf
            | Class::PacketSockets
            | Class::RpsBacklog
            | Class::Qdisc
            | Class::Transmit => Self::Device,
            Class::Skb => Self::Skb,
            Class::Memory => Self::Memory,
            Class::Lock => Self::Locks,
            Class::Scheduling | Class::Syscall | Class::Mitigations => Self::Scheduling,
            Class::Timers
            | Class::Interrupt
            | Class::Cgroup
            | Class::Tracing
            | Class::Files
            | Class::User
            | Class::Idle
            | Class::Unclassified => Self::Other,
        }
    }
}

/// CPU time by group, nanoseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spent(BTreeMap<Group, u64>);

impl Spent {
    /// Of some processes: user and system calls, with the softirqs that run inside those.
    #[must_use]
    pub(crate) fn of_processes(profile: &Profile, is: impl Fn(u32) -> bool) -> Self {
        Self::of_stacks(profile, |pid| pid.is_some_and(&is))
    }

    /// The same, and what interrupts and softirqs did meanwhile, which belongs to no process.
    #[must_use]
    pub(crate) fn with_interrupts(profile: &Profile, is: impl Fn(u32) -> bool) -> Self {
        Self::of_stacks(profile, |pid| pid.is_none_or(&is))
    }

    fn of_stacks(profile: &Profile, counts: impl Fn(Option<u32>) -> bool) -> Self {
        let stacks = profile.stacks.iter().filter(|stack| stack.class != Class::Idle && counts(stack.pid));
        Self::sum(stacks.map(|stack| (stack.class, stack.ns)))
    }

    fn sum(parts: impl Iterator<Item = (Class, u64)>) -> Self {
        let mut spent = Self::default();
        for (class, ns) in parts {
            *spent.0.entry(Group::of(class)).or_default() += ns;
        }
        spent
    }

    /// All of it.
    #[must_use]
    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Of one group.
    #[must_use]
    pub(crate) fn ns(&self, group: Group) -> u64 {
        self.0.get(&group).copied().unwrap_or(0)
    }

    /// A group's share, 0..=1.
    #[must_use]
    pub(crate) fn share(&self, group: Group) -> f64 {
        self.ns(group) as f64 / self.total().max(1) as f64
    }

    /// Cells of a table: each group's share.
    #[must_use]
    pub(crate) fn cells(&self) -> Vec<String> {
        Group::ALL.iter().map(|group| format!("{:.1} %", self.share(*group) * 100.0)).collect()
    }

    /// The two largest groups in words: `data copy 41 %, netdevice 22 %`.
    #[must_use]
    pub(crate) fn largest(&self) -> Option<String> {
        let mut groups: Vec<_> = Group::ALL.iter().filter(|group| self.ns(**group) > 0).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(self.ns(**group)));
        let words: Vec<_> = groups
            .iter()
            .take(2)
            .map(|group| format!("{} {:.0} %", group.name(), self.share(**group) * 100.0))
            .collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_groups_add_up() {
        let spent = Spent::sum(
            [(Class::Copy, 300), (Class::Tcp, 200), (Class::Ip, 100), (Class::Lock, 400)].into_iter(),
        );
        assert_eq!(spent.total(), 1000);
        assert_eq!(spent.ns(Group::Protocols), 300);
        assert!((Group::ALL.iter().map(|group| spent.share(*group)).sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(spent.largest().as_deref(), Some("locks 40 %, data copy 30 %"));
        assert_eq!(spent.cells().len(), Group::ALL.len());
        assert_eq!(Spent::default().largest(), None);
    }
}
