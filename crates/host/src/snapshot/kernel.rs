//! The running kernel and its platform.

use serde::{Deserialize, Serialize};

use crate::Fact;

/// The running kernel and its platform.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// The output of `uname -r`: `6.18.44-amd64`. Empty if unknown.
    pub release: String,
    /// Boot time in seconds since 1970. Equal for two snapshots of one boot.
    pub booted: Option<u64>,
    /// The hypervisor it runs under, if any.
    pub hypervisor: Option<Fact<String>>,
    /// Its clock source. Anything but the processor's own counter (`tsc`, `arch_sys_counter`, `kvm-clock`) makes every
    /// packet timestamp expensive.
    pub clock_source: Option<String>,
    /// Boot parameters that affect packets: isolation, mitigations, audit, idle states, IOMMU. Others are left out:
    /// they may contain secrets.
    pub parameters: Vec<String>,
    /// Security modules in the kernel's order; each is called for every system call on a socket.
    pub security_modules: Vec<String>,
    /// Whether the kernel prepares audit records at system calls.
    pub audit: Option<Fact<Audit>>,
    /// Running programs that request the arrival time of packets. While any socket on the machine does, every packet is
    /// stamped; the kernel does not report whether this is the case.
    pub stamping: Option<Fact<Vec<String>>>,
}

impl Kernel {
    /// Major and minor number of the release; patch levels of distributions are not comparable.
    #[must_use]
    pub fn version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.release.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

/// Status of the audit system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditStatus {
    /// 0: off, 1: on, 2: on and locked until the next boot.
    pub enabled: u32,
    /// The process that receives the records; 0: none.
    pub pid: u32,
    /// Records lost because the receiver was too slow.
    pub lost: u32,
}

/// Whether the kernel prepares audit records at system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Audit {
    /// Disabled for this boot: no task is audited.
    Off,
    /// Enabled: every task started since is audited, if there is a rule.
    On,
    /// Left to a daemon, and one runs: every task started since its first rule is audited.
    Daemon,
    /// Left to a daemon, and none was found.
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
