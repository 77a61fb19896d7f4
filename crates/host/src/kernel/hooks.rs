//! Functions that packet filters have hooked into the way of packets: nfnetlink_hook, since Linux 5.14.
//!
//! ```text
//!  request   family in nfgenmsg, NFNLA_HOOK_HOOKNUM, NFNLA_HOOK_DEV of a device's hooks
//!  answers   one for each function: priority, function, module, chain of nftables or program
//! ```
//! Numbers are in the network's order. The kernel lists one hook of one family at a time.

use udpath_netlink::numbers::{
    NFNLA_CHAIN_FAMILY, NFNLA_CHAIN_NAME, NFNLA_CHAIN_TABLE, NFNLA_HOOK_BPF_ID, NFNLA_HOOK_CHAIN_INFO,
    NFNLA_HOOK_DEV, NFNLA_HOOK_FUNCTION_NAME, NFNLA_HOOK_HOOKNUM, NFNLA_HOOK_INFO_DESC, NFNLA_HOOK_INFO_TYPE,
    NFNLA_HOOK_MODULE_NAME, NFNLA_HOOK_PRIORITY,
};
use udpath_netlink::{Attributes, Error, Writer};

use super::Kernel;
use super::netfilter::{DEVICE_HOOKS, FAMILIES, HOOKS, NFGENMSG, unsupported};
use crate::snapshot::netfilter::{Hook, HookChain};

/// `NFNL_SUBSYS_HOOK` of linux/netfilter/nfnetlink.h, and `NFNL_MSG_HOOK_GET` of linux/netfilter/nfnetlink_hook.h.
const HOOK: u16 = 12;
const GET: u16 = 0;
/// What a description is of (`enum nfnl_hook_chaintype`); a flow table's is like a chain's.
const CHAIN: u32 = 1;
const PROGRAM: u32 = 2;
const FLOW_TABLE: u32 = 3;
/// Families whose hooks UDP's packets meet, by their numbers, and how many hooks each has.
const ASKED: [(u8, usize); 3] = [(2, 5), (10, 5), (7, 5)];
/// The family of a device's own hooks.
const NETDEV: u8 = 5;

impl Kernel {
    pub(super) fn netfilter_hooks(&mut self) -> Result<Vec<Hook>, Error> {
        let mut found = Vec::new();
        for (family, hooks) in ASKED {
            for number in 0..hooks {
                match self.hooks(family, number, None) {
                    Ok(more) => found.extend(more),
                    // A kernel without bridges' filtering, or without IPv6.
                    Err(refused) if family != 2 && refused.errno == Some(libc::EOPNOTSUPP) => {}
                    Err(refused) => return Err(refused),
                }
            }
        }
        let devices: Vec<String> = self.links()?.into_iter().map(|link| link.name).collect();
        for device in devices {
            for number in 0..DEVICE_HOOKS.len() {
                match self.hooks(NETDEV, number, Some(&device)) {
                    Ok(more) => found.extend(more),
                    // It has gone, or this kernel has no such hook.
                    Err(refused) if matches!(refused.errno, Some(libc::ENODEV | libc::EOPNOTSUPP)) => {}
                    Err(refused) => return Err(refused),
                }
            }
        }
        Ok(found)
    }

    /// The functions at one hook, in the order in which packets meet them.
    fn hooks(&mut self, family: u8, number: usize, device: Option<&str>) -> Result<Vec<Hook>, Error> {
        let mut request = Writer::after(&[family, 0, 0, 0]);
        let wire = u32::try_from(number).map_err(Error::other)?;
        request.bytes(NFNLA_HOOK_HOOKNUM, &wire.to_be_bytes());
        if let Some(device) = device {
            request.text(NFNLA_HOOK_DEV, device);
        }
        let socket = self.netfilter.as_mut().map_err(|refused| refused.clone())?;
        let answers = socket.dump(HOOK << 8 | GET, &request.finish()).map_err(unsupported)?;
        Ok(answers.bodies().filter_map(|body| hook(body, number, device)).collect())
    }
}

/// One function.
fn hook(body: &[u8], number: usize, device: Option<&str>) -> Option<Hook> {
    let (fixed, rest) = body.split_at_checked(NFGENMSG)?;
    let is = Attributes::new(rest);
    let hooks: &[&str] = if fixed[0] == NETDEV { &DEVICE_HOOKS } else { &HOOKS };
    let word = |of: Attributes<'_>, kind| Some(u32::from_be_bytes(of.bytes(kind)?.try_into().ok()?));
    let kind = word(is.nested(NFNLA_HOOK_CHAIN_INFO), NFNLA_HOOK_INFO_TYPE);
    let info = is.nested(NFNLA_HOOK_CHAIN_INFO).nested(NFNLA_HOOK_INFO_DESC);
    let chain = || {
        // One byte of the kernel's today; a word in the network's order would end in it.
        let family = info.bytes(NFNLA_CHAIN_FAMILY)?.iter().copied().find(|byte| *byte != 0)?;
        Some(HookChain {
            family: named(family),
            table: info.text(NFNLA_CHAIN_TABLE)?,
            name: info.text(NFNLA_CHAIN_NAME)?,
        })
    };
    Some(Hook {
        family: named(fixed[0]),
        hook: (*hooks.get(number)?).to_owned(),
        device: device.map(str::to_owned),
        priority: word(is, NFNLA_HOOK_PRIORITY)?.cast_signed(),
        function: is.text(NFNLA_HOOK_FUNCTION_NAME),
        module: is.text(NFNLA_HOOK_MODULE_NAME),
        chain: if matches!(kind, Some(CHAIN | FLOW_TABLE)) { chain() } else { None },
        program: if kind == Some(PROGRAM) { word(info, NFNLA_HOOK_BPF_ID) } else { None },
    })
}

fn named(family: u8) -> String {
    let known = FAMILIES.iter().find(|(number, _)| *number == family);
    known.map_or_else(|| format!("family {family}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(family: u8, fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut body = Writer::after(&[family, 0, 0, 0]);
        body.bytes(NFNLA_HOOK_PRIORITY, &(-200_i32).to_be_bytes());
        fill(&mut body);
        body.finish()
    }

    #[test]
    fn functions_chains_and_programs() {
        let body = answer(2, |body| {
            body.text(NFNLA_HOOK_FUNCTION_NAME, "ipv4_conntrack_in")
                .text(NFNLA_HOOK_MODULE_NAME, "nf_conntrack");
        });
        let found = hook(&body, 0, None).unwrap();
        assert_eq!((found.family.as_str(), found.hook.as_str(), found.priority), ("ip", "prerouting", -200));
        assert_eq!(
            (found.function.as_deref(), found.module.as_deref()),
            (Some("ipv4_conntrack_in"), Some("nf_conntrack"))
        );
        assert_eq!((found.chain, found.program), (None, None));
        let body = answer(5, |body| {
            body.text(NFNLA_HOOK_FUNCTION_NAME, "nft_do_chain_netdev").nest(NFNLA_HOOK_CHAIN_INFO, |info| {
                info.bytes(NFNLA_HOOK_INFO_TYPE, &1_u32.to_be_bytes()).nest(NFNLA_HOOK_INFO_DESC, |chain| {
                    chain.bytes(NFNLA_CHAIN_FAMILY, &[5, 0, 0, 0]);
                    chain.text(NFNLA_CHAIN_TABLE, "guard").text(NFNLA_CHAIN_NAME, "early");
                });
            });
        });
        let found = hook(&body, 0, Some("eth0")).unwrap();
        assert_eq!((found.hook.as_str(), found.device.as_deref()), ("ingress", Some("eth0")));
        let chain = HookChain { family: "netdev".into(), table: "guard".into(), name: "early".into() };
        assert_eq!((found.chain, found.program), (Some(chain), None));
        let body = answer(10, |body| {
            body.nest(NFNLA_HOOK_CHAIN_INFO, |info| {
                info.bytes(NFNLA_HOOK_INFO_TYPE, &2_u32.to_be_bytes()).nest(
                    NFNLA_HOOK_INFO_DESC,
                    |program| {
                        program.bytes(NFNLA_HOOK_BPF_ID, &77_u32.to_be_bytes());
                    },
                );
            });
        });
        let found = hook(&body, 1, None).unwrap();
        assert_eq!((found.family.as_str(), found.hook.as_str(), found.program), ("ip6", "input", Some(77)));
        assert_eq!(hook(&body, 9, None), None);
    }

    #[test]
    fn this_kernel_answers_or_says_why_not() {
        match Kernel::open().netfilter_hooks() {
            Ok(hooks) => assert!(hooks.iter().all(|hook| !hook.family.is_empty())),
            Err(refused) => {
                let why_not = [libc::EOPNOTSUPP, libc::EPERM];
                assert!(refused.errno.is_some_and(|errno| why_not.contains(&errno)), "{refused:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), number in 0_usize..7) {
            let _ = hook(&bytes, number, None);
        }
    }
}
