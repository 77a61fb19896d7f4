//! The running kernel and its platform: release, boot parameters, hypervisor, and what it does for every packet or
//! system call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::processes::Seen;
use crate::source::value;
use crate::text::{field, noted, optional, wanted, words};
use crate::{Fact, Missing, Provenance, Source};

pub use crate::client::audit::AuditStatus;

/// The running kernel and its platform.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
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

/// Whether the kernel prepares audit records at system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
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

/// Boot parameters that affect packets, by name; one that ends in a dot matches every name with that prefix.
const PARAMETERS: [&str; 24] = [
    "audit",
    "clocksource",
    "cpuidle.",
    "idle",
    "intel_idle.",
    "intel_iommu",
    "intel_pstate",
    "amd_iommu",
    "amd_pstate",
    "iommu",
    "iommu.",
    "irqaffinity",
    "isolcpus",
    "lsm",
    "mitigations",
    "nohz",
    "nohz_full",
    "nosmt",
    "processor.",
    "rcu_nocbs",
    "spectre_v2",
    "threadirqs",
    "tsc",
    "uhash_entries",
];

/// Vendors of virtual machines: DMI vendor and product, and the hypervisor's name.
const PLATFORMS: [(&str, &str, &str); 12] = [
    ("Amazon EC2", "metal", ""),
    ("Amazon EC2", "", "Amazon EC2"),
    ("Google", "Google Compute Engine", "Google Compute Engine"),
    ("Microsoft Corporation", "Virtual Machine", "Hyper-V"),
    ("VMware", "", "VMware"),
    ("QEMU", "", "QEMU/KVM"),
    ("Red Hat", "KVM", "KVM"),
    ("oVirt", "", "KVM"),
    ("OpenStack Foundation", "", "KVM (OpenStack)"),
    ("Xen", "", "Xen"),
    ("innotek GmbH", "", "VirtualBox"),
    ("Parallels", "", "Parallels"),
];

/// Reads the kernel's part of the snapshot.
pub fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Kernel {
    let release = wanted(source, missing, "kernel release", "/proc/sys/kernel/osrelease", words);
    let booted = wanted(source, missing, "time of boot", "/proc/stat", |text| Ok(boot_time(text)));
    let line = wanted(source, missing, "boot parameters", "/proc/cmdline", words).unwrap_or_default();
    let parameters = parameters(&line);
    let path = "/sys/kernel/security/lsm";
    let modules = optional(source, missing, "security modules", path, words).unwrap_or_default();
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    // Audit and stamping may depend on running processes: see the module machine.
    Kernel {
        release: release.unwrap_or_default(),
        booted: booted.flatten(),
        hypervisor: hypervisor(source, missing),
        clock_source: optional(source, missing, "clock source", path, words),
        audit: audit(&parameters),
        stamping: None,
        parameters,
        security_modules: modules.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
    }
}

/// `btime` of `/proc/stat`, seconds since 1970.
#[must_use]
pub fn boot_time(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

/// The parameters of a boot command line that affect packets.
#[must_use]
pub fn parameters(line: &str) -> Vec<String> {
    // The rest is for init.
    let words = line.split_ascii_whitespace().take_while(|word| *word != "--");
    let bears = |name: &str| {
        // The kernel treats dashes and underscores as equal.
        let name = name.replace('-', "_");
        PARAMETERS.iter().any(|known| name == *known || known.ends_with('.') && name.starts_with(known))
    };
    words.filter(|word| bears(word.split('=').next().unwrap_or(word))).map(str::to_owned).collect()
}

/// The audit setting from the boot parameters; [`None`] if they leave it open.
fn audit(parameters: &[String]) -> Option<Fact<Audit>> {
    let asked = parameters.iter().rev().find_map(|word| word.strip_prefix("audit="))?;
    let state = match asked {
        "0" | "off" => Audit::Off,
        "1" | "on" => Audit::On,
        _ => return None,
    };
    Some(Fact::new(state, Provenance::File("/proc/cmdline".into())))
}

/// By platform name, else by the processor's flag.
fn hypervisor(source: &dyn Source, missing: &mut Vec<Missing>) -> Option<Fact<String>> {
    if let Ok(kind) = value(source, "/sys/hypervisor/type") {
        return Some(Fact::new(kind, Provenance::File("/sys/hypervisor/type".into())));
    }
    let vendor = value(source, "/sys/class/dmi/id/sys_vendor").unwrap_or_default();
    let product = value(source, "/sys/class/dmi/id/product_name").unwrap_or_default();
    if let Some(name) = platform(&vendor, &product) {
        let from = Provenance::File("/sys/class/dmi/id/sys_vendor".into());
        return (!name.is_empty()).then(|| Fact::new(name.into(), from));
    }
    let path = "/proc/cpuinfo";
    let text = noted(missing, "processor", path, source.text(path))?;
    let flags = field(&text, "flags").unwrap_or_default();
    let flagged = flags.split_ascii_whitespace().any(|flag| flag == "hypervisor");
    flagged.then(|| Fact::new("unknown".into(), Provenance::File(path.into())))
}

/// The part of a vendor's or product's name that identifies a known platform; `None` for any other.
pub fn known_platform(text: &str) -> Option<&'static str> {
    let names = PLATFORMS.iter().flat_map(|(vendor, product, _)| [*vendor, *product]);
    names.filter(|name| !name.is_empty()).find(|name| text.contains(name))
}

/// The hypervisor of a platform; empty for one that is known to have none.
fn platform(vendor: &str, product: &str) -> Option<&'static str> {
    let named = PLATFORMS.iter().find(|(of, part, _)| vendor.starts_with(of) && product.contains(part));
    named.map(|(_, _, name)| *name)
}

/// If the boot parameters do not decide it, the audit state is what the kernel reports, else what its daemon is
/// expected to have enabled.
pub(crate) fn audit_now(source: &dyn Source, seen: &[Seen]) -> Fact<Audit> {
    if let Ok(Fact { value: status, from }) = source.audit_status() {
        let state = match (status.enabled, status.pid) {
            (0, _) => Audit::Unused,
            (_, 0) => Audit::On,
            _ => Audit::Daemon,
        };
        return Fact::new(state, from);
    }
    let runs = seen.iter().any(|process| process.name == "auditd");
    let from = Provenance::Derived("whether auditd runs".into());
    Fact::new(if runs { Audit::Daemon } else { Audit::Unused }, from)
}

/// Programs that set `SO_TIMESTAMP` or `SO_TIMESTAMPING` on their sockets: network time clients and servers.
const STAMPING: [&str; 8] =
    ["chronyd", "ntpd", "ntp-daemon", "openntpd", "ptp4l", "sfptpd", "systemd-timesyn", "timemaster"];

/// Whether a process of this name matters even without a UDP socket.
pub fn is_telling(name: &str) -> bool {
    name == "auditd" || STAMPING.contains(&name)
}

/// The running programs that request the arrival time of packets.
pub(crate) fn stamping(seen: &[Seen]) -> Fact<Vec<String>> {
    let names = seen.iter().map(|process| process.name.as_str()).filter(|name| STAMPING.contains(name));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.dedup();
    Fact::new(names, Provenance::Derived("running programs known to request it".into()))
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

    #[test]
    fn parameters_that_do_not_affect_packets_are_left_out() {
        let line = "BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet isolcpus=managed_irq,2-9 nohz-full=2-9 \
                    intel_idle.max_cstate=1 password=x mitigations=off audit=0 -- audit=1\n";
        assert_eq!(
            parameters(line),
            [
                "isolcpus=managed_irq,2-9",
                "nohz-full=2-9",
                "intel_idle.max_cstate=1",
                "mitigations=off",
                "audit=0"
            ]
        );
    }

    #[test]
    fn the_last_audit_parameter_applies() {
        let of = |line: &str| audit(&parameters(line)).map(|fact| fact.value);
        assert_eq!(of("audit=1 audit=0"), Some(Audit::Off));
        assert_eq!(of("audit=on"), Some(Audit::On));
        assert_eq!(of("quiet"), None);
    }

    #[test]
    fn platforms_by_name() {
        assert_eq!(platform("Amazon EC2", "c5n.metal"), Some(""));
        assert_eq!(platform("Amazon EC2", "c7g.xlarge"), Some("Amazon EC2"));
        assert_eq!(platform("Microsoft Corporation", "Virtual Machine"), Some("Hyper-V"));
        assert_eq!(platform("Microsoft Corporation", "Surface"), None);
        assert_eq!(platform("Dell Inc.", "PowerEdge R630"), None);
        assert_eq!(platform("Google", "Google Compute Engine"), Some("Google Compute Engine"));
    }

    #[test]
    fn the_time_of_boot() {
        // This machine's, 6.18.
        assert_eq!(
            boot_time("cpu  1 2\nctxt 73197893\nbtime 1795251165\nprocesses 6\n"),
            Some(1_795_251_165)
        );
        assert_eq!(boot_time("cpu 1\n"), None);
    }

    #[test]
    fn clocks_stamp_packets() {
        let seen = |name: &str| Seen { pid: 1, name: name.into(), executable: None };
        let found = stamping(&[seen("sshd"), seen("chronyd"), seen("chronyd"), seen("systemd-timesyn")]);
        assert_eq!(found.value, ["chronyd", "systemd-timesyn"]);
    }
}
