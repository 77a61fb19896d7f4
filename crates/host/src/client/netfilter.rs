//! Base chains of nftables, and whether system calls are audited.

use udpath_netlink::{Answers, Error, Writer, netfilter};

use super::Client;
use crate::snapshot::kernel::AuditStatus;
use crate::snapshot::netfilter::NftChain;

/// Families of linux/netfilter.h by number, with nft(8)'s names.
pub(crate) const FAMILIES: [(u8, &str); 6] =
    [(1, "inet"), (2, "ip"), (3, "arp"), (5, "netdev"), (7, "bridge"), (10, "ip6")];
/// The family of per-device hooks.
pub(super) const NETDEV: u8 = 5;
/// Hooks by number: of `netdev`, and of all others (`NF_INET_*`).
pub(super) const DEVICE_HOOKS: [&str; 2] = ["ingress", "egress"];
const HOOKS: [&str; 6] = ["prerouting", "input", "forward", "output", "postrouting", "ingress"];

impl Client {
    pub(super) fn nft_chains(&mut self) -> Result<Vec<NftChain>, Error> {
        Ok(self.netfilter()?.chains()?.into_iter().filter_map(chain).collect())
    }

    /// Requests a list of nftables objects; `body` excludes its header.
    pub(crate) fn nft_list(&mut self, message: u16, family: u8, body: &Writer) -> Result<Answers, Error> {
        self.netfilter()?.nftables(message, family, body)
    }

    pub(super) fn audit_status(&mut self) -> Result<AuditStatus, Error> {
        let status = self.audit.as_mut().map_err(|refused| refused.clone())?.status()?;
        Ok(AuditStatus { enabled: status.enabled, pid: status.pid, lost: status.lost })
    }
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
