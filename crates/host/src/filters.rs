//! Packet filters bypassed by traffic taken off a device's queue: which of their rules would have applied.
//!
//! ```text
//!  nf_tables (netlink)  ─▸ nft.rs      ┐  every rule evaluated for one datagram:
//!  ip_tables, ip6_tables ─▸ xtables.rs ┴▸ applies, may apply, does not ─▸ chain.rs walks the chains ─▸ Bypassed
//!  other functions at the hooks (BPF programs, IPVS): by name alone
//! ```
//! The datagram under evaluation is described by what XDP matches on: interface, IP version, UDP, destination address
//! and port, unfragmented. A rule that matches on anything else (the source, connection tracking, a rate) may apply. So
//! may a rule whose condition cannot be decoded; it is never left out.
//!
//! iptables tables are read only if they already exist: reading one makes the kernel load it.

mod bits;
mod chain;
mod nft;
mod nft_rule;
mod nft_set;
mod nft_text;
mod sys;
mod xtables;
mod xtables_match;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use udpath_files::kernel;

use crate::Absence;
use crate::client::Client;
use crate::source::{Answer, Question};

use chain::Finding;

/// Datagrams taken before any filter sees them: on this interface, for this address. A wildcard address covers every
/// address of the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taken {
    /// The interface's name.
    pub interface: String,
    /// The address served.
    pub address: SocketAddr,
}

/// A rule, a chain's policy or another function of a packet filter that would have applied.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Bypassed {
    /// `nftables`, `iptables`, `ip6tables`, or `hook` for a function outside any table.
    pub filter: &'static str,
    /// Where it is: `inet filter input`, `filter INPUT`.
    pub chain: String,
    /// The rule in its tool's syntax, as far as it was decoded; `policy drop`.
    pub rule: String,
    /// The nft(8) handle of the rule (`nft -a list ruleset`).
    pub handle: Option<u64>,
    /// True if it applies to every such datagram that reaches its base chain; false if it applies to some or is
    /// undecidable.
    pub certain: bool,
    /// The interface they arrive on.
    pub interface: String,
    /// Their destination addresses.
    pub addresses: Vec<SocketAddr>,
}

/// Result of the evaluation.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Filters {
    /// In the order in which datagrams would have passed them, by interface.
    pub bypassed: Vec<Bypassed>,
    /// What could not be read, in sentences.
    pub unread: Vec<String>,
}

/// One datagram under evaluation.
#[derive(Debug, Clone)]
struct Datagram {
    interface: String,
    /// The interface's index; unknown, like its name in rules, if the kernel passes received packets on to another
    /// device such as a bond.
    index: Option<u32>,
    address: SocketAddr,
    /// Whether the interface is a bridge port.
    bridged: bool,
}

impl Datagram {
    /// The address; `None` for every address of the host.
    fn ip(&self) -> Option<IpAddr> {
        Some(self.address.ip()).filter(|ip| !ip.is_unspecified())
    }

    fn new(taken: &Taken) -> Self {
        let folder = Path::new("/sys/class/net").join(&taken.interface);
        let under_another = udpath_files::names(&folder, udpath_files::MAX_NAMES)
            .is_ok_and(|names| names.iter().any(|name| name.as_encoded_bytes().starts_with(b"upper_")));
        let index = kernel::text(folder.join("ifindex")).ok();
        let index = index.and_then(|text| text.trim().parse().ok()).filter(|_| !under_another);
        let bridged = folder.join("brport").exists();
        Self { interface: taken.interface.clone(), index, address: taken.address, bridged }
    }
}

/// Reads the filters of the calling thread's network namespace and evaluates them for the given traffic. Needs
/// CAP_NET_ADMIN.
#[must_use]
pub fn bypassed(taken: &[Taken]) -> Filters {
    bypassed_by(&mut Client::open(), taken)
}

fn bypassed_by(client: &mut Client, taken: &[Taken]) -> Filters {
    let mut filters = Filters::default();
    let mut nftables = match nft::Ruleset::read(client) {
        Ok(ruleset) => ruleset,
        Err(refused) => {
            if refused.errno != Some(libc::EOPNOTSUPP) {
                filters.unread.push(format!("cannot read the rules of nftables: {}", refused.why()));
            }
            nft::Ruleset::default()
        }
    };
    let mut tables = Vec::new();
    for version in [xtables::Version::V4, xtables::Version::V6] {
        match xtables::read(version) {
            Ok(read) => tables.extend(read),
            Err(why) => filters.unread.push(why),
        }
    }
    let hooks = other_functions(client, &mut filters.unread);
    for taken in taken {
        let datagram = Datagram::new(taken);
        let mut found = nftables.judged(client, &datagram);
        found.extend(tables.iter().flat_map(|table| table.judged(&datagram)));
        found.extend(hooks.iter().filter(|hook| hook.sees(&datagram)).map(Function::finding));
        for finding in found {
            merge(&mut filters.bypassed, finding, &datagram);
        }
    }
    filters
}

/// Adds a finding, or adds its address to an existing equal finding.
fn merge(all: &mut Vec<Bypassed>, finding: Finding, datagram: &Datagram) {
    let Finding { filter, chain, rule, handle, certain } = finding;
    let bypassed = Bypassed {
        filter,
        chain,
        rule,
        handle,
        certain,
        interface: datagram.interface.clone(),
        addresses: Vec::new(),
    };
    let same = |known: &&mut Bypassed| Bypassed { addresses: Vec::new(), ..(**known).clone() } == bypassed;
    match all.iter_mut().find(same) {
        Some(known) => known.addresses.push(datagram.address),
        None => all.push(Bypassed { addresses: vec![datagram.address], ..bypassed }),
    }
}

/// A function at a hook that does not belong to a chain: a BPF program, IPVS.
#[derive(Debug)]
struct Function {
    family: String,
    hook: String,
    device: Option<String>,
    name: String,
}

impl Function {
    fn sees(&self, datagram: &Datagram) -> bool {
        let family = if datagram.address.is_ipv4() { "ip" } else { "ip6" };
        match &self.device {
            Some(device) => *device == datagram.interface,
            None => self.family == family,
        }
    }

    fn finding(&self) -> Finding {
        Finding {
            filter: "hook",
            chain: format!("{} {}", self.family, self.hook),
            rule: self.name.clone(),
            handle: None,
            certain: false,
        }
    }
}

/// The other functions at the hooks that a received datagram passes.
fn other_functions(client: &mut Client, unread: &mut Vec<String>) -> Vec<Function> {
    let hooks = match client.ask(&Question::NetfilterHooks).map(|fact| fact.value) {
        Ok(Answer::NetfilterHooks(hooks)) => hooks,
        // An older kernel does not list functions, but does list rules.
        Ok(_) | Err(Absence::NotSupported | Absence::NotThere) => return Vec::new(),
        Err(why) => {
            unread.push(format!("cannot read the netfilter hooks: {why}"));
            return Vec::new();
        }
    };
    let received = ["ingress", "prerouting", "input"];
    let mut seen = BTreeMap::new();
    for hook in hooks.into_iter().filter(|hook| received.contains(&hook.hook.as_str())) {
        let function = hook.function.as_deref().unwrap_or_default();
        let name = match hook.program {
            Some(id) => format!("BPF program {id}"),
            None if function.starts_with("ip_vs_") => "IPVS".to_owned(),
            None => continue,
        };
        let key = (hook.family.clone(), hook.hook.clone(), hook.device.clone(), name.clone());
        seen.entry(key).or_insert(Function {
            family: hook.family,
            hook: hook.hook,
            device: hook.device,
            name,
        });
    }
    seen.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_nftables_has_no_rules_that_could_not_be_read() {
        let taken = Taken { interface: "lo".into(), address: "127.0.0.1:7000".parse().unwrap() };
        let Filters { bypassed, unread } = bypassed_by(&mut Client::without_netfilter(), &[taken]);
        assert!(!bypassed.iter().any(|found| found.filter == "nftables"), "{bypassed:?}");
        let told = |what: &str| unread.iter().any(|line| line.contains(what));
        assert!(!told("nftables") && !told("netfilter hooks"), "{unread:?}");
    }
}
