//! The kernel's mitigations of CPU vulnerabilities, and which of them cost time per datagram.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{optional, words};
use crate::{Missing, Source};

/// The kernel's mitigation of one CPU vulnerability.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Mitigation {
    /// The vulnerability, as the kernel names it: `spectre_v2`, `meltdown`, ...
    pub flaw: String,
    /// Its status.
    pub state: MitigationState,
    /// The kernel's text.
    pub words: String,
    /// The cost per datagram, if significant.
    pub cost: Option<String>,
}

/// Status of a vulnerability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MitigationState {
    /// The processor is not affected.
    NotAffected,
    /// The kernel mitigates it.
    Mitigated,
    /// The processor is affected, and the mitigation is missing or incomplete.
    Vulnerable,
    /// The kernel cannot determine it, as under a hypervisor.
    Unknown,
}

const FOLDER: &str = "/sys/devices/system/cpu/vulnerabilities";

/// Words in a vulnerability's file, and their cost for a program that sends and receives. Sources: the kernel's
/// Documentation/admin-guide/hw-vuln and arch/x86/kernel/cpu/bugs.c. Those not listed cost nothing per packet.
const COSTS: [(&str, &str, &str); 11] = [
    ("meltdown", "PTI", "page tables are switched at every system call and interrupt"),
    ("spectre_v2", "Retpoline", "every indirect call in the kernel takes a detour"),
    (
        "spectre_v2",
        "IBRS",
        "indirect calls in the kernel are not predicted from user space; on older processors a register is written at every system call",
    ),
    ("retbleed", "untrained return thunk", "every return in the kernel goes through a thunk"),
    ("retbleed", "IBRS", "a register is written at every system call and interrupt"),
    ("retbleed", "Stuffing", "calls are counted and the return predictor is refilled"),
    ("spec_rstack_overflow", "Safe RET", "every return in the kernel goes through a thunk"),
    ("spec_rstack_overflow", "IBPB", "the branch predictor is emptied at every system call and interrupt"),
    ("mds", "Clear CPU buffers", "buffers are emptied at every return to user space"),
    ("mmio_stale_data", "Clear CPU buffers", "buffers are emptied at every return to user space"),
    ("tsa", "Clear CPU buffers", "buffers are emptied at every return to user space"),
];

pub(super) fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Vec<Mitigation> {
    let flaws = source.names(FOLDER).unwrap_or_default();
    let mut one = |flaw: &String| {
        let what = format!("what is done about {flaw}");
        let words = optional(source, missing, &what, &format!("{FOLDER}/{flaw}"), words)?;
        Some(mitigation(flaw, words))
    };
    flaws.iter().filter_map(&mut one).collect()
}

/// Parses the text of one file.
fn mitigation(flaw: &str, words: String) -> Mitigation {
    // KVM's line describes guests first: "KVM: Mitigation: Split huge pages".
    let own = words.strip_prefix("KVM: ").unwrap_or(&words);
    let state = match own {
        _ if own.starts_with("Not affected") => MitigationState::NotAffected,
        _ if own.starts_with("Mitigation") => MitigationState::Mitigated,
        _ if own.starts_with("Vulnerable") || own.starts_with("Processor vulnerable") => {
            MitigationState::Vulnerable
        }
        _ => MitigationState::Unknown,
    };
    // "Vulnerable: Safe RET, no microcode" has the cost as well.
    let paid = |word: &str| state != MitigationState::NotAffected && words.contains(word);
    let cost = COSTS.iter().find(|(of, word, _)| *of == flaw && paid(word));
    Mitigation { flaw: flaw.to_owned(), state, cost: cost.map(|(_, _, cost)| (*cost).to_owned()), words }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words() {
        let of = |flaw: &str, words: &str| mitigation(flaw, words.into());
        // An EPYC under a hypervisor, 6.18.
        let srso = of("spec_rstack_overflow", "Vulnerable: Safe RET, no microcode");
        assert_eq!(srso.state, MitigationState::Vulnerable);
        assert_eq!(srso.cost.as_deref(), Some("every return in the kernel goes through a thunk"));
        let v2 = of(
            "spectre_v2",
            "Mitigation: Retpolines; STIBP: disabled; RSB filling; PBRSB-eIBRS: Not affected",
        );
        assert_eq!(v2.state, MitigationState::Mitigated);
        assert_eq!(v2.cost.as_deref(), Some("every indirect call in the kernel takes a detour"));
        // A Haswell Xeon, 5.15 and 6.1.
        assert!(of("meltdown", "Mitigation: PTI").cost.is_some());
        assert_eq!(of("itlb_multihit", "KVM: Mitigation: VMX disabled").state, MitigationState::Mitigated);
        assert_eq!(of("l1tf", "Not affected").state, MitigationState::NotAffected);
        assert_eq!(of("srbds", "Unknown: Dependent on hypervisor status").state, MitigationState::Unknown);
        assert_eq!(of("mds", "Not affected").cost, None);
    }
}
