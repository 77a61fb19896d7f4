//! nftables and audit: what stands in the way of a packet and of a system call.

use udpath_netlink::numbers::{
    NFT_MSG_GETCHAIN, NFTA_CHAIN_HOOK, NFTA_CHAIN_NAME, NFTA_CHAIN_TABLE, NFTA_CHAIN_TYPE, NFTA_CHAIN_USE,
    NFTA_HOOK_HOOKNUM, NFTA_HOOK_PRIORITY,
};
use udpath_netlink::{Answers, Attributes, Error, Writer};

use super::Kernel;
use crate::snapshot::kernel::AuditStatus;
use crate::snapshot::netfilter::NftChain;

/// `NFNL_SUBSYS_NFTABLES` of linux/netfilter/nfnetlink.h: the upper byte of a message's type.
const NFTABLES: u16 = 10;
/// Bytes of `struct nfgenmsg`: family, version, resource.
pub(crate) const NFGENMSG: usize = 4;
/// `AUDIT_GET` of linux/audit.h.
const AUDIT_GET: u16 = 1000;

/// Families of linux/netfilter.h by their numbers, as nft(8) calls them.
pub(crate) const FAMILIES: [(u8, &str); 6] =
    [(1, "inet"), (2, "ip"), (3, "arp"), (5, "netdev"), (7, "bridge"), (10, "ip6")];
/// Hooks by their numbers: of `netdev`, and of all others (`NF_INET_*`).
pub(super) const DEVICE_HOOKS: [&str; 2] = ["ingress", "egress"];
pub(super) const HOOKS: [&str; 6] = ["prerouting", "input", "forward", "output", "postrouting", "ingress"];

impl Kernel {
    pub(super) fn nft_chains(&mut self) -> Result<Vec<NftChain>, Error> {
        let socket = self.netfilter.as_mut().map_err(|refused| refused.clone())?;
        let answers = socket.dump(NFTABLES << 8 | NFT_MSG_GETCHAIN, &[0; NFGENMSG]).map_err(unsupported)?;
        Ok(answers.bodies().filter_map(chain).collect())
    }

    /// What nftables lists in answer to one message; `body` without its header.
    pub(crate) fn nft_list(&mut self, message: u16, family: u8, body: &Writer) -> Result<Answers, Error> {
        let socket = self.netfilter.as_mut().map_err(|refused| refused.clone())?;
        let request = [&[family, 0, 0, 0], body.written()].concat();
        socket.dump(NFTABLES << 8 | message, &request).map_err(unsupported)
    }

    pub(super) fn audit_status(&mut self) -> Result<AuditStatus, Error> {
        let socket = self.audit.as_mut().map_err(|refused| refused.clone())?;
        let answers = socket.request_answered_later(AUDIT_GET, &[]).map_err(unsupported)?;
        let status = answers.bodies().find_map(status);
        status.ok_or_else(|| Error::other("the audit system did not answer"))
    }
}

/// A kernel without the subsystem knows no such message, or nobody listens.
pub(super) fn unsupported(refused: Error) -> Error {
    match refused.errno {
        Some(libc::EINVAL | libc::ECONNREFUSED | libc::EPROTONOSUPPORT) => {
            Error { errno: Some(libc::EOPNOTSUPP), ..refused }
        }
        _ => refused,
    }
}

/// A chain with a hook; [`None`] for one that only rules jump to. Numbers are in the network's order.
fn chain(body: &[u8]) -> Option<NftChain> {
    let (fixed, rest) = body.split_at_checked(NFGENMSG)?;
    let is = Attributes::new(rest);
    let word = |of: Attributes<'_>, kind| Some(u32::from_be_bytes(of.bytes(kind)?.try_into().ok()?));
    let hook = is.nested(NFTA_CHAIN_HOOK);
    let number = word(hook, NFTA_HOOK_HOOKNUM)?;
    let family = FAMILIES.iter().find(|(known, _)| *known == fixed[0]).map(|(_, name)| *name);
    let hooks: &[&str] = if family == Some("netdev") { &DEVICE_HOOKS } else { &HOOKS };
    let named = usize::try_from(number).ok().and_then(|at| hooks.get(at));
    Some(NftChain {
        family: family.map_or_else(|| format!("family {}", fixed[0]), str::to_owned),
        table: is.text(NFTA_CHAIN_TABLE)?,
        name: is.text(NFTA_CHAIN_NAME)?,
        kind: is.text(NFTA_CHAIN_TYPE).unwrap_or_default(),
        hook: named.map_or_else(|| format!("hook {number}"), |name| (*name).to_owned()),
        priority: word(hook, NFTA_HOOK_PRIORITY)?.cast_signed(),
        rules: word(is, NFTA_CHAIN_USE).unwrap_or(0),
    })
}

/// `struct audit_status`: mask, enabled, failure, pid, rate limit, backlog limit, lost, backlog.
fn status(body: &[u8]) -> Option<AuditStatus> {
    let word = |at: usize| Some(u32::from_ne_bytes(*body.get(4 * at..)?.first_chunk()?));
    Some(AuditStatus { enabled: word(1)?, pid: word(3)?, lost: word(6)? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn chains_with_and_without_a_hook() {
        let body = |family: u8, hook: Option<(u32, i32)>| {
            let mut body = Writer::after(&[family, 0, 0, 0]);
            body.text(NFTA_CHAIN_TABLE, "filter").text(NFTA_CHAIN_NAME, "in").text(NFTA_CHAIN_TYPE, "filter");
            body.bytes(NFTA_CHAIN_USE, &7_u32.to_be_bytes());
            if let Some((number, priority)) = hook {
                body.nest(NFTA_CHAIN_HOOK, |hook| {
                    hook.bytes(NFTA_HOOK_HOOKNUM, &number.to_be_bytes());
                    hook.bytes(NFTA_HOOK_PRIORITY, &priority.to_be_bytes());
                });
            }
            body.finish()
        };
        let base = chain(&body(1, Some((1, -300)))).unwrap();
        assert_eq!(
            (base.family.as_str(), base.hook.as_str(), base.priority, base.rules),
            ("inet", "input", -300, 7)
        );
        let device = chain(&body(5, Some((0, 0)))).unwrap();
        assert_eq!((device.family.as_str(), device.hook.as_str()), ("netdev", "ingress"));
        assert_eq!(chain(&body(2, Some((77, 0)))).unwrap().hook, "hook 77");
        assert_eq!(chain(&body(2, None)), None);
    }

    #[test]
    fn this_kernel_answers_or_says_why_not() {
        let mut kernel = Kernel::open();
        let why_not = [libc::EOPNOTSUPP, libc::EPERM];
        if let Err(refused) = kernel.nft_chains() {
            assert!(refused.errno.is_some_and(|errno| why_not.contains(&errno)), "{refused:?}");
        }
        match kernel.audit_status() {
            Ok(status) => assert!(status.enabled <= 2, "{status:?}"),
            Err(refused) => {
                assert!(refused.errno.is_some_and(|errno| why_not.contains(&errno)), "{refused:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = (chain(&bytes), status(&bytes));
        }
    }
}
