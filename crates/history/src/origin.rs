//! The machine as an origin of results: its identity, and the settings that affect UDP.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use udpath_host::interfaces::Interface;
use udpath_host::source::value;
use udpath_host::{Source, cpus, interfaces, irqs, kernel, sysctls};
use udpath_load::origin::Origin;

/// What the hash of the machine's id is for: machine-id(5) asks programs not to pass the id itself on.
const PURPOSE: &[u8] = b"udpath: origin of results";
/// Settings of interfaces and not of traffic: labs make up new names, and none of these affects a rate.
const OF_INTERFACES: &str = "net.ipv4.conf.";

/// This machine, now: `at` in seconds since 1970. What cannot be read is left out.
#[must_use]
pub fn origin(source: &dyn Source, at: u64) -> Origin {
    let missing = &mut Vec::new();
    let kernel = kernel::read(source, missing);
    let nodes = cpus::nodes(source, missing);
    let cpus = cpus::read(source, &nodes, missing);
    let mut settings = BTreeMap::new();
    let mut set = |name: String, value: String| {
        if !value.is_empty() {
            settings.insert(name, value);
        }
    };
    for sysctl in sysctls::read(source, missing) {
        if !sysctl.name.starts_with(OF_INTERFACES) {
            set(sysctl.name, sysctl.value);
        }
    }
    set("boot parameters".into(), kernel.parameters.join(" "));
    set("clock source".into(), kernel.clock_source.unwrap_or_default());
    set("isolated CPUs".into(), cpus.isolated.to_string());
    set("SMT".into(), cpus.smt.map(|smt| smt.control).unwrap_or_default());
    for policy in &cpus.frequencies {
        set(format!("governor of CPUs {}", policy.cpus), policy.governor.clone().unwrap_or_default());
    }
    for policy in &cpus.idle {
        let off = policy.states.iter().filter(|state| state.disabled).map(|state| state.name.as_str());
        set(format!("disabled idle states of CPUs {}", policy.cpus), off.collect::<Vec<_>>().join(" "));
    }
    for mitigation in cpus.mitigations {
        set(format!("mitigation of {}", mitigation.flaw), mitigation.words);
    }
    let interrupts = irqs::read(source, missing);
    for interface in interfaces::read(source, &interrupts.irqs, missing) {
        // Of a veth, the settings are those of a lab or a container, which comes and goes.
        if interface.kind == "device" {
            of_device(&interface, &mut set);
        }
    }
    Origin {
        at,
        version: env!("CARGO_PKG_VERSION").into(),
        machine: value(source, "/etc/machine-id").map(|id| hashed(&id)).unwrap_or_default(),
        cpu_model: cpus.model.unwrap_or_default(),
        cpus: u32::try_from(cpus.online.len()).unwrap_or(u32::MAX),
        kernel: kernel.release,
        settings,
    }
}

fn of_device(interface: &Interface, set: &mut impl FnMut(String, String)) {
    let name = |what: &str| format!("{}: {what}", interface.name);
    let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    set(name("MTU"), interface.mtu.to_string());
    if let Some(driver) = &interface.driver {
        set(name("driver"), format!("{} {}", driver.value.name, driver.value.version).trim().to_owned());
    }
    if let Some(channels) = &interface.channels {
        let now = &channels.value.now;
        for (what, count) in [("rx", now.rx), ("tx", now.tx), ("combined", now.combined)] {
            set(name(&format!("{what} channels")), number(count));
        }
    }
    if let Some(rings) = &interface.rings {
        set(name("rx ring"), number(rings.value.rx));
        set(name("tx ring"), number(rings.value.tx));
    }
    for queue in &interface.rx {
        let cpus = queue.rps_cpus.as_ref().map(ToString::to_string);
        set(name(&format!("RPS of rx-{}", queue.id)), cpus.unwrap_or_default());
    }
    for queue in &interface.tx {
        let cpus = queue.xps_cpus.as_ref().map(ToString::to_string);
        set(name(&format!("XPS of tx-{}", queue.id)), cpus.unwrap_or_default());
    }
}

/// A machine's id as 16 hexadecimal digits that do not give it away; empty for an empty id.
fn hashed(id: &str) -> String {
    let id = id.trim();
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(id.as_bytes()) else { return String::new() };
    if id.is_empty() {
        return String::new();
    }
    mac.update(PURPOSE);
    mac.finalize().into_bytes().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use udpath_host::source::Folder;

    use super::*;

    #[test]
    fn an_id_is_hashed_and_the_same_each_time() {
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(hashed(id), hashed(&format!("{id}\n")));
        assert_eq!(hashed(id).len(), 16);
        assert!(!id.contains(&hashed(id)));
        assert_ne!(hashed(id), hashed("1123456789abcdef0123456789abcdef"));
        assert_eq!(hashed("\n"), "");
    }

    #[test]
    fn this_machine_is_an_origin() {
        let (first, again) = (origin(&Folder::live(), 7), origin(&Folder::live(), 7));
        assert_eq!(first.at, 7);
        assert!(!first.kernel.is_empty() && first.cpus > 0);
        assert!(first.settings.contains_key("net.ipv4.udp_mem"), "{:?}", first.settings);
        assert!(!first.settings.keys().any(|name| name.starts_with(OF_INTERFACES)));
        assert_eq!(first.settings, again.settings);
    }
}
