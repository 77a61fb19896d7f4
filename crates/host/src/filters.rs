//! Packet filters that do not see what is taken off a device's queue: which of their rules would have applied.
//!
//! ```text
//!  nf_tables (netlink)  ─▸ nft.rs      ┐  every rule judged for one datagram:
//!  ip_tables, ip6_tables ─▸ xtables.rs ┴▸ applies, may apply, does not ─▸ chain.rs walks the chains ─▸ Bypassed
//!  other functions at the hooks (BPF programs, IPVS): by name alone
//! ```
//! Judged is a datagram of which is known what XDP takes it by: interface, IP version, UDP, destination address and port,
//! whole. A rule that asks for anything else (the source, connection tracking, a rate) may apply. So does one whose
//! condition cannot be read here; it is never left out.
//!
//! Tables of iptables are read only if they are there already: asking for one makes the kernel load it.

mod bits;
mod chain;
mod nft;
mod nft_rule;
mod nft_text;
mod sys;
mod xtables;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use serde::Serialize;

use crate::Absence;
use crate::kernel::Kernel;
use crate::source::{Answer, Question};

use chain::Finding;

/// Datagrams that are taken before any filter sees them: by this interface, for this address. A wildcard address is every
/// address of the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taken {
    /// The interface's name.
    pub interface: String,
    /// The address served.
    pub address: SocketAddr,
}

/// A rule, a chain's policy or another function of a packet filter that would have applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bypassed {
    /// `nftables`, `iptables`, `ip6tables`, or `hook` for a function that is no table's.
    pub filter: &'static str,
    /// Where it is: `inet filter input`, `filter INPUT`.
    pub chain: String,
    /// The rule in the words of its tool, as far as it is understood; `policy drop`.
    pub rule: String,
    /// The number that nft(8) has for the rule (`nft -a list ruleset`).
    pub handle: Option<u64>,
    /// Whether it applies to each such datagram that comes to its base chain; otherwise to some, or that cannot be told.
    pub certain: bool,
    /// The interface by which they come.
    pub interface: String,
    /// The addresses they are for.
    pub addresses: Vec<SocketAddr>,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Filters {
    /// In the order in which datagrams would have met them, by interface.
    pub bypassed: Vec<Bypassed>,
    /// What could not be read, in sentences.
    pub unread: Vec<String>,
}

/// One datagram as it is judged.
#[derive(Debug, Clone)]
struct Datagram {
    interface: String,
    /// The interface's number; unknown, as its name is for the rules, if the kernel hands what it receives on to another, such as a bond.
    index: Option<u32>,
    address: SocketAddr,
    /// Whether the interface is a bridge's port.
    bridged: bool,
}

impl Datagram {
    /// The address, unless it is every address of the host.
    fn ip(&self) -> Option<IpAddr> {
        Some(self.address.ip()).filter(|ip| !ip.is_unspecified())
    }

    fn new(taken: &Taken) -> Self {
        let folder = Path::new("/sys/class/net").join(&taken.interface);
        let under_another = std::fs::read_dir(&folder).is_ok_and(|entries| {
            entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("upper_"))
        });
        let index = std::fs::read_to_string(folder.join("ifindex")).ok();
        let index = index.and_then(|text| text.trim().parse().ok()).filter(|_| !under_another);
        let bridged = folder.join("brport").exists();
        Self { interface: taken.interface.clone(), index, address: taken.address, bridged }
    }
}

/// Reads the filters of the calling thread's network namespace and judges them for what is taken. Needs CAP_NET_ADMIN.
#[must_use]
pub fn bypassed(taken: &[Taken]) -> Filters {
    let mut filters = Filters::default();
    let mut kernel = Kernel::open();
    let mut nftables = match nft::Ruleset::read(&mut kernel) {
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
    let hooks = other_functions(&mut kernel, &mut filters.unread);
    for taken in taken {
        let datagram = Datagram::new(taken);
        let mut found = nftables.judged(&mut kernel, &datagram);
        found.extend(tables.iter().flat_map(|table| table.judged(&datagram)));
        found.extend(hooks.iter().filter(|hook| hook.sees(&datagram)).map(Function::finding));
        for finding in found {
            merge(&mut filters.bypassed, finding, &datagram);
        }
    }
    filters
}

/// Adds a finding, or its address to the one that is there for another address.
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

/// A function at a hook that is no chain's: a BPF program, IPVS.
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

/// What else stands at the hooks that a received datagram passes.
fn other_functions(kernel: &mut Kernel, unread: &mut Vec<String>) -> Vec<Function> {
    let hooks = match kernel.ask(&Question::NetfilterHooks).map(|fact| fact.value) {
        Ok(Answer::NetfilterHooks(hooks)) => hooks,
        // An older kernel does not tell; rules it does.
        Ok(_) | Err(Absence::NotSupported | Absence::NotThere) => return Vec::new(),
        Err(why) => {
            unread.push(format!("cannot read what is hooked into the way of packets: {why:?}"));
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
