//! The kernel that runs, and on what.

use serde::{Deserialize, Serialize};

use crate::Fact;

/// The kernel that runs, and on what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// As `uname -r` says it: `6.18.44-amd64`. Empty when it is not known.
    pub release: String,
    /// When it was booted, seconds since 1970. Two snapshots of one boot have the same.
    pub booted: Option<u64>,
    /// The hypervisor it runs under, where there is one.
    pub hypervisor: Option<Fact<String>>,
    /// Its clock. Anything but the processor's own counter (`tsc`, `arch_sys_counter`, `kvm-clock`) makes every time
    /// stamp of a packet dear.
    pub clock_source: Option<String>,
    /// Boot parameters that bear on packets: isolation, mitigations, audit, idle states, IOMMU. Others are left out:
    /// they may hold secrets.
    pub parameters: Vec<String>,
    /// Security modules in the order in which the kernel asks them; each is asked at every system call on a socket.
    pub security_modules: Vec<String>,
    /// Whether the kernel prepares audit records at system calls.
    pub audit: Option<Fact<Audit>>,
    /// Programs that run and ask for the time at which packets arrive. As long as one socket of the machine does, every
    /// packet is stamped; the kernel does not tell whether it is so.
    pub stamping: Option<Fact<Vec<String>>>,
}

impl Kernel {
    /// Major and minor number of the release; patch levels of distributions do not compare.
    #[must_use]
    pub fn version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.release.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

/// What the audit system says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditStatus {
    /// 0: off, 1: on, 2: on and locked until the next boot.
    pub enabled: u32,
    /// The process that takes the records; 0: none.
    pub pid: u32,
    /// Records lost because it was too slow.
    pub lost: u32,
}

/// Whether the kernel prepares audit records at system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Audit {
    /// Switched off for this boot: no task is audited.
    Off,
    /// Switched on: every task that was started since is audited, if there is a rule.
    On,
    /// Left to a daemon, and one runs: every task that was started since its first rule is audited.
    Daemon,
    /// Left to a daemon, and none was seen.
    Unused,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_two_numbers() {
        let version = |release: &str| Kernel { release: release.into(), ..Kernel::default() }.version();
        assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version("3.10.0-1160.el7.x86_64"), Some((3, 10)));
        assert_eq!(version("6.1"), Some((6, 1)));
        assert_eq!(version("six"), None);
        assert!(version("5.10.0") > version("5.9.12"));
    }
}
