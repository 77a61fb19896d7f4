//! The rules of nftables in the kernel's form: expressions that load, compare and decide.
//!
//! ```text
//!  meta load l4proto => reg 1 | cmp eq reg 1 0x11 | payload load 2b @ transport + 2 => reg 1 | cmp eq reg 1 0x1b58 | drop
//!       17                      match                  7000                                    match          ─▸ applies
//! ```
//! `nft_rule.rs` evaluates a rule with the known parts of the datagram (`bits.rs`) in the registers; a comparison with
//! an unknown part may match. An unsupported expression may match too, and its name is printed.

use std::collections::BTreeMap;

use udpath_netlink::netfilter::{be32, parts};
use udpath_netlink::numbers::*;
use udpath_netlink::{Error, Writer};

use super::Datagram;
use super::chain::{Chain, Finding, Table};
use super::nft_rule::{Evaluation, RawRule, rule};
use super::nft_set::{DROP, Element, elements};
use crate::client::Client;
use crate::client::netfilter::FAMILIES;

/// Families of linux/netfilter.h.
const INET: u8 = 1;
const IPV4: u8 = 2;
const NETDEV: u8 = 5;
const BRIDGE: u8 = 7;
const IPV6: u8 = 10;
/// Hooks that a received datagram passes, in order: of devices; of the others.
const DEVICE_INGRESS: u32 = 0;
const PREROUTING: u32 = 0;
const INPUT: u32 = 1;
const INGRESS: u32 = 5;
/// `NFT_TABLE_F_DORMANT`: the table's chains are not hooked.
const DORMANT: u32 = 1;

/// The whole ruleset.
#[derive(Debug, Default)]
pub(super) struct Ruleset {
    /// Dormant tables.
    dormant: Vec<(u8, String)>,
    chains: Vec<RawChain>,
    rules: Vec<RawRule>,
    sets: BTreeMap<(u8, String, String), Option<Vec<Element>>>,
}

#[derive(Debug)]
struct RawChain {
    family: u8,
    table: String,
    name: String,
    hook: Option<Hook>,
    drops: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Hook {
    number: u32,
    priority: i32,
    devices: Vec<String>,
}

impl Ruleset {
    /// Reads all chains and rules; sets are read when a rule needs them.
    pub(super) fn read(client: &mut Client) -> Result<Self, Error> {
        let mut list = |message| client.nft_list(message, 0, &Writer::default());
        let dormant = |body| {
            let (family, is) = parts(body)?;
            let asleep = be32(is, NFTA_TABLE_FLAGS).is_some_and(|flags| flags & DORMANT != 0);
            Some((family, is.text(NFTA_TABLE_NAME)?)).filter(|_| asleep)
        };
        let dormant = list(NFT_MSG_GETTABLE)?.bodies().filter_map(dormant).collect();
        let chains = list(NFT_MSG_GETCHAIN)?.bodies().filter_map(chain).collect();
        let rules = list(NFT_MSG_GETRULE)?.bodies().filter_map(rule).collect();
        Ok(Self { dormant, chains, rules, sets: BTreeMap::new() })
    }

    /// What would have applied to the datagram, in evaluation order.
    pub(super) fn judged(&mut self, client: &mut Client, datagram: &Datagram) -> Vec<Finding> {
        let mut bases: Vec<_> = (0..self.chains.len())
            .filter_map(|index| Some((self.chains[index].met_by(datagram)?, index)))
            .collect();
        bases.sort_unstable();
        let mut found = Vec::new();
        for (_, index) in bases {
            let base = &self.chains[index];
            let (family, table, name, drops) =
                (base.family, base.table.clone(), base.name.clone(), base.drops);
            if self.dormant.contains(&(family, table.clone())) {
                continue;
            }
            let chains = self.table(client, family, &table, datagram);
            let named = FAMILIES.iter().find(|(number, _)| *number == family).map_or("?", |(_, name)| *name);
            let chains = chains.iter().map(|(name, chain)| (name.as_str(), chain.clone())).collect();
            let table = Table { filter: "nftables", name: format!("{named} {table}"), chains };
            found.extend(table.walked(&name, drops));
        }
        found
    }

    /// The chains of a table with their rules evaluated.
    fn table(
        &mut self,
        client: &mut Client,
        family: u8,
        table: &str,
        datagram: &Datagram,
    ) -> BTreeMap<String, Chain> {
        let mut chains: BTreeMap<String, Chain> = BTreeMap::new();
        let Self { rules, sets, .. } = self;
        for rule in rules.iter().filter(|rule| rule.family == family && rule.table == table) {
            let mut look_up = |set: &str| {
                let key = (family, table.to_owned(), set.to_owned());
                sets.entry(key).or_insert_with(|| elements(client, family, table, set)).clone()
            };
            let judged = Evaluation::new(datagram).run(rule, &mut look_up);
            chains.entry(rule.chain.clone()).or_default().rules.extend(judged);
        }
        chains
    }
}

impl RawChain {
    /// The position at which the datagram passes this chain; [`None`] if it does not.
    fn met_by(&self, datagram: &Datagram) -> Option<(u32, i32)> {
        let hook = self.hook.as_ref()?;
        let own = if datagram.address.is_ipv4() { IPV4 } else { IPV6 };
        let here = || hook.devices.contains(&datagram.interface);
        let stage = match (self.family, hook.number) {
            (NETDEV, DEVICE_INGRESS) | (INET, INGRESS) if here() => 0,
            (BRIDGE, PREROUTING) if datagram.bridged => 1,
            (BRIDGE, INPUT) if datagram.bridged => 2,
            (family, PREROUTING) if family == INET || family == own => 3,
            (family, INPUT) if family == INET || family == own => 4,
            _ => return None,
        };
        Some((stage, hook.priority))
    }
}

fn chain(body: &[u8]) -> Option<RawChain> {
    let (family, is) = parts(body)?;
    let hook = is.nested(NFTA_CHAIN_HOOK);
    let devices = || {
        let one = hook.text(NFTA_HOOK_DEV);
        let several = hook.nested(NFTA_HOOK_DEVS);
        let several = several.iter().filter(|(kind, _)| *kind == NFTA_DEVICE_NAME).map(|(_, name)| {
            String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
        });
        one.into_iter().chain(several).collect()
    };
    let number = be32(hook, NFTA_HOOK_HOOKNUM);
    Some(RawChain {
        family,
        table: is.text(NFTA_CHAIN_TABLE)?,
        name: is.text(NFTA_CHAIN_NAME)?,
        hook: number.map(|number| Hook {
            number,
            priority: be32(hook, NFTA_HOOK_PRIORITY).unwrap_or(0).cast_signed(),
            devices: devices(),
        }),
        drops: be32(is, NFTA_CHAIN_POLICY).map(u32::cast_signed) == Some(DROP),
    })
}

#[cfg(test)]
#[path = "nft_tests.rs"]
mod tests;
