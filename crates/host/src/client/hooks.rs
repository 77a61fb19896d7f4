//! Functions that packet filters have registered at netfilter hooks: nfnetlink_hook, since Linux 5.14.
//!
//! The kernel lists one hook of one family at a time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_netlink::{Error, Nfnetlink, netfilter};

use super::netfilter::{DEVICE_HOOKS, NETDEV, family_name, hook_name};

/// A function that packets pass.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// `ip`, `ip6`, `bridge`, or `netdev` for a device's own.
    pub family: String,
    /// Its hook: `prerouting`, `input`, ..., `ingress`, `egress`.
    pub hook: String,
    /// The device it is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Functions of a hook are called in ascending order.
    pub priority: i32,
    /// The kernel function, if it has a symbol name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The module it is in; `None` if built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The chain of nftables that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<HookChain>,
    /// The ID of the BPF program that it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<u32>,
}

impl Hook {
    /// Whether received packets pass it on their way to sockets.
    #[must_use]
    pub fn sees_received(&self) -> bool {
        matches!(self.hook.as_str(), "ingress" | "prerouting" | "input")
    }
}

/// A chain's identity.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookChain {
    /// `ip`, `ip6`, `inet`, `netdev`, ...
    pub family: String,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
}

/// Families whose hooks UDP packets pass, by number, and the number of hooks of each.
const ASKED: [(u8, u32); 3] = [(2, 5), (10, 5), (7, 5)];

/// The functions at the hooks of the protocol families.
pub(super) fn of_families(netfilter: &mut Nfnetlink) -> Result<Vec<Hook>, Error> {
    let mut found = Vec::new();
    for (family, hooks) in ASKED {
        for number in 0..hooks {
            match at(netfilter, family, number, None) {
                Ok(more) => found.extend(more),
                // A kernel without bridge netfilter, or without IPv6.
                Err(refused) if family != 2 && refused.errno == Some(libc::EOPNOTSUPP) => {}
                Err(refused) => return Err(refused),
            }
        }
    }
    Ok(found)
}

/// The functions at the hooks of these devices.
pub(super) fn of_devices<'a>(
    netfilter: &mut Nfnetlink,
    devices: impl Iterator<Item = &'a str>,
) -> Result<Vec<Hook>, Error> {
    let mut found = Vec::new();
    for device in devices {
        for number in 0..DEVICE_HOOKS.len() as u32 {
            match at(netfilter, NETDEV, number, Some(device)) {
                Ok(more) => found.extend(more),
                // It has disappeared, or this kernel lacks the hook.
                Err(refused) if matches!(refused.errno, Some(libc::ENODEV | libc::EOPNOTSUPP)) => {}
                Err(refused) => return Err(refused),
            }
        }
    }
    Ok(found)
}

/// The functions at one hook, in the order in which packets pass them.
fn at(netfilter: &mut Nfnetlink, family: u8, number: u32, device: Option<&str>) -> Result<Vec<Hook>, Error> {
    let found = netfilter.hooks(family, number, device)?;
    Ok(found.into_iter().filter_map(|is| hook(is, number, device)).collect())
}

/// One function.
fn hook(is: netfilter::Hook, number: u32, device: Option<&str>) -> Option<Hook> {
    let (chain, program) = match is.runs {
        Some(netfilter::Runs::Chain(family, table, name)) => {
            (Some(HookChain { family: family_name(family), table, name }), None)
        }
        Some(netfilter::Runs::Program(id)) => (None, Some(id)),
        None => (None, None),
    };
    Some(Hook {
        family: family_name(is.family),
        hook: hook_name(is.family, number)?.to_owned(),
        device: device.map(str::to_owned),
        priority: is.priority,
        function: is.function,
        module: is.module,
        chain,
        program,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(family: u8, runs: Option<netfilter::Runs>) -> netfilter::Hook {
        netfilter::Hook { family, priority: -200, function: None, module: None, runs }
    }

    #[test]
    fn functions_chains_and_programs_have_names() {
        let found = hook(at(2, None), 0, None).unwrap();
        assert_eq!((found.family.as_str(), found.hook.as_str(), found.priority), ("ip", "prerouting", -200));
        assert_eq!((found.chain, found.program), (None, None));
        let chain = netfilter::Runs::Chain(5, "guard".into(), "early".into());
        let found = hook(at(5, Some(chain)), 0, Some("eth0")).unwrap();
        assert_eq!((found.hook.as_str(), found.device.as_deref()), ("ingress", Some("eth0")));
        let chain = HookChain { family: "netdev".into(), table: "guard".into(), name: "early".into() };
        assert_eq!((found.chain, found.program), (Some(chain), None));
        let program = at(10, Some(netfilter::Runs::Program(77)));
        let found = hook(program.clone(), 1, None).unwrap();
        assert_eq!((found.family.as_str(), found.hook.as_str(), found.program), ("ip6", "input", Some(77)));
        assert_eq!(hook(program, 9, None), None);
    }
}
