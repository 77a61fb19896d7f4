//! Reads [`Kernel`].

use super::text::{field, noted, optional, wanted, words};
use crate::snapshot::kernel::{Audit, Kernel};
use crate::source::value;
use crate::{Fact, Missing, Provenance, Source};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
