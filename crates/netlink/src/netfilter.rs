//! nfnetlink: nftables, and the functions hooked into the path of packets (nfnetlink_hook, since Linux 5.14).
//!
//! ```text
//!  chains      NFT_MSG_GETCHAIN: all chains of nftables; those with a hook see packets themselves
//!   hooks       family, number of the hook, device --> each function there, in the order in which packets reach it
//!  nftables    any other list of nftables, for readers that evaluate rules
//! ```
//! Numbers are in the network's order. Every body begins with `struct nfgenmsg`: family, version, resource.

use crate::attribute::{Attributes, Writer};
use crate::error::Error;
use crate::numbers::*;
use crate::socket::{Answers, Protocol, Socket};

/// `NFNL_SUBSYS_NFTABLES` and `NFNL_SUBSYS_HOOK` of linux/netfilter/nfnetlink.h: the upper byte of a message's type.
const NFTABLES: u16 = 10;
const HOOK: u16 = 12;
/// `NFNL_MSG_HOOK_GET` of linux/netfilter/nfnetlink_hook.h.
const HOOK_GET: u16 = 0;
/// Bytes of `struct nfgenmsg`.
const FIXED: usize = 4;
/// Subject of a description (`enum nfnl_hook_chaintype`); a flow table's is like a chain's.
const CHAIN: u32 = 1;
const PROGRAM: u32 = 2;
const FLOW_TABLE: u32 = 3;

/// A chain of nftables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// `NFPROTO_*` of linux/netfilter.h.
    pub family: u8,
    /// Its table's name.
    pub table: String,
    /// Its name.
    pub name: String,
    /// `filter`, `nat`, `route`.
    pub kind: String,
    /// Number and priority of the hook that it is attached to; `None` if only rules jump to it.
    pub hook: Option<(u32, i32)>,
    /// Number of its rules.
    pub rules: u32,
}

/// A function at a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// `NFPROTO_*` of linux/netfilter.h.
    pub family: u8,
    /// Lower comes first.
    pub priority: i32,
    /// The function's name.
    pub function: Option<String>,
    /// The module it belongs to.
    pub module: Option<String>,
    /// What it runs.
    pub runs: Option<Runs>,
}

/// What a hooked function runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runs {
    /// A chain of nftables, or a flow table: family, table and name.
    Chain(u8, String, String),
    /// A BPF program, by its id.
    Program(u32),
}

/// A socket to nfnetlink of one network namespace.
#[derive(Debug)]
pub struct Nfnetlink(Socket);

impl Nfnetlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// As [`Socket::open`].
    pub fn open() -> Result<Self, Error> {
        Ok(Self(Socket::open(Protocol::Netfilter)?))
    }

    /// A list of nftables (`NFT_MSG_GET*`) of a family; 0: of all. `body`: attributes that filter the list.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel lacks nftables, `EPERM` without CAP_NET_ADMIN.
    pub fn nftables(&mut self, message: u16, family: u8, body: &Writer) -> Result<Answers, Error> {
        let request = [&[family, 0, 0, 0], body.written()].concat();
        self.0.dump(NFTABLES << 8 | message, &request).map_err(unsupported)
    }

    /// All chains of nftables.
    ///
    /// # Errors
    /// As [`nftables`](Self::nftables).
    pub fn chains(&mut self) -> Result<Vec<Chain>, Error> {
        let answers = self.nftables(NFT_MSG_GETCHAIN, 0, &Writer::default())?;
        Ok(answers.bodies().filter_map(chain).collect())
    }

    /// The functions at hook `number` of a family, in the order in which packets reach them. `device`: for a device's
    /// own hooks.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel does not list hooks or lacks this one, `ENODEV` if the device does not exist,
    /// `EPERM` without CAP_NET_ADMIN.
    pub fn hooks(&mut self, family: u8, number: u32, device: Option<&str>) -> Result<Vec<Hook>, Error> {
        let mut request = Writer::after(&[family, 0, 0, 0]);
        request.bytes(NFNLA_HOOK_HOOKNUM, &number.to_be_bytes());
        if let Some(device) = device {
            request.text(NFNLA_HOOK_DEV, device);
        }
        let answers = self.0.dump(HOOK << 8 | HOOK_GET, &request.finish()).map_err(unsupported)?;
        Ok(answers.bodies().filter_map(hook).collect())
    }
}

/// Family and attributes of a message's body; `None` if it is malformed.
#[must_use]
pub fn parts(body: &[u8]) -> Option<(u8, Attributes<'_>)> {
    let (fixed, rest) = body.split_at_checked(FIXED)?;
    Some((fixed[0], Attributes::new(rest)))
}

/// A number of four bytes in the network's order.
#[must_use]
pub fn be32(of: Attributes<'_>, kind: u16) -> Option<u32> {
    Some(u32::from_be_bytes(of.bytes(kind)?.try_into().ok()?))
}

/// A kernel without the subsystem does not know the message, or has no listener for it.
pub(crate) fn unsupported(error: Error) -> Error {
    match error.errno {
        Some(libc::EINVAL | libc::ECONNREFUSED | libc::EPROTONOSUPPORT) => {
            Error { errno: Some(libc::EOPNOTSUPP), ..error }
        }
        _ => error,
    }
}

fn chain(body: &[u8]) -> Option<Chain> {
    let (family, is) = parts(body)?;
    let hook = is.nested(NFTA_CHAIN_HOOK);
    let place = || Some((be32(hook, NFTA_HOOK_HOOKNUM)?, be32(hook, NFTA_HOOK_PRIORITY)?.cast_signed()));
    Some(Chain {
        family,
        table: is.text(NFTA_CHAIN_TABLE)?,
        name: is.text(NFTA_CHAIN_NAME)?,
        kind: is.text(NFTA_CHAIN_TYPE).unwrap_or_default(),
        hook: place(),
        rules: be32(is, NFTA_CHAIN_USE).unwrap_or(0),
    })
}

fn hook(body: &[u8]) -> Option<Hook> {
    let (family, is) = parts(body)?;
    let kind = be32(is.nested(NFNLA_HOOK_CHAIN_INFO), NFNLA_HOOK_INFO_TYPE);
    let info = is.nested(NFNLA_HOOK_CHAIN_INFO).nested(NFNLA_HOOK_INFO_DESC);
    let chain = || {
        // One byte today; a word in the network's order would end in it.
        let family = info.bytes(NFNLA_CHAIN_FAMILY)?.iter().copied().find(|byte| *byte != 0)?;
        Some(Runs::Chain(family, info.text(NFNLA_CHAIN_TABLE)?, info.text(NFNLA_CHAIN_NAME)?))
    };
    Some(Hook {
        family,
        priority: be32(is, NFNLA_HOOK_PRIORITY)?.cast_signed(),
        function: is.text(NFNLA_HOOK_FUNCTION_NAME),
        module: is.text(NFNLA_HOOK_MODULE_NAME),
        runs: match kind {
            Some(CHAIN | FLOW_TABLE) => chain(),
            Some(PROGRAM) => be32(info, NFNLA_HOOK_BPF_ID).map(Runs::Program),
            _ => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn chains_with_and_without_a_hook() {
        let body = |hook: Option<(u32, i32)>| {
            let mut body = Writer::after(&[1, 0, 0, 0]);
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
        let base = chain(&body(Some((1, -300)))).unwrap();
        assert_eq!((base.family, base.hook, base.rules), (1, Some((1, -300)), 7));
        assert_eq!(chain(&body(None)).unwrap().hook, None);
    }

    #[test]
    fn functions_chains_and_programs() {
        let answer = |family: u8, fill: &dyn Fn(&mut Writer)| {
            let mut body = Writer::after(&[family, 0, 0, 0]);
            body.bytes(NFNLA_HOOK_PRIORITY, &(-200_i32).to_be_bytes());
            fill(&mut body);
            hook(&body.finish()).unwrap()
        };
        let found = answer(2, &|body| {
            body.text(NFNLA_HOOK_FUNCTION_NAME, "ipv4_conntrack_in")
                .text(NFNLA_HOOK_MODULE_NAME, "nf_conntrack");
        });
        assert_eq!((found.family, found.priority, found.runs), (2, -200, None));
        assert_eq!(
            (found.function.as_deref(), found.module.as_deref()),
            (Some("ipv4_conntrack_in"), Some("nf_conntrack"))
        );
        let found = answer(5, &|body| {
            body.text(NFNLA_HOOK_FUNCTION_NAME, "nft_do_chain_netdev").nest(NFNLA_HOOK_CHAIN_INFO, |info| {
                info.bytes(NFNLA_HOOK_INFO_TYPE, &1_u32.to_be_bytes()).nest(NFNLA_HOOK_INFO_DESC, |chain| {
                    chain.bytes(NFNLA_CHAIN_FAMILY, &[5, 0, 0, 0]);
                    chain.text(NFNLA_CHAIN_TABLE, "guard").text(NFNLA_CHAIN_NAME, "early");
                });
            });
        });
        assert_eq!(found.runs, Some(Runs::Chain(5, "guard".into(), "early".into())));
        let found = answer(10, &|body| {
            body.nest(NFNLA_HOOK_CHAIN_INFO, |info| {
                info.bytes(NFNLA_HOOK_INFO_TYPE, &2_u32.to_be_bytes()).nest(
                    NFNLA_HOOK_INFO_DESC,
                    |program| {
                        program.bytes(NFNLA_HOOK_BPF_ID, &77_u32.to_be_bytes());
                    },
                );
            });
        });
        assert_eq!(found.runs, Some(Runs::Program(77)));
    }

    #[test]
    fn this_kernel_answers_or_says_why_not() {
        let why_not = [libc::EOPNOTSUPP, libc::EPERM];
        let mut nfnetlink = Nfnetlink::open().unwrap();
        let refused = [nfnetlink.chains().err(), nfnetlink.hooks(2, 0, None).err()];
        for error in refused.into_iter().flatten() {
            assert!(error.errno.is_some_and(|errno| why_not.contains(&errno)), "{error:?}");
        }
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..160)) {
            let _ = (chain(&bytes), hook(&bytes));
        }
    }
}
