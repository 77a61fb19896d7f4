//! Base chains of nftables.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use udpath_netlink::{Error, Nfnetlink, netfilter};

/// A base chain of nftables.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NftChain {
    /// `ip`, `ip6`, `inet`, `netdev`, ...
    pub family: String,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// `filter`, `nat`, `route`.
    #[serde(default)]
    pub kind: String,
    /// Its hook: `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress`, `egress`.
    pub hook: String,
    /// Chains of a hook run in ascending order. -300 is before connection tracking, 0 is filtering.
    pub priority: i32,
    /// Number of rules in it, and of jumps to it.
    pub rules: u32,
}

/// Families of linux/netfilter.h by number, with nft(8)'s names.
pub(crate) const FAMILIES: [(u8, &str); 6] =
    [(1, "inet"), (2, "ip"), (3, "arp"), (5, "netdev"), (7, "bridge"), (10, "ip6")];
/// The family of per-device hooks.
pub(super) const NETDEV: u8 = 5;
/// Hooks by number: of `netdev`, and of all others (`NF_INET_*`).
pub(super) const DEVICE_HOOKS: [&str; 2] = ["ingress", "egress"];
const HOOKS: [&str; 6] = ["prerouting", "input", "forward", "output", "postrouting", "ingress"];

/// Reads all base chains.
pub(super) fn chains(netfilter: &mut Nfnetlink) -> Result<Vec<NftChain>, Error> {
    Ok(netfilter.chains()?.into_iter().filter_map(chain).collect())
}

/// A family's name.
pub(super) fn family_name(family: u8) -> String {
    let known = FAMILIES.iter().find(|(number, _)| *number == family);
    known.map_or_else(|| format!("family {family}"), |(_, name)| (*name).to_owned())
}

/// The name of a family's hook; `None` if it has no hook with that number.
pub(super) fn hook_name(family: u8, number: u32) -> Option<&'static str> {
    let hooks: &[&str] = if family == NETDEV { &DEVICE_HOOKS } else { &HOOKS };
    hooks.get(usize::try_from(number).ok()?).copied()
}

/// A base chain; `None` for one that is only reached by jumps.
fn chain(is: netfilter::Chain) -> Option<NftChain> {
    let (number, priority) = is.hook?;
    let hook = hook_name(is.family, number);
    Some(NftChain {
        family: family_name(is.family),
        table: is.table,
        name: is.name,
        kind: is.kind,
        hook: hook.map_or_else(|| format!("hook {number}"), str::to_owned),
        priority,
        rules: is.rules,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_with_and_without_a_hook() {
        let read = |family, hook| {
            chain(netfilter::Chain {
                family,
                table: "filter".into(),
                name: "in".into(),
                kind: "filter".into(),
                hook,
                rules: 7,
            })
        };
        let base = read(1, Some((1, -300))).unwrap();
        assert_eq!(
            (base.family.as_str(), base.hook.as_str(), base.priority, base.rules),
            ("inet", "input", -300, 7)
        );
        let device = read(5, Some((0, 0))).unwrap();
        assert_eq!((device.family.as_str(), device.hook.as_str()), ("netdev", "ingress"));
        let unknown = read(99, Some((77, 0))).unwrap();
        assert_eq!((unknown.family.as_str(), unknown.hook.as_str()), ("family 99", "hook 77"));
        assert_eq!(read(2, None), None);
    }
}
